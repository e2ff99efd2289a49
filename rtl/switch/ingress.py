# SPDX-License-Identifier: Apache-2.0
"""Ingress of one port: from the link to the row of pair queues."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..flits import FLIT_BITS
from ..params import SwitchParams
from .copy_writer import CopyWriter
from .link import LinkSignature
from .pair_queue import entry_layout
from .receiver import Receiver
from .request_head import RequestHead
from .response_head import ResponseHead
from .route_unit import RouteSignature
from .vc_buffer import VcBuffer

__all__ = ["Ingress"]


class Ingress(wiring.Component):
    """Receives packets, buffers them per channel, and writes their copies to the row of pairs.

    Request and response channel have a buffer and a head each, so that a request that waits for
    room never holds up a response. They share the row by whole packets, in turns.

    Parameters
    ----------
    params : SwitchParams
        The switch.
    port : int
        Number of the port.

    Members
    -------
    rx : In
        The link (:class:`LinkSignature`).
    limit_request, limit_response : Out
        Entries that a pair may hold for the packet that waits.
    room_request, room_response : In(ports)
        Pairs of this row that hold no more.
    answer_room : In(1)
        The response queue from this port to itself has a free slot.
    w_en : Out(ports)
        Write the entry to the pairs with their bit set.
    w_vc, w_entry : Out
        The channel, and the entry for every pair; only ``lanes`` differs between the pairs.
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
    A header on an idle port's link in cycle *t* is on the row in *t* + 2, with a list of up to 8
    targets in *t* + 3. One flit per cycle. The row is not registered; the pairs' RAMs are.
    """

    def __init__(self, params: SwitchParams, port: int) -> None:
        self._params = params
        self._port = port
        members = {
            "rx": In(LinkSignature()),
            "limit_request": Out(range(params.request_depth)),
            "limit_response": Out(range(params.response_depth)),
            "room_request": In(params.ports),
            "room_response": In(params.ports),
            "answer_room": In(1),
            "w_en": Out(params.ports),
            "w_vc": Out(1),
            "w_entry": Out(entry_layout(params.dynamic)).array(params.ports),
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
        m.submodules.request_buffer = request_buffer = VcBuffer(params.ingress_depth)
        m.submodules.response_buffer = response_buffer = VcBuffer(params.ingress_depth)
        m.submodules.requests = requests = RequestHead(params, self._port)
        m.submodules.writer = writer = CopyWriter(params, self._port)
        m.submodules.responses = responses = ResponseHead(params)

        m.d.comb += [
            receiver.valid.eq(self.rx.valid),
            receiver.flit.eq(self.rx.flit),
            self.fault.eq(receiver.fault),
            self.got_flit.eq(receiver.w_en.any()),
            self.got_request.eq(receiver.got_request),
            self.got_response.eq(receiver.got_response),
            self.refused.eq(writer.refused),
            self.dropped.eq(responses.dropped),
        ]
        for vc, (buffer, head) in enumerate(
            ((request_buffer, requests), (response_buffer, responses))
        ):
            m.d.comb += [
                receiver.full[vc].eq(buffer.full),
                receiver.spent[vc].eq(buffer.spent),
                self.rx.credit[vc].eq(buffer.credit),
                buffer.w_en.eq(receiver.w_en[vc]),
                buffer.w_flit.eq(receiver.w_flit),
                buffer.w_last.eq(receiver.w_last),
                head.r_valid.eq(buffer.r_valid),
                head.r_flit.eq(buffer.r_flit),
                head.r_last.eq(buffer.r_last),
                buffer.take.eq(head.take),
                head.allowed.eq(self.allowed),
            ]
        m.d.comb += [
            request_buffer.restart.eq(requests.restart),
            request_buffer.mark.eq(requests.mark),
            request_buffer.commit.eq(writer.done),
            response_buffer.mark.eq(1),
            response_buffer.commit.eq(1),
            self.group.eq(requests.group),
            requests.group_gpus.eq(self.group_gpus),
            requests.again.eq(writer.again),
            requests.waiting.eq(writer.waiting),
            requests.waits.eq(writer.waits),
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
            requests.drops.eq(writer.drops),
            self.limit_request.eq(writer.limit),
            self.limit_response.eq(responses.limit),
            writer.room.eq(self.room_request),
            writer.answer_room.eq(self.answer_room),
            responses.room.eq(self.room_response),
        ]

        # The row: whole packets, the channels in turns. Whose turn it is stands in a register,
        # since it steers wide multiplexers; it passes on when a packet ends, or when there is
        # nothing to write, and the other channel has something.
        busy = Signal()  # a packet is under way, behind its header
        turn = Signal()
        m.d.comb += [
            writer.grant.eq(~busy & ~turn & writer.request),
            responses.grant.eq(~busy & turn & responses.request),
        ]
        row_valid = Mux(turn, responses.valid, writer.valid)
        row_last = Mux(turn, responses.last, writer.last)
        other_waits = Mux(turn, writer.waits, responses.waits)
        with m.If(row_valid):
            m.d.sync += busy.eq(~row_last)
        with m.If(other_waits & Mux(row_valid, row_last, ~busy)):
            m.d.sync += turn.eq(~turn)

        m.d.comb += [
            self.w_en.eq(
                Mux(turn, responses.select, writer.select) & row_valid.replicate(params.ports)
            ),
            self.w_vc.eq(turn | writer.to_response),
        ]
        flit = Mux(turn, responses.flit, writer.flit)
        for port in range(params.ports):
            entry = self.w_entry[port]
            m.d.comb += [entry.flit.eq(flit), entry.last.eq(row_last)]
            if params.dynamic:
                gpu = port // params.links_per_gpu
                lanes = Cat(lane.valid & (lane.gpu == gpu) for lane in requests.lanes)
                m.d.comb += [
                    entry.lanes.eq(lanes),
                    entry.list_next.eq(writer.list_next & ~turn),
                ]
        if params.dynamic:
            m.d.comb += self.offered_flit.eq(request_buffer.r_flit)
            connect(m, requests.route, flipped(self.route))
        return m
