# SPDX-License-Identifier: Apache-2.0
"""Egress of one port: from the request queues of its column and its results to the link."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..common.check import check
from ..params import SwitchParams
from .column_reader import ColumnReader
from .link import CREDIT_BITS, VCS, LinkSignature
from .request_queue import entry_layout
from .sender import Sender

__all__ = ["CREDIT_MARGIN", "Egress"]

CREDIT_MARGIN = 4
"""Flits that are on their way to the link and not counted yet when a packet is chosen: one in each
of the three stages, and one for the comparison, which is registered."""


class Egress(wiring.Component):
    """Chooses packets from its queues, prunes their lists, and sends them.

    A packet is chosen only when the receiver has room for the longest packet of its channel and
    ``CREDIT_MARGIN`` flits more, so a packet never stops half way for want of credits. A receiver
    must have at least that many slots.

    Parameters
    ----------
    params : SwitchParams
        The switch.

    Members
    -------
    nonempty, r_entry, pop :
        The read side of the request queues and of the queue of responses, as in
        :class:`ColumnReader`.
    back : Out(ports)
        One-hot: step that request queue back by one entry. Only with dynamic support.
    tx : Out
        The link (:class:`LinkSignature`).
    sent_flit, sent_request, sent_response : Out(1)
        Events for the counters.

    Timing
    ------
    An entry that is in a queue in cycle *t* is on the link in *t* + 3. One flit per cycle.

    Area
    ----
    A ``ports``-way multiplexer of a flit, two flit registers, and the pruner.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        members = {
            "nonempty": In(params.ports + 1),
            "r_entry": In(entry_layout(params.dynamic)).array(params.ports + 1),
            "pop": Out(params.ports + 1),
            "tx": Out(LinkSignature()),
            "sent_flit": Out(1),
            "sent_request": Out(1),
            "sent_response": Out(1),
        }
        if params.dynamic:
            members["back"] = Out(params.ports)
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        m.submodules.reader = reader = ColumnReader(params)
        m.submodules.sender = sender = Sender(params)
        for source in range(params.ports + 1):
            m.d.comb += reader.r_entry[source].eq(self.r_entry[source])
        m.d.comb += [
            reader.nonempty.eq(self.nonempty),
            self.pop.eq(reader.pop),
            sender.i_valid.eq(reader.valid),
            sender.i_entry.eq(reader.entry),
            sender.i_first.eq(reader.first),
            sender.i_vc.eq(reader.vc),
            reader.take.eq(sender.i_take),
            self.tx.valid.eq(sender.valid),
            self.tx.flit.eq(sender.flit),
            self.sent_flit.eq(sender.valid),
            self.sent_request.eq(sender.valid & sender.first & ~sender.vc),
            self.sent_response.eq(sender.valid & sender.first & sender.vc),
        ]
        if params.dynamic:
            m.d.comb += [
                reader.stop.eq(sender.stop),
                reader.reopen.eq(sender.reopen),
                self.back.eq(reader.source[:-1] & sender.back.replicate(params.ports)),
            ]

        longest = (params.max_request_flits, params.max_response_flits)
        for vc in range(VCS):
            credits = Signal(CREDIT_BITS, name=f"credits{vc}")
            sent = sender.valid & (sender.vc == vc)
            with m.If(self.tx.credit[vc] & ~sent):
                m.d.sync += credits.eq(credits + 1)
            with m.Elif(sent & ~self.tx.credit[vc]):
                m.d.sync += credits.eq(credits - 1)
            m.d.sync += reader.has_credits[vc].eq(credits >= longest[vc] + CREDIT_MARGIN)
            check(m, platform, ~sent | (credits != 0), f"egress: no credit, channel {vc}")
        return m
