# SPDX-License-Identifier: Apache-2.0
"""What CUDA's multicast functions take and return, and how they fail."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from numbers import Integral
from typing import Any

from ..rtl.flits import Stage

__all__ = [
    "CUDymulticastObjectProp",
    "CUmulticastObjectProp",
    "CUresult",
    "CudaError",
    "DyBinding",
    "check_int",
]


class CUresult(IntEnum):
    """Results of calls, with CUDA's numbers."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_INVALID_DEVICE = 101
    CUDA_ERROR_INVALID_HANDLE = 400
    CUDA_ERROR_ILLEGAL_STATE = 401
    CUDA_ERROR_NOT_PERMITTED = 800
    CUDA_ERROR_NOT_SUPPORTED = 801


class CudaError(Exception):
    """A call failed, and changed nothing.

    Parameters
    ----------
    result : CUresult
        What the C function would return.
    reason : str
        One line.
    """

    def __init__(self, result: CUresult, reason: str) -> None:
        super().__init__(f"{result.name}: {reason}")
        self.result = result


@dataclass(frozen=True, kw_only=True)
class CUmulticastObjectProp:
    """A static object.

    Parameters
    ----------
    numDevices : int
        Devices that will be added.
    size : int
        Bytes, a multiple of 16.
    """

    numDevices: int
    size: int


@dataclass(frozen=True, kw_only=True)
class CUDymulticastObjectProp:
    """A dynamic object: tokens that every expert keeps packed in its own memory.

    Parameters
    ----------
    numDevices : int
        Devices that will be added.
    hsize : int
        Hidden bytes of a token, a multiple of 16: what is stored and loaded of it.
    bsize : int
        Bytes from one token to the next, in multimem space and in memory alike: `hsize` or more, a
        multiple of 16, 1 MiB at most. 0 for `hsize`.
    stages : tuple[Stage, ...]
        Stages that have memory of their own; all share one layout.
    """

    numDevices: int
    hsize: int
    bsize: int = 0
    stages: tuple[Any, ...] = (Stage.DISPATCH, Stage.COMBINE)

    @property
    def block(self) -> int:
        """Bytes of a block: `bsize`, or what stands for it."""
        return self.bsize or self.hsize


@dataclass(frozen=True, kw_only=True)
class DyBinding:
    """Memory of one device behind a dynamic object; one item an expert.

    Parameters
    ----------
    ntoken : int
        Blocks of the multimem space.
    nactive : tuple[int, ...]
        Blocks that there is room for.
    addresses : Mapping[Stage, tuple[int, ...]]
        Where the blocks of each stage are.
    tables : tuple[int, ...]
        AL tables.
    epoch : int
        The current one: in entries of blocks that have a place.
    """

    ntoken: int
    nactive: tuple[int, ...]
    addresses: Mapping[Any, tuple[int, ...]]
    tables: tuple[int, ...]
    epoch: int


def check_int(name: str, value: Any, low: int, high: int, multiple: int = 1) -> None:
    """Refuse what is no integer of `low` or more, or no multiple, or more than is supported."""
    integer = isinstance(value, Integral) and value is not True and value is not False
    fits = bool(integer and low <= value)
    if fits and value > high:
        raise CudaError(
            CUresult.CUDA_ERROR_NOT_SUPPORTED, f"`{name}` must be {high} at most, not {value}"
        )
    if not fits or value % multiple:
        kind = f"a multiple of {multiple}, " if multiple > 1 else ""
        raise CudaError(
            CUresult.CUDA_ERROR_INVALID_VALUE,
            f"`{name}` must be {kind}{low} or more, not {value!r}",
        )
