# SPDX-License-Identifier: Apache-2.0
"""What a multicast request leaves at its own port, and the packets that end it.

A request that wants an answer *arms* the reduction entry that its tag names. The entry gathers the
answers of the GPUs (*parts*) and ends with one *result*.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..rtl.flits import (
    REDUCTIONS,
    SLOT_FLITS,
    TO_F32,
    WIDE,
    DType,
    Kind,
    Opcode,
    Status,
    Vc,
)
from .arrays import (
    FlitArray,
    IntArray,
    Integers,
    Mask,
    offsets,
    ragged_index,
    value_of,
    values_of,
)
from .flits import pack_headers, unpack_field
from .packets import Packets

__all__ = [
    "IS_TO_F32",
    "IS_WIDE",
    "REDUCES",
    "Arms",
    "GpuMasks",
    "Request",
    "replaced_results",
    "result_headers",
    "results",
    "slots_of",
]

GpuMasks: TypeAlias = npt.NDArray[np.uint64]
"""Bit *g* stands for GPU *g*."""

_NO_FLITS = np.zeros((0, 2), np.uint64)


def _types(members: tuple[Any, ...]) -> Mask:
    return np.isin(np.arange(16), [value_of(member) for member in members])


IS_WIDE = _types(WIDE)
"""By the 4 bits of ``dtype``: whether sums take 32 bits an element."""
IS_TO_F32 = _types(TO_F32)
"""By the 4 bits of ``dtype``: whether the result is twice as long as a part."""
REDUCES = np.zeros((16, 8), bool)
"""By ``dtype`` and ``aux`` bits 2:0: whether there is such a reduction."""
for _dtype in values_of(DType):
    REDUCES[_dtype, [value_of(op) for op in REDUCTIONS[DType(_dtype)]]] = True


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request that arms an entry.

    Parameters
    ----------
    tag, gen, dtype, op, length : int
        From its header; `op` is ``aux`` bits 2:0.
    kind : int
        ``Kind.LOAD``, or ``Kind.STORE`` for stores and ``multimem.red``.
    canonical : bool
        Whether parts are taken by ascending GPU; loads only.
    total : int
        Targets of the request, all of which have to be covered by parts.
    expected : int
        Bit *g*: GPU *g* gets a copy, so it answers.
    """

    tag: int
    gen: int
    kind: int
    dtype: int
    op: int
    canonical: bool
    length: int
    total: int
    expected: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Arms:
    """Many requests that arm entries of one port, in order; the fields are those of `Request`."""

    tag: IntArray
    gen: IntArray
    kind: IntArray
    dtype: IntArray
    op: IntArray
    canonical: Mask
    length: IntArray
    total: IntArray
    expected: GpuMasks

    def __post_init__(self) -> None:
        for field in fields(self):
            shape = getattr(self, field.name).shape
            if shape != (len(self.tag),):
                raise ValueError(
                    f"`{field.name}` must have the shape ({len(self)},), not {shape!r}"
                )

    @classmethod
    def of(cls, *requests: Request) -> "Arms":
        """Put single requests together."""
        kinds = {"expected": np.uint64, "canonical": np.bool_}
        return cls(
            **{
                field.name: np.array(
                    [getattr(request, field.name) for request in requests],
                    kinds.get(field.name, np.int64),
                )
                for field in fields(cls)
            }
        )

    def select(self, which: Mask | IntArray) -> "Arms":
        """Return the requests for which a mask is true, or those at some indices."""
        return Arms(**{field.name: getattr(self, field.name)[which] for field in fields(self)})

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.tag)

    def __iter__(self) -> Iterator[Request]:
        """Iterate over single requests."""
        names = [field.name for field in fields(self)]
        columns = [getattr(self, name).tolist() for name in names]
        return (Request(**dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True))


def slots_of(length: IntArray, dtype: IntArray) -> IntArray:
    """Entries that each sum takes, as :func:`dysharp.rtl.flits.slots`, for any dtype."""
    words = np.where(IS_WIDE[dtype], 2 * length, length)
    return np.select([words <= SLOT_FLITS, words <= 2 * SLOT_FLITS], [1, 2], 4)


def result_headers(arms: Arms, gpu: int, status: Integers) -> FlitArray:
    """Header flits of the results of some requests.

    Parameters
    ----------
    arms : Arms
        The requests.
    gpu : int
        The GPU that sent them.
    status : int, enum member or array
        How they ended, for all or for each.
    """
    plain = value_of(status) if isinstance(status, Status) else status
    ended = np.broadcast_to(np.asarray(plain), len(arms))
    good, load = ended == value_of(Status.OK), arms.kind == value_of(Kind.LOAD)
    becomes_f32 = good & load & IS_TO_F32[arms.dtype]
    return pack_headers(
        opcode=np.where(good & ~load, value_of(Opcode.RSP_ACK), value_of(Opcode.RSP_DATA)),
        count=arms.total,
        tag=arms.tag,
        gen=arms.gen,
        aux=ended,
        length=np.select([~good, load], [1, np.where(becomes_f32, 2, 1) * arms.length], 0),
        gpu=gpu,
        vc=Vc.RESPONSE,
        dtype=np.where(becomes_f32, value_of(DType.F32), arms.dtype),
    )


def results(
    arms: Arms,
    gpu: int,
    status: Integers,
    *,
    data: FlitArray = _NO_FLITS,
    missing: GpuMasks | int = 0,
    faulty: GpuMasks | int = 0,
) -> Packets:
    """Results of some requests, in the same order.

    Parameters
    ----------
    arms, gpu, status
        As for :func:`result_headers`.
    data : ndarray
        Sums of the loads that ended well, end to end.
    missing, faulty : ndarray or int
        The report of the others, for all or for each.
    """
    headers = result_headers(arms, gpu, status)
    failed = unpack_field(headers, "aux") != value_of(Status.OK)
    lengths = unpack_field(headers, "length")
    begins = offsets(lengths)
    flits = np.empty((int(lengths.sum()), 2), np.uint64)
    for word, report in enumerate((missing, faulty)):
        masks = np.broadcast_to(np.asarray(report, np.uint64), len(arms))
        flits[begins[failed], word] = masks[failed]
    flits[ragged_index(begins[~failed], lengths[~failed])] = data
    return Packets.build(headers, data=flits)


def replaced_results(arms: Arms, gpu: int) -> Packets:
    """Results of requests whose tag was used again before any answer came, in order."""
    order = np.argsort(arms.tag, kind="stable")
    same = np.flatnonzero(arms.tag[order[:-1]] == arms.tag[order[1:]])
    old, new = order[same], order[same + 1]
    old = old[np.argsort(new)]
    ended = arms.select(old)
    return results(ended, gpu, Status.REPLACED, missing=ended.expected)
