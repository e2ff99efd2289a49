# SPDX-License-Identifier: Apache-2.0
"""The memory side of a GPU: what requests do to its memory, and how they are answered.

Requests are carried out one after the other, in the order in which they arrived. Answers to one
requester keep that order among its stores, among its loads and among its ``MM_RED``; how these
three mix, and how answers to different requesters do, is a matter of time.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..rtl.flits import (
    FLIT_BYTES,
    MAX_BYTE_ENABLE_FLITS,
    MAX_DATA_FLITS,
    MAX_PRESUM_FLITS,
    MIN_PRESUM_TARGETS,
    WIDE,
    Addressing,
    DType,
    Kind,
    Opcode,
    ReduceOp,
    Status,
    Vc,
)
from ..rtl.gpu_params import GpuParams
from .al_map import DYNAMIC, LOCAL, LOOKUPS, STATIC
from .arrays import FlitArray, IntArray, value_of
from .flits import (
    as_flits,
    extension_flits,
    pack_headers,
    unpack_headers,
    unpack_targets,
)
from .numerics import (
    Member,
    bf16_to_f32,
    elements,
    f16_to_f32,
    flits,
    is_f16,
    reduce,
    reduce_ordered,
)

__all__ = ["Answer", "HubModel", "Translate"]

Bytes = npt.NDArray[np.uint8]

_REQUESTS = ("WRITE", "READ", "MM_ST", "MM_LD_REDUCE", "MM_RED", "DY_ST", "DY_LD_REDUCE")
_KNOWN = tuple(value_of(getattr(Opcode, name)) for name in _REQUESTS)
_BAD = value_of(Status.BAD_ADDRESS)
_OK = value_of(Status.OK)
_WIDE = tuple(value_of(dtype) for dtype in WIDE)


Translate = Callable[[npt.NDArray[np.void]], tuple[IntArray, IntArray]]
"""Places and statuses of lookups, as :meth:`dysharp.golden.al_map.AlMap.translate`; called in order
of the requests."""


@dataclass(frozen=True, eq=False)
class Answer:
    """One packet to a requester."""

    gpu: int
    kind: str
    """``store``, ``load`` or ``red``."""
    flits: FlitArray

    @property
    def words(self) -> tuple[int, ...]:
        """The flits as whole numbers."""
        return tuple(low | high << 64 for low, high in self.flits.tolist())


class HubModel:
    """Carries out requests on a memory.

    Parameters
    ----------
    params : GpuParams
        The hub.
    memory : ndarray
        The GPU's memory in bytes; it is changed. There is nothing beyond it: beats that begin there
        end with an error.
    translate : callable
        Place of each target.
    presum : bool
        A load gets one part with the sum of its targets.

    Errors
    ------
    Malformed requests are dropped. A target that is refused, or that the memory has nothing for,
    makes the request end with ``BAD_ADDRESS``: a store is carried out for its other targets, a load
    is answered without data. A load with a part for each target, of which one is refused, gets
    one answer for all; if the memory has nothing for it, only its own part is without data.
    """

    def __init__(
        self,
        params: GpuParams,
        memory: Bytes,
        translate: Translate,
        *,
        presum: bool = True,
    ) -> None:
        if memory.dtype != np.uint8 or memory.ndim != 1:
            raise TypeError("`memory` must be an array of bytes")
        self._params = params
        self._memory = memory
        self._translate = translate
        self._beat = params.memory_flits * FLIT_BYTES
        self.presum = presum
        self.requests = 0
        """Requests that came in; counter of the same name."""
        self.refused = 0
        """Requests that were dropped or ended with an error."""

    @property
    def memory(self) -> Bytes:
        """The memory as it is now."""
        return self._memory

    def run(self, packets: Iterable[FlitArray]) -> list[Answer]:
        """Carry out requests in order of their arrival; all answers, in their order."""
        return [answer for packet in packets for answer in self.request(packet)]

    def request(self, packet: FlitArray) -> list[Answer]:
        """Carry out one request."""
        packet = as_flits("packet", packet)
        header = packet[:1]
        fields = {name: int(column[0]) for name, column in unpack_headers(header).items()}
        self.requests += 1
        if not self._well_formed(fields):
            self.refused += 1
            return []
        how, kind = fields["opcode"] >> 2, fields["opcode"] & 3
        targets, at = [0], 1
        if how == value_of(Addressing.DYNAMIC):
            lists = int(extension_flits(np.array(fields["count"])))
            targets = unpack_targets(packet[1 : 1 + lists], fields["count"]).tolist()
            at += lists
        places = self._places(fields, how, kind, targets)
        enables = None
        if fields["byte_enable"]:
            enables = _enables(packet[at])[: fields["length"] * FLIT_BYTES]
            at += 1
        data = packet[at:]
        if kind == value_of(Kind.LOAD):
            answers, status = self._load(header, fields, places)
        else:
            change = self._red if kind == value_of(Kind.RED) else self._store
            status = _OK
            for place in places:
                good = place is not None and change(fields, place, data, enables)
                status = status if good else _BAD
            silent = fields["posted"] and how != value_of(Addressing.UNICAST)
            answers = [] if silent else [_answer(header, fields, len(places), status)]
        self.refused += status != _OK
        return answers

    def _well_formed(self, fields: dict[str, int]) -> bool:
        opcode, length = fields["opcode"], fields["length"]
        listed = opcode >> 2 == value_of(Addressing.DYNAMIC)
        is_load = opcode & 3 == value_of(Kind.LOAD)
        return (
            opcode in _KNOWN
            and fields["vc"] == value_of(Vc.REQUEST)
            and fields["gpu"] < self._params.gpus
            and 1 <= length <= MAX_DATA_FLITS
            and (not listed or 1 <= fields["count"] <= self._params.max_targets)
            and not (fields["byte_enable"] and (is_load or length > MAX_BYTE_ENABLE_FLITS))
        )

    def _places(
        self, fields: dict[str, int], how: int, kind: int, targets: list[int]
    ) -> list[int | None]:
        space = {
            value_of(Addressing.UNICAST): LOCAL,
            value_of(Addressing.STATIC): STATIC,
            value_of(Addressing.DYNAMIC): DYNAMIC,
        }[how]
        lookups = np.zeros(len(targets), LOOKUPS)
        lookups["space"] = space
        lookups["stage"] = fields["stage"]
        lookups["allocate"] = kind == value_of(Kind.STORE)
        lookups["target"] = targets
        lookups["address"] = fields["address"]
        lookups["length"] = fields["length"]
        places, status = self._translate(lookups)
        return [
            place if told == _OK else None
            for place, told in zip(places.tolist(), status.tolist(), strict=True)
        ]

    def _exists(self, place: int, size: int) -> npt.NDArray[np.bool_]:
        """Which bytes lie in beats that the memory has."""
        begins = (place + np.arange(size)) // self._beat * self._beat
        there: npt.NDArray[np.bool_] = begins < len(self._memory)
        return there

    def _read(self, place: int, length: int) -> tuple[FlitArray, npt.NDArray[np.bool_]]:
        size = length * FLIT_BYTES
        there = self._exists(place, size)
        raw = np.zeros(size, np.uint8)
        raw[there] = self._memory[place + np.flatnonzero(there)]
        return raw.view("<u8").reshape(-1, 2).astype(np.uint64), there

    def _write(
        self, place: int, data: FlitArray, mask: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        raw = data.astype("<u8").view(np.uint8).reshape(-1)
        there = self._exists(place, len(raw))
        mask = mask & there
        self._memory[place + np.flatnonzero(mask)] = raw[mask]
        return there

    def _store(self, fields: dict[str, int], place: int, data: FlitArray, enables: object) -> bool:
        return bool(self._write(place, data, _mask(fields, enables)).all())

    def _red(self, fields: dict[str, int], place: int, data: FlitArray, enables: object) -> bool:
        dtype: Member = DType(fields["dtype"])
        if fields["dtype"] in _WIDE:  # one operation, rounded once: the same in the type itself
            dtype = DType.F16 if is_f16(dtype) else DType.BF16
        width = 16 if dtype in (DType.F16, DType.BF16) else 32
        old, there = self._read(place, fields["length"])
        new = flits(
            reduce(ReduceOp(fields["aux"] & 7), dtype, elements(old, width), elements(data, width))
        )
        self._write(place, new, _mask(fields, enables) & there)
        return bool(there.all())

    def _load(
        self, header: FlitArray, fields: dict[str, int], places: list[int | None]
    ) -> tuple[list[Answer], int]:
        count, length = len(places), fields["length"]
        good = [place for place in places if place is not None]
        if len(good) != count:
            return [_answer(header, fields, count, _BAD)], _BAD
        read = [self._read(place, length) for place in good]
        wide = fields["dtype"] in _WIDE
        fits = not wide or (count >= MIN_PRESUM_TARGETS and length <= MAX_PRESUM_FLITS)
        if self.presum and count > 1 and fits:
            parts = [_sum(fields, np.stack([data for data, _ in read]), wide)]
            there = [all(mask.all() for _, mask in read)]
        else:
            parts = [data for data, _ in read]
            there = [bool(mask.all()) for _, mask in read]
        answers = []
        for number, (data, is_there) in enumerate(zip(parts, there, strict=True)):
            more = number < len(parts) - 1
            covers = count // len(parts)
            if is_there:
                answers.append(_answer(header, fields, covers, _OK, data, more))
            else:
                answers.append(_answer(header, fields, covers, _BAD, None, more))
        return answers, _OK if all(there) else _BAD


def _enables(flit: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    raw = flit.astype("<u8").view(np.uint8)
    return np.unpackbits(raw, bitorder="little").astype(bool)


def _mask(fields: dict[str, int], enables: object) -> npt.NDArray[np.bool_]:
    if isinstance(enables, np.ndarray):
        return enables
    return np.ones(fields["length"] * FLIT_BYTES, bool)


def _sum(fields: dict[str, int], parts: npt.NDArray[np.uint64], wide: bool) -> FlitArray:
    op, dtype = ReduceOp(fields["aux"] & 7), DType(fields["dtype"])
    if not wide:
        return reduce_ordered(op, dtype, parts)
    widen = f16_to_f32 if is_f16(dtype) else bf16_to_f32
    acc = widen(elements(parts[0], 16))
    for part in parts[1:]:
        acc = reduce(op, dtype, acc, widen(elements(part, 16)))
    return flits(acc)


def _answer(
    header: FlitArray,
    fields: dict[str, int],
    count: int,
    status: int,
    data: FlitArray | None = None,
    more: bool = False,
) -> Answer:
    unicast = fields["opcode"] >> 2 == value_of(Addressing.UNICAST)
    if data is None:
        opcode = Opcode.RSP_ACK if unicast else Opcode.PART_ACK
    else:
        opcode = Opcode.RSP_DATA if unicast else Opcode.PART_DATA
    doubled = data is not None and len(data) != fields["length"]
    made = pack_headers(
        **{name: fields[name] for name in ("address", "stage", "tag", "gen", "gpu")},
        dtype=value_of(DType.F32) if doubled else fields["dtype"],
        vc=value_of(Vc.RESPONSE),
        opcode=value_of(opcode),
        count=count,
        aux=status,
        length=0 if data is None else len(data),
        more=int(more),
    )
    kind = {1: "store", 2: "load", 3: "red"}[fields["opcode"] & 3]
    packet = made if data is None else np.concatenate([made, data])
    return Answer(fields["gpu"], kind, packet)
