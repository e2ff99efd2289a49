# SPDX-License-Identifier: Apache-2.0
from operator import add, xor

import pytest
from amaranth.hdl import Const, Module, Signal, Value
from dysharp.rtl.common.bits import any_of, one_hot_mux, popcount, prefix_counts, prefix_or, tree
from dysharp.verif.common.sim import evaluate

WIDTHS = range(1, 10)


def table(function, width: int) -> list[int]:
    """Values of a one-argument helper for all inputs of a width."""
    m = Module()
    i = Signal(width)
    result = Value.cast(function(i))
    o = Signal(len(result) + 2)  # wider: a result with bits too many would show
    m.d.comb += o.eq(result)
    values = []

    async def testbench(ctx):
        for value in range(1 << width):
            ctx.set(i, value)
            values.append(ctx.get(o))

    evaluate(m, testbench)
    return values


@pytest.mark.parametrize("width", WIDTHS)
def test_prefix_or_exhaustive(width: int) -> None:
    wanted = [sum(1 << b for b in range(width) if v & ((2 << b) - 1)) for v in range(1 << width)]
    assert table(prefix_or, width) == wanted


@pytest.mark.parametrize("width", WIDTHS)
def test_popcount_exhaustive(width: int) -> None:
    assert table(popcount, width) == [v.bit_count() for v in range(1 << width)]


@pytest.mark.parametrize("width", WIDTHS)
def test_prefix_counts_exhaustive(width: int) -> None:
    for index in range(width):
        below = (1 << index) - 1
        got = table(lambda i, index=index: prefix_counts(i)[index], width)
        assert got == [(value & below).bit_count() for value in range(1 << width)]


@pytest.mark.parametrize("width", WIDTHS)
def test_any_of_exhaustive(width: int) -> None:
    assert table(any_of, width) == [int(v != 0) for v in range(1 << width)]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("op", "of"), [(xor, lambda v: v.bit_count() & 1), (add, int.bit_count)])
def test_tree_exhaustive(width: int, op, of) -> None:
    assert table(lambda i: tree(list(i), op), width) == [of(v) for v in range(1 << width)]


def test_any_of_nothing_is_zero() -> None:
    assert repr(any_of([])) == repr(Const(0))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_one_hot_mux_exhaustive(count: int) -> None:
    m = Module()
    select = Signal(count)
    values = [Signal(2, name=f"value{n}") for n in range(count)]
    o = Signal(2)
    m.d.comb += o.eq(one_hot_mux(select, values))

    async def testbench(ctx):
        for packed in range(1 << 2 * count):
            for n, value in enumerate(values):
                ctx.set(value, packed >> 2 * n & 3)
            ctx.set(select, 0)
            assert ctx.get(o) == 0
            for n in range(count):
                ctx.set(select, 1 << n)
                assert ctx.get(o) == packed >> 2 * n & 3

    evaluate(m, testbench)


def test_one_hot_mux_of_different_widths() -> None:
    m = Module()
    select, o = Signal(3), Signal(8)
    m.d.comb += o.eq(one_hot_mux(select, [Const(5, 3), Const(0xAB, 8), 1]))

    async def testbench(ctx):
        got = []
        for n in range(3):
            ctx.set(select, 1 << n)
            got.append(ctx.get(o))
        assert got == [5, 0xAB, 1]

    evaluate(m, testbench)
