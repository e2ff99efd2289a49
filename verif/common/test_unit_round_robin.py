# SPDX-License-Identifier: Apache-2.0
import random

import pytest
from dysharp.rtl.common.round_robin import RoundRobin
from dysharp.verif.common.sim import evaluate, raises, simulate, ticks

COUNTS = range(1, 10)


def pick(request: int, last: int, count: int) -> int:
    """Grant of a naive arbiter: the first requester behind `last`."""
    for step in range(1, count + 1):
        bit = 1 << (last + step) % count
        if request & bit:
            return bit
    return 0


@pytest.mark.parametrize("count", COUNTS)
def test_round_robin_serves_everyone_once_when_all_ask(count: int) -> None:
    dut = RoundRobin(count)

    async def testbench(ctx):
        ctx.set(dut.request, -1)
        ctx.set(dut.advance, 1)
        for n in range(3 * count):
            assert ctx.get(dut.grant) == 1 << n % count
            await ctx.tick()

    simulate(dut, testbench, cycles=3 * count + 1)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("count", COUNTS)
def test_round_robin_against_a_naive_arbiter(count: int, seed: int) -> None:
    rng = random.Random(seed * 100 + count)
    dut = RoundRobin(count)

    async def testbench(ctx):
        last = count - 1
        for _ in range(500):
            request = rng.getrandbits(count) & rng.getrandbits(count)
            advance = rng.random() < 0.7
            ctx.set(dut.advance, not advance)
            ctx.set(dut.request, request)
            grant = ctx.get(dut.grant)
            ctx.set(dut.advance, advance)
            assert ctx.get(dut.grant) == grant  # does not hang on `advance`
            assert grant == pick(request, last, count)
            await ctx.tick()
            if advance and grant:
                last = grant.bit_length() - 1

    simulate(dut, testbench, cycles=501)


@pytest.mark.parametrize("seed", [4, 5])
@pytest.mark.parametrize("count", COUNTS)
def test_round_robin_lets_nobody_wait_longer(count: int, seed: int) -> None:
    rng = random.Random(seed * 100 + count)
    dut = RoundRobin(count)
    longest = 0

    async def testbench(ctx):
        nonlocal longest
        held = 0
        waits = [0] * count
        for _ in range(800):
            # A request is held until it is granted; busier and quieter times take turns.
            held |= rng.getrandbits(count) & (rng.getrandbits(count) if rng.random() < 0.5 else -1)
            advance = rng.random() < 0.8
            ctx.set(dut.request, held)
            ctx.set(dut.advance, advance)
            grant = ctx.get(dut.grant)
            assert grant.bit_count() == (held != 0)
            assert grant & ~held == 0
            if advance:
                for n in range(count):
                    waits[n] = waits[n] + 1 if held >> n & 1 and not grant >> n & 1 else 0
                    assert waits[n] <= count - 1
                    longest = max(longest, waits[n])
                held &= ~grant
            await ctx.tick()

    simulate(dut, testbench, cycles=801)
    assert longest == count - 1


@pytest.mark.parametrize("count", COUNTS)
def test_round_robin_stays_without_advance(count: int) -> None:
    dut = RoundRobin(count)

    async def testbench(ctx):
        ctx.set(dut.request, -1)
        for n in range(count):
            ctx.set(dut.advance, 0)
            for _ in range(3):
                assert ctx.get(dut.grant) == 1 << n
                await ctx.tick()
            ctx.set(dut.advance, 1)
            await ctx.tick()

    simulate(dut, testbench, cycles=4 * count + 1)


@pytest.mark.parametrize("count", COUNTS)
def test_round_robin_advance_without_a_request_changes_nothing(count: int) -> None:
    dut = RoundRobin(count)

    async def testbench(ctx):
        ctx.set(dut.advance, 1)
        ctx.set(dut.request, 1)
        await ctx.tick()
        ctx.set(dut.request, 0)
        assert ctx.get(dut.grant) == 0
        await ticks(ctx, 2)
        ctx.set(dut.request, -1)
        assert ctx.get(dut.grant) == 1 << 1 % count
        await ctx.tick()

    simulate(dut, testbench, cycles=5)


def test_round_robin_of_one_grants_the_request() -> None:
    dut = RoundRobin(1)

    async def testbench(ctx):
        for request in (0, 1):
            ctx.set(dut.request, request)
            assert ctx.get(dut.grant) == request

    evaluate(dut, testbench)


@pytest.mark.parametrize("count", [0, -3])
def test_round_robin_wrong(count: int) -> None:
    raises(lambda: RoundRobin(count), ValueError, f"`count` must be 1 or more, not {count}")
