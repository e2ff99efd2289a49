# SPDX-License-Identifier: Apache-2.0
"""Beats of up to three flits, one flit a cycle."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import one_hot_mux
from ..common.flit_stream import flit_stream
from ..flits import FLIT_BITS
from ..queue.ports import Beat

__all__ = ["Serializer"]


class Serializer(wiring.Component):
    """Sends the flits of each beat that are present, by ascending place.

    Members
    -------
    i : In
        Beats (:class:`Beat`). A beat without flits is stepped over; ``last`` belongs to the last
        flit that is present.
    o : Out
        Flits (:func:`flit_stream`).

    Timing
    ------
    A beat's first flit is offered in the cycle after the beat is taken. One flit a cycle: the next
    beat is taken with the last flit of this one, so ``i.ready`` follows ``o.ready``.

    Reset
    -----
    Empty.
    """

    def __init__(self) -> None:
        super().__init__({"i": In(stream.Signature(Beat)), "o": Out(flit_stream())})

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        flits = [Signal(FLIT_BITS, name=f"flit_{place}") for place in range(3)]
        left = Signal(3)
        ends = Signal()
        rest = Signal(3)  # without the lowest
        m.d.comb += [
            rest.eq(left & (left - 1)),
            self.o.valid.eq(left != 0),
            self.o.payload.flit.eq(one_hot_mux(left & ~rest, flits)),
            self.o.payload.last.eq(ends & (rest == 0)),
            self.i.ready.eq((rest == 0) & (~self.o.valid | self.o.ready)),
        ]
        with m.If(self.i.ready & self.i.valid):
            m.d.sync += [left.eq(self.i.payload.present), ends.eq(self.i.payload.last)]
            for place, flit in enumerate(flits):
                m.d.sync += flit.eq(self.i.payload.flits[place])
        with m.Elif(self.o.ready):
            m.d.sync += left.eq(rest)
        return m
