# SPDX-License-Identifier: Apache-2.0
"""Millions of operand pairs, and what becomes of them by NumPy's own floating point.

The sums come from float64, which holds twice the precision of the operands and two bits, rounded
once more: of f16 by NumPy, of bf16 by ``rint`` at the last place. Nothing of it is integer
arithmetic like in ``golden/numerics.py``. For f32 it is right too, as 53 is more than 2 * 24 + 2.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from dysharp.rtl.flits import WIDE, ReduceOp

from .numbers import specials
from .reference import BF16, F16, F32, Format, Member, element_format

__all__ = ["Bits", "expected", "pairs", "part_format", "rounded", "sum_format", "to_float64"]

Bits = npt.NDArray[Any]


def _as_bits(form: Format, array: Bits) -> Bits:
    return array.astype(np.uint32 if form is F32 else np.uint16)


def pairs(form: Format, count: int, rng: np.random.Generator) -> tuple[Bits, Bits]:
    """Operands: all pairs of specials, then a fifth each of five kinds.

    Any bits; exponents at every distance to 30 over the whole range, with fractions that are often
    nearly all zeros or ones; ties and nearly ties: one operand a half of the other one's last
    place, give or take; numbers that nearly cancel; the ends of the range, subnormal or nearly
    infinite.
    """
    special = np.array(specials(form), np.uint64)
    a = [np.repeat(special, len(special))]
    b = [np.tile(special, len(special))]
    size = count // 5
    top, sign = form.exponents, form.bits - 1

    def number(exponent: Bits, fraction: Bits) -> Bits:
        bits = np.clip(exponent, 0, top - 1) << form.fraction | fraction
        return (bits | rng.integers(0, 2, len(bits)) << sign).astype(np.uint64)

    def fractions(n: int) -> Bits:
        last = (1 << form.fraction) - 1
        few = 1 << rng.integers(0, form.fraction, n) | 1 << rng.integers(0, form.fraction, n)
        low = (1 << rng.integers(0, form.fraction + 1, n)) - 1
        kind = rng.integers(0, 6, n)
        any_bits = rng.integers(0, last + 1, n)
        return np.choose(kind, [few, last ^ few, low, last ^ low, any_bits, any_bits])

    a.append(rng.integers(0, 1 << form.bits, size, dtype=np.uint64))
    b.append(rng.integers(0, 1 << form.bits, size, dtype=np.uint64))

    exponent = rng.integers(0, top, size)
    a.append(number(exponent, fractions(size)))
    b.append(number(exponent + rng.integers(-30, 31, size), fractions(size)))

    exponent = rng.integers(0, top, size)
    a.append(number(exponent, fractions(size)))
    near = rng.integers(-1, 2, size)
    last_place = np.where(near < 0, (1 << form.fraction) - 1, near)
    b.append(number(exponent - form.fraction - 1 - (near < 0), last_place))

    exponent = rng.integers(0, top, size)
    close = number(exponent, fractions(size))
    a.append(close)
    opposite = (close ^ np.uint64(1 << sign)).astype(np.int64) + rng.integers(-4, 5, size)
    b.append((opposite & (1 << form.bits) - 1).astype(np.uint64))

    end = rng.integers(0, 2, size) * (top - 3)
    a.append(number(end + rng.integers(0, 3, size), fractions(size)))
    b.append(number(end + rng.integers(0, 3, size), fractions(size)))
    return _as_bits(form, np.concatenate(a)), _as_bits(form, np.concatenate(b))


def to_float64(form: Format, bits: Bits) -> Bits:
    """Value of any number."""
    if form is BF16:
        bits = bits.astype(np.uint32) << 16
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return bits.view(np.float16 if form is F16 else np.float32).astype(np.float64)


def rounded(form: Format, values: Bits) -> Bits:
    """Round float64 to a format; a NaN becomes the canonical one."""
    with np.errstate(all="ignore"):
        if form is F32:
            bits = values.astype(np.float32).view(np.uint32)
        elif form is F16:
            bits = values.astype(np.float16).view(np.uint16)
        else:
            _, exponent = np.frexp(values)
            place = np.maximum(exponent - (form.fraction + 1), form.last_place)
            exact = np.ldexp(np.rint(np.ldexp(values, -place)), place)
            finite = np.where(np.isfinite(values), exact, values).astype(np.float32)
            bits = (finite.view(np.uint32) >> 16).astype(np.uint16)
    bits = bits.copy()
    bits[np.isnan(values)] = form.nan
    return bits


def expected(op: Member, form: Format, a: Bits, b: Bits) -> Bits:
    """One step on numbers of one format."""
    x, y = to_float64(form, a), to_float64(form, b)
    if op is ReduceOp.ADD:
        with np.errstate(all="ignore"):
            return rounded(form, x + y)
    # `fmin` and `fmax` lose NaNs, but do not tell the zeros apart.
    smaller = (x < y) | ((x == y) & (np.signbit(x) | ~np.signbit(y))) | np.isnan(y)
    larger = (x > y) | ((x == y) & (~np.signbit(x) | np.signbit(y))) | np.isnan(y)
    result = np.where(smaller if op is ReduceOp.MIN else larger, a, b)
    result[np.isnan(x) & np.isnan(y)] = form.nan
    return result


def part_format(dtype: Member, from_f32: bool) -> Format:
    """Format of the elements of a part of a float type."""
    form = F32 if from_f32 else element_format(dtype)
    assert form is not None
    return form


def sum_format(dtype: Member) -> Format:
    """Format of the sums of a float type."""
    return F32 if dtype in WIDE else part_format(dtype, False)
