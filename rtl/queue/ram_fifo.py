# SPDX-License-Identifier: Apache-2.0
"""FIFO in RAM whose head stands in a register."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..common.check import check
from ..common.ram import Ram
from .shift_fifo import ShiftFifo

__all__ = ["RamFifo"]

AHEAD = 3
"""Words read ahead of their use: one in each cycle from the read to the head's leaving."""


class RamFifo(wiring.Component):
    """Takes a word whenever it comes; whoever sends keeps count of the room.

    Parameters
    ----------
    width, depth : int
        Bits a word, words. `depth` is a power of two, 2 or more.

    Members
    -------
    w_en, w_data : In
        Append a word.
    o : Out
        Stream of words.

    Timing
    ------
    A word that comes in cycle *t* is offered from *t* + 3 on. One word a cycle.

    Reset
    -----
    Empty.
    """

    def __init__(self, width: int, depth: int) -> None:
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"`depth` must be a power of two, 2 or more, not {depth!r}")
        self._depth = depth
        super().__init__({"w_en": In(1), "w_data": In(width), "o": Out(stream.Signature(width))})

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        width, depth = len(self.w_data), self._depth
        m.submodules.ram = ram = Ram(width=width, depth=depth)
        m.submodules.heads = heads = ShiftFifo(width, AHEAD)
        w_index = Signal(range(depth))
        r_index = Signal(range(depth))
        stored = Signal(range(depth + 1))  # written and not read
        some = Signal()  # stored is not 0
        ahead = Signal(range(AHEAD + 1))  # read and not taken
        arrives = Signal()
        reads = Signal()
        takes = Signal()
        m.d.comb += [
            takes.eq(self.o.valid & self.o.ready),
            reads.eq(some & (ahead != AHEAD)),
            ram.w_en.eq(self.w_en),
            ram.w_addr.eq(w_index),
            ram.w_data.eq(self.w_data),
            ram.r_en.eq(reads),
            ram.r_addr.eq(r_index),
            heads.w_en.eq(arrives),
            heads.w_data.eq(ram.r_data),
            self.o.valid.eq(heads.o.valid),
            self.o.payload.eq(heads.o.payload),
            heads.o.ready.eq(self.o.ready),
        ]
        m.d.sync += arrives.eq(reads)
        with m.If(self.w_en):
            m.d.sync += w_index.eq(w_index + 1)
        with m.If(reads):
            m.d.sync += r_index.eq(r_index + 1)
        with m.If(self.w_en & ~reads):
            m.d.sync += [stored.eq(stored + 1), some.eq(1)]
        with m.Elif(reads & ~self.w_en):
            m.d.sync += [stored.eq(stored - 1), some.eq(stored != 1)]
        with m.If(reads != takes):
            m.d.sync += ahead.eq(Mux(reads, ahead + 1, ahead - 1))
        check(m, platform, ~(self.w_en & (stored == depth)), "a word came without room")
        return m
