# SPDX-License-Identifier: Apache-2.0
"""Results of accesses, made from the ends of packets and the data of loads."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import any_of
from ..common.check import check
from ..common.ram_fifo import RamFifo
from ..flits import FLIT_BITS, HEADER, Status
from ..gpu_params import GpuParams
from .layouts import result_flits, ticket_layout
from .ports import Result

__all__ = ["ResultUnit"]

_LENGTH_BITS = HEADER["length"].width


class ResultUnit(wiring.Component):
    """Gives out results, and keeps room for those that will come.

    Parameters
    ----------
    params : GpuParams
        The queue.

    Members
    -------
    reserve, reserve_flits : In
        Keep room for the end of a packet, and for so many flits of its data.
    roomy : Out(1)
        There is room for one more end, and for the data of the longest load. It takes part in a
        reservation two cycles later.
    end_en, end : In
        A packet ended so (:func:`ticket_layout`).
    data_en, data : In
        A flit of data; the flits of a packet come behind its end.
    fault : In
        Stream of entries that ended without a packet (:func:`ticket_layout`).
    result : Out
        Stream of :class:`Result`.

    Timing
    ------
    One result a cycle; one cycle is lost from each end to the next. An end that comes in cycle *t*
    is given out in *t* + 5 at the earliest.

    Ordering
    --------
    Ends in the order in which they came, the results of a load by ascending address; faults come in
    between, in their own order.

    Reset
    -----
    Everything that waits is forgotten.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        super().__init__(
            {
                "reserve": In(1),
                "reserve_flits": In(_LENGTH_BITS),
                "roomy": Out(1),
                "end_en": In(1),
                "end": In(ticket_layout()),
                "data_en": In(1),
                "data": In(FLIT_BITS),
                "fault": In(stream.Signature(ticket_layout())),
                "result": Out(stream.Signature(Result)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        layout = ticket_layout()
        flit_room = result_flits(params)
        end_room = 1 << (params.tags - 1).bit_length()
        m.submodules.ends = ends = RamFifo(layout.size, end_room, head_in_flops=True)
        m.submodules.flits = flits = RamFifo(FLIT_BITS, flit_room, head_in_flops=True)
        m.d.comb += [
            ends.w_en.eq(self.end_en),
            ends.w_data.eq(self.end),
            flits.w_en.eq(self.data_en),
            flits.w_data.eq(self.data),
        ]

        # The packet whose results are being made. Faults and ends take turns.
        ticket = Signal(layout, reset_less=True)
        busy = Signal()
        is_fault = Signal()
        fault_next = Signal()
        takes = Signal()
        takes_fault = Signal()
        place = Signal(4)  # first byte of the next access in its flit
        left = Signal(layout["accesses"].shape)
        final = Signal()
        with_data = Signal()
        m.d.comb += [
            takes.eq(~busy & (ends.o.valid | self.fault.valid)),
            takes_fault.eq(self.fault.valid & (fault_next | ~ends.o.valid)),
            ends.o.ready.eq(~busy & ~takes_fault),
            self.fault.ready.eq(~busy & (fault_next | ~ends.o.valid)),
        ]
        taken = data.View(layout, Mux(takes_fault, self.fault.payload, ends.o.payload))
        done = Signal()
        with m.If(takes):
            m.d.sync += [
                busy.eq(1),
                ticket.eq(taken),
                is_fault.eq(takes_fault),
                fault_next.eq(~takes_fault),
                place.eq(taken.offset),
                left.eq(taken.accesses),
                final.eq(~taken.load | (taken.accesses == 1)),
                with_data.eq(taken.load & (taken.status == Status.OK)),
            ]
        with m.Elif(done):
            m.d.sync += busy.eq(0)

        # Its results.
        free = Signal()
        goes = Signal()
        after = Signal(5)
        step = Cat(ticket.size == 0, ticket.size == 1, ticket.size == 2)
        result = self.result.payload
        m.d.comb += [
            free.eq(~self.result.valid | self.result.ready),
            goes.eq(busy & free & (~with_data | flits.o.valid)),
            done.eq(goes & final),
            after.eq(place + (step << 2)),
            flits.o.ready.eq(busy & free & with_data & (final | after[4])),
        ]
        with m.If(goes):
            m.d.sync += [
                place.eq(after),
                ticket.rd.eq(ticket.rd + 1),
                left.eq(left - 1),
                final.eq(left == 2),
            ]
        words = [flits.o.payload[bit : bit + 32] for bit in range(0, FLIT_BITS, 32)]
        by_4 = Cat(*words).word_select(place[2:], 32)
        by_8 = Cat(*words).word_select(place[3], 64)
        value = Signal(FLIT_BITS)
        m.d.comb += value.eq(
            Mux(step[2], flits.o.payload, Mux(step[1], by_8, by_4)) & with_data.replicate(FLIT_BITS)
        )
        with m.If(free):
            m.d.sync += [
                self.result.valid.eq(goes),
                result.rd.eq(ticket.rd),
                result.accesses.eq(Mux(ticket.load, 1, ticket.accesses)),
                result.load.eq(ticket.load),
                result.status.eq(ticket.status),
                result.data.eq(value),
            ]

        # Room is kept when a tag is granted, and given back when all results are made.
        free_flits = Signal(range(flit_room + 1), init=flit_room)
        free_ends = Signal(range(end_room + 1), init=end_room)
        kept = Signal(signed(_LENGTH_BITS + 1))
        kept_ends = Signal(signed(2))
        returns = Signal()
        returned = Signal(_LENGTH_BITS)
        longest_bits = params.packet_flits.bit_length() - 1
        m.d.comb += self.roomy.eq(any_of(free_flits[longest_bits:]) & any_of(free_ends))
        m.d.sync += [
            returns.eq(done & ~is_fault),
            returned.eq(Mux(ticket.load, ticket.length, 0)),
            kept.eq(Mux(self.reserve, self.reserve_flits, 0) - Mux(returns, returned, 0)),
            kept_ends.eq(self.reserve - returns),
            free_flits.eq(free_flits - kept),
            free_ends.eq(free_ends - kept_ends),
        ]
        check(m, platform, free_flits <= flit_room, "more data than room was kept for")
        return m
