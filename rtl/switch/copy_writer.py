# SPDX-License-Identifier: Apache-2.0
"""Copy writer: writes a request into the pair queues of its outputs, as they have room."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import any_of
from ..flits import FLIT_BITS, HEADER, Status
from ..params import SwitchParams
from .destination import refusal

__all__ = ["CopyWriter"]


class CopyWriter(wiring.Component):
    """Holds one flit, and with a header waits until outputs have room for the whole packet.

    A request is written as soon as one of its outputs has room for all of it. When others have
    not, the packet is started again for their copies, so that no copy waits for another one's
    output. A refused request is answered by one flit to its own port, and its flits are dropped.

    Parameters
    ----------
    params : SwitchParams
        The switch.
    port : int
        The port that this writer belongs to.

    Members
    -------
    i_valid, i_flit, i_last, i_first : In
        The next flit, whether it is the last or the first of its packet.
    i_ports, i_status, i_good, i_limit : In
        With a header: output ports, status, whether that is OK, and how many entries a pair may
        hold for the packet to fit.
    i_list_next : In(1)
        A list flit follows the flit.
    i_take : Out(1)
        The flit is taken.
    limit : Out
        ``i_limit`` of the header that is held.
    room : In(ports)
        Pairs whose request queue holds no more than ``limit``.
    answer_room : In(1)
        The response queue from this port to itself, where refusals go, has a free slot.
    request : Out(1)
        A header waits and there is room for its packet, or for the refusal.
    grant : In(1)
        The row takes it, from this cycle on.
    valid, flit, last, select, to_response, list_next : Out
        The flits for the row, the pairs to write, and whether to their response queues.
    waits : Out(1)
        A header is held.
    drops : Out(1)
        The packet under way is a refused one.
    waiting : Out(ports)
        Ports whose copies are still to be written when the pass under way ends.
    done : Out(1)
        Everything up to the flit that is held is done.
    again : Out(1)
        The packet must be started again, for the ports in ``waiting``.
    refused : Out(1)
        A request was refused.

    Timing
    ------
    A flit that is taken in cycle *t* is on the row in *t* + 1. One flit per cycle.
    """

    def __init__(self, params: SwitchParams, port: int) -> None:
        self._params = params
        self._port = port
        super().__init__(
            {
                "i_valid": In(1),
                "i_flit": In(FLIT_BITS),
                "i_last": In(1),
                "i_first": In(1),
                "i_ports": In(params.ports),
                "i_status": In(Status),
                "i_good": In(1),
                "i_limit": In(range(params.request_depth)),
                "i_list_next": In(1),
                "i_take": Out(1),
                "limit": Out(range(params.request_depth)),
                "room": In(params.ports),
                "answer_room": In(1),
                "request": Out(1),
                "grant": In(1),
                "valid": Out(1),
                "flit": Out(FLIT_BITS),
                "last": Out(1),
                "select": Out(params.ports),
                "to_response": Out(1),
                "list_next": Out(1),
                "waits": Out(1),
                "drops": Out(1),
                "waiting": Out(params.ports),
                "done": Out(1),
                "again": Out(1),
                "refused": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        held, first, last, good = Signal(), Signal(), Signal(), Signal()
        flit = Signal(FLIT_BITS)
        ports = Signal(params.ports)  # with a header: its outputs; behind it: those of the pass
        status = Signal(Status)
        list_next = Signal()

        fitting = Signal(params.ports)
        left = ports & ~fitting
        m.d.comb += [
            fitting.eq(ports & self.room),
            self.waits.eq(held & first),
            self.drops.eq(~good),
            self.request.eq(held & first & Mux(good, any_of(fitting), self.answer_room)),
            self.to_response.eq(~good),
            self.refused.eq(self.grant & ~good),
            self.valid.eq(self.grant | (held & ~first & good)),
            self.flit.eq(Mux(good, flit, refusal(data.View(HEADER, flit), status).as_value())),
            self.last.eq(last | ~good),
            self.select.eq(Mux(good, Mux(first, fitting, ports), 1 << self._port)),
            self.list_next.eq(list_next & good),
        ]
        leaves = held & (~first | self.grant)
        ends = leaves & last
        incomplete = good & Mux(first, left.any(), self.waiting.any())
        m.d.comb += [
            self.i_take.eq(self.i_valid & (~held | leaves)),
            self.again.eq(ends & incomplete),
            # Flits of a refused request are given back one by one: there may be more of them than
            # the buffer holds.
            self.done.eq((ends & ~incomplete) | (leaves & ~good)),
        ]
        with m.If(self.grant):
            m.d.sync += [self.waiting.eq(left), ports.eq(fitting)]
        with m.If(~held | leaves):
            m.d.sync += [
                held.eq(self.i_valid),
                flit.eq(self.i_flit),
                last.eq(self.i_last),
                first.eq(self.i_first),
                list_next.eq(self.i_list_next),
            ]
            with m.If(self.i_first):
                m.d.sync += [
                    ports.eq(self.i_ports),
                    status.eq(self.i_status),
                    good.eq(self.i_good),
                    self.limit.eq(self.i_limit),
                ]
        with m.If(self.again):
            m.d.sync += held.eq(0)
        return m
