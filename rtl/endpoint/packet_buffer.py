# SPDX-License-Identifier: Apache-2.0
"""A buffer that lets go of whole packets only."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..common.flit_stream import flit_stream
from ..common.ram import Ram
from ..flits import FLIT_BITS

__all__ = ["PacketBuffer"]


class PacketBuffer(wiring.Component):
    """Takes flits at any pace and offers a packet when all of it is there.

    So whoever sends from it is never left in the middle of a packet, which would hold up the link.

    Parameters
    ----------
    depth : int
        Flits, a power of two from 2; the longest packet must fit. A longer one would never leave.

    Members
    -------
    i : In
        Flits (:func:`flit_stream`).
    o : Out
        Flits of packets that are there to their end. ``valid`` stays high from a packet's first
        flit to its last while ``ready`` is.

    Timing
    ------
    The first flit of a packet whose last flit is taken in cycle *t* is offered in *t* + 2. One flit
    a cycle in and out.

    Reset
    -----
    Empty.

    Area
    ----
    The RAM, and ``3 * log2(depth)`` flops.
    """

    def __init__(self, depth: int) -> None:
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"`depth` must be a power of two from 2, not {depth!r}")
        self._depth = depth
        super().__init__({"i": In(flit_stream()), "o": Out(flit_stream())})

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        depth = self._depth
        m.submodules.ram = ram = Ram(width=FLIT_BITS + 1, depth=depth)
        bits = depth.bit_length()
        w_ptr = Signal(bits)
        c_ptr = Signal(bits)  # behind the last packet that is whole
        r_ptr = Signal(bits)  # behind the flit that is offered
        fetch = Signal()
        m.d.comb += [
            self.i.ready.eq((w_ptr ^ r_ptr) != depth),
            fetch.eq((c_ptr != r_ptr) & (~self.o.valid | self.o.ready)),
            ram.w_en.eq(self.i.valid & self.i.ready),
            ram.w_addr.eq(w_ptr[:-1]),
            ram.w_data.eq(Cat(self.i.payload.flit, self.i.payload.last)),
            ram.r_en.eq(fetch),
            ram.r_addr.eq(r_ptr[:-1]),
            Cat(self.o.payload.flit, self.o.payload.last).eq(ram.r_data),
        ]
        with m.If(ram.w_en):
            m.d.sync += w_ptr.eq(w_ptr + 1)
            with m.If(self.i.payload.last):
                m.d.sync += c_ptr.eq(w_ptr + 1)
        with m.If(fetch):
            m.d.sync += [r_ptr.eq(r_ptr + 1), self.o.valid.eq(1)]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        return m
