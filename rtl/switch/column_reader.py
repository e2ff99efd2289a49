# SPDX-License-Identifier: Apache-2.0
"""Column reader: chooses packets for one output and reads them."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import one_hot_mux
from ..common.round_robin import RoundRobin
from ..params import SwitchParams
from .link import VCS
from .request_queue import entry_layout

__all__ = ["ColumnReader"]


class ColumnReader(wiring.Component):
    """Reads whole packets out of a column of request queues and a queue of responses.

    The sources are the request queues and, last, the queue of responses; each hands out the entry
    that it was asked for a cycle later.

    Parameters
    ----------
    params : SwitchParams
        The switch.

    Members
    -------
    nonempty : In(ports + 1)
        The source holds an entry.
    r_entry : In, one per source
        The entry that each source read last.
    pop : Out(ports + 1)
        One-hot: the source to read.
    has_credits : In(2)
        Bit *v*: the receiver has room for any packet of channel *v*.
    valid, entry, first, vc, source : Out
        The entry read last, whether it is a header, its channel, and its source (one-hot).
    take : In(1)
        Take the entry. Only with ``valid``.
    stop : In(1)
        Read nothing in this cycle.
    reopen : In(1)
        The packet at hand goes on: the queue was stepped back.

    Timing
    ------
    An entry that is in a source in cycle *t* is at ``entry`` in *t* + 1. One entry per cycle, also
    from one packet to the next. Whether a packet ends is read from its last entry in the cycle in
    which the next one is chosen (path: RAM output to queue select).

    Ordering
    --------
    Round robin between the request queues; requests and responses take turns when both wait. A
    packet is not interrupted.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        entry = entry_layout(params.dynamic)
        sources = params.ports + 1
        super().__init__(
            {
                "nonempty": In(sources),
                "r_entry": In(entry).array(sources),
                "pop": Out(sources),
                "has_credits": In(VCS),
                "valid": Out(1),
                "entry": Out(entry),
                "first": Out(1),
                "vc": Out(1),
                "source": Out(sources),
                "take": In(1),
                "stop": In(1),
                "reopen": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        ports = self._params.ports
        m.submodules.arbiter = arbiter = RoundRobin(ports)
        m.d.comb += [
            self.entry.as_value().eq(
                one_hot_mux(self.source, [entry.as_value() for entry in self.r_entry])
            ),
            self.vc.eq(self.source[-1]),
        ]
        inside = Signal()  # the packet whose entry was taken last goes on
        goes_on = Mux(self.valid, ~self.entry.last, inside)
        may_pop = (~self.valid | self.take) & ~self.stop

        wins = Cat(self.nonempty[:ports].any(), self.nonempty[-1]) & self.has_credits
        last_vc = Signal()
        new_vc = Signal()
        m.d.comb += [
            arbiter.request.eq(self.nonempty[:ports]),
            arbiter.advance.eq(may_pop & ~goes_on & wins[0] & ~new_vc),
            new_vc.eq(wins[1] & (~wins[0] | ~last_vc)),
        ]
        same_waits = (self.source & self.nonempty).any()
        new_source = Cat(arbiter.grant & (~new_vc).replicate(ports), new_vc)
        pops = Signal()
        m.d.comb += [
            pops.eq(may_pop & Mux(goes_on, same_waits, wins.any())),
            self.pop.eq(Mux(goes_on, self.source, new_source) & pops.replicate(ports + 1)),
        ]
        with m.If(pops):
            m.d.sync += [
                self.valid.eq(1),
                self.first.eq(~goes_on),
                self.source.eq(self.pop),
            ]
            with m.If(~goes_on):
                m.d.sync += last_vc.eq(new_vc)
        with m.Elif(self.take):
            m.d.sync += self.valid.eq(0)
        with m.If(self.reopen):
            m.d.sync += inside.eq(1)
        with m.Elif(self.take):
            m.d.sync += inside.eq(~self.entry.last)
        return m
