# SPDX-License-Identifier: Apache-2.0
"""What the unit tests of the switch share: packets, entries of queues, models, small tops."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from dysharp.rtl.flits import FLIT_BITS, HEADER_FIELDS, LANES, TARGET_BITS, Opcode, carries_data
from dysharp.rtl.params import SwitchParams
from dysharp.rtl.reduce.result_queue import ResultQueue
from dysharp.rtl.switch.egress import Egress
from dysharp.rtl.switch.link import LinkSignature
from dysharp.rtl.switch.request_queue import RequestQueue, entry_layout

__all__ = [
    "Entry",
    "Packet",
    "Side",
    "field",
    "flit_of",
    "framed_flits",
    "header",
    "list_packet",
    "plain_packet",
    "pruned",
    "with_field",
]

_TARGET_MASK = (1 << TARGET_BITS) - 1


def _places() -> dict[str, tuple[int, int]]:
    places, bit = {}, 0
    for item in HEADER_FIELDS:
        places[item.name] = (bit, (1 << item.width) - 1)
        bit += item.width
    return places


_PLACES = _places()


def header(**fields: int) -> int:
    """Header flit as an integer; fields that are not named are 0."""
    flit = 0
    for name, value in fields.items():
        flit = with_field(flit, name, value)
    return flit


def field(flit: int, name: str) -> int:
    """One field of a header flit."""
    bit, mask = _PLACES[name]
    return flit >> bit & mask


def with_field(flit: int, name: str, value: int) -> int:
    """Return the header flit with one field replaced."""
    bit, mask = _PLACES[name]
    if not 0 <= value <= mask:
        raise ValueError(f"`{name}` must be 0 to {mask}, not {value!r}")
    return flit & ~(mask << bit) | value << bit


def framed_flits(flit: int) -> int:
    """Flits of the packet with this header, for any opcode, as ``rtl/flits.py`` states the rule."""
    opcode = field(flit, "opcode")
    extensions = ceil(field(flit, "count") / LANES) if opcode >> 2 == 2 else 0
    data = field(flit, "length") if carries_data(opcode) else 0
    return 1 + extensions + field(flit, "byte_enable") + data


def flit_of(targets: Sequence[int]) -> int:
    """List flit with up to 8 targets; the other lanes are zero."""
    return sum(target << TARGET_BITS * lane for lane, target in enumerate(targets))


@dataclass(frozen=True)
class Entry:
    """Entry of a request queue; of a queue of responses, only ``flit`` and ``last``."""

    flit: int
    last: bool
    lanes: int = 0
    list_next: bool = False

    def fields(self, params: SwitchParams) -> Mapping[str, int]:
        """Return the entry as the layout of these parameters wants it."""
        plain = {"flit": self.flit, "last": int(self.last)}
        if not params.dynamic:
            return plain
        return plain | {"lanes": self.lanes, "list_next": int(self.list_next)}


@dataclass(frozen=True)
class Packet:
    """A packet on its way out: what stands in the queue, and what must be on the link."""

    entries: tuple[Entry, ...]
    flits: tuple[int, ...]
    vc: int


def _with_lanes(
    flits: Sequence[int], masks: Sequence[int], rng: random.Random
) -> tuple[Entry, ...]:
    """Entries of a packet whose list flits, behind the header, have these lanes."""
    entries = []
    for index, flit in enumerate(flits):
        has_next = index < len(masks)
        # Lanes are undefined where no list flit follows.
        lanes = masks[index] if has_next else rng.getrandbits(LANES)
        entries.append(Entry(flit, index == len(flits) - 1, lanes, has_next))
    return tuple(entries)


def plain_packet(rng: random.Random, vc: int, longest: int) -> Packet:
    """Random packet without a list, of up to `longest` flits; all of its fields are random."""
    length = rng.randint(1, longest)
    opcode = rng.choice([Opcode.RSP_ACK, Opcode.RSP_DATA] if vc else [Opcode.MM_ST, Opcode.WRITE])
    first = rng.getrandbits(FLIT_BITS)
    first = with_field(with_field(first, "opcode", opcode.value), "vc", vc)
    flits = (first, *(rng.getrandbits(FLIT_BITS) for _ in range(length - 1)))
    return Packet(_with_lanes(flits, (), rng), flits, vc)


def pruned(targets: Sequence[int], masks: Sequence[int]) -> list[int]:
    """Targets whose lane is set in their flit's mask, in order."""
    return [t for n, t in enumerate(targets) if masks[n // LANES] >> n % LANES & 1]


def list_packet(rng: random.Random, targets: int, chosen: Sequence[bool], behind: int) -> Packet:
    """Store with a list, `chosen` of whose targets belong to the port, and `behind` data flits."""
    values = [rng.getrandbits(TARGET_BITS) for _ in range(targets)]
    lists = [values[n : n + LANES] for n in range(0, targets, LANES)]
    masks = [
        sum(1 << lane for lane in range(LANES) if (n * LANES + lane) < targets and c[lane])
        for n, c in ((n, chosen[n * LANES : n * LANES + LANES]) for n in range(len(lists)))
    ]
    first = with_field(rng.getrandbits(FLIT_BITS), "opcode", Opcode.DY_ST.value)
    first = with_field(with_field(first, "vc", 0), "count", targets)
    data = [rng.getrandbits(FLIT_BITS) for _ in range(behind)]
    kept = pruned(values, masks)
    out = [
        with_field(first, "count", len(kept)),
        *(flit_of(kept[n : n + LANES]) for n in range(0, len(kept), LANES)),
        *data,
    ]
    flits = [first, *(flit_of(targets) for targets in lists), *data]
    return Packet(_with_lanes(flits, masks, rng), tuple(out), 0)


class Side(wiring.Component):
    """An egress and its sources: a column of request queues and a queue of results; a link out.

    Parameters
    ----------
    params : SwitchParams
        The switch.

    Members
    -------
    w_en, w_entry : In
        Write an entry to the sources with their bit set; the last is the queue of results.
    limit : In
        Entries that a request queue may hold for a packet to be written.
    room : Out(ports)
        Request queues that hold no more.
    reserve, result_room : In, Out
        Room in the queue of results: to be reserved, and what there is.
    tx : Out
        The link.
    sent_flit, sent_request, sent_response : Out(1)
        Events of the egress.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        super().__init__(
            {
                "w_en": In(params.ports + 1),
                "w_entry": In(entry_layout(params.dynamic)),
                "limit": In(range(params.request_depth)),
                "room": Out(params.ports),
                "reserve": In(range(params.max_response_flits + 1)),
                "result_room": Out(range(params.result_depth + 1)),
                "tx": Out(LinkSignature()),
                "sent_flit": Out(1),
                "sent_request": Out(1),
                "sent_response": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        ports = self._params.ports
        m.submodules.egress = egress = Egress(self._params)
        connect(m, flipped(self.tx), egress.tx)
        for name in ("sent_flit", "sent_request", "sent_response"):
            m.d.comb += getattr(self, name).eq(getattr(egress, name))
        for port in range(ports):
            m.submodules[f"requests_{port}"] = requests = RequestQueue(self._params)
            m.d.comb += [
                requests.w_en.eq(self.w_en[port]),
                requests.w_entry.eq(self.w_entry),
                requests.limit.eq(self.limit),
                self.room[port].eq(requests.room),
                egress.nonempty[port].eq(requests.nonempty),
                requests.pop.eq(egress.pop[port]),
                egress.r_entry[port].eq(requests.r_entry),
            ]
            if self._params.dynamic:
                m.d.comb += requests.back.eq(egress.back[port])
        m.submodules.results = results = ResultQueue(self._params)
        m.d.comb += [
            results.reserve.eq(self.reserve),
            self.result_room.eq(results.room),
            results.w_en.eq(self.w_en[ports]),
            results.w_flit.eq(self.w_entry.flit),
            results.w_last.eq(self.w_entry.last),
            egress.nonempty[ports].eq(results.nonempty),
            results.pop.eq(egress.pop[ports]),
            egress.r_entry[ports].flit.eq(results.flit),
            egress.r_entry[ports].last.eq(results.last),
        ]
        return m
