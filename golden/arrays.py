# SPDX-License-Identifier: Apache-2.0
"""Integer arrays with range checks, and index arithmetic for lists of different lengths."""

import operator
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "FlitArray",
    "IntArray",
    "Integers",
    "Mask",
    "as_integers",
    "offsets",
    "ragged_index",
    "value_of",
    "values_of",
]

FlitArray: TypeAlias = npt.NDArray[np.uint64]
"""Flits, shape ``(n, 2)``: column 0 holds bits 63:0, column 1 bits 127:64."""

IntArray: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

Integers: TypeAlias = npt.ArrayLike | Enum
"""A number, an enum member, or an array or sequence of them."""


def value_of(member: Any) -> int:
    """Return the number of an enum member, as an int for type checkers too.

    Amaranth's enums are untyped, so checkers take their members for whatever stands after ``=``.
    """
    return int(member.value)


def values_of(enum: Any) -> tuple[int, ...]:
    """Return the numbers of all members of an enum."""
    return tuple(value_of(member) for member in enum)


def _index(name: str, value: object) -> int:
    if isinstance(value, Enum):
        value = value.value
    try:
        return operator.index(value)  # type: ignore[arg-type]  # raises for what is no integer
    except TypeError:
        raise TypeError(f"`{name}` must be integers, not {value!r}") from None


def as_integers(name: str, value: Integers, low: int, high: int) -> IntArray:
    """`value` as an int64 array of no or one dimension.

    Raises
    ------
    TypeError
        If anything in `value` is not an integer or an enum member.
    ValueError
        If anything is not `low` to `high`, or there are more dimensions than one. The message
        names `name` and the first such value.
    """
    array = np.asarray(value)
    if array.ndim > 1:
        raise ValueError(f"`{name}` must have at most one dimension, not {array.ndim!r}")
    if array.size == 0:
        return np.zeros(array.shape, np.int64)
    if array.dtype == object:
        plain = [_index(name, item) for item in array.ravel()]
        wrong = [item for item in plain if not low <= item <= high]
        if wrong:
            raise ValueError(f"`{name}` must be {low} to {high}, not {wrong[0]!r}")
        return np.array(plain, np.int64).reshape(array.shape)
    if array.dtype.kind not in "biu":
        raise TypeError(f"`{name}` must be integers, not {array.flat[0].item()!r}")
    if array.min() < low or array.max() > high:
        first = array[(array < low) | (array > high)].flat[0].item()
        raise ValueError(f"`{name}` must be {low} to {high}, not {first!r}")
    return array.astype(np.int64)


def offsets(counts: IntArray) -> IntArray:
    """Return where each of several lists, laid end to end, begins: the exclusive running sum."""
    begins = np.zeros(len(counts), np.int64)
    np.cumsum(counts[:-1], out=begins[1:])
    return begins


def ragged_index(begins: IntArray, counts: IntArray) -> IntArray:
    """``begins[0], begins[0] + 1, ...``: `counts` consecutive indices from each of `begins`."""
    return np.arange(counts.sum(), dtype=np.int64) + np.repeat(begins - offsets(counts), counts)
