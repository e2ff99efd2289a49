# SPDX-License-Identifier: Apache-2.0
import random
from typing import Any

import pytest
from dysharp.rtl.flits import FLIT_BITS, Kind, Opcode, addressing, kind
from dysharp.rtl.flits import Addressing as Names
from dysharp.rtl.params import PRESETS, SwitchParams
from dysharp.rtl.reduce.arming import Arming
from dysharp.verif.common.sim import simulate
from dysharp.verif.switch.units import field, header, with_field

SHAPES = {
    "tiny": PRESETS["tiny"],
    "more-gpus-than-targets": SwitchParams(ports=20, max_targets=8),
    "links": SwitchParams(ports=6, links_per_gpu=2),
    "nvl32": PRESETS["nvl32"],
    "longest-list": SwitchParams(ports=3, max_targets=512, ingress_depth=128, request_depth=256),
}
MULTICAST = [o for o in Opcode if addressing(o.value) in (Names.STATIC, Names.DYNAMIC)]


def gpus_of(params: SwitchParams, ports: int) -> int:
    """Mask of the GPUs that these ports belong to."""
    return sum(
        1 << gpu
        for gpu in range(params.gpus)
        if any(
            ports >> port & 1
            for port in range(gpu * params.links_per_gpu, (gpu + 1) * params.links_per_gpu)
        )
    )


def random_request(rng: random.Random, params: SwitchParams) -> tuple[int, int]:
    """Header and ports of a multicast request that is good."""
    opcode = rng.choice(MULTICAST)
    ports = rng.choice([rng.getrandbits(params.ports), (1 << params.ports) - 1, 1]) or 1
    if addressing(opcode.value) is Names.DYNAMIC:
        count = rng.choice([1, params.max_targets, rng.randint(1, params.max_targets)])
    else:
        count = rng.randrange(params.groups)
    first = with_field(rng.getrandbits(FLIT_BITS), "opcode", opcode.value)
    return with_field(first, "count", count), ports


def order_of(params: SwitchParams, first: int, ports: int) -> dict[str, int]:
    """Order that a header must make."""
    names = ("tag", "gen", "aux", "length", "dtype")
    expected = gpus_of(params, ports)
    opcode = field(first, "opcode")
    is_list = addressing(opcode) is Names.DYNAMIC
    return {name: field(first, name) for name in names} | {
        "load": int(kind(opcode) is Kind.LOAD),
        "total": field(first, "count") if is_list else expected.bit_count(),
        "expected": expected,
    }


def shown(ctx: Any, dut: Arming) -> dict[str, int]:
    """Return the order on the output."""
    return {name: ctx.get(getattr(dut.o.payload, name)) for name in dut.o.payload.shape().members}


@pytest.mark.parametrize("params", SHAPES.values(), ids=SHAPES)
def test_arming_orders(params: SwitchParams) -> None:
    """An order is there a cycle after its header, and stays as it is until it is taken."""
    rng = random.Random(1)
    dut = Arming(params)
    orders = 0

    async def testbench(ctx):
        nonlocal orders
        order = None
        for _ in range(1000):
            assert ctx.get(dut.o.valid) == (order is not None)
            assert ctx.get(dut.ready) == (order is None)
            if order is not None:
                assert shown(ctx, dut) == order
            first, ports = random_request(rng, params)
            send = order is None and rng.random() < 0.6
            ready = rng.random() < 0.4
            ctx.set(dut.valid, send)
            ctx.set(dut.flit, first)
            ctx.set(dut.ports, ports)
            ctx.set(dut.o.ready, ready)
            await ctx.tick()
            if send:
                order = order_of(params, first, ports)
            elif order is not None and ready:
                order = None
                orders += 1

    simulate(dut, testbench, cycles=1001)
    assert orders > 200


async def arm(ctx: Any, dut: Arming, first: int, ports: int) -> dict[str, int]:
    """Make one order and take it."""
    for name, value in (("valid", 1), ("flit", first), ("ports", ports)):
        ctx.set(getattr(dut, name), value)
    ctx.set(dut.o.ready, 0)
    await ctx.tick()
    ctx.set(dut.valid, 0)
    ctx.set(dut.ports, 0)
    assert ctx.get(dut.o.valid) == 1
    order = shown(ctx, dut)
    ctx.set(dut.o.ready, 1)
    await ctx.tick()
    assert ctx.get(dut.ready) == 1
    return order


@pytest.mark.parametrize("opcode", MULTICAST)
@pytest.mark.parametrize("params", SHAPES.values(), ids=SHAPES)
def test_arming_total_is_of_gpus_or_of_targets(params: SwitchParams, opcode: Opcode) -> None:
    """A group's GPUs are counted, however many links of theirs are used; a list says its own."""
    dut = Arming(params)
    every = (1 << params.ports) - 1
    is_list = addressing(opcode.value) is Names.DYNAMIC

    async def testbench(ctx):
        count = params.max_targets if is_list else 3
        first = header(opcode=opcode.value, count=count, tag=3, gen=2, length=4)
        links = range(params.links_per_gpu)
        cases = {every: params.gpus}
        cases |= {1 << params.ports - 1 - link: 1 for link in links}
        cases |= {sum(1 << port for port in range(0, params.ports, len(links))): params.gpus}
        for ports, gpus in cases.items():
            order = await arm(ctx, dut, first, ports)
            assert order["total"] == (count if is_list else gpus)
            assert order["expected"].bit_count() == gpus
            assert order["load"] == (opcode in (Opcode.MM_LD_REDUCE, Opcode.DY_LD_REDUCE))
            assert (order["tag"], order["gen"], order["length"]) == (3, 2, 4)

    simulate(dut, testbench, cycles=30)
