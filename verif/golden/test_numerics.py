# SPDX-License-Identifier: Apache-2.0
"""``golden/numerics.py`` against exact integers, NumPy's own conversions and known sums."""

import random
import re
from itertools import product

import numpy as np
import pytest
from dysharp.golden.numerics import (
    CANONICAL_NAN,
    Bits,
    bf16_to_f32,
    elements,
    f16_to_f32,
    f32_to_bf16,
    f32_to_f16,
    flits,
    reduce,
    reduce_ordered,
    reduction_rate,
)
from dysharp.rtl.flits import REDUCTIONS, TO_F32, WIDE, DType, ReduceOp
from dysharp.verif.fp.bulk import expected, pairs, rounded, sum_format, to_float64
from dysharp.verif.fp.numbers import random_number, specials
from dysharp.verif.fp.reference import BF16, F16, F32, Format, Member, convert, element_format, step

CASES = [(dtype, op) for dtype, ops in REDUCTIONS.items() for op in ops]
FLOATS = [(dtype, op) for dtype, op in CASES if element_format(dtype) is not None]
NARROW = {F16: (f16_to_f32, f32_to_f16), BF16: (bf16_to_f32, f32_to_bf16)}


def kind(form: Format | None) -> type:
    return np.uint16 if form in (F16, BF16) else np.uint32


@pytest.mark.parametrize("form", [F16, BF16])
def test_widening_is_exact(form: Format) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    widen, narrow = NARROW[form]
    wide = widen(bits)
    sample = random.Random(1).sample(range(1 << 16), 4000)
    assert wide[sample].tolist() == [convert(form, F32, number) for number in sample]
    assert np.array_equal(wide, rounded(F32, to_float64(form, bits)))
    nan = np.isnan(to_float64(form, bits))
    assert np.array_equal(narrow(wide), np.where(nan, form.nan, bits))


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("form", [F16, BF16])
def test_narrowing_rounds_to_even(form: Format, seed: int) -> None:
    rng = np.random.default_rng(seed)
    widen, narrow = NARROW[form]
    # All results, and what lies beside them and in the middle between two of them.
    grid = np.arange(1 << 16, dtype=np.uint16)
    centre = widen(grid)
    middle = 1 << (F32.fraction - form.fraction - 1)
    offsets = np.array([0, 1, middle - 1, middle, middle + 1, -1], np.int64)[:, None]
    near = ((centre.astype(np.int64) + offsets) & 0xFFFFFFFF).astype(np.uint32).ravel()
    any_bits = rng.integers(0, 1 << 32, 1_000_000, dtype=np.uint32)
    wide = np.concatenate([near, any_bits, np.array(specials(F32), np.uint32)])
    result = narrow(wide)
    assert np.array_equal(result, rounded(form, to_float64(F32, wide)))
    for place in rng.integers(0, len(wide), 3000).tolist():
        assert result[place] == convert(F32, form, int(wide[place]))


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize(("dtype", "op"), FLOATS)
def test_reduce_floats(dtype: Member, op: Member, seed: int) -> None:
    rng = np.random.default_rng(seed)
    form = sum_format(dtype)
    a, b = pairs(form, 200_000, rng)
    got = reduce(op, dtype, a, b)
    assert np.array_equal(got, expected(op, form, a, b))
    special = len(specials(form)) ** 2
    sample = [*range(special), *rng.integers(special, len(a), 2000).tolist()]
    wanted = [step(dtype, op, form, int(a[n]), int(b[n])) for n in sample]
    assert got[sample].tolist() == wanted
    assert np.array_equal(got, reduce(op, dtype, b, a))


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("dtype", [DType.U32, DType.S32, DType.B32])
def test_reduce_integers(dtype: Member, seed: int) -> None:
    rng = random.Random(seed)
    ends = [0, 1, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 0x7F800001]
    operands = list(product(ends, ends)) + [
        (rng.getrandbits(32), rng.getrandbits(32)) for _ in range(1000)
    ]
    a, b = (np.array(column, np.uint32) for column in zip(*operands, strict=True))
    for op in REDUCTIONS[dtype]:
        wanted = [step(dtype, op, None, x, y) for x, y in operands]
        assert reduce(op, dtype, a, b).tolist() == wanted


def naive(op: Member, dtype: Member, parts: list[tuple[list[int], bool]]) -> list[int]:
    """Reduce elements with the exact reference; each part tells whether it is an f32 sum."""
    form = element_format(dtype)
    total = F32 if dtype in WIDE else form
    result = []
    for place in range(len(parts[0][0])):
        acc: int | None = None
        for part, presum in parts:
            number = part[place]
            if form is not None and total is F32 and form is not F32 and not presum:
                number = convert(form, F32, number)
            acc = step(dtype, op, total, acc, number)
        assert acc is not None
        if dtype in WIDE and dtype not in TO_F32:
            assert form is not None
            acc = convert(F32, form, acc)
        result.append(acc)
    return result


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize(("dtype", "op"), CASES)
def test_reduce_ordered(dtype: Member, op: Member, count: int, seed: int) -> None:
    """Parts in order, rows side by side, and of wide types some parts as f32 sums."""
    rng = random.Random(f"{seed} {count} {dtype} {op}")
    form = element_format(dtype) or F32
    rows, per_flit, length = 3, 128 // form.bits, 2
    for with_presums in (False, True) if dtype in WIDE else (False,):
        width = 2 * length if with_presums else length
        presums = [with_presums and (n == 0 or rng.random() < 0.5) for n in range(count)]
        stack = np.zeros((count, rows, width, 2), np.uint64)
        plain: list[list[tuple[list[int], bool]]] = [[] for _ in range(rows)]
        for number, row in product(range(count), range(rows)):
            this = F32 if presums[number] else form
            items = [random_number(rng, this) for _ in range(per_flit * length)]
            plain[row].append((items, presums[number]))
            packed = flits(np.array(items, kind(this)))
            stack[number, row, : len(packed)] = packed
            stack[number, row, len(packed) :] = rng.getrandbits(64)
        told = reduce_ordered(op, dtype, stack, np.array(presums) if with_presums else None)
        out = 32 if dtype in TO_F32 else form.bits
        assert told.shape == (rows, length * out // form.bits, 2)
        for row in range(rows):
            assert elements(told[row], out).tolist() == naive(op, dtype, plain[row])


def sum_of(dtype: Member, *values: float) -> float:
    """Sum of numbers that are the same in every element."""
    form = element_format(dtype)
    assert form is not None
    items = np.repeat(rounded(form, np.array(values, np.float64))[:, None], 128 // form.bits, 1)
    told = reduce_ordered(ReduceOp.ADD, dtype, flits(items))
    out = F32 if dtype in TO_F32 else form
    got = to_float64(out, elements(told, out.bits))
    assert (got == got[0]).all()
    return float(got[0])


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F32])
def test_sums_are_rounded_at_every_step_in_order(dtype: Member) -> None:
    form = element_format(dtype)
    assert form is not None
    half = 2.0 ** -(form.fraction + 1)  # of the last place of 1
    assert sum_of(dtype, 1.0, half, half) == 1.0  # both are lost
    assert sum_of(dtype, half, half, 1.0) == 1.0 + 2 * half
    assert sum_of(dtype, 1.0 + 2 * half, half, half) == 1.0 + 4 * half  # up to even, then lost
    assert sum_of(dtype, 1.0, half * (1 + 2 * half)) == 1.0 + 2 * half  # just over a half
    big = to_float64(form, np.array([form.infinity - 1], kind(form)))[0]
    assert sum_of(dtype, big, big, -big) == np.inf
    assert sum_of(dtype, big, -big, big) == big


@pytest.mark.parametrize("dtype", WIDE)
def test_wide_sums_are_rounded_once(dtype: Member) -> None:
    form = element_format(dtype)
    assert form is not None
    half = 2.0 ** -(form.fraction + 1)
    kept = 1.0 + half if dtype in TO_F32 else 1.0
    assert sum_of(dtype, 1.0, half) == kept
    assert sum_of(dtype, 1.0, half, half) == 1.0 + 2 * half
    assert sum_of(dtype, 1.0, half, -half, half) == kept
    # The last place of 2**13 in f32 is 2**-10: all 24 bits are there, and no more.
    assert sum_of(dtype, 2.0**13, 2.0**-10, -(2.0**13)) == 2.0**-10
    assert sum_of(dtype, 2.0**13, 2.0**-12, -(2.0**13)) == 0.0
    big = to_float64(form, np.array([form.infinity - 1], kind(form)))[0]
    # The range of f16 is that of f32 between the steps.
    assert sum_of(dtype, big, big, -big) == (big if form is F16 else np.inf)


@pytest.mark.parametrize(("dtype", "op"), FLOATS)
def test_first_part_makes_nan_canonical_and_nothing_else(dtype: Member, op: Member) -> None:
    form = element_format(dtype)
    assert form is not None
    items: Bits = np.array(specials(form), kind(form))
    items = np.resize(items, -(-len(items) // 8) * 8)
    told = elements(
        reduce_ordered(op, dtype, flits(items)[None]), 32 if dtype in TO_F32 else form.bits
    )
    target = F32 if dtype in TO_F32 else form
    wanted = [
        target.nan if form.is_nan(number) else convert(form, target, number)
        for number in items.tolist()
    ]
    assert told.tolist() == wanted


def test_canonical_nans() -> None:
    assert CANONICAL_NAN == {DType.F32: F32.nan, DType.F16: F16.nan, DType.BF16: BF16.nan}


def test_arguments_wrong() -> None:
    word = np.zeros(4, np.uint32)
    with pytest.raises(ValueError, match=r"^`op` must be an operation of B32, not"):
        reduce(ReduceOp.ADD, DType.B32, word, word)
    message = "`part` must be an array of uint16, not 'uint32'"
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        reduce(ReduceOp.ADD, DType.F16, word.astype(np.uint16), word)
    parts = np.zeros((2, 1, 2), np.uint64)
    with pytest.raises(ValueError, match=r"^`presums` must be None for F16$"):
        reduce_ordered(ReduceOp.ADD, DType.F16, parts, np.array([True, False]))
    with pytest.raises(ValueError, match=r"^`parts` must be 1 or more, not 0$"):
        reduce_ordered(ReduceOp.ADD, DType.F16, parts[:0])
    with pytest.raises(TypeError, match=r"^`flits` must be an array of uint64, not 'int64'$"):
        elements(np.zeros((1, 2), np.int64), 16)
    with pytest.raises(
        ValueError, match=r"^`flits` must have the shape \(\.\.\., n, 2\), not \(2,\)$"
    ):
        elements(np.zeros(2, np.uint64), 16)


@pytest.mark.parametrize(("dtype", "op"), CASES)
def test_reduction_rate(dtype: Member, op: Member) -> None:
    """Twenty million a second are wanted of one core; the margin is for a busy one."""
    assert max(reduction_rate(op, dtype) for _ in range(3)) > 20e6
