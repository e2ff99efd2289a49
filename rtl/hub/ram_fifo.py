# SPDX-License-Identifier: Apache-2.0
"""A queue in a RAM whose oldest word is always in sight."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..common.check import check
from ..common.ram import Ram

__all__ = ["RamFifo"]


class RamFifo(wiring.Component):
    """First in, first out; the RAM's output register holds the oldest word.

    Parameters
    ----------
    width : int
        Bits of a word.
    depth : int
        Words, a power of two from 2.

    Members
    -------
    w_en, w_data : In
        Append a word. Only if not ``full``.
    full : Out(1)
        No room.
    valid, r_data : Out
        The oldest word.
    take : In(1)
        Step over it. Only with ``valid``.

    Timing
    ------
    A word written in cycle *t* to an empty queue is in sight in *t* + 2. One word a cycle.

    Reset
    -----
    Empty.

    Area
    ----
    The RAM, and ``2 * log2(depth)`` flops.
    """

    def __init__(self, *, width: int, depth: int) -> None:
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"`depth` must be a power of two from 2, not {depth!r}")
        self._width = width
        self._depth = depth
        super().__init__(
            {
                "w_en": In(1),
                "w_data": In(width),
                "full": Out(1),
                "valid": Out(1),
                "r_data": Out(width),
                "take": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        m.submodules.ram = ram = Ram(width=self._width, depth=self._depth)
        bits = self._depth.bit_length()
        w_ptr = Signal(bits)
        r_ptr = Signal(bits)  # behind the word in sight
        waits = Signal()  # a word is behind the one in sight
        fetch = Signal()
        m.d.comb += [
            waits.eq(w_ptr != r_ptr),
            self.full.eq((w_ptr ^ r_ptr) == self._depth),
            fetch.eq(waits & (~self.valid | self.take)),
            ram.w_en.eq(self.w_en),
            ram.w_addr.eq(w_ptr[:-1]),
            ram.w_data.eq(self.w_data),
            ram.r_en.eq(fetch),
            ram.r_addr.eq(r_ptr[:-1]),
            self.r_data.eq(ram.r_data),
        ]
        with m.If(self.w_en):
            m.d.sync += w_ptr.eq(w_ptr + 1)
        with m.If(fetch):
            m.d.sync += [r_ptr.eq(r_ptr + 1), self.valid.eq(1)]
        with m.Elif(self.take):
            m.d.sync += self.valid.eq(0)
        check(m, platform, ~(self.w_en & self.full), "ram fifo: written while full")
        check(m, platform, ~self.take | self.valid, "ram fifo: took what is not there")
        return m
