# SPDX-License-Identifier: Apache-2.0
"""FIFO in RAM."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .check import check
from .ram import Ram
from .shift_fifo import ShiftFifo

__all__ = ["AHEAD", "RamFifo"]

AHEAD = 3
"""With `head_in_flops`, words read ahead of their use: one in each cycle from the read to the
head's leaving."""


class RamFifo(wiring.Component):
    """First in, first out. Takes a word whenever it comes.

    Parameters
    ----------
    width, depth : int
        Bits a word, words. `depth` is a power of two, 2 or more.
    head_in_flops : bool
        The oldest word stands in flops, and ``o.ready`` does not go to the RAM. Otherwise the
        RAM's output register holds it, so that it comes late in the cycle.

    Members
    -------
    w_en, w_data : In
        Append a word. Only if not ``full``, or if whoever sends keeps count of the room.
    full : Out(1)
        The RAM has no room.
    o : Out
        Stream of words.

    Timing
    ------
    A word that comes in cycle *t* is offered from *t* + 2 on, with `head_in_flops` from *t* + 3 on.
    One word a cycle.

    Reset
    -----
    Empty.

    Area
    ----
    The RAM, and two pointers; with `head_in_flops` also three words in flops.
    """

    def __init__(self, width: int, depth: int, *, head_in_flops: bool = False) -> None:
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"`depth` must be a power of two, 2 or more, not {depth!r}")
        self._depth = depth
        self._head_in_flops = head_in_flops
        super().__init__(
            {
                "w_en": In(1),
                "w_data": In(width),
                "full": Out(1),
                "o": Out(stream.Signature(width)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        m.submodules.ram = ram = Ram(width=len(self.w_data), depth=self._depth)
        m.d.comb += [ram.w_en.eq(self.w_en), ram.w_data.eq(self.w_data)]
        if self._head_in_flops:
            self._read_ahead(m, ram)
        else:
            self._read(m, ram)
        check(m, platform, ~(self.w_en & self.full), "a word came without room")
        return m

    def _read(self, m: Module, ram: Ram) -> None:
        """Read the next word when the one in sight leaves."""
        bits = self._depth.bit_length()
        w_ptr = Signal(bits)
        r_ptr = Signal(bits)  # behind the word in sight
        waits = Signal()  # a word is behind the one in sight
        fetch = Signal()
        m.d.comb += [
            waits.eq(w_ptr != r_ptr),
            self.full.eq((w_ptr ^ r_ptr) == self._depth),
            fetch.eq(waits & (~self.o.valid | self.o.ready)),
            ram.w_addr.eq(w_ptr[:-1]),
            ram.r_en.eq(fetch),
            ram.r_addr.eq(r_ptr[:-1]),
            self.o.payload.eq(ram.r_data),
        ]
        with m.If(self.w_en):
            m.d.sync += w_ptr.eq(w_ptr + 1)
        with m.If(fetch):
            m.d.sync += [r_ptr.eq(r_ptr + 1), self.o.valid.eq(1)]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)

    def _read_ahead(self, m: Module, ram: Ram) -> None:
        """Read while there is room for words on their way to the head."""
        depth = self._depth
        m.submodules.heads = heads = ShiftFifo(len(self.w_data), AHEAD)
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
            self.full.eq(stored == depth),
            ram.w_addr.eq(w_index),
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
