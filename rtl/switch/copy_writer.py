# SPDX-License-Identifier: Apache-2.0
"""Copy writer: writes a request into the pair queues of its outputs, as they have room."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
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
    output. A multicast request that wants an answer arms a reduction entry when its first copies
    are written. A refused request is answered by one flit, and its flits are dropped.

    Parameters
    ----------
    params : SwitchParams
        The switch.

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
    valid, flit, last, select, list_next : Out
        The flits for the row, and the pairs to write.
    can_arm : In(1)
        An entry can be armed in this cycle.
    arm : Out(1)
        Arm an entry for the header in ``flit``, whose copies go to ``ports``.
    ports : Out(ports)
        All outputs of a header before its first copies are written.
    answer : Out
        The refusal of the request that is held: valid, ready, payload (stream of flits).
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

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
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
                "valid": Out(1),
                "flit": Out(FLIT_BITS),
                "last": Out(1),
                "select": Out(params.ports),
                "list_next": Out(1),
                "can_arm": In(1),
                "arm": Out(1),
                "ports": Out(params.ports),
                "answer": Out(stream.Signature(FLIT_BITS)),
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
        held = Signal()
        first = Signal()
        good = Signal()
        status = Signal(Status)
        arming = Signal()  # the header that is held wants an answer
        repeated = Signal()  # the packet was started again
        header = data.View(HEADER, self.flit)

        fitting = Signal(params.ports)
        left = self.ports & ~fitting
        grant = Signal()
        answered = Signal()
        m.d.comb += [
            fitting.eq(self.ports & self.room),
            self.waits.eq(held & first),
            self.drops.eq(~good),
            grant.eq(held & first & good & any_of(fitting) & (~arming | repeated | self.can_arm)),
            self.arm.eq(grant & arming & ~repeated),
            self.answer.valid.eq(held & first & ~good),
            self.answer.payload.eq(refusal(header, status).as_value()),
            answered.eq(self.answer.valid & self.answer.ready),
            self.refused.eq(answered),
            self.valid.eq(grant | (held & ~first & good)),
            self.select.eq(Mux(first, fitting, self.ports)),
        ]
        leaves = held & (~first | grant | answered)
        ends = leaves & self.last
        incomplete = good & Mux(first, left.any(), self.waiting.any())
        m.d.comb += [
            self.i_take.eq(self.i_valid & (~held | leaves)),
            self.again.eq(ends & incomplete),
            # Flits of a refused request are given back one by one: there may be more of them than
            # the buffer holds.
            self.done.eq((ends & ~incomplete) | (leaves & ~good)),
        ]
        with m.If(grant):
            m.d.sync += [self.waiting.eq(left), self.ports.eq(fitting)]
        with m.If(ends):
            m.d.sync += repeated.eq(incomplete)
        with m.If(~held | leaves):
            m.d.sync += [
                held.eq(self.i_valid),
                self.flit.eq(self.i_flit),
                self.last.eq(self.i_last),
                first.eq(self.i_first),
                self.list_next.eq(self.i_list_next),
            ]
            with m.If(self.i_first):
                opcode = data.View(HEADER, self.i_flit).opcode
                posted = data.View(HEADER, self.i_flit).posted & opcode[0]  # bit 0: no load
                m.d.sync += [
                    self.ports.eq(self.i_ports),
                    status.eq(self.i_status),
                    good.eq(self.i_good),
                    self.limit.eq(self.i_limit),
                    # One of the upper bits: static or dynamic.
                    arming.eq((opcode[2] ^ opcode[3]) & ~posted),
                ]
        with m.If(self.again):
            m.d.sync += held.eq(0)
        return m
