# SPDX-License-Identifier: Apache-2.0
"""Link receiver: finds the packets in the flit stream and cuts off senders that break the rules."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..flits import FLIT_BITS, HEADER, LANES, Addressing
from .link import VCS

__all__ = ["Receiver", "data_flits", "extension_flits"]


def extension_flits(header: data.View):
    """Count the extension flits behind a header with any opcode, as the framing rule says."""
    listed = header.opcode[2:4] == Addressing.DYNAMIC
    return ((header.count + LANES - 1) >> (LANES - 1).bit_length()) & listed.replicate(13)


def data_flits(header: data.View):
    """Count the data flits behind a header with any opcode, as the framing rule says."""
    is_response = header.opcode[2:4] == Addressing.RESPONSE
    carries = Mux(is_response, header.opcode[1], header.opcode[0])
    return header.length & carries.replicate(len(header.length))


class Receiver(wiring.Component):
    """Splits the flits of a link into packets and sends them on in their channel.

    Parameters
    ----------
    timeout : int
        Cycles without a flit inside a packet, though there are credits for one, after which the
        sender counts as gone (power of two).

    Members
    -------
    valid, flit : In
        From the link.
    full : In(2)
        Bit *v*: no flit of channel *v* can be taken.
    spent : In(1)
        The sender has no credit for requests. (A response is begun with credits for all of it.)
    w_en : Out(2)
        Bit *v*: ``w_flit`` is a flit of channel *v*.
    w_flit, w_last : Out
        The flit, and whether it ends its packet.
    fault : Out(1)
        The sender is cut off until reset.
    got_request, got_response : Out(1)
        A packet ended in this cycle.

    Timing
    ------
    Combinational.

    Errors
    ------
    A sender that sends without a credit, or stops inside a packet for `timeout` cycles, is cut off:
    nothing it sends is looked at until reset, and the packet that it left open is filled up with
    zero flits, so that whoever already receives a part of it is not left waiting.
    """

    def __init__(self, timeout: int) -> None:
        self._timeout = timeout
        super().__init__(
            {
                "valid": In(1),
                "flit": In(FLIT_BITS),
                "full": In(VCS),
                "spent": In(1),
                "w_en": Out(VCS),
                "w_flit": Out(FLIT_BITS),
                "w_last": Out(1),
                "fault": Out(1),
                "got_request": Out(1),
                "got_response": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        header = data.View(HEADER, self.flit)
        left = Signal(14)  # flits of the open packet that are still to come
        is_open = Signal()
        open_vc = Signal()

        behind = Signal(14)
        # `behind == 0`, without waiting for the sum.
        alone = (
            ~((header.opcode[2:4] == Addressing.DYNAMIC) & (header.count != 0))
            & (data_flits(header) == 0)
            & ~header.byte_enable
        )
        m.d.comb += behind.eq(extension_flits(header) + data_flits(header) + header.byte_enable)
        # The channel follows from the opcode; whether the field agrees is for the heads to check.
        vc = Mux(is_open, open_vc, header.opcode[2:4] == Addressing.RESPONSE)
        room = ~Mux(vc, self.full[1], self.full[0])
        take = Signal()
        m.d.comb += [
            # A faulty sender's open packet is filled up from here, whatever comes in.
            take.eq(Mux(self.fault, is_open & room, self.valid & room)),
            self.w_en.eq(Mux(vc, take << 1, take)),
            self.w_flit.eq(Mux(self.fault, 0, self.flit)),
            self.w_last.eq(Mux(is_open, left == 1, alone)),
        ]
        m.d.comb += [
            self.got_request.eq(take & self.w_last & ~vc),
            self.got_response.eq(take & self.w_last & vc),
        ]
        with m.If(take):
            m.d.sync += is_open.eq(~self.w_last)
            with m.If(is_open):
                m.d.sync += left.eq(left - 1)
            with m.Else():
                m.d.sync += [left.eq(behind), open_vc.eq(vc)]

        silence = Signal(range(self._timeout + 1))
        with m.If(~is_open | self.valid | (self.spent & ~open_vc)):
            m.d.sync += silence.eq(0)
        with m.Elif(~silence[-1]):
            m.d.sync += silence.eq(silence + 1)
        with m.If((self.valid & ~room) | silence[-1]):
            m.d.sync += self.fault.eq(1)
        return m
