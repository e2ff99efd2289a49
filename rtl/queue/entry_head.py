# SPDX-License-Identifier: Apache-2.0
"""Head of the queue: waits until the oldest entry can go, and makes its packet or its error."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import any_of, is_one_of
from ..flits import FLIT_BYTES, HEADER, LANES, SLOT_FLITS, WIDE, Kind, Opcode, Stage, Status, Vc
from ..gpu_params import GpuParams
from .layouts import entry_bits, entry_layout, is_dynamic, packet_layout, ticket_layout

__all__ = ["EntryHead"]


class EntryHead(wiring.Component):
    """Lets entries go in order, each when its list is complete, it has a tag and its result room.

    Parameters
    ----------
    params : GpuParams
        The queue.

    Members
    -------
    i : In
        Stream of closed entries (:func:`entry_layout`).
    gpu : In(6)
        Number of this GPU.
    look, missing, wrong : Out, In, In
        State of an entry's list, one cycle later.
    roomy : In(1)
        There is room for one more result, and for the data of the longest load.
    tag_request, tag_slots, tag_grant, tag, gen : Out, Out, In, In, In
        Of the :class:`TagAllocator`.
    granted, granted_flits : Out
        A packet has its tag; its result takes room for so many flits of data.
    ticket_en, ticket : Out
        Registered: how its accesses end, to be kept under ``tag`` of the ``packet``.
    packet_tag, packet_gen, packet_slots : Out
        Tag of the ticket, and the entries that it stands for.
    packet : Out
        Stream of packets (:func:`packet_layout`), also of those that are not sent.
    fault : Out
        Stream of errors of entries (:func:`ticket_layout`).

    Timing
    ------
    An entry that waits for nothing passes in 3 cycles, or 4 if it wants a tag; one every 2 cycles.

    Ordering
    --------
    Strictly in order: an entry that waits holds up all behind it.

    Errors
    ------
    A list with an error is BAD_ADDRESS for all the accesses of the entry. A ``fault`` is given out
    before the packets behind it.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        super().__init__(
            {
                "i": In(stream.Signature(entry_layout(params))),
                "gpu": In(HEADER["gpu"].width),
                "look": Out(entry_bits(params)),
                "missing": In(1),
                "wrong": In(1),
                "roomy": In(1),
                "tag_request": Out(1),
                "tag_slots": Out(3),
                "tag_grant": In(1),
                "tag": In(HEADER["tag"].width),
                "gen": In(HEADER["gen"].width),
                "granted": Out(1),
                "granted_flits": Out(HEADER["length"].width),
                "ticket_en": Out(1),
                "ticket": Out(ticket_layout()),
                "packet_tag": Out(HEADER["tag"].width),
                "packet_gen": Out(HEADER["gen"].width),
                "packet_slots": Out(3),
                "packet": Out(stream.Signature(packet_layout(params))),
                "fault": Out(stream.Signature(ticket_layout())),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params

        # First stage: the list.
        entry = Signal(entry_layout(params), reset_less=True)
        present = Signal()
        looked = Signal()  # `missing` and `wrong` are this entry's
        complete = Signal()
        leaves = Signal()
        m.d.comb += [
            self.look.eq(entry.id),
            complete.eq(present & looked & ~self.missing),
            self.i.ready.eq(~present | leaves),
        ]
        m.d.sync += looked.eq(present)
        with m.If(self.i.ready):
            m.d.sync += [present.eq(self.i.valid), entry.eq(self.i.payload), looked.eq(0)]

        # Second stage: the tag.
        chosen = Signal(entry_layout(params), reset_less=True)
        waits = Signal()
        bad = Signal()
        barren = Signal()  # it has brought no data
        answered = Signal()
        slots = Signal(3)
        settled = Signal()  # a tag was granted, or none is needed, or the error is told
        tag = Signal(HEADER["tag"].width)
        gen = Signal(HEADER["gen"].width)
        goes = Signal()
        opcode = chosen.opcode
        load = ~opcode[0] & (chosen.status != Status.UNKNOWN_OPCODE)
        m.d.comb += [
            goes.eq(waits & settled & self.packet.ready),
            leaves.eq(complete & (~waits | goes)),
            self.tag_request.eq(waits & ~bad & ~settled & self.roomy),
            self.tag_slots.eq(slots),
            self.granted.eq(self.tag_grant),
            self.granted_flits.eq(Mux(opcode[0], 0, chosen.length)),
        ]
        with m.If(self.tag_grant):
            m.d.sync += [settled.eq(1), tag.eq(self.tag), gen.eq(self.gen)]
        with m.If(self.fault.valid & self.fault.ready):
            m.d.sync += settled.eq(1)
        with m.If(goes):
            m.d.sync += waits.eq(0)
        with m.If(leaves):
            listed = is_dynamic(entry.opcode) & self.wrong
            fault = listed | (entry.status != Status.OK)
            m.d.sync += [
                waits.eq(1),
                chosen.eq(entry),
                bad.eq(fault),
                barren.eq(entry.status != Status.OK),
                settled.eq(entry.posted & ~fault),
                answered.eq(~entry.posted),
                tag.eq(0),
                gen.eq(0),
                slots.eq(_slots(entry)),
            ]
            with m.If(entry.status == Status.OK):
                m.d.sync += chosen.status.eq(Mux(listed, Status.BAD_ADDRESS, Status.OK))

        packet = self.packet.payload
        dynamic = is_dynamic(opcode)
        count_bits = params.max_targets.bit_length()
        store = opcode[0]
        partial = Signal()
        first = Signal(FLIT_BYTES)
        final = Signal(FLIT_BYTES)
        m.d.comb += [
            self.packet.valid.eq(waits & settled),
            self.fault.valid.eq(waits & bad & ~settled),
            partial.eq(store & (any_of(chosen.address[:4]) | any_of(chosen.end))),
            first.eq(Cat((chosen.address[:4] <= byte) for byte in range(FLIT_BYTES))),
            final.eq(Cat(((chosen.end > byte) | (chosen.end == 0)) for byte in range(FLIT_BYTES))),
            packet.header.eq(self._header(chosen, partial, tag, gen)),
            packet.drop.eq(bad),
            packet.extensions.eq(
                Mux(dynamic & ~bad, (chosen.count[:count_bits] + (LANES - 1)) >> 3, 0)
            ),
            packet.byte_enable.eq(partial & ~bad),
            packet.data.eq(Mux(store & ~barren, chosen.length, 0)),
            packet.first.eq(first),
            packet.final.eq(final),
        ]
        ticket = Signal(ticket_layout())
        m.d.comb += [
            ticket.rd.eq(chosen.rd),
            ticket.accesses.eq(chosen.accesses),
            ticket.load.eq(load),
            ticket.size.eq(chosen.size),
            ticket.offset.eq(chosen.address[:4]),
            ticket.length.eq(chosen.length),
            ticket.status.eq(chosen.status),
            self.fault.payload.eq(ticket),
        ]
        m.d.sync += [
            self.ticket_en.eq(goes & ~bad & answered),
            self.ticket.eq(ticket),
            self.packet_tag.eq(tag),
            self.packet_gen.eq(gen),
            self.packet_slots.eq(slots),
        ]
        return m

    def _header(self, entry: data.View, partial: Value, tag: Value, gen: Value) -> Value:
        """Header flit of an entry's packet."""
        opcode = entry.opcode
        combines = opcode == Opcode.DY_LD_REDUCE.value
        reduces = opcode[1]  # loads and MM_RED
        aux = Cat(entry.op, entry.order)
        values = {
            "address": Cat(Const(0, 4), entry.address[4:]),
            "stage": Mux(combines, Stage.COMBINE.value, Stage.DISPATCH.value),
            "count": entry.count,
            "opcode": opcode,
            "tag": tag,
            "gen": gen,
            "aux": Mux(reduces, aux, 0),
            "length": entry.length,
            "byte_enable": partial,
            "gpu": self.gpu,
            "vc": Const(Vc.REQUEST.value, 2),
            "dtype": Mux(reduces, entry.dtype, 0),
            "posted": entry.posted,
        }
        parts = []
        for name, field in HEADER:
            value = Value.cast(values.get(name, 0))
            parts.append(Cat(value, Const(0, field.width))[: field.width])
        return Cat(*parts)


def _slots(entry: data.View) -> Value:
    """Reduction entries that the answer takes: one-hot for 1, 2 or 4."""
    load = entry.opcode[:2] == Kind.LOAD.value
    wide = is_one_of(entry.dtype, WIDE)
    words = Mux(wide, entry.length << 1, entry.length)
    two = load & (words > SLOT_FLITS)
    four = load & (words > 2 * SLOT_FLITS)
    return Cat(~two, two & ~four, four)
