# SPDX-License-Identifier: Apache-2.0
"""What a GPU sends to the switch: requests, ordinary requests and answers, by whole packets."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import one_hot_mux
from ..common.flit_stream import flit_stream
from ..common.round_robin import RoundRobin
from ..flits import FLIT_BITS
from ..switch.link import CREDIT_BITS

__all__ = ["LinkSender"]


class LinkSender(wiring.Component):
    """Puts whole packets on the link, in turns.

    Parameters
    ----------
    longest : int
        Flits of the longest request. One is begun only with credits for so many, so that a packet
        never stops in its middle and answers never wait for credits of requests.

    Members
    -------
    requests, ordinary : In
        Packets of requests (:func:`flit_stream`), with all their flits behind each other.
    answers : In
        Packets of responses, whose credits the source has.
    credit : In(1)
        The switch hands out one more flit slot for requests.
    valid, flit : Out
        The link.

    Timing
    ------
    A flit that is taken in cycle *t* is on the link in *t* + 1. One flit a cycle, no gap between
    packets.

    Ordering
    --------
    Each source's packets stay in order. A source waits for two packets at most.

    Reset
    -----
    No credits, no packet open.
    """

    def __init__(self, longest: int) -> None:
        if not 1 <= longest < 1 << CREDIT_BITS - 1:
            raise ValueError(f"`longest` must be 1 to {(1 << CREDIT_BITS - 1) - 1}, not {longest}")
        self._longest = longest
        super().__init__(
            {
                "requests": In(flit_stream()),
                "ordinary": In(flit_stream()),
                "answers": In(flit_stream()),
                "credit": In(1),
                "valid": Out(1),
                "flit": Out(FLIT_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        sources = [self.answers, self.requests, self.ordinary]
        m.submodules.turns = turns = RoundRobin(len(sources))
        is_open = Signal()
        owner = Signal(len(sources))
        chosen = Signal(len(sources))
        enough = Signal()
        credits = Signal(CREDIT_BITS)
        credits_next = Signal(CREDIT_BITS)
        sends = Signal()
        ends = Signal()
        valid = Cat(source.valid for source in sources)
        m.d.comb += [
            turns.request.eq(valid & Cat(1, enough, enough)),
            turns.advance.eq(sends & ~is_open),
            chosen.eq(Mux(is_open, owner & valid, turns.grant)),
            sends.eq(chosen != 0),
            ends.eq(one_hot_mux(chosen, [source.payload.last for source in sources])),
            credits_next.eq(credits + self.credit - (sends & ~chosen[0])),
        ]
        m.d.comb += [source.ready.eq(taken) for source, taken in zip(sources, chosen, strict=True)]
        m.d.sync += [
            self.valid.eq(sends),
            self.flit.eq(one_hot_mux(chosen, [source.payload.flit for source in sources])),
            credits.eq(credits_next),
            enough.eq(credits_next >= self._longest),
        ]
        with m.If(sends):
            m.d.sync += [is_open.eq(~ends), owner.eq(chosen)]
        return m
