# SPDX-License-Identifier: Apache-2.0
"""Response head of an input: checks responses and writes them to their requesters' queues."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import any_of
from ..flits import FLIT_BITS, HEADER, MAX_DATA_FLITS, Vc
from ..params import SwitchParams
from .destination import gpu_one_hot, ports_of

__all__ = ["ResponseHead"]


class ResponseHead(wiring.Component):
    """Takes responses from the link, one flit a cycle, and writes them to a queue of this input.

    There is no buffer before the queues: the sender holds credits of the queue that it sends for.

    Parameters
    ----------
    params : SwitchParams
        The switch.

    Members
    -------
    i_en, i_flit, i_last : In
        A flit from the :class:`Receiver`.
    stuck : Out(1)
        The flit before cannot be written, since its queue is full: the sender broke the credit
        rule. Nothing can be taken.
    full : In(ports)
        Queues without room.
    allowed : In(ports)
        Ports in this port's partition.
    select, flit, last : Out
        The queue to write (one-hot), and what.
    credit : Out(ports)
        Hand out a credit of the queue, whose flit was dropped.
    dropped : Out(1)
        A malformed response was dropped.

    Timing
    ------
    A flit taken in cycle *t* is written in *t* + 1.

    Errors
    ------
    A response that breaks a rule is consumed whole and dropped; there is nobody to tell. Its
    credits go back, if its requester exists.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        super().__init__(
            {
                "i_en": In(1),
                "i_flit": In(FLIT_BITS),
                "i_last": In(1),
                "stuck": Out(1),
                "full": In(params.ports),
                "allowed": In(params.ports),
                "select": Out(params.ports),
                "flit": Out(FLIT_BITS),
                "last": Out(1),
                "credit": Out(params.ports),
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
        dropping = Signal()  # behind a header: the packet is dropped
        behind = Signal(params.ports)  # behind a header: where the packet goes

        ports = Signal(params.ports)
        m.d.comb += ports.eq(ports_of(params, gpu_one_hot(header.gpu, params.gpus), header))
        # All four opcodes of responses exist; bit 1 tells the ones with data.
        has_data = header.opcode[1]
        length_ok = (header.length != 0) & (header.length <= MAX_DATA_FLITS)
        good = (
            ((has_data & length_ok) | (~has_data & (header.length == 0)))
            & ~header.byte_enable
            & (header.vc == Vc.RESPONSE)
            & (ports & self.allowed).any()
        )
        target = Signal(params.ports)
        drop = Signal()
        m.d.comb += [target.eq(behind), drop.eq(dropping)]
        with m.If(first):
            m.d.comb += [target.eq(ports), drop.eq(~good)]
        fits = drop | ~any_of(target & self.full)
        leaves = held & fits
        m.d.comb += [
            self.stuck.eq(held & ~fits),
            self.select.eq(target & (leaves & ~drop).replicate(params.ports)),
            self.credit.eq(target & (leaves & drop).replicate(params.ports)),
            self.dropped.eq(leaves & first & drop),
        ]
        with m.If(leaves):
            m.d.sync += [first.eq(self.last), held.eq(0), behind.eq(target), dropping.eq(drop)]
        with m.If(self.i_en):
            m.d.sync += [self.flit.eq(self.i_flit), self.last.eq(self.i_last), held.eq(1)]
        return m
