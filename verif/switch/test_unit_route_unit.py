# SPDX-License-Identifier: Apache-2.0
import random
from collections import Counter

import numpy as np
import pytest
from dysharp.golden.route import gpu_of, thresholds
from dysharp.rtl.flits import LANES
from dysharp.rtl.params import SwitchParams
from dysharp.rtl.switch.route_unit import RouteUnit
from dysharp.verif.common.sim import simulate

TARGETS = 1 << 16
EXPERTS = (1, 2, 3, 7, 8, 255, 256, 1000, 8191, 8192, 21845, 32767, 32768, 40000, 65535)


def make(lanes: int, gpus: int, ports: int) -> RouteUnit:
    return RouteUnit(SwitchParams(ports=gpus, lanes=lanes), ports)


def program(ctx, dut: RouteUnit, experts: int) -> None:
    """Set the multiples as the registers hold them: saturated to 2**16."""
    for multiple, value in zip(dut.multiples, thresholds(experts, len(dut.gpus)), strict=True):
        ctx.set(multiple, min(int(value), TARGETS))


def random_target(rng: random.Random, experts: int, gpus: int) -> int:
    """Targets at, below and above the ends of the intervals, near the last one, and any."""
    end = experts * rng.randint(0, gpus) + rng.randint(-1, 1)
    choices = (end, experts * gpus - 1, rng.randrange(TARGETS), TARGETS - 1, 0)
    target = rng.choices(choices, (6, 1, 3, 1, 1))[0]
    return min(max(target, 0), TARGETS - 1)


def check_result(ctx, dut: RouteUnit, targets: list[int], count: int, experts: int) -> bool:
    """Compare the result on the outputs; tell whether all targets exist."""
    gpus = [int(gpu) for gpu in gpu_of(np.array(targets[:count]), experts)]
    exist = [gpu < len(dut.gpus) for gpu in gpus]
    assert ctx.get(dut.bad) == (not all(exist))
    assert ctx.get(dut.gpus) == sum(1 << g for g in {g for g in gpus if g < len(dut.gpus)})
    lanes = ctx.get(dut.lanes)
    for lane in range(LANES):
        assert lanes[lane].valid == (lane < count)
        if lane < count and exist[lane]:
            assert lanes[lane].gpu == gpus[lane]
    return all(exist)


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("gpus", [2, 3, 5, 8, 32])
@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
def test_route_unit_divides(lanes: int, gpus: int, seed: int) -> None:
    rng = random.Random(seed * 10000 + lanes * 100 + gpus)
    dut = make(lanes, gpus, ports=1)
    assert dut.latency == LANES // lanes
    seen: Counter[object] = Counter()
    rounds = 6

    async def testbench(ctx):
        for experts in (*EXPERTS, rng.randint(1, TARGETS - 1), rng.randint(1, TARGETS - 1)):
            program(ctx, dut, experts)
            for _ in range(rounds):
                targets = [random_target(rng, experts, gpus) for _ in range(LANES)]
                if rng.random() < 0.3:  # a flit that is good all through
                    targets = [min(t, experts * gpus - 1, TARGETS - 1) for t in targets]
                count = rng.randint(1, LANES)
                ctx.set(dut.flit[0], sum(t << 16 * lane for lane, t in enumerate(targets)))
                ctx.set(dut.count[0], count)
                ctx.set(dut.request, 1)
                assert ctx.get(dut.grant) == 1
                await ctx.tick()
                ctx.set(dut.request, 0)
                ctx.set(dut.flit[0], rng.getrandbits(128))  # it was taken
                ctx.set(dut.count[0], rng.randint(1, LANES))
                for _ in range(dut.latency - 1):
                    assert ctx.get(dut.done) == 0
                    await ctx.tick()
                assert ctx.get(dut.done) == 1
                seen[check_result(ctx, dut, targets, count, experts)] += 1
                seen["count", count] += 1
                await ctx.tick()
                assert ctx.get(dut.done) == 0

    cycles = (len(EXPERTS) + 2) * rounds * (dut.latency + 1)
    simulate(dut, testbench, cycles=cycles)
    assert seen[True] > 10
    assert seen[False] > 10
    assert all(seen["count", count] for count in range(1, LANES + 1))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("ports", [1, 2, 3, 8])
@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
def test_route_unit_shared_by_ports(lanes: int, ports: int, seed: int) -> None:
    """Random offers: who is granted, when the result comes, and nobody waits too long."""
    rng = random.Random(seed * 1000 + lanes * 10 + ports)
    experts, gpus = 300, 5
    dut = make(lanes, gpus, ports)
    waits = [0] * ports
    grants = 0

    async def testbench(ctx):
        nonlocal grants
        program(ctx, dut, experts)
        offers: list[tuple[list[int], int] | None] = [None] * ports
        under_way: tuple[int, int, list[int], int] | None = None  # due, port, targets, count
        for cycle in range(1200):
            eager = 1.0 if cycle % 400 < 200 else 0.2
            for port in range(ports):
                if offers[port] is None and rng.random() < eager:
                    targets = [random_target(rng, experts, gpus) for _ in range(LANES)]
                    offers[port] = (targets, rng.randint(1, LANES))
                    ctx.set(dut.flit[port], sum(t << 16 * n for n, t in enumerate(targets)))
                    ctx.set(dut.count[port], offers[port][1])
            request = sum(1 << p for p in range(ports) if offers[p])
            ctx.set(dut.request, request)

            if under_way and under_way[0] == cycle:
                _, port, targets, count = under_way
                assert ctx.get(dut.done) == 1 << port
                check_result(ctx, dut, targets, count, experts)
                under_way = None
            else:
                assert ctx.get(dut.done) == 0
            grant = ctx.get(dut.grant)
            if under_way:
                assert grant == 0
            else:  # free, also in the cycle of `done`
                assert grant.bit_count() == (request != 0)
                assert grant & ~request == 0
            if grant:
                port = grant.bit_length() - 1
                under_way = (cycle + dut.latency, port, *offers[port])
                for other in range(ports):
                    waiting = other != port and offers[other] is not None
                    waits[other] = waits[other] + 1 if waiting else 0
                    assert waits[other] <= ports - 1
                offers[port] = None
                grants += 1
            await ctx.tick()

    simulate(dut, testbench, cycles=1201)
    assert grants > 300 / dut.latency


@pytest.mark.parametrize("ports", [1, 3, 8])
@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
def test_route_unit_full_rate_in_turns(lanes: int, ports: int) -> None:
    dut = make(lanes, 4, ports)
    served = []

    async def testbench(ctx):
        program(ctx, dut, 100)
        ctx.set(dut.request, -1)
        for port in range(ports):
            ctx.set(dut.count[port], 8)
        for cycle in range(6 * ports * dut.latency):
            grant = ctx.get(dut.grant)
            assert bool(grant) == (cycle % dut.latency == 0)
            if grant:
                served.append(grant.bit_length() - 1)
            await ctx.tick()

    simulate(dut, testbench, cycles=6 * ports * dut.latency + 1)
    assert served == list(range(ports)) * 6


def test_route_unit_maps_to_gpus_not_to_ports() -> None:
    dut = RouteUnit(SwitchParams(ports=6, links_per_gpu=2), 2)

    async def testbench(ctx):
        assert len(dut.gpus) == len(dut.multiples) == 3
        program(ctx, dut, 10)
        ctx.set(dut.request, 0b10)
        ctx.set(dut.flit[1], 29 << 16)
        ctx.set(dut.count[1], 2)
        await ctx.tick()
        assert ctx.get(dut.gpus) == 0b101
        assert ctx.get(dut.bad) == 0

    simulate(dut, testbench, cycles=2)
