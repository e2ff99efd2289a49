# SPDX-License-Identifier: Apache-2.0
"""Takes responses from the link, and finds out whose end they are."""

from itertools import pairwise

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import any_of
from ..common.ram import Ram
from ..flits import FLIT_BITS, HEADER, Opcode, Status
from ..gpu_params import GpuParams
from .layouts import ticket_layout

__all__ = ["ResponseTaker"]

_STAGES = 3
"""Cycles from a header to the verdict on it."""
_RECENT = 4
"""Cycles in which a tag that was released may still be told to be in use."""
_TAG_BITS = HEADER["tag"].width
_GEN_BITS = HEADER["gen"].width


class ResponseTaker(wiring.Component):
    """Checks responses against the tickets of the packets that wait for one.

    Parameters
    ----------
    params : GpuParams
        The queue.

    Members
    -------
    valid, flit : In
        A flit of a response; it is always taken.
    ticket_en, ticket, tag, gen, slots : In
        A packet waits for a response with this tag and generation.
    look_tag : Out(9)
        A tag ...
    in_use : In(1)
        ... and, two cycles later, whether a packet has it.
    release, release_tag, release_slots : Out
        The response is complete: the tag is free again.
    end_en, end : Out
        A packet ended so (:func:`ticket_layout`).
    data_en, data : Out
        A flit of data. ``end`` comes before the first of its packet.
    stale : Out(1)
        A response that nobody waits for was dropped.

    Timing
    ------
    One flit a cycle. ``end`` comes 4 cycles after the header's flit, data 4 cycles after its flit.

    Ordering
    --------
    As they come.

    Reset
    -----
    Between two responses: their rest must not come any more.

    Errors
    ------
    Whatever is no result (``RSP_ACK``, ``RSP_DATA``), has a tag that no packet has, or another
    generation, is dropped. A result with a status other than OK, or one that does not fit its
    packet (BAD_RESPONSE), has no data.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        super().__init__(
            {
                "valid": In(1),
                "flit": In(FLIT_BITS),
                "ticket_en": In(1),
                "ticket": In(ticket_layout()),
                "tag": In(_TAG_BITS),
                "gen": In(_GEN_BITS),
                "slots": In(3),
                "look_tag": Out(_TAG_BITS),
                "in_use": In(1),
                "release": Out(1),
                "release_tag": Out(_TAG_BITS),
                "release_slots": Out(3),
                "end_en": Out(1),
                "end": Out(ticket_layout()),
                "data_en": Out(1),
                "data": Out(FLIT_BITS),
                "stale": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        stored = data.StructLayout({"ticket": ticket_layout(), "gen": _GEN_BITS, "slots": 3})
        m.submodules.tickets = tickets = Ram(width=stored.size, depth=self._params.tags)
        m.d.comb += [
            tickets.w_en.eq(self.ticket_en),
            tickets.w_addr.eq(self.tag),
            tickets.w_data.eq(Cat(self.ticket, self.gen, self.slots)),
        ]

        # Which flits are headers, and which end their packet; then two stages of looking up.
        valid = [Signal(name=f"valid_{stage}") for stage in range(_STAGES)]
        flits = [
            Signal(FLIT_BITS, name=f"flit_{stage}", reset_less=True) for stage in range(_STAGES)
        ]
        firsts = [Signal(name=f"first_{stage}") for stage in range(_STAGES)]
        lasts = [Signal(name=f"last_{stage}") for stage in range(_STAGES)]
        left = Signal(HEADER["length"].width)
        inside = Signal()  # `left` is not 0
        incoming = data.View(HEADER, flits[0])
        length = Signal.like(left)
        m.d.comb += [
            length.eq(Mux(incoming.opcode[1], incoming.length, 0)),
            firsts[0].eq(~inside),
            lasts[0].eq(Mux(inside, left == 1, length == 0)),
            self.look_tag.eq(incoming.tag),
            tickets.r_en.eq(valid[0] & ~inside),
            tickets.r_addr.eq(incoming.tag),
        ]
        with m.If(valid[0]):
            m.d.sync += [left.eq(Mux(inside, left - 1, length)), inside.eq(~lasts[0])]
        m.d.sync += [valid[0].eq(self.valid), flits[0].eq(self.flit)]
        for stage in range(1, _STAGES):
            for line in (valid, flits, firsts, lasts):
                m.d.sync += line[stage].eq(line[stage - 1])
        ticket = Signal(stored, reset_less=True)
        m.d.sync += ticket.eq(tickets.r_data)
        self._verdict(m, valid[-1], flits[-1], firsts[-1], lasts[-1], ticket)
        return m

    def _verdict(
        self,
        m: Module,
        valid: Signal,
        flit: Signal,
        first: Signal,
        last: Signal,
        ticket: data.View,
    ) -> None:
        """Decide what becomes of the flit in the last stage."""
        header = data.View(HEADER, flit)
        expected = ticket.ticket
        is_data = header.opcode == Opcode.RSP_DATA.value
        is_result = is_data | (header.opcode == Opcode.RSP_ACK.value)
        # Tags that were released too late for this header's look at `in_use` to see it.
        recent = [Signal(_TAG_BITS + 1, name=f"recent_{age}") for age in range(_RECENT)]
        again = any_of([Cat(header.tag, 1) == tag for tag in recent])
        fits = Mux(expected.load, is_data & (header.length == expected.length), ~is_data)
        status = Signal(Status)
        mine = Signal()
        m.d.comb += [
            mine.eq(is_result & self.in_use & (header.gen == ticket.gen) & ~again),
            status.eq(Mux((header.aux == 0) & ~fits, Status.BAD_RESPONSE.value, header.aux)),
        ]

        # Behind the header.
        is_mine = Signal()
        has_data = Signal()
        tag = Signal(_TAG_BITS)
        slots = Signal(3)
        ends = Signal()
        m.d.comb += ends.eq(valid & last & Mux(first, mine, is_mine))
        with m.If(valid & first):
            m.d.sync += [
                is_mine.eq(mine),
                has_data.eq(mine & expected.load & (header.aux == 0) & fits),
                tag.eq(header.tag),
                slots.eq(ticket.slots),
            ]
        m.d.sync += [
            self.end_en.eq(valid & first & mine),
            self.stale.eq(valid & first & ~mine),
            self.data_en.eq(valid & ~first & has_data),
            self.data.eq(flit),
            self.release.eq(ends),
            self.release_tag.eq(Mux(first, header.tag, tag)),
            self.release_slots.eq(Mux(first, ticket.slots, slots)),
            recent[0].eq(Cat(Mux(first, header.tag, tag), ends)),
            self.end.eq(expected),
            self.end.status.eq(status),
        ]
        m.d.sync += [later.eq(earlier) for earlier, later in pairwise(recent)]
