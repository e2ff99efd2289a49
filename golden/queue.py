# SPDX-License-Identifier: Apache-2.0
"""The MultimemQ: what accesses become packets together, their packets, tags and results.

Where a packet ends depends on time (a packet that does not grow is sent), so the model does not
say where: it takes the number of accesses of each entry as they were seen, and checks that they
could be so. Everything else follows from the accesses and the memories of target lists.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..rtl.flits import (
    FLIT_BYTES,
    REDUCTIONS,
    SLOT_FLITS,
    TO_F32,
    WIDE,
    Kind,
    Opcode,
    Stage,
    Status,
    Vc,
)
from ..rtl.gpu_params import GpuParams
from .arrays import FlitArray, IntArray, Mask, offsets, ragged_index, value_of
from .flits import as_flits, pack_headers
from .packets import Packets

__all__ = [
    "ACCESS",
    "RESULT",
    "Entries",
    "ListReader",
    "QueueModel",
    "list_reader",
    "make_accesses",
]

ACCESS = np.dtype(
    [
        ("opcode", np.uint8),
        ("size", np.uint8),
        ("dtype", np.uint8),
        ("op", np.uint8),
        ("order", np.uint8),
        ("posted", np.uint8),
        ("last", np.uint8),
        ("rd", np.uint16),
        ("address", np.uint64),
        ("count", np.uint16),
        ("shared", np.uint8),
        ("list", np.uint64),
        ("data", np.uint64, 2),
    ]
)
"""An access, with the fields of ``rtl/queue/ports.py``; ``size`` is 0, 1 or 2 for 4, 8 or 16 B."""

RESULT = np.dtype(
    [
        ("rd", np.uint16),
        ("accesses", np.uint8),
        ("load", np.uint8),
        ("status", np.uint8),
        ("data", np.uint64, 2),
    ]
)
"""A result, with the fields of ``rtl/queue/ports.py``."""

ListReader = Callable[[bool, int, int], "npt.NDArray[np.uint16] | None"]
"""``(shared, address, count)`` to the targets there, or None if the memory reports an error."""

_OK = value_of(Status.OK)
_KNOWN = [
    value_of(opcode)
    for opcode in (
        Opcode.MM_ST,
        Opcode.MM_LD_REDUCE,
        Opcode.MM_RED,
        Opcode.DY_ST,
        Opcode.DY_LD_REDUCE,
    )
]
_SAME = ("opcode", "size", "dtype", "op", "order", "posted", "count", "shared", "list")
_ADDRESS_MASK = np.uint64((1 << 48) - 1)


def _reduces() -> Mask:
    table = np.zeros((16, 8), np.bool_)
    for dtype, ops in REDUCTIONS.items():
        if dtype not in TO_F32:
            table[value_of(dtype), [value_of(op) for op in ops]] = True
    return table


_REDUCES = _reduces()
_WIDE = np.isin(np.arange(16), [value_of(dtype) for dtype in WIDE])


def make_accesses(number: int, /, **fields: npt.ArrayLike) -> npt.NDArray[np.void]:
    """Return `number` accesses with these fields; those that are not named are 0.

    Raises
    ------
    ValueError
        If there is no such field.
    """
    accesses = np.zeros(number, ACCESS)
    for name, value in fields.items():
        if name not in (ACCESS.names or ()):
            raise ValueError(f"an access has no field {name!r}")
        accesses[name] = value
    return accesses


def list_reader(shared: bytes, global_: bytes) -> ListReader:
    """Memories of target lists with these contents from address 0 on.

    They are read in words of 16 bytes; a word that is not wholly there is an error.
    """
    memories = {True: shared, False: global_}

    def read(is_shared: bool, address: int, count: int) -> npt.NDArray[np.uint16] | None:
        memory = memories[bool(is_shared)]
        end = address + 2 * count
        if -(-end // FLIT_BYTES) * FLIT_BYTES > len(memory):
            return None
        return np.frombuffer(memory[address:end], "<u2")

    return read


@dataclass(frozen=True, kw_only=True)
class Entries:
    """Entries of the queue, in order.

    Attributes
    ----------
    first, accesses : ndarray
        Index of the first access, and how many there are.
    status : ndarray
        Other than OK: there is no packet.
    packet : ndarray
        Index of the packet in :attr:`packets`, or -1.
    packets : Packets
        What is sent, with tags and generations.
    """

    first: IntArray
    accesses: IntArray
    status: IntArray
    packet: IntArray
    packets: Packets


class QueueModel:
    """A queue from its reset on.

    Parameters
    ----------
    params : GpuParams
        The queue.
    gpu : int
        Number of its GPU.
    """

    def __init__(self, params: GpuParams, gpu: int = 0) -> None:
        self._params = params
        self._gpu = gpu
        self._tag = 0
        self._uses = np.zeros(params.tags, np.int64)

    def status(self, accesses: npt.NDArray[np.void]) -> IntArray:
        """Return what is wrong with each access by itself, lists not read."""
        opcode = accesses["opcode"].astype(np.int64)
        size = accesses["size"].astype(np.int64)
        kind = opcode & 3
        dynamic = opcode >> 3 == 1
        reduction = (kind == value_of(Kind.LOAD)) | (kind == value_of(Kind.RED))
        step = np.uint64(4) << accesses["size"].astype(np.uint64)
        odd = dynamic & (accesses["list"] & np.uint64(1) != 0)
        return np.select(
            [
                ~np.isin(opcode, _KNOWN),
                (size == 3) | ((kind == value_of(Kind.RED)) & (size != 2)),
                (accesses["address"] % step != 0) | odd,
                dynamic & (accesses["count"] == 0),
                dynamic & (accesses["count"] > self._params.max_targets),
                reduction & ~_REDUCES[accesses["dtype"], accesses["op"]],
            ],
            [
                value_of(Status.UNKNOWN_OPCODE),
                value_of(Status.BAD_LENGTH),
                value_of(Status.BAD_ADDRESS),
                value_of(Status.COUNT_ZERO),
                value_of(Status.TOO_MANY_TARGETS),
                value_of(Status.BAD_REDUCTION),
            ],
            _OK,
        ).astype(np.int64)

    def joins(self, accesses: npt.NDArray[np.void]) -> Mask:
        """Return which accesses go into the entry of the one before if it is still open."""
        before, this = accesses[:-1], accesses[1:]
        size = before["size"].astype(np.uint64)
        joins = np.zeros(len(accesses), np.bool_)
        same = np.ones(len(this), np.bool_)
        for name in _SAME:
            same &= before[name] == this[name]
        same &= before["last"] == 0
        same &= this["rd"] == before["rd"] + np.uint16(1)
        end = before["address"] + (np.uint64(4) << size) & _ADDRESS_MASK
        same &= this["address"] == end
        same &= (self.status(accesses) == _OK)[:-1]
        # Stores that may need a byte-enable flit stay within what it reaches.
        partial = (this["opcode"] & 1 == 1) & (this["size"] != 2)
        flits = np.where(partial, min(self._params.packet_flits, 8), self._params.packet_flits)
        same &= this["address"] % (flits * FLIT_BYTES).astype(np.uint64) != 0
        joins[1:] = same
        return joins

    def check_partition(
        self,
        accesses: npt.NDArray[np.void],
        sizes: IntArray,
        paused: Mask | None = None,
    ) -> None:
        """Check that entries of so many accesses could have been made.

        Parameters
        ----------
        accesses : ndarray
            All accesses.
        sizes : ndarray
            Accesses of each entry.
        paused : ndarray, optional
            Accesses before which there was a pause so long that an open entry may have been sent.
            Without it all entries must be as long as they can be.

        Raises
        ------
        ValueError
            If they could not. The message names the first access.
        """
        if sizes.sum() != len(accesses):
            raise ValueError(f"the entries have {sizes.sum()} accesses, not {len(accesses)}")
        begins = np.zeros(len(accesses), np.bool_)
        begins[offsets(sizes)] = True
        joins = self.joins(accesses)
        wrong = np.flatnonzero(~begins & ~joins)
        if len(wrong):
            raise ValueError(f"access {wrong[0]} must not go into the entry of the one before")
        may = np.zeros(len(accesses), np.bool_) if paused is None else paused
        wrong = np.flatnonzero(begins & joins & ~may)
        if len(wrong):
            raise ValueError(f"access {wrong[0]} belongs into the entry of the one before")

    def partition(self, accesses: npt.NDArray[np.void]) -> IntArray:
        """Return the accesses of each entry when there are no pauses."""
        begins = np.flatnonzero(~self.joins(accesses))
        return np.diff(begins, append=len(accesses))

    def entries(self, accesses: npt.NDArray[np.void], sizes: IntArray, read: ListReader) -> Entries:
        """Return the entries and their packets; tags go on from those of the last call.

        Parameters
        ----------
        accesses : ndarray
            Accesses.
        sizes : ndarray
            Accesses of each entry.
        read : callable
            Memories of target lists (:func:`list_reader`).
        """
        first = offsets(sizes)
        head = accesses[first]
        tail = accesses[first + sizes - 1]
        status = self.status(head)
        lists: list[npt.NDArray[np.uint16]] = []
        for index in np.flatnonzero((status == _OK) & (head["opcode"] >> 3 == 1)).tolist():
            entry = head[index]
            found = read(bool(entry["shared"]), int(entry["list"]), int(entry["count"]))
            if found is None:
                status[index] = value_of(Status.BAD_ADDRESS)
            else:
                lists.append(found)
        good = status == _OK
        packet = np.where(good, np.cumsum(good) - 1, -1)
        targets = np.concatenate(lists) if lists else np.zeros(0, np.uint16)
        packets = self._packets(head[good], tail[good], accesses, first[good], sizes[good], targets)
        return Entries(first=first, accesses=sizes, status=status, packet=packet, packets=packets)

    def results(
        self,
        accesses: npt.NDArray[np.void],
        entries: Entries,
        entry: int,
        status: int = _OK,
        data: FlitArray | None = None,
    ) -> npt.NDArray[np.void]:
        """Return the results of one entry in order, or none if nobody waits for it.

        Parameters
        ----------
        accesses, entries : ndarray, Entries
            Accesses, and what :meth:`entries` made of them.
        entry : int
            Index of the entry.
        status : int
            Of the response, if there is a packet.
        data : ndarray
            Data flits of the response to a load.
        """
        first, number = int(entries.first[entry]), int(entries.accesses[entry])
        mine = accesses[first : first + number]
        load = int(mine["opcode"][0]) in (
            value_of(Opcode.MM_LD_REDUCE),
            value_of(Opcode.DY_LD_REDUCE),
        )
        sent = entries.packet[entry] >= 0
        if sent and mine["posted"][0] and not load:
            return np.zeros(0, RESULT)
        told = status if sent else int(entries.status[entry])
        results = np.zeros(number if load else 1, RESULT)
        results["rd"] = mine["rd"][: len(results)]
        results["accesses"] = 1 if load else number
        results["load"] = load
        results["status"] = told
        if load and told == _OK:
            if data is None:
                raise ValueError("the response to a load needs `data`")
            size = 4 << int(mine["size"][0])
            flat = np.frombuffer(as_flits("data", data).astype("<u8").tobytes(), np.uint8)
            begin = int(mine["address"][0]) % FLIT_BYTES
            values = np.zeros((number, FLIT_BYTES), np.uint8)
            values[:, :size] = flat[begin : begin + number * size].reshape(number, size)
            results["data"] = values.view("<u8").reshape(number, 2)
        return results

    def _packets(
        self,
        head: npt.NDArray[np.void],
        tail: npt.NDArray[np.void],
        accesses: npt.NDArray[np.void],
        first: IntArray,
        sizes: IntArray,
        targets: npt.NDArray[np.uint16],
    ) -> Packets:
        """Packets of entries without errors."""
        opcode = head["opcode"].astype(np.int64)
        begin = head["address"].astype(np.int64)
        size = 4 << head["size"].astype(np.int64)
        end = tail["address"].astype(np.int64) + size
        base = begin // FLIT_BYTES * FLIT_BYTES
        length = -(-(end - base) // FLIT_BYTES)
        store = opcode & 1 == 1
        load = opcode & 3 == value_of(Kind.LOAD)
        reduction = opcode & 2 == 2
        posted = store & (head["posted"] == 1)
        partial = store & ((begin % FLIT_BYTES != 0) | (end % FLIT_BYTES != 0))
        words = length * np.where(_WIDE[head["dtype"]], 2, 1)
        slots = np.where(load & (words > SLOT_FLITS), np.where(words > 2 * SLOT_FLITS, 4, 2), 1)
        tag, gen = self._tags(slots, ~posted)
        headers = pack_headers(
            address=base,
            stage=np.where(
                opcode == value_of(Opcode.DY_LD_REDUCE),
                value_of(Stage.COMBINE),
                value_of(Stage.DISPATCH),
            ),
            count=head["count"].astype(np.int64),
            opcode=opcode,
            tag=tag,
            gen=gen,
            aux=np.where(reduction, head["order"].astype(np.int64) << 3 | head["op"], 0),
            length=length,
            byte_enable=partial.astype(np.int64),
            gpu=self._gpu,
            vc=value_of(Vc.REQUEST),
            dtype=np.where(reduction, head["dtype"], 0).astype(np.int64),
            posted=posted.astype(np.int64),
        )
        lengths = np.where(store, length, 0)
        data, enables = _store_flits(accesses, first, sizes, base, lengths, store)
        return Packets.build(
            headers,
            targets=targets.astype(np.int64),
            byte_enables=enables[partial],
            data=data,
        )

    def _tags(self, slots: IntArray, wanted: Mask) -> tuple[IntArray, IntArray]:
        """Tags in a ring, each a multiple of the entries that it stands for."""
        tags = np.zeros(len(slots), np.int64)
        gens = np.zeros(len(slots), np.int64)
        for index in np.flatnonzero(wanted).tolist():
            need = int(slots[index])
            tag = -(-self._tag // need) * need % self._params.tags
            tags[index] = tag
            gens[index] = self._uses[tag] % 4
            self._uses[tag] += 1
            self._tag = (tag + need) % self._params.tags
        return tags, gens


def _store_flits(
    accesses: npt.NDArray[np.void],
    first: IntArray,
    sizes: IntArray,
    base: IntArray,
    lengths: IntArray,
    store: Mask,
) -> tuple[FlitArray, FlitArray]:
    """Return the data flits of all stores end to end, and a byte-enable flit for each entry."""
    data = np.zeros(int(lengths.sum()) * FLIT_BYTES, np.uint8)
    enables = np.zeros((len(first), FLIT_BYTES * 8), np.uint8)
    entry = np.repeat(np.flatnonzero(store), sizes[store])
    mine = accesses[ragged_index(first[store], sizes[store])]
    size = 4 << mine["size"].astype(np.int64)
    place = mine["address"].astype(np.int64) - base[entry]
    raw = np.ascontiguousarray(mine["data"]).view(np.uint8).reshape(len(mine), FLIT_BYTES)
    which = np.repeat(np.arange(len(mine)), size)
    byte = ragged_index(np.zeros(len(mine), np.int64), size)
    at = place[which] + byte
    data[offsets(lengths)[entry][which] * FLIT_BYTES + at] = raw[which, byte]
    reached = at < enables.shape[1]
    enables[entry[which][reached], at[reached]] = 1
    bits = np.packbits(enables, axis=1, bitorder="little")
    return data.view("<u8").reshape(-1, 2), bits.view("<u8").reshape(-1, 2)
