# SPDX-License-Identifier: Apache-2.0
"""A first-in first-out queue in RAM whose head stands in a register."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..common.check import check
from ..common.ram import Ram

__all__ = ["RingQueue"]


class RingQueue(wiring.Component):
    """Words in order. Whoever writes counts them: there is no sign of being full.

    Parameters
    ----------
    width, depth : int
        Bits a word; words, a power of two.

    Members
    -------
    w_en, w_data : In
        Append a word.
    valid, head : Out
        The oldest word, registered.
    take : In(1)
        Go on to the next; only with ``valid``.

    Timing
    ------
    A word written in cycle *t* is the head in *t* + 3 at the earliest. One word a cycle.
    """

    def __init__(self, *, width: int, depth: int) -> None:
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"`depth` must be a power of two, 2 or more, not {depth!r}")
        self._depth = depth
        super().__init__(
            {
                "w_en": In(1),
                "w_data": In(width),
                "valid": Out(1),
                "head": Out(width),
                "take": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        bits = (self._depth - 1).bit_length()
        m.submodules.words = words = Ram(width=len(self.head), depth=self._depth)
        # One bit more than an address tells full from empty.
        written = Signal(bits + 1)
        read = Signal(bits + 1)
        has_read = Signal()
        loads = Signal()
        reads = Signal()
        m.d.comb += [
            loads.eq(has_read & (~self.valid | self.take)),
            reads.eq((written != read) & (~has_read | loads)),
            words.w_en.eq(self.w_en),
            words.w_addr.eq(written[:bits]),
            words.w_data.eq(self.w_data),
            words.r_en.eq(reads),
            words.r_addr.eq(read[:bits]),
        ]
        m.d.sync += [
            written.eq(written + self.w_en),
            read.eq(read + reads),
            has_read.eq(reads | (has_read & ~loads)),
            self.valid.eq(loads | (self.valid & ~self.take)),
        ]
        with m.If(loads):
            m.d.sync += self.head.eq(words.r_data)
        distance = Signal(bits + 1)
        m.d.comb += distance.eq(written - read)
        check(m, platform, ~(self.w_en & distance[bits]), "a full queue must not be written")
        check(m, platform, ~(self.take & ~self.valid), "an empty queue has no head")
        return m
