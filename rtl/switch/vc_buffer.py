# SPDX-License-Identifier: Apache-2.0
"""Ingress buffer of one virtual channel: a packet queue whose head packet can be read again."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..common.check import check
from ..common.ram import Ram
from ..flits import FLIT_BITS

__all__ = ["VcBuffer"]


class VcBuffer(wiring.Component):
    """Keeps every flit until its packet is committed, and hands out the credits.

    The reader takes flits in order. It may go back to the first flit that is not committed
    (``restart``), which lets one copy of a packet be written to several outputs at different times.

    Parameters
    ----------
    depth : int
        Flits, a power of two.

    Members
    -------
    w_en, w_flit, w_last : In
        Append a flit. The sender holds a credit for it, so there is room.
    full : Out(1)
        No room: whoever writes now broke the credit rule. The flit is not stored.
    r_valid, r_flit, r_last : Out
        The next flit to take.
    take : In(1)
        Take it. Only with ``r_valid``.
    restart : In(1)
        Go back to the first flit that is not committed. A ``take`` in the same cycle has no effect.
    mark : In(1)
        Remember the flit at ``r_flit``.
    commit : In(1)
        All flits before the one that was remembered last are done; their room is given back.
    credit : Out(1)
        Hand out one credit. The whole buffer is handed out after reset, and nothing during it.
    spent : Out(1)
        The sender has used all credits that were handed out.

    Timing
    ------
    A flit that is written while the reader has caught up appears at ``r_flit`` in the same cycle
    (combinational path ``w_flit`` to ``r_flit``); otherwise it is read from the RAM, two cycles
    after it was written at the earliest. One flit per cycle. After ``restart`` the first flit is
    back two cycles later.

    Reset
    -----
    Empty; ``depth`` credits to hand out.
    """

    def __init__(self, depth: int) -> None:
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"`depth` must be a power of two from 2 on, not {depth!r}")
        self._depth = depth
        super().__init__(
            {
                "w_en": In(1),
                "w_flit": In(FLIT_BITS),
                "w_last": In(1),
                "full": Out(1),
                "r_valid": Out(1),
                "r_flit": Out(FLIT_BITS),
                "r_last": Out(1),
                "take": In(1),
                "restart": In(1),
                "mark": In(1),
                "commit": In(1),
                "credit": Out(1),
                "spent": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        m.submodules.ram = ram = Ram(width=FLIT_BITS + 1, depth=self._depth)
        bits = self._depth.bit_length()
        w_ptr = Signal(bits)
        r_ptr = Signal(bits)  # the flit at `r_flit`
        marked = Signal(bits)
        start = Signal(bits)  # the first flit that is not committed
        given = Signal(bits)  # credits handed out
        fetched = Signal()  # the RAM's output holds the flit at `r_ptr`

        write = self.w_en & ~self.full
        caught_up = r_ptr == w_ptr
        m.d.comb += [
            self.full.eq((w_ptr ^ start) == self._depth),
            ram.w_en.eq(write),
            ram.w_addr.eq(w_ptr),
            ram.w_data.eq(Cat(self.w_flit, self.w_last)),
            self.r_valid.eq(fetched | (caught_up & write)),
            Cat(self.r_flit, self.r_last).eq(
                Mux(fetched, ram.r_data, Cat(self.w_flit, self.w_last))
            ),
        ]
        # Which flit to read next. A flit that is being written now cannot be read yet, and after
        # `restart` the read starts a cycle later. Both cases of `take`, which comes late, are
        # prepared.
        r_up = Signal(bits)
        m.d.comb += r_up.eq(r_ptr + 1)
        fetch = ~caught_up & ~(self.take & (r_up == w_ptr))
        m.d.comb += [
            ram.r_en.eq(self.take | ~fetched),
            ram.r_addr.eq(Mux(self.take, r_up, r_ptr)),
        ]
        m.d.sync += fetched.eq(fetch)
        with m.If(write):
            m.d.sync += w_ptr.eq(w_ptr + 1)
        with m.If(self.restart):
            m.d.sync += [r_ptr.eq(start), fetched.eq(0)]
        with m.Elif(self.take):
            m.d.sync += r_ptr.eq(r_up)
        with m.If(self.mark):
            m.d.sync += marked.eq(r_ptr)
        with m.If(self.commit):
            m.d.sync += start.eq(marked)
        # `start + depth` is `start` with its top bit turned.
        awake = Signal()  # a neighbour whose reset ends earlier must not count credits
        m.d.sync += awake.eq(1)
        m.d.comb += [
            self.credit.eq(awake & ((given ^ start) != self._depth)),
            self.spent.eq(given == w_ptr),
        ]
        with m.If(self.credit):
            m.d.sync += given.eq(given + 1)

        check(m, platform, ~(self.restart & self.commit), "vc buffer: restart and commit together")
        check(m, platform, ~self.take | self.r_valid, "vc buffer: took a flit that is not there")
        return m
