# SPDX-License-Identifier: Apache-2.0
import pytest
from amaranth.back.rtlil import convert
from amaranth.hdl import Module, Signal
from dysharp.rtl.common.check import check
from dysharp.verif.common.sim import evaluate, pulse, simulate, ticks


def counter(limit: int | None = None):
    m = Module()
    up, value = Signal(), Signal(8)
    m.d.sync += value.eq(value + up)
    if limit is not None:
        check(m, None, value < limit, "counter: limit")
    return m, up, value


def test_simulate_stops_with_its_testbench() -> None:
    m, up, value = counter()
    seen = []

    async def testbench(ctx):
        await pulse(ctx, up)
        await ticks(ctx, 3)
        seen.append(ctx.get(value))

    simulate(m, testbench, cycles=6)
    assert seen == [1]


def test_simulate_bounds_the_cycles() -> None:
    m, _, _ = counter()

    async def testbench(ctx):
        while True:
            await ctx.tick()

    with pytest.raises(AssertionError, match=r"^the testbench has not ended after 20 cycles$"):
        simulate(m, testbench, cycles=20)


def test_simulate_raises_on_an_assertion_of_the_circuit() -> None:
    m, up, _ = counter(limit=4)

    async def testbench(ctx):
        ctx.set(up, 1)
        await ticks(ctx, 10)

    with pytest.raises(AssertionError, match=r"counter: limit"):
        simulate(m, testbench, cycles=20)


@pytest.mark.parametrize(("platform", "written"), [(None, True), ("synthesis", False)])
def test_check_is_not_written_for_synthesis(platform, written: bool) -> None:
    m = Module()
    flag, copy = Signal(), Signal()
    m.d.sync += copy.eq(flag)
    check(m, platform, flag, "never")
    assert ("cell $check" in convert(m, ports=[flag, copy])) == written


def test_evaluate_needs_no_clock() -> None:
    m = Module()
    a, b = Signal(4), Signal(5)
    m.d.comb += b.eq(a + 1)
    seen = []

    async def testbench(ctx):
        for value in range(16):
            ctx.set(a, value)
            seen.append(ctx.get(b))

    evaluate(m, testbench)
    assert seen == list(range(1, 17))
