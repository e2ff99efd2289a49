# SPDX-License-Identifier: Apache-2.0
"""Short FIFO in flops whose head stands in a register."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .check import check

__all__ = ["ShiftFifo"]


class ShiftFifo(wiring.Component):
    """Takes a word whenever it comes; whoever sends keeps count of the room.

    Parameters
    ----------
    width, depth : int
        Bits a word, words.

    Members
    -------
    w_en, w_data : In
        Append a word.
    o : Out
        Stream of words.

    Timing
    ------
    A word that comes in cycle *t* is offered from *t* + 1 on. One word a cycle.

    Reset
    -----
    Empty; the words have no reset.
    """

    def __init__(self, width: int, depth: int) -> None:
        self._depth = depth
        super().__init__({"w_en": In(1), "w_data": In(width), "o": Out(stream.Signature(width))})

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        depth = self._depth
        width = len(self.w_data)
        words = [Signal(width, name=f"word_{index}", reset_less=True) for index in range(depth)]
        # Bit i: word i is there. Words are there from 0 up.
        there = Signal(depth)
        takes = Signal()
        m.d.comb += [
            self.o.valid.eq(there[0]),
            self.o.payload.eq(words[0]),
            takes.eq(self.o.valid & self.o.ready),
        ]
        for index, word in enumerate(words):
            above = words[index + 1] if index + 1 < depth else self.w_data
            below_there = there[index - 1] if index else 1
            above_there = there[index + 1] if index + 1 < depth else 0
            # With a word taken, everything moves down by one, and so does the place of a new word.
            with m.If(takes):
                m.d.sync += word.eq(Mux(above_there, above, self.w_data))
                m.d.sync += there[index].eq(above_there | (there[index] & self.w_en))
            with m.Elif(self.w_en & ~there[index]):
                m.d.sync += word.eq(self.w_data)
                m.d.sync += there[index].eq(below_there)
        check(m, platform, ~(self.w_en & there[-1]) | takes, "a word came without room")
        return m
