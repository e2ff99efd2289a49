# SPDX-License-Identifier: Apache-2.0
"""Small combinational helpers with logarithmic depth."""

from collections.abc import Iterable, Sequence
from operator import or_

from amaranth.hdl import Cat, Const, Value, ValueLike

__all__ = ["any_of", "is_one_of", "one_hot_mux", "popcount", "prefix_counts", "prefix_or", "tree"]


def tree(values: Iterable[Value], op=or_) -> Value:
    """Combine `values` pairwise with `op`, so that the depth is logarithmic."""
    level = list(values)
    while len(level) > 1:
        paired = [op(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = paired + ([level[-1]] if len(level) % 2 else [])
    return level[0]


def any_of(values: Iterable[Value]) -> Value:
    """OR of `values`; 0 when there are none."""
    return tree(list(values) or [Const(0)])


def is_one_of(value: Value, members: Iterable[ValueLike]) -> Value:
    """Whether `value` equals one of `members`."""
    return any_of(value == member for member in members)


def prefix_or(value: Value) -> Value:
    """Bit *i* of the result is the OR of bits 0 to *i*."""
    width = len(value)
    step = 1
    while step < width:
        value = (value | (value << step))[:width]
        step *= 2
    return value


def one_hot_mux(select: Value, values: Sequence[ValueLike]) -> Value:
    """AND-OR multiplexer: the value whose bit of `select` is set, 0 when none is."""
    gated = []
    for index, item in enumerate(values):
        bits = Value.cast(item)
        gated.append(bits & select[index].replicate(len(bits)))
    return tree(gated)


def popcount(bits: Value) -> Value:
    """Count the set bits with a balanced tree of adders."""
    total = tree([Cat(bit) for bit in bits], lambda a, b: a + b)
    return total[: len(bits).bit_length()]


def prefix_counts(bits: Value) -> list[Value]:
    """For every bit, how many bits below it are set; a tree of shared adders."""
    counts: list[Value] = [Cat(bit) for bit in bits]  # of the bits up to and including this one
    step = 1
    while step < len(counts):
        # Blocks of `step` bits: the upper one of two adds the total of the lower one.
        counts = [
            count + counts[index // step * step - 1] if index // step % 2 else count
            for index, count in enumerate(counts)
        ]
        step *= 2
    return [Const(0, 1), *counts[:-1]]
