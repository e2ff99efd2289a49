# SPDX-License-Identifier: Apache-2.0
"""Ingress of one port: from the link to the row of pair queues."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..flits import FLIT_BITS
from ..params import SwitchParams
from ..reduce.arming import Arming, arm_layout
from .copy_writer import CopyWriter
from .link import LinkSignature
from .receiver import Receiver
from .request_head import RequestHead
from .request_queue import entry_layout
from .response_head import ResponseHead
from .route_unit import RouteSignature
from .vc_buffer import VcBuffer

__all__ = ["Ingress"]


class Ingress(wiring.Component):
    """Receives packets and writes them to the queues of this input: a row of pairs.

    Requests are buffered and checked, and copies are written to the request queues as those have
    room. Responses go to their response queue at once, for which their sender holds credits; so a
    request that waits for room never holds up a response.

    Parameters
    ----------
    params : SwitchParams
        The switch.
    port : int
        Number of the port.

    Members
    -------
    rx : In
        The link (:class:`LinkSignature`), with a class of credits for each port's responses.
    limit : Out
        Entries that a request queue may hold for the packet that waits.
    room : In(ports)
        Request queues of this row that hold no more.
    w_en : Out(ports)
        Write the entry to the request queues with their bit set.
    w_entry : Out
        The entry for every queue; only ``lanes`` differs between them.
    response_full : In(ports)
        Response queues without room.
    response_hold : Out(ports)
        Response queues of which nothing may be taken, since a credit of theirs is handed out.
    response_take : In(ports)
        Response queues of which a flit is taken in this cycle.
    response_en : Out(ports)
        Write the response queue with its bit set.
    response_flit, response_last : Out
        What to write.
    arm : Out
        Entries to be armed (stream of :func:`arm_layout`).
    answer : Out
        Refusals (stream of flits).
    allowed, group, group_gpus, route :
        As in :class:`RequestHead`.
    offered_flit : Out(128)
        The flit that ``route`` offers.
    fault : Out(1)
        The sender was cut off (:class:`Receiver`).
    got_flit, got_request, got_response, refused, dropped : Out(1)
        Events for the counters.

    Timing
    ------
    A request's header on an idle port's link in cycle *t* is on the row in *t* + 2, with a list of
    up to 8 targets in *t* + 3; a response's in *t* + 1. One flit per cycle each. The rows are not
    registered; the queues' RAMs are.
    """

    def __init__(self, params: SwitchParams, port: int) -> None:
        self._params = params
        self._port = port
        members = {
            "rx": In(LinkSignature(1 + params.ports)),
            "limit": Out(range(params.request_depth)),
            "room": In(params.ports),
            "w_en": Out(params.ports),
            "w_entry": Out(entry_layout(params.dynamic)).array(params.ports),
            "response_full": In(params.ports),
            "response_hold": Out(params.ports),
            "response_take": In(params.ports),
            "response_en": Out(params.ports),
            "response_flit": Out(FLIT_BITS),
            "response_last": Out(1),
            "arm": Out(stream.Signature(arm_layout(params))),
            "answer": Out(stream.Signature(FLIT_BITS)),
            "allowed": In(params.ports),
            "group": Out(15),
            "group_gpus": In(params.gpus),
            "fault": Out(1),
            "got_flit": Out(1),
            "got_request": Out(1),
            "got_response": Out(1),
            "refused": Out(1),
            "dropped": Out(1),
        }
        if params.dynamic:
            members |= {
                "offered_flit": Out(FLIT_BITS),
                "route": Out(RouteSignature(params)),
            }
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        m.submodules.receiver = receiver = Receiver(params.rx_timeout)
        m.submodules.buffer = buffer = VcBuffer(params.ingress_depth)
        m.submodules.requests = requests = RequestHead(params, self._port)
        m.submodules.writer = writer = CopyWriter(params)
        m.submodules.responses = responses = ResponseHead(params)
        m.submodules.arming = arming = Arming(params)

        m.d.comb += [
            receiver.valid.eq(self.rx.valid),
            receiver.flit.eq(self.rx.flit),
            receiver.full.eq(Cat(buffer.full, responses.stuck)),
            # A response is sent with credits for all of its flits.
            receiver.spent.eq(buffer.spent),
            self.fault.eq(receiver.fault),
            self.got_flit.eq(receiver.w_en.any()),
            self.got_request.eq(receiver.got_request),
            self.got_response.eq(receiver.got_response),
            self.refused.eq(writer.refused),
            self.dropped.eq(responses.dropped),
        ]
        m.d.comb += [
            buffer.w_en.eq(receiver.w_en[0]),
            buffer.w_flit.eq(receiver.w_flit),
            buffer.w_last.eq(receiver.w_last),
            buffer.take.eq(requests.take),
            buffer.restart.eq(requests.restart),
            buffer.mark.eq(requests.mark),
            buffer.commit.eq(writer.done),
            requests.r_valid.eq(buffer.r_valid),
            requests.r_flit.eq(buffer.r_flit),
            requests.r_last.eq(buffer.r_last),
            requests.allowed.eq(self.allowed),
            self.group.eq(requests.group),
            requests.group_gpus.eq(self.group_gpus),
            requests.again.eq(writer.again),
            requests.waiting.eq(writer.waiting),
            requests.waits.eq(writer.waits),
            requests.drops.eq(writer.drops),
            requests.o_take.eq(writer.i_take),
            writer.i_valid.eq(requests.o_valid),
            writer.i_flit.eq(requests.o_flit),
            writer.i_last.eq(requests.o_last),
            writer.i_first.eq(requests.o_first),
            writer.i_ports.eq(requests.o_ports),
            writer.i_status.eq(requests.o_status),
            writer.i_good.eq(requests.o_good),
            writer.i_limit.eq(requests.o_limit),
            writer.i_list_next.eq(requests.o_list_next),
            writer.room.eq(self.room),
            writer.can_arm.eq(arming.ready),
            arming.valid.eq(writer.arm),
            arming.flit.eq(writer.flit),
            arming.ports.eq(writer.ports),
            self.limit.eq(writer.limit),
        ]
        connect(m, writer.answer, flipped(self.answer))
        connect(m, arming.o, flipped(self.arm))

        m.d.comb += self.w_en.eq(writer.select & writer.valid.replicate(params.ports))
        for port in range(params.ports):
            entry = self.w_entry[port]
            m.d.comb += [entry.flit.eq(writer.flit), entry.last.eq(writer.last)]
            if params.dynamic:
                gpu = port // params.links_per_gpu
                lanes = Cat(lane.valid & (lane.gpu == gpu) for lane in requests.lanes)
                m.d.comb += [entry.lanes.eq(lanes), entry.list_next.eq(writer.list_next)]
        if params.dynamic:
            m.d.comb += self.offered_flit.eq(buffer.r_flit)
            connect(m, requests.route, flipped(self.route))

        m.d.comb += [
            responses.i_en.eq(receiver.w_en[1]),
            responses.i_flit.eq(receiver.w_flit),
            responses.i_last.eq(receiver.w_last),
            responses.allowed.eq(self.allowed),
            responses.full.eq(self.response_full),
            self.response_en.eq(responses.select),
            self.response_flit.eq(responses.flit),
            self.response_last.eq(responses.last),
        ]
        # After reset all queues' credits are handed out at once.
        handed = Signal(range(params.response_depth + 1))
        with m.If(handed != params.response_depth):
            m.d.sync += [handed.eq(handed + 1), self.response_hold.eq(~0)]
        with m.Else():
            m.d.sync += self.response_hold.eq(responses.credit)
        credit = Signal(params.ports)
        m.d.sync += credit.eq(self.response_hold | self.response_take)
        m.d.comb += self.rx.credit.eq(Cat(buffer.credit, credit))
        return m
