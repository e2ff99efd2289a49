# SPDX-License-Identifier: Apache-2.0
"""Sender: the last two stages before the link, where target lists are pruned."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import popcount
from ..flits import EXTENSION, FLIT_BITS, HEADER, LANES
from ..params import SwitchParams
from .pruner import Pruner
from .request_queue import entry_layout

__all__ = ["Sender"]


class State(enum.Enum, shape=3):
    """Where a list is on its way through."""

    PLAIN = 0
    """Flits go straight on; a list of one flit is pruned in passing."""
    GATHER = 1
    """The header waits in the last stage while the rest of its list is gathered behind it."""
    COUNT = 2
    """More than 8 targets belong to this port: the list is only counted."""
    BACK = 3
    """The pair queue steps back to the header, whose entry has the lanes of the first list flit."""
    AGAIN = 4
    """The header comes by again; it has left already."""
    EMIT = 5
    """The list comes by again and leaves behind its header."""


class Sender(wiring.Component):
    """Sends the entries of packets, with the lists of copies pruned to this port's targets.

    The header of a copy needs the number of targets that are left, so it waits until its list has
    come by: one cycle for a list of one extension flit, and none is lost on the link. When the
    pruned list does not fit into one flit, it is counted first and then read again.

    Parameters
    ----------
    params : SwitchParams
        ``dynamic`` and ``max_extensions`` are used.

    Members
    -------
    i_valid, i_entry, i_first, i_vc : In
        The next entry.
    i_take : Out(1)
        The entry is taken.
    stop, reopen, back : Out(1)
        To the column reader: read nothing, the packet goes on; to the pair: step back by one.
    valid, flit, first, vc : Out
        The flit on the link.

    Timing
    ------
    An entry taken in cycle *t* is on the link in *t* + 2. One flit per cycle. A copy whose list
    comes in *m* flits and is pruned to *n* targets delays its header by *m* - 1 cycles for *n* <=
    8, and by about 4 *m* for more.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        members = {
            "i_valid": In(1),
            "i_entry": In(entry_layout(params.dynamic)),
            "i_first": In(1),
            "i_vc": In(1),
            "i_take": Out(1),
            "valid": Out(1),
            "flit": Out(FLIT_BITS),
            "first": Out(1),
            "vc": Out(1),
        }
        if params.dynamic:
            members |= {"stop": Out(1), "reopen": Out(1), "back": Out(1)}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        # Stage E: a flit, or the lanes of a list that is being gathered. Stage T: the link.
        e_valid = Signal()
        e_first = Signal()
        e_vc = Signal()
        e_flit = Signal(EXTENSION)
        leaves = Signal()  # the flit in E goes to T
        m.d.comb += leaves.eq(e_valid)
        with m.If(leaves):
            m.d.sync += [
                self.flit.eq(e_flit),
                self.first.eq(e_first),
                self.vc.eq(e_vc),
            ]
        with m.If(self.i_take):
            m.d.sync += [e_first.eq(self.i_first), e_vc.eq(self.i_vc)]
        if self._params.dynamic:
            self._lists(m, e_valid, e_first, e_flit, leaves)
        else:
            m.d.comb += self.i_take.eq(self.i_valid)
            m.d.sync += [e_valid.eq(self.i_valid), self.valid.eq(e_valid)]
            with m.If(self.i_valid):
                m.d.sync += e_flit.as_value().eq(self.i_entry.flit)
        return m

    def _lists(self, m: Module, e_valid, e_first, e_flit, leaves) -> None:
        params = self._params
        header = data.View(HEADER, self.flit)
        state = Signal(State)
        entry = self.i_entry
        # What the entry before told about this one.
        is_list = Signal()
        lanes = Signal(LANES)
        count = Signal(range(LANES + 1))  # of the lanes
        ends = ~entry.list_next  # of a list flit: it is the last one
        with m.If(self.i_take):
            m.d.sync += [
                is_list.eq(entry.list_next),
                lanes.eq(entry.lanes),
                count.eq(popcount(entry.lanes)),
            ]
        # The header in E has a list; it is longer than a flit.
        e_list = Signal()
        with m.If(self.i_take):
            m.d.sync += e_list.eq(self.i_first & entry.list_next)
        e_long = e_list & (data.View(HEADER, e_flit.as_value()).count > LANES)
        steps = Signal(range(params.max_extensions + 2))  # entries to step back over
        fill = Signal(range(LANES))  # lanes of E that are filled (EMIT)
        second = Signal()  # the second cycle of a list flit, for the lanes that went round (EMIT)

        m.submodules.pruner = pruner = Pruner()
        gathered = header.count[: params.max_targets.bit_length()]  # of the header in T
        total = gathered[:4] + count  # 8 at most before
        filled = Signal(range(2 * LANES))
        m.d.comb += [
            pruner.i_flit.as_value().eq(entry.flit),
            pruner.chosen.eq(lanes),
            pruner.count.eq(count),
            pruner.straight.eq(~is_list),
            filled.eq(fill + count),
        ]
        with m.If(state == State.GATHER):
            m.d.comb += pruner.fill.eq(header.count[:3])
        with m.Elif(state == State.EMIT):
            m.d.comb += pruner.fill.eq(fill)

        # E takes the lanes that the pruner places; in a list that begins, the others become zero.
        place = Signal(LANES)
        clear = Signal()
        m.d.comb += [
            place.eq(pruner.low | pruner.straight.replicate(LANES)),
            clear.eq(state == State.PLAIN),
        ]
        with m.If(state == State.EMIT):
            m.d.comb += clear.eq(Mux(second, e_valid, fill == 0))
            with m.If(second):
                m.d.comb += place.eq(pruner.high & e_valid.replicate(LANES))
        with m.If(self.i_valid):
            for lane in range(LANES):
                with m.If(place[lane]):
                    m.d.sync += e_flit[lane].eq(pruner.o_flit[lane])
                with m.Elif(clear):
                    m.d.sync += e_flit[lane].eq(0)

        m.d.comb += [
            # A long list's header leaves E together with the first flit of its list.
            leaves.eq(e_valid & (~e_long | self.i_valid)),
            self.i_take.eq(self.i_valid & ((state != State.EMIT) | second)),
            self.reopen.eq(state == State.BACK),
            self.back.eq(state == State.BACK),
        ]
        m.d.sync += self.valid.eq(leaves)
        with m.If(leaves & e_list):
            m.d.sync += header.count.eq(count)
        with m.Switch(state):
            with m.Case(State.PLAIN):
                with m.If(self.i_valid):
                    m.d.sync += e_valid.eq(~is_list | ends)
                with m.Elif(leaves):
                    m.d.sync += e_valid.eq(0)
                with m.If(leaves & e_long):
                    m.d.sync += [self.valid.eq(0), steps.eq(2), state.eq(State.GATHER)]
            with m.Case(State.GATHER, State.COUNT):
                m.d.comb += self.stop.eq(ends)
                with m.If(self.i_valid):
                    m.d.sync += [
                        gathered.eq(gathered + count),
                        steps.eq(steps + 1),
                    ]
                    with m.If((state == State.COUNT) | (total > LANES)):
                        m.d.sync += state.eq(Mux(ends, State.BACK, State.COUNT))
                    with m.Elif(ends):
                        m.d.sync += [self.valid.eq(1), e_valid.eq(1), state.eq(State.PLAIN)]
            with m.Case(State.BACK):
                m.d.comb += self.stop.eq(1)
                m.d.sync += [steps.eq(steps - 1), fill.eq(0), second.eq(0)]
                with m.If(steps == 1):
                    m.d.sync += [self.valid.eq(1), state.eq(State.AGAIN)]
            with m.Case(State.AGAIN):
                with m.If(self.i_valid):
                    m.d.sync += state.eq(State.EMIT)
            with m.Case(State.EMIT):
                m.d.sync += second.eq(second ^ self.i_valid)
                with m.If(self.i_valid & ~second):
                    m.d.sync += e_valid.eq(filled >= LANES)
                with m.Elif(self.i_valid):
                    m.d.sync += [fill.eq(filled), e_valid.eq(ends & (filled[:3] != 0))]
                    with m.If(ends):
                        m.d.sync += state.eq(State.PLAIN)
                with m.Else():
                    m.d.sync += e_valid.eq(0)
