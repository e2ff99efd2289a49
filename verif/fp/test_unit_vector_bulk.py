# SPDX-License-Identifier: Apache-2.0
"""The reduction vector in Verilator: a million pairs of each float type, and all types at once."""

from pathlib import Path

import numpy as np
import pytest
from dysharp.golden.arrays import value_of
from dysharp.rtl.flits import REDUCTIONS, TO_F32, WIDE, DType, ReduceOp
from dysharp.rtl.fp.vector import ReduceVector
from dysharp.verif.fp.bulk import (
    Bits,
    expected,
    pairs,
    part_format,
    rounded,
    sum_format,
    to_float64,
)
from dysharp.verif.fp.native import NarrowAdder, build_native, run_native
from dysharp.verif.fp.reference import F32, Member, element_format

BUILD = Path(__file__).parents[2] / "build" / "fp"
PAIRS = 1_000_000
SECONDS = 120
RECORD = np.dtype([("control", "<u4"), ("flit", "<u4", 4), ("acc", "<u4", 8)])
ANSWER = np.dtype([("sum", "<u4", 8), ("result", "<u4", 4)])
FLOATS = [dtype for dtype in DType if element_format(dtype) is not None]
CASES = [
    (dtype, from_f32)
    for dtype in FLOATS
    for from_f32 in ((False, True) if dtype in WIDE else (False,))
]


@pytest.fixture(scope="module")
def vector() -> tuple[Path, int]:
    dut = ReduceVector()
    return build_native(dut, "vector", BUILD), dut.latency


def play(vector: tuple[Path, int], records: Bits, folder: Path) -> Bits:
    binary, latency = vector
    records.tofile(folder / "in.bin")
    run_native(binary, folder / "in.bin", folder / "out.bin", latency, seconds=SECONDS)
    answers = np.fromfile(folder / "out.bin", ANSWER)
    assert len(answers) == len(records)
    return answers


def lanes_of(bits: Bits, lanes: int) -> Bits:
    """Elements in rows of one flit; the last one is filled up with zeros."""
    padded = np.zeros(-(-len(bits) // lanes) * lanes, bits.dtype)
    padded[: len(bits)] = bits
    return padded.reshape(-1, lanes)


def words_of(rows: Bits) -> Bits:
    return np.ascontiguousarray(rows).view("<u4")


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize(("dtype", "from_f32"), CASES)
def test_vector_bulk(vector, dtype: Member, from_f32: bool, seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng([seed, value_of(dtype), from_f32])
    part, total = part_format(dtype, from_f32), sum_format(dtype)
    lanes = 128 // part.bits
    # Accumulators of a wide type are paired with parts of the same kinds, made as f32.
    raw_acc, raw_part = pairs(total, PAIRS, rng)
    if part is not total:
        raw_part = rounded(part, to_float64(total, raw_part))
        raw_part[::7] = rng.integers(0, 1 << part.bits, len(raw_part[::7]))
    acc, operand = lanes_of(raw_acc, lanes), lanes_of(raw_part, lanes)
    for op in REDUCTIONS[dtype]:
        count = len(acc) if op is ReduceOp.ADD else len(acc) // 4
        records = np.zeros(count, RECORD)
        half = rng.integers(0, 2, count, dtype=np.uint32)
        control = value_of(dtype) | value_of(op) << 4 | from_f32 << 9
        records["control"] = control | half << 8
        records["flit"] = words_of(operand[:count])
        if total is F32 and part is not F32:
            records["acc"] = words_of(acc[:count])
        else:
            word = words_of(acc[:count])
            records["acc"] = rng.integers(0, 1 << 32, (count, 8))
            for which in (0, 1):
                records["acc"][half == which, 4 * which : 4 * which + 4] = word[half == which]
        answers = play(vector, records, tmp_path)

        same = (
            operand[:count] if part is total else rounded(total, to_float64(part, operand[:count]))
        )
        wanted = expected(op, total, acc[:count].ravel(), same.ravel()).reshape(count, lanes)
        words = words_of(wanted)
        both = words if words.shape[1] == 8 else np.hstack([words, words])
        np.testing.assert_array_equal(answers["sum"], both, f"{op}")
        if dtype in WIDE and dtype not in TO_F32:
            form = element_format(dtype)
            assert form is not None
            halves = words_of(rounded(form, to_float64(F32, wanted)))
            both = halves if halves.shape[1] == 4 else np.hstack([halves, halves])
            np.testing.assert_array_equal(answers["result"], both, f"{op}")
        elif dtype not in WIDE:
            np.testing.assert_array_equal(answers["result"], words, f"{op}")


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("dtype", [DType.U32, DType.S32, DType.B32])
def test_vector_bulk_integers(vector, dtype: Member, seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng([seed, value_of(dtype)])
    ends = np.array([0, 1, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 0x7F800001], np.uint32)
    count = 50_000
    a, b = rng.integers(0, 1 << 32, (2, count, 4), dtype=np.uint32)
    mixed = rng.random((count, 4)) < 0.3
    a[mixed] = rng.choice(ends, mixed.sum())
    b[::2] = np.where(rng.random(b[::2].shape) < 0.3, a[::2], rng.choice(ends, b[::2].shape))
    signed = np.int32 if dtype is DType.S32 else np.uint32
    wanted = {
        ReduceOp.ADD: a + b,
        ReduceOp.MIN: np.minimum(a.view(signed), b.view(signed)).view(np.uint32),
        ReduceOp.MAX: np.maximum(a.view(signed), b.view(signed)).view(np.uint32),
        ReduceOp.AND: a & b,
        ReduceOp.OR: a | b,
        ReduceOp.XOR: a ^ b,
    }
    records = np.zeros(count, RECORD)
    records["flit"], records["acc"] = b, np.hstack([a, ~a])
    for op in REDUCTIONS[dtype]:
        records["control"] = value_of(dtype) | value_of(op) << 4
        answers = play(vector, records, tmp_path)
        np.testing.assert_array_equal(answers["sum"], np.hstack([wanted[op], wanted[op]]))
        np.testing.assert_array_equal(answers["result"], wanted[op])
        records["control"] |= 1 << 7  # first
        answers = play(vector, records, tmp_path)
        np.testing.assert_array_equal(answers["result"], b)


@pytest.mark.regress
@pytest.mark.parametrize("shard", range(16))
def test_f16_add_exhaustive(shard: int) -> None:
    """All 2**32 pairs, 45 s a shard on one core, 12 minutes in all."""
    binary = build_native(NarrowAdder(f16=True), "half_adder", BUILD)
    first = shard << 12
    told = run_native(binary, first, first + 4095, seconds=600)
    assert told == f"{1 << 28} pairs\n"
