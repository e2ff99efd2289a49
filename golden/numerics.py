# SPDX-License-Identifier: Apache-2.0
"""Reductions on bit patterns, many at a time, bit for bit as the switch does them.

Numbers are integers of their width: uint32 arrays for f32, u32, s32 and b32, uint16 arrays for f16
and bf16. Rounding is to nearest, ties to even; subnormal numbers are kept; a NaN that is computed
is the canonical one. f32 is added by the processor, which is IEEE 754 too; NumPy's own f16 is not
used, since it is slow.

A sum of two f16 or two bf16 numbers is added in f32 and rounded again. That is one rounding of the
exact sum, as f32 has at least twice their precision and two bits (see ``docs/fp.md``).
"""

from collections.abc import Callable
from time import process_time
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..rtl.flits import REDUCTIONS, TO_F32, WIDE, DType, ReduceOp

__all__ = [
    "CANONICAL_NAN",
    "Bits",
    "Member",
    "bf16_to_f32",
    "elements",
    "f16_to_f32",
    "f32_to_bf16",
    "f32_to_f16",
    "flits",
    "is_f16",
    "reduce",
    "reduce_ordered",
    "reduction_rate",
]

Bits: TypeAlias = npt.NDArray[Any]
"""uint32 or uint16."""

Member: TypeAlias = Any
"""Of `DType` or `ReduceOp`; checkers take the members of Amaranth's enums for integers."""

CANONICAL_NAN: dict[Member, int] = {DType.F32: 0x7FC00000, DType.F16: 0x7E00, DType.BF16: 0x7FC0}

_INFINITY = np.uint32(0x7F800000)
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_SIGN = np.uint32(0x80000000)
_NAN = np.uint32(CANONICAL_NAN[DType.F32])
_WORDS = (DType.B32, DType.U32, DType.S32)


def is_f16(dtype: Member) -> bool:
    """Whether the 16-bit elements of `dtype` are f16."""
    return dtype in (DType.F16, DType.F16_ACC32, DType.F16_TO_F32)


def _is_word(dtype: Member) -> bool:
    return dtype in _WORDS or dtype is DType.F32


def _canonical(bits: Bits) -> Bits:
    """Replace every NaN of an f32 array in place."""
    nan = (bits & _MAGNITUDE) > _INFINITY
    if nan.any():
        bits[nan] = _NAN
    return bits


def _make_f16_table() -> Bits:
    """Return all f16 numbers as f32."""
    bits = np.arange(1 << 16, dtype=np.uint32)
    exponent, fraction = bits >> 10 & 31, bits & 1023
    # A subnormal number is its fraction times 2**-24, which f32 holds.
    small = (fraction.astype(np.float32) * np.float32(2.0**-24)).view(np.uint32)
    normal = (exponent + 112) << 23 | fraction << 13
    special = np.where(fraction != 0, _NAN & _MAGNITUDE, _INFINITY)
    size = np.where(exponent == 0, small, np.where(exponent == 31, special, normal))
    size |= (bits >> 15) << 31
    return _canonical(size.astype(np.uint32))


_F16_TO_F32 = _make_f16_table()


def f16_to_f32(bits: Bits) -> Bits:
    """Convert f16 to f32, exactly; a NaN becomes the canonical one."""
    wide: Bits = _F16_TO_F32[bits]
    return wide


def bf16_to_f32(bits: Bits) -> Bits:
    """Convert bf16 to f32, exactly; a NaN becomes the canonical one."""
    return _canonical(bits.astype(np.uint32) << np.uint32(16))


def f32_to_bf16(bits: Bits) -> Bits:
    """Round f32 to bf16."""
    # Half of a last place less one, and one more if that place is odd: ties go to even, and a carry
    # makes the next exponent or infinity.
    rounded = bits + (np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)))
    result = (rounded >> np.uint32(16)).astype(np.uint16)
    nan = (bits & _MAGNITUDE) > _INFINITY
    if nan.any():
        result[nan] = CANONICAL_NAN[DType.BF16]
    halves: Bits = result
    return halves


def f32_to_f16(bits: Bits) -> Bits:
    """Round f32 to f16."""
    size = bits & _MAGNITUDE
    # As for bf16, with 13 places less and an exponent that is smaller by 112.
    odd = size >> np.uint32(13) & np.uint32(1)
    result = (size + (np.uint32(0xFFF - (112 << 23) & 0xFFFFFFFF) + odd)) >> np.uint32(13)
    # From halfway between the largest number and the next one.
    large = size >= np.uint32(0x477FF000)
    small = size < np.uint32(113 << 23)
    if large.any():
        result[large] = 0x7C00
        result[size > _INFINITY] = CANONICAL_NAN[DType.F16]
    if small.any():
        # Adding 0.5, whose last place is 2**-24, rounds a subnormal result.
        half = size[small].view(np.float32) + np.float32(0.5)
        result[small] = half.view(np.uint32) - np.float32(0.5).view(np.uint32)
    sign = (bits >> np.uint32(16)) & np.uint32(0x8000)
    sign[size > _INFINITY] = 0
    return (result | sign).astype(np.uint16)


def _add_f32(acc: Bits, part: Bits) -> Bits:
    with np.errstate(all="ignore"):
        total = acc.view(np.float32) + part.view(np.float32)
    return _canonical(total.view(np.uint32))


def _add_narrow(widen: Callable[[Bits], Bits], narrow: Callable[[Bits], Bits]) -> Any:
    def add(acc: Bits, part: Bits) -> Bits:
        return narrow(_add_f32(widen(acc), widen(part)))

    return add


_ADD_F16 = _add_narrow(f16_to_f32, f32_to_f16)
_ADD_BF16 = _add_narrow(bf16_to_f32, f32_to_bf16)


def _ordered(bits: Bits, width: int) -> Bits:
    """Map floats to signed integers of the same order, -0 below +0."""
    signed: Any = bits.view(np.int32 if width == 32 else np.int16)
    ordered: Bits = signed ^ ((signed >> (width - 1)) & ((1 << width - 1) - 1))
    return ordered


def _pick_float(op: Member, dtype: Member, acc: Bits, part: Bits) -> Bits:
    width = acc.dtype.itemsize * 8
    infinity = {DType.F32: 0x7F800000, DType.F16: 0x7C00, DType.BF16: 0x7F80}[dtype]
    a, b = _ordered(acc, width), _ordered(part, width)
    result = np.where((a < b) == (op is ReduceOp.MIN), acc, part)
    mask = (1 << width - 1) - 1
    nan_acc, nan_part = (acc & mask) > infinity, (part & mask) > infinity
    if nan_acc.any() or nan_part.any():
        result = np.where(nan_acc, part, np.where(nan_part, acc, result))
        result[nan_acc & nan_part] = CANONICAL_NAN[dtype]
    return result


def reduce(op: Member, dtype: Member, acc: Bits, part: Bits) -> Bits:
    """One step of a reduction, element by element.

    Parameters
    ----------
    op : ReduceOp
        One of ``REDUCTIONS[dtype]``.
    dtype : DType
        A wide type stands for f32, the type of its sums.
    acc, part : numpy.ndarray
        Operands: uint16 for f16 and bf16, else uint32. The order does not matter.

    Returns
    -------
    numpy.ndarray
        ``op(acc, part)``.
    """
    _check(op, dtype)
    if dtype in WIDE:
        dtype = DType.F32
    kind = np.dtype(np.uint32 if _is_word(dtype) else np.uint16)
    for name, array in (("acc", acc), ("part", part)):
        if array.dtype != kind:
            raise TypeError(f"`{name}` must be an array of {kind}, not {str(array.dtype)!r}")
    if dtype in _WORDS:
        return _reduce_integer(op, dtype, acc, part)
    if op is not ReduceOp.ADD:
        return _pick_float(op, dtype, acc, part)
    add = {DType.F32: _add_f32, DType.F16: _ADD_F16, DType.BF16: _ADD_BF16}[dtype]
    result: Bits = add(acc, part)
    return result


def _check(op: Member, dtype: Member) -> None:
    if op not in REDUCTIONS[dtype]:
        raise ValueError(f"`op` must be an operation of {dtype.name}, not {op!r}")


def _reduce_integer(op: Member, dtype: Member, acc: Bits, part: Bits) -> Bits:
    if op in (ReduceOp.MIN, ReduceOp.MAX):
        kind = np.int32 if dtype is DType.S32 else np.uint32
        choose = np.minimum if op is ReduceOp.MIN else np.maximum
        return choose(acc.view(kind), part.view(kind)).view(np.uint32)
    functions: dict[Member, Any] = {
        ReduceOp.ADD: np.add,
        ReduceOp.AND: np.bitwise_and,
        ReduceOp.OR: np.bitwise_or,
        ReduceOp.XOR: np.bitwise_xor,
    }
    result: Bits = functions[op](acc, part)
    return result


def elements(flit_array: npt.NDArray[np.uint64], width: int) -> Bits:
    """Split flits, shape ``(..., flits, 2)``, into elements: shape ``(..., elements)``."""
    if flit_array.dtype != np.uint64:
        raise TypeError(f"`flits` must be an array of uint64, not {str(flit_array.dtype)!r}")
    if flit_array.ndim < 2 or flit_array.shape[-1] != 2:
        raise ValueError(f"`flits` must have the shape (..., n, 2), not {flit_array.shape!r}")
    plain = np.ascontiguousarray(flit_array).reshape(*flit_array.shape[:-2], -1)
    return plain.astype("<u8", copy=False).view(f"<u{width // 8}")


def flits(items: Bits) -> npt.NDArray[np.uint64]:
    """Join elements, shape ``(..., elements)``, into flits of shape ``(..., flits, 2)``."""
    plain = np.ascontiguousarray(items).view("<u8").astype(np.uint64, copy=False)
    return plain.reshape(*items.shape[:-1], -1, 2)


def reduce_ordered(
    op: Member,
    dtype: Member,
    parts: npt.NDArray[np.uint64],
    presums: npt.NDArray[np.bool_] | None = None,
) -> npt.NDArray[np.uint64]:
    """Reduce parts in their order, as an entry of the switch does.

    Parameters
    ----------
    op : ReduceOp
        One of ``REDUCTIONS[dtype]``.
    dtype : DType
        Type of the request.
    parts : numpy.ndarray
        Flits, shape ``(k, ..., flits, 2)``: *k* parts in the order in which they are added.
    presums : numpy.ndarray, optional
        Which of the *k* parts are f32 sums, of a wide type only. Since these have twice as many
        flits, the others are then padded with as many flits behind, which are not looked at.

    Returns
    -------
    numpy.ndarray
        Flits of the result, shape ``(..., flits, 2)``; twice as many for a result that stays f32.
    """
    _check(op, dtype)
    if len(parts) == 0:
        raise ValueError("`parts` must be 1 or more, not 0")
    if presums is not None and dtype not in WIDE:
        raise ValueError(f"`presums` must be None for {dtype.name}")
    acc = _operand(dtype, parts[0], presums, 0)
    if dtype not in _WORDS:
        acc = _first(dtype, acc)
    for number in range(1, len(parts)):
        acc = reduce(op, dtype, acc, _operand(dtype, parts[number], presums, number))
    if dtype in WIDE and dtype not in TO_F32:
        acc = f32_to_f16(acc) if is_f16(dtype) else f32_to_bf16(acc)
    return flits(acc)


def _first(dtype: Member, bits: Bits) -> Bits:
    """Make every NaN the canonical one, in a copy."""
    if bits.dtype == np.uint32:
        return _canonical(bits.copy())
    infinity = 0x7C00 if is_f16(dtype) else 0x7F80
    nan = CANONICAL_NAN[DType.F16 if is_f16(dtype) else DType.BF16]
    return np.where((bits & 0x7FFF) > infinity, np.uint16(nan), bits)


def _operand(
    dtype: Member,
    part: npt.NDArray[np.uint64],
    presums: npt.NDArray[np.bool_] | None,
    number: int,
) -> Bits:
    """Return the elements of one part in the type of the sums."""
    if _is_word(dtype):
        return elements(part, 32)
    if dtype not in WIDE:
        return elements(part, 16)
    if presums is not None:
        if presums[number]:
            return elements(part, 32)
        part = part[..., : part.shape[-2] // 2, :]
    halves = elements(part, 16)
    return f16_to_f32(halves) if is_f16(dtype) else bf16_to_f32(halves)


def reduction_rate(
    op: Member, dtype: Member, parts: int = 8, count: int = 1 << 16, seed: int = 0
) -> float:
    """Measure :func:`reduce_ordered` on parts of ordinary numbers.

    Parameters
    ----------
    op, dtype : Member, DType
        What is reduced.
    parts, count : int
        How many parts, of how many elements.
    seed : int
        Seed of the numbers.

    Returns
    -------
    float
        Operations on one element in a second of this core, the first one of each counted too.
    """
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((parts, count)).astype(np.float32).view(np.uint32)
    if not _is_word(dtype):
        values = f32_to_f16(values) if is_f16(dtype) else f32_to_bf16(values)
    stimulus = flits(values)
    begin = process_time()
    reduce_ordered(op, dtype, stimulus)
    return parts * count / (process_time() - begin)
