# SPDX-License-Identifier: Apache-2.0
"""Puts packets together from header, list and data, in beats of up to three flits."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..common.shift_fifo import ShiftFifo
from ..flits import FLIT_BITS, FLIT_BYTES, HEADER, LANES, MAX_BYTE_ENABLE_FLITS, TARGET_BITS
from ..gpu_params import GpuParams
from .layouts import entry_bits, packet_layout, word_bits
from .ports import Beat

__all__ = ["PacketSender"]

_AHEAD = 3
"""List flits read ahead of their use."""


class PacketSender(wiring.Component):
    """Sends the packets of the entries, in order.

    The first beat has the header, the first list flit (or, without one, the byte-enable flit) and,
    if nothing else comes before it, the first data flit. Further list flits and the byte-enable
    flit have a beat each, the last of them with the first data flit; each further data flit has
    one.

    Parameters
    ----------
    params : GpuParams
        The queue.

    Members
    -------
    packet : In
        Stream of packets (:func:`packet_layout`), one for each entry.
    r_en, r_entry, r_flit, r_data : Out, Out, Out, In
        Of the :class:`ListStore`.
    data : In
        Stream of data flits, in the order of the packets.
    o : Out
        Stream of :class:`Beat`.
    freed : Out(1)
        Registered: an entry is done with.
    sent : Out(1)
        ... and its packet was sent.

    Timing
    ------
    One beat a cycle, also from one packet to the next if there was time to fetch it: a packet that
    comes in cycle *t* begins in *t* + 2 at the earliest (with a list: *t* + 3), and is given out
    one cycle later.

    Reset
    -----
    Idle. Entries begin with number 0.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        super().__init__(
            {
                "packet": In(stream.Signature(packet_layout(params))),
                "r_en": Out(1),
                "r_entry": Out(entry_bits(params)),
                "r_flit": Out(word_bits(params)),
                "r_data": In(FLIT_BITS),
                "data": In(stream.Signature(FLIT_BITS)),
                "o": Out(stream.Signature(Beat)),
                "freed": Out(1),
                "sent": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        layout = packet_layout(params)
        queued = Signal(layout, reset_less=True)
        has_queued = Signal()
        reading = Signal()  # its list is still to be read
        taken = Signal()
        m.d.comb += [
            self.packet.ready.eq(~has_queued & ~reading),
            taken.eq(self.packet.valid & self.packet.ready),
        ]
        with m.If(taken):
            m.d.sync += [queued.eq(self.packet.payload), has_queued.eq(1)]
        lists = self._lists(m, taken, reading)

        # The packet that is being sent.
        header = Signal(FLIT_BITS, reset_less=True)
        enables = Signal(FLIT_BITS, reset_less=True)
        busy = Signal()
        drops = Signal()
        begun = Signal()
        listed = Signal()  # `lists_left` is not 0
        lists_left = Signal(layout["extensions"].shape)
        enables_left = Signal()
        front_ends = Signal()  # the last beat of list and byte enables, or there is none
        data_left = Signal(layout["data"].shape)
        has_data = Signal()  # `data_left` is not 0
        data_ends = Signal()  # `data_left` is 0 or 1

        free = Signal()  # to be given a beat
        with_data = Signal()
        fed = Signal()
        goes = Signal()
        ends = Signal()
        loads = Signal()
        m.d.comb += [
            free.eq(~self.o.valid | self.o.ready),
            with_data.eq(has_data & (front_ends | drops)),
            fed.eq((~listed | lists.o.valid) & (~with_data | self.data.valid)),
            goes.eq(busy & fed & (free | drops)),
            ends.eq(data_ends & (front_ends | drops)),
            loads.eq(has_queued & (~busy | (goes & ends))),
            self.data.ready.eq(busy & with_data & (~listed | lists.o.valid) & (free | drops)),
            lists.o.ready.eq(busy & listed & (~with_data | self.data.valid) & free),
        ]
        m.d.sync += [self.freed.eq(goes & ends), self.sent.eq(goes & ends & ~drops)]
        beat = self.o.payload
        with m.If(free):
            m.d.sync += [
                self.o.valid.eq(goes & ~drops),
                beat.present.eq(Cat(~begun, listed | enables_left, with_data)),
                beat.last.eq(ends),
                beat.flits[0].eq(header),
                beat.flits[1].eq(Mux(listed, lists.o.payload, enables)),
                beat.flits[2].eq(self.data.payload),
            ]
        with m.If(loads):
            extensions = queued.extensions
            m.d.sync += [
                header.eq(queued.header),
                enables.eq(self._enables(queued)),
                drops.eq(queued.drop),
                begun.eq(0),
                listed.eq(extensions != 0),
                lists_left.eq(extensions),
                enables_left.eq(queued.byte_enable),
                front_ends.eq(extensions + queued.byte_enable <= 1),
                data_left.eq(queued.data),
                has_data.eq(queued.data != 0),
                data_ends.eq(queued.data <= 1),
                has_queued.eq(0),
            ]
        with m.Elif(goes):
            m.d.sync += begun.eq(1)
            with m.If(listed):
                m.d.sync += [
                    lists_left.eq(lists_left - 1),
                    listed.eq(lists_left != 1),
                    front_ends.eq(lists_left + enables_left <= 2),
                ]
            with m.Elif(enables_left):
                m.d.sync += enables_left.eq(0)
            with m.If(with_data):
                m.d.sync += [
                    data_left.eq(data_left - 1),
                    has_data.eq(data_left != 1),
                    data_ends.eq(data_left <= 2),
                ]
        with m.If(loads):
            m.d.sync += busy.eq(1)
        with m.Elif(goes & ends):
            m.d.sync += busy.eq(0)
        return m

    def _lists(self, m: Module, taken: Signal, reading: Signal) -> ShiftFifo:
        """Read the list of a packet when it is taken, as far ahead as there is room."""
        params = self._params
        packet = self.packet.payload
        m.submodules.lists = lists = ShiftFifo(FLIT_BITS, _AHEAD)
        next_entry = Signal(entry_bits(params))
        entry = Signal(entry_bits(params))
        flit = Signal(word_bits(params))
        left = Signal(packet.extensions.shape())
        ahead = Signal(range(_AHEAD + 1))
        lanes = Signal(LANES)  # of the last flit
        arrives = Signal()
        arriving_lanes = Signal(LANES)
        leaves = Signal()
        count = data.View(HEADER, packet.header).count[:3]
        m.d.comb += [
            leaves.eq(lists.o.valid & lists.o.ready),
            self.r_en.eq(reading & (ahead != _AHEAD)),
            self.r_entry.eq(entry),
            self.r_flit.eq(flit),
            lists.w_en.eq(arrives),
        ]
        for lane in range(LANES):
            bits = self.r_data.word_select(lane, TARGET_BITS)
            gated = bits & arriving_lanes[lane].replicate(TARGET_BITS)
            m.d.comb += lists.w_data.word_select(lane, TARGET_BITS).eq(gated)
        m.d.sync += [
            arrives.eq(self.r_en),
            arriving_lanes.eq(lanes | (left != 1).replicate(LANES)),
        ]
        with m.If(taken):
            m.d.sync += [
                next_entry.eq(next_entry + 1),
                entry.eq(next_entry),
                flit.eq(0),
                left.eq(packet.extensions),
                reading.eq(packet.extensions != 0),
                lanes.eq(Cat((count > lane) | (count == 0) for lane in range(LANES))),
            ]
        with m.Elif(self.r_en):
            m.d.sync += [flit.eq(flit + 1), left.eq(left - 1), reading.eq(left != 1)]
        with m.If(self.r_en != leaves):
            m.d.sync += ahead.eq(Mux(self.r_en, ahead + 1, ahead - 1))
        return lists

    def _enables(self, packet: data.View):
        """Byte-enable flit of a packet: all bytes from its first to its final one."""
        masks = []
        for flit in range(min(self._params.packet_flits, MAX_BYTE_ENABLE_FLITS)):
            mask = (packet.data > flit).replicate(FLIT_BYTES)
            if flit == 0:
                mask &= packet.first
            ending = (packet.data == flit + 1).replicate(FLIT_BYTES)
            masks.append(mask & (packet.final | ~ending))
        return Cat(*masks)
