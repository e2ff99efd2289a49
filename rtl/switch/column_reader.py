# SPDX-License-Identifier: Apache-2.0
"""Column reader: chooses packets from the pair queues of one output and reads them."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import one_hot_mux
from ..common.round_robin import RoundRobin
from ..params import SwitchParams
from .link import VCS
from .pair_queue import entry_layout

__all__ = ["ColumnReader"]


class ColumnReader(wiring.Component):
    """Reads whole packets out of the pairs of a column, one entry per cycle.

    Parameters
    ----------
    params : SwitchParams
        The switch.

    Members
    -------
    nonempty : In(2), one per input
        Per channel: the pair holds an entry.
    r_entry : In, one per input
        The entry that each pair read last.
    pop : Out(ports)
        One-hot: the pair to read.
    pop_vc : Out(ports)
        The channel to read, for each pair.
    has_credits : In(2)
        Bit *v*: the receiver has room for any packet of channel *v*.
    valid, entry, first, vc, source : Out
        The entry read last, whether it is a header, its channel, and its input (one-hot).
    take : In(1)
        Take the entry. Only with ``valid``.
    stop : In(1)
        Read nothing in this cycle.
    reopen : In(1)
        The packet at hand goes on: the queue was stepped back.

    Timing
    ------
    An entry that is in a pair in cycle *t* is at ``entry`` in *t* + 1. One entry per cycle, also
    from one packet to the next. Whether a packet ends is read from its last entry in the cycle in
    which the next one is chosen (path: RAM output to pair select).

    Ordering
    --------
    Round robin between the inputs of a channel; the channels take turns when both wait. A packet is
    not interrupted.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        entry = entry_layout(params.dynamic)
        super().__init__(
            {
                "nonempty": In(VCS).array(params.ports),
                "r_entry": In(entry).array(params.ports),
                "pop": Out(params.ports),
                "pop_vc": Out(params.ports),
                "has_credits": In(VCS),
                "valid": Out(1),
                "entry": Out(entry),
                "first": Out(1),
                "vc": Out(1),
                "source": Out(params.ports),
                "take": In(1),
                "stop": In(1),
                "reopen": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        ports = self._params.ports
        waiting = [Cat(pair[vc] for pair in self.nonempty) for vc in range(VCS)]

        m.d.comb += self.entry.as_value().eq(
            one_hot_mux(self.source, [entry.as_value() for entry in self.r_entry])
        )
        inside = Signal()  # the packet whose entry was taken last goes on
        goes_on = Mux(self.valid, ~self.entry.last, inside)
        may_pop = (~self.valid | self.take) & ~self.stop

        new_vc = Signal()
        grants, wins = [], []
        for vc in range(VCS):
            m.submodules[f"arbiter{vc}"] = arbiter = RoundRobin(ports)
            m.d.comb += [
                arbiter.request.eq(waiting[vc]),
                arbiter.advance.eq(may_pop & ~goes_on & self.has_credits[vc] & (new_vc == vc)),
            ]
            grants.append(arbiter.grant)
            wins.append(waiting[vc].any() & self.has_credits[vc])
        last_vc = Signal()
        m.d.comb += new_vc.eq(wins[1] & (~wins[0] | ~last_vc))

        same_waits = (self.source & Mux(self.vc, waiting[1], waiting[0])).any()
        pops = Signal()
        m.d.comb += [
            pops.eq(may_pop & Mux(goes_on, same_waits, wins[0] | wins[1])),
            # A channel for each pair: only at the source of the packet at hand it depends on
            # whether that ends, which is known late, and it steers the address of a RAM.
            self.pop_vc.eq(Cat(Mux(source & goes_on, self.vc, new_vc) for source in self.source)),
            self.pop.eq(
                Mux(goes_on, self.source, Mux(new_vc, grants[1], grants[0])) & pops.replicate(ports)
            ),
        ]
        with m.If(pops):
            m.d.sync += [
                self.valid.eq(1),
                self.first.eq(~goes_on),
                self.source.eq(self.pop),
                self.vc.eq(Mux(goes_on, self.vc, new_vc)),
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
