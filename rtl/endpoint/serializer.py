# SPDX-License-Identifier: Apache-2.0
"""Beats of up to three flits, one flit a cycle."""

from amaranth.hdl import Array, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..flits import FLIT_BITS
from ..queue.ports import Beat
from .flit_stream import flit_stream

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
        lowest = left & (~left + 1)
        rest = Signal(3)
        place = Signal(2)
        m.d.comb += [
            rest.eq(left & ~lowest),
            place.eq(Mux(left[0], 0, Mux(left[1], 1, 2))),
            self.o.valid.eq(left != 0),
            self.o.payload.flit.eq(Array([*flits, Const(0, FLIT_BITS)])[place]),
            self.o.payload.last.eq(ends & (rest == 0)),
            self.i.ready.eq((rest == 0) & (~self.o.valid | self.o.ready)),
        ]
        with m.If(self.i.ready & self.i.valid):
            m.d.sync += [left.eq(self.i.payload.present), ends.eq(self.i.payload.last)]
            for place_number, flit in enumerate(flits):
                m.d.sync += flit.eq(self.i.payload.flits[place_number])
        with m.Elif(self.o.ready):
            m.d.sync += left.eq(rest)
        return m
