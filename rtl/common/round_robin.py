# SPDX-License-Identifier: Apache-2.0
"""Round-robin arbiter, fair for any number of requesters."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .bits import prefix_or

__all__ = ["RoundRobin"]


class RoundRobin(wiring.Component):
    """Grants the next requester after the one that was served last.

    Parameters
    ----------
    count : int
        Requesters, 1 or more; need not be a power of two.

    Members
    -------
    request : In(count)
        Who asks.
    grant : Out(count)
        One-hot: who is served; 0 when nobody asks.
    advance : In(1)
        The grant of this cycle is used: its holder becomes the last in line.

    Timing
    ------
    ``grant`` is combinational from ``request`` (depth logarithmic in `count`), not from
    ``advance``.

    Ordering
    --------
    A request that is held is granted after at most ``count - 1`` other advances.

    Reset
    -----
    Requester 0 is first in line.

    Area
    ----
    ``count`` flops and about ``2 * count * log2(count)`` OR gates.
    """

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"`count` must be 1 or more, not {count!r}")
        super().__init__({"request": In(count), "grant": Out(count), "advance": In(1)})

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        count = len(self.request)
        # Requesters behind the last one served: they go first.
        behind = Signal(count)
        ahead = self.request & behind
        ahead_upto = prefix_or(ahead)
        all_upto = prefix_or(self.request)
        first_ahead = ahead & ~(ahead_upto << 1)[:count]
        first_of_all = self.request & ~(all_upto << 1)[:count]
        m.d.comb += self.grant.eq(Mux(ahead_upto[-1], first_ahead, first_of_all))
        with m.If(self.advance & all_upto[-1]):
            # All bits above the granted one; `Const` keeps the width when the grant is the top bit.
            upto = Mux(ahead_upto[-1], ahead_upto, all_upto)
            m.d.sync += behind.eq((upto << 1)[:count] & Const(-1, count))
        return m
