# SPDX-License-Identifier: Apache-2.0
"""The reduction entries of one port, a packet at a time: how parts and time-outs become results.

The order of calls is the order of events. Sums are worked out when their entry ends. For many
requests that are answered as they should be, :mod:`dysharp.golden.combine` is faster.
"""

import enum
from dataclasses import dataclass, field

import numpy as np

from ..rtl.flits import DType, Kind, Opcode, Status, Vc
from ..rtl.params import SwitchParams
from .arms import IS_WIDE, Arms, Request, results
from .arrays import FlitArray, value_of
from .combine import sums
from .flits import as_flits, unpack_headers
from .packets import Packets

__all__ = ["Outcome", "ReductionModel"]

_OK = value_of(Status.OK)
_LOAD = value_of(Kind.LOAD)
_ANSWERS = (value_of(Opcode.PART_ACK), value_of(Opcode.PART_DATA))
_NO_FLITS = np.zeros((0, 2), np.uint64)


class Outcome(enum.Enum):
    """What became of a part."""

    WAITS = "waits"
    """Canonical order: a GPU before it has not answered to the end. Offer it again later."""
    LATE = "late"
    """Dropped: no entry is armed for it."""
    DUPLICATE = "duplicates"
    """Dropped: its GPU was not asked, or has answered to the end."""
    WRONG = "wrong"
    """It did not fit, so its GPU is done and the request will end with ``BAD_RESPONSE``."""
    TAKEN = "taken"


@dataclass
class _Entry:
    request: Request
    left: int
    done: int = 0
    faulty: int = 0
    status: int = _OK
    parts: list[FlitArray] = field(default_factory=list)
    """Data of the good parts in the order of the sum."""
    presums: list[bool] = field(default_factory=list)


class ReductionModel:
    """Reduction entries of one port.

    Parameters
    ----------
    params : SwitchParams
        The switch.
    port : int
        The port, whose GPU is the requester.

    Errors
    ------
    See :class:`Outcome` for parts, which are dropped or spoil the result of their request, and
    :class:`~dysharp.rtl.flits.Status` from 12 on for results. Of several statuses the greatest is
    told; so a request that is replaced after a target told ``BAD_ADDRESS`` ends with that.
    """

    def __init__(self, params: SwitchParams, port: int) -> None:
        if not 0 <= port < params.ports:
            raise ValueError(f"`port` must be 0 to {params.ports - 1}, not {port!r}")
        self._params = params
        self._gpu = port // params.links_per_gpu
        self._entries: dict[int, _Entry] = {}
        self._results: list[Packets] = []
        self._counters = dict.fromkeys(("late", "duplicates", "wrong", "timeouts", "replaced"), 0)

    @property
    def armed(self) -> int:
        """Entries that are armed now."""
        return len(self._entries)

    @property
    def armed_tags(self) -> tuple[int, ...]:
        """Tags of the entries that are armed now."""
        return tuple(sorted(self._entries))

    @property
    def counters(self) -> dict[str, int]:
        """Counters of the port from ``late`` on, by name."""
        return dict(self._counters)

    @property
    def results(self) -> Packets:
        """All results so far, in order."""
        return Packets.concatenate(*self._results)

    def arm(self, request: Request) -> None:
        """Arm an entry; if it is armed, its old request ends with ``REPLACED``.

        Raises
        ------
        ValueError
            If the entry does not exist: the switch refuses such requests.
        """
        if not 0 <= request.tag < self._params.entries:
            raise ValueError(f"`tag` must be 0 to {self._params.entries - 1}, not {request.tag!r}")
        if request.tag in self._entries:
            self._counters["replaced"] += 1
            self._end(request.tag, value_of(Status.REPLACED))
        self._entries[request.tag] = _Entry(request, request.total)

    def part(self, gpu: int, packet: FlitArray) -> Outcome:
        """Offer a well-formed part from `gpu`, the GPU of the port that it came in by.

        Raises
        ------
        ValueError
            If the packet is not a part, or `gpu` does not exist.
        """
        if not 0 <= gpu < self._params.gpus:
            raise ValueError(f"`gpu` must be 0 to {self._params.gpus - 1}, not {gpu!r}")
        header = as_flits("packet", packet)[:1]
        fields = {name: int(column[0]) for name, column in unpack_headers(header).items()}
        if fields["opcode"] not in _ANSWERS or fields["vc"] != value_of(Vc.RESPONSE):
            raise ValueError(f"`packet` must be a part, not opcode {fields['opcode']!r}")
        outcome = self._take(gpu, fields, packet[1:])
        if outcome.value in self._counters:
            self._counters[outcome.value] += 1
        return outcome

    def time_out(self, tag: int) -> None:
        """End the request of an entry, as the switch does when it was armed for too long.

        Raises
        ------
        ValueError
            If the entry is not armed.
        """
        if tag not in self._entries:
            raise ValueError(f"`tag` must be of an armed entry, not {tag!r}")
        self._counters["timeouts"] += 1
        self._end(tag, value_of(Status.TIMEOUT))

    def _take(self, gpu: int, fields: dict[str, int], data: FlitArray) -> Outcome:
        entry = self._entries.get(fields["tag"])
        if entry is None or entry.request.gen != fields["gen"]:
            return Outcome.LATE
        request, bit = entry.request, 1 << gpu
        open_ones = request.expected & ~entry.done
        if not open_ones & bit:
            return Outcome.DUPLICATE
        in_turn = request.canonical and request.kind == _LOAD
        if in_turn and open_ones & (bit - 1):
            return Outcome.WAITS
        fits = 1 <= fields["count"] <= entry.left and _fits(request, fields)
        if fits:
            entry.left -= fields["count"]
            if fields["aux"] != _OK:
                entry.faulty |= bit
                entry.status = max(entry.status, fields["aux"])
            elif entry.status == _OK and request.kind == _LOAD:
                entry.parts.append(data)
                entry.presums.append(len(data) != request.length)
        else:
            entry.faulty |= bit
            entry.status = max(entry.status, value_of(Status.BAD_RESPONSE))
        if not (fits and fields["more"]):
            entry.done |= bit
        if entry.done == request.expected:
            self._end(request.tag, value_of(Status.BAD_RESPONSE) if entry.left else _OK)
        return Outcome.TAKEN if fits else Outcome.WRONG

    def _end(self, tag: int, status: int) -> None:
        """Free the entry and send its result; `status` is told if it is the greatest."""
        entry = self._entries.pop(tag)
        request, ended = entry.request, max(entry.status, status)
        data = _NO_FLITS
        if ended == _OK and request.kind == _LOAD:
            parts = np.zeros((1, len(entry.parts), max(map(len, entry.parts)), 2), np.uint64)
            for index, part in enumerate(entry.parts):
                parts[0, index, : len(part)] = part
            presum = np.array([entry.presums])
            data = sums(request.op, request.dtype, parts, presum)[0]
        missing = request.expected & ~entry.done
        self._results.append(
            results(
                Arms.of(request),
                self._gpu,
                ended,
                data=data,
                missing=missing,
                faulty=entry.faulty,
            )
        )


def _fits(request: Request, fields: dict[str, int]) -> bool:
    """Whether a part is one that this request asked for, whatever it covers."""
    has_data = fields["opcode"] == value_of(Opcode.PART_DATA)
    if request.kind != _LOAD:
        return not has_data
    if fields["aux"] != _OK:
        return True
    same = (request.dtype, request.length)
    presum = (value_of(DType.F32), 2 * request.length)
    found = (fields["dtype"], fields["length"])
    return has_data and (found == same or (bool(IS_WIDE[request.dtype]) and found == presum))
