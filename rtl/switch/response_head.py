# SPDX-License-Identifier: Apache-2.0
"""Head of an input's response channel: routes a response to its requester."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import any_of
from ..flits import FLIT_BITS, HEADER, MAX_DATA_FLITS, Opcode, Vc
from ..params import SwitchParams
from .destination import gpu_one_hot, ports_of

__all__ = ["ResponseHead"]


class ResponseHead(wiring.Component):
    """Takes responses from their buffer, one at a time, and offers them to the row.

    Parameters
    ----------
    params : SwitchParams
        The switch.

    Members
    -------
    r_valid, r_flit, r_last, take
        The reader's side of a :class:`VcBuffer`, whose ``mark`` and ``commit`` are held: every flit
        is given back when it was taken.
    limit : Out
        Entries that a pair's response queue may hold for the packet to fit.
    room : In(ports)
        Pairs whose response queue holds no more.
    allowed : In(ports)
        Ports in this port's partition.
    waits : Out(1)
        A packet waits.
    request : Out(1)
        A packet waits and all of it fits into its pair's queue.
    grant : In(1)
        The row takes the packet, from this cycle on.
    valid, flit, last, select : Out
        The flits for the row, in the cycle of ``grant`` and behind it, and the pair to write.
    dropped : Out(1)
        A malformed response was dropped.

    Timing
    ------
    A header that appears at ``r_flit`` in cycle *t* can be granted in *t* + 1. One flit per cycle.

    Errors
    ------
    A response that breaks a rule is consumed whole and dropped; there is nobody to tell.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        super().__init__(
            {
                "r_valid": In(1),
                "r_flit": In(FLIT_BITS),
                "r_last": In(1),
                "take": Out(1),
                "limit": Out(range(params.response_depth)),
                "room": In(params.ports),
                "allowed": In(params.ports),
                "waits": Out(1),
                "request": Out(1),
                "grant": In(1),
                "valid": Out(1),
                "flit": Out(FLIT_BITS),
                "last": Out(1),
                "select": Out(params.ports),
                "dropped": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        header = data.View(HEADER, self.flit)
        held = Signal()  # `flit` and `last` hold a flit
        first = Signal(init=1)  # it is a header
        dropping = Signal()
        target = Signal(params.ports)  # of the packet under way

        ports = Signal(params.ports)
        m.d.comb += ports.eq(ports_of(params, gpu_one_hot(header.gpu, params.gpus), header))
        is_ack = header.opcode == Opcode.RSP_ACK
        is_data = header.opcode == Opcode.RSP_DATA
        data_length_ok = (header.length != 0) & (header.length <= MAX_DATA_FLITS)
        good = (
            ((is_ack & (header.length == 0)) | (is_data & data_length_ok))
            & ~header.byte_enable
            & (header.vc == Vc.RESPONSE)
            & (ports & self.allowed).any()
        )
        # A whole packet takes 1 + length slots; an acknowledgement's length is 0 if it is good.
        m.d.comb += self.limit.eq(params.response_depth - 1 - header.length)

        at_head = held & first
        m.d.comb += [
            self.request.eq(at_head & good & any_of(ports & self.room)),
            self.waits.eq(at_head),
            self.select.eq(ports),
        ]
        with m.If(~first):
            m.d.comb += self.select.eq(target)
        drop_now = (at_head & ~good) | (held & dropping)
        m.d.comb += [
            self.valid.eq(held & ~dropping & (self.grant | ~first)),
            self.dropped.eq(at_head & ~good),
            self.take.eq(self.r_valid & (~held | self.valid | drop_now)),
        ]
        with m.If(self.valid | drop_now):
            m.d.sync += [first.eq(self.last), dropping.eq(drop_now & ~self.last), held.eq(0)]
        with m.If(self.grant):
            m.d.sync += target.eq(ports)
        with m.If(self.take):
            m.d.sync += [self.flit.eq(self.r_flit), self.last.eq(self.r_last), held.eq(1)]
        return m
