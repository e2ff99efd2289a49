# SPDX-License-Identifier: Apache-2.0
"""Taker: takes the packets of a column in the order of their admission, one flit a cycle."""

from itertools import pairwise

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import any_of, one_hot_mux
from ..flits import (
    FLIT_BITS,
    HEADER,
    REPORT,
    SLOT_FLITS,
    DType,
    Opcode,
    ReduceOp,
    Status,
    Vc,
)
from ..params import SwitchParams
from .layouts import GPU_BITS, command_layout, report_layout

__all__ = ["Taker", "beat_layout"]

_ROW_BITS = (SLOT_FLITS // 2 - 1).bit_length()  # rows of an entry: two words a row


def row_bits(params: SwitchParams) -> int:
    """Bits of the number of a row of sums."""
    return (params.entries - 1).bit_length() + _ROW_BITS


def beat_layout(params: SwitchParams) -> data.StructLayout:
    """Return the layout of what goes through the lanes in one cycle.

    ``dtype``, ``op``, ``first``, ``from_f32``, ``half``: as the lanes take them. ``row``, ``w_en``:
    the row of sums, and which of its two words to write. ``to_result``: the result is a flit for
    the requester, ``last`` of its packet; ``as_f32``: word ``half`` of the sums is that flit;
    ``packs``: half of it came a beat before.
    """
    return data.StructLayout(
        {
            "valid": 1,
            "dtype": HEADER["dtype"].width,
            "op": 3,
            "first": 1,
            "from_f32": 1,
            "half": 1,
            "row": row_bits(params),
            "w_en": 2,
            "to_result": 1,
            "as_f32": 1,
            "packs": 1,
            "last": 1,
        }
    )


class Taker(wiring.Component):
    """Carries out commands, in their order.

    Parameters
    ----------
    params : SwitchParams
        The switch.
    latency : int
        Cycles from a beat to its result.
    depth : int
        Commands that can wait.

    Members
    -------
    push, command, report : In
        Append a command; the report, if it has one.
    can_report : Out(1)
        A command with a report may be appended.
    gpu : In(6)
        The GPU of this port.
    valid, flit, last : In, one per source
        Heads of the response queues and, last, the refusals.
    take : Out(ports + 1)
        Take the head of this source (one-hot).
    packet_ends : Out(ports + 1)
        ... and it ends its packet.
    done : Out(1)
        A command is done.
    r_en, r_row : Out
        Read these words of this row of sums, for the beat of the next cycle.
    beat, beat_flit : Out
        Registered: what goes through the lanes (:func:`beat_layout`).
    look_tag : In(9)
        Is this entry in use by a packet?
    guarded : Out(1)
        It is.
    release, release_tag : Out
        It no longer is.

    Timing
    ------
    A command appended in cycle *t* takes its first flit in *t* + 1 at the earliest. One flit a
    cycle; a result of f32 from 16-bit parts two cycles a flit. An entry can be looked up again
    ``latency`` - 2 cycles after the header of its packet was taken: the next packet's flits come at
    least 4 cycles later, and so long after this one's that the sums are written (wide entries,
    whose parts may differ in length: counted from the last flit).
    """

    def __init__(self, params: SwitchParams, *, latency: int, depth: int = 6) -> None:
        self._params = params
        self._latency = latency
        self._recent = max(1, latency - 3)
        self._depth = depth
        sources = params.ports + 1
        tag_bits = HEADER["tag"].width
        super().__init__(
            {
                "push": In(1),
                "command": In(command_layout(params)),
                "report": In(report_layout(params)),
                "can_report": Out(1),
                "gpu": In(GPU_BITS),
                "valid": In(sources),
                "flit": In(FLIT_BITS).array(sources),
                "last": In(sources),
                "take": Out(sources),
                "packet_ends": Out(sources),
                "done": Out(1),
                "r_en": Out(2),
                "r_row": Out(row_bits(params)),
                "beat": Out(beat_layout(params)),
                "beat_flit": Out(FLIT_BITS),
                "look_tag": In(tag_bits),
                "guarded": Out(1),
                "release": Out(1),
                "release_tag": Out(tag_bits),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        sources = len(self.valid)
        head, have = self._queue(m)

        report = Signal(report_layout(params))
        has_report = Signal()
        reporting = Signal()  # the second flit of a report
        reported = Signal()  # the head's report was sent; the register may hold the next one's
        behind = Signal()  # behind the header of a packet
        again = Signal()  # the second beat of a flit
        index = Signal(range(2 * SLOT_FLITS))  # of the data flit
        reports = have & head.report & has_report & ~reported
        in_source = head.source != 0

        source_valid = any_of(head.source & self.valid)
        source_last = any_of(head.source & self.last)
        flit = one_hot_mux(head.source, self.flit)
        # A packet that paused before its data came was not as far ahead of the next one as its
        # header says: the lanes are drained behind it.
        paused = Signal()
        settle = Signal(range(self._latency + 1))
        moves = have & ~reports & source_valid & (settle == 0)
        twice = behind & head.adds & head.final & head.to_f32 & ~head.presum & ~again
        takes = Signal()
        ends = Signal()
        m.d.comb += [
            takes.eq(moves & ~twice),
            ends.eq(takes & source_last),
            self.take.eq(head.source & takes.replicate(sources)),
            self.packet_ends.eq(head.source & ends.replicate(sources)),
            self.done.eq(ends | (reports & reporting & ~in_source)),
            self.can_report.eq(~has_report),
        ]
        with m.If(have & behind & head.adds & ~source_valid):
            m.d.sync += paused.eq(1)
        with m.If(settle != 0):
            m.d.sync += settle.eq(settle - 1)
        with m.If(self.done):
            m.d.sync += paused.eq(0)
            with m.If(paused):
                m.d.sync += settle.eq(self._latency)
        with m.If(moves):
            m.d.sync += again.eq(twice)
        with m.If(takes):
            m.d.sync += [behind.eq(~source_last), index.eq(Mux(behind, index + 1, 0))]
        with m.If(self.push & self.command.report):
            m.d.sync += [report.eq(self.report), has_report.eq(1)]
        with m.If(reports):
            m.d.sync += reporting.eq(~reporting)
            with m.If(reporting):
                m.d.sync += [has_report.eq(0), reported.eq(1)]
        with m.If(self.done):
            m.d.sync += reported.eq(0)
        self._guards(m, head, Mux(head.wide | head.report, self.done, takes & ~behind))

        # Words of the entry: two a row. A flit of 16 bits of a wide type has two.
        both = head.wide & ~head.presum
        offset = Mux(both, index, index[1:])
        words = Mux(both, 0b11, Mux(index[0], 0b10, 0b01))
        adds = moves & behind & head.adds
        row = Cat(Const(0, _ROW_BITS), head.tag)[: len(self.r_row)] | offset
        m.d.comb += [
            self.r_row.eq(row),
            self.r_en.eq(words & (adds & ~head.first).replicate(2)),
        ]

        # The beat. Headers and whatever passes goes through the lanes as it is.
        sums = behind & ~head.passes
        final_sum = sums & head.final
        packs = head.wide & head.presum & ~head.to_f32
        useful = Mux(behind, head.adds, head.final) | head.passes
        next_beat = Signal(beat_layout(params))
        m.d.comb += [
            next_beat.valid.eq(reports | (moves & useful)),
            next_beat.dtype.eq(Mux(sums, head.dtype, DType.B32.value)),
            next_beat.op.eq(Mux(sums, head.op, ReduceOp.OR.value)),
            next_beat.first.eq(~sums | head.first),
            next_beat.from_f32.eq(sums & head.presum),
            next_beat.half.eq(Mux(both, again, index[0])),
            next_beat.row.eq(row),
            next_beat.w_en.eq(words & (adds & ~head.final & ~reports).replicate(2)),
            next_beat.to_result.eq(~sums | (head.final & (~packs | index[0])) | reports),
            next_beat.as_f32.eq(final_sum & head.to_f32),
            next_beat.packs.eq(final_sum & packs),
            next_beat.last.eq(
                Mux(
                    reports,
                    reporting,
                    Mux(head.passes | behind, source_last & ~twice, ~head.load),
                )
            ),
        ]
        with m.If(reports):
            m.d.comb += [
                next_beat.dtype.eq(DType.B32.value),
                next_beat.op.eq(ReduceOp.OR.value),
                next_beat.first.eq(1),
                next_beat.from_f32.eq(0),
                next_beat.as_f32.eq(0),
                next_beat.packs.eq(0),
            ]
        m.d.sync += self.beat.eq(next_beat)
        with m.If(reports):
            m.d.sync += self.beat_flit.eq(
                Mux(reporting, self._report_flit(report), self._report_header(report))
            )
        with m.Elif(moves):
            result = self._result_header(head, data.View(HEADER, flit))
            m.d.sync += self.beat_flit.eq(Mux(behind | head.passes, flit, result))
        return m

    def _queue(self, m: Module):
        """Commands; the oldest is always in the same registers."""
        layout = command_layout(self._params)
        slots = [Signal(layout, name=f"command{n}") for n in range(self._depth)]
        level = Signal(self._depth)  # thermometer code
        with m.If(self.push & ~self.done):
            m.d.sync += level.eq(Cat(1, level))
        with m.Elif(self.done & ~self.push):
            m.d.sync += level.eq(level[1:])
        for n, slot in enumerate(slots):
            following = slots[n + 1] if n + 1 < self._depth else Signal(layout, name="none")
            # Where the new one goes: behind the last that stays.
            lands = self.push & Mux(self.done, ~Cat(level[1:], 0)[n], ~level[n])
            with m.If(lands):
                m.d.sync += slot.eq(self.command)
            with m.Elif(self.done):
                m.d.sync += slot.eq(following)
        self._slots, self._level = slots, level
        return slots[0], level[0]

    def _guards(self, m: Module, head, through) -> None:
        """Which entries are in use. ``through``: the head's may be looked up again soon."""
        tag_bits = HEADER["tag"].width
        is_through = Signal()  # the head's command goes on without its guard
        recent = [Signal(tag_bits + 1, name=f"recent{n}") for n in range(self._recent)]
        mine = Cat(self.look_tag, 1)
        hits = [
            level & slot.guards & (slot.tag == self.look_tag) & (~is_through if n == 0 else 1)
            for n, (slot, level) in enumerate(zip(self._slots, self._level, strict=True))
        ]
        guards = through & head.guards & ~is_through
        m.d.comb += [
            self.guarded.eq(any_of([*hits, *(tag == mine for tag in recent)])),
            self.release.eq(recent[-1][-1]),
            self.release_tag.eq(recent[-1]),
        ]
        m.d.sync += recent[0].eq(Cat(head.tag, guards))
        m.d.sync += [later.eq(earlier) for earlier, later in pairwise(recent)]
        with m.If(self.done):
            m.d.sync += is_through.eq(0)
        with m.Elif(through):
            m.d.sync += is_through.eq(1)

    def _result_header(self, command: data.View, part: data.View):
        """Header of a result, from the last part's."""
        opcode = Mux(command.load, Opcode.RSP_DATA.value, Opcode.RSP_ACK.value)
        return _header(
            count=command.total,
            opcode=opcode,
            tag=part.tag,
            gen=part.gen,
            length=command.length,
            gpu=self.gpu,
            dtype=Mux(command.to_f32, DType.F32.value, command.dtype),
        )

    def _report_header(self, report: data.View):
        return _header(
            count=report.total,
            opcode=Const(Opcode.RSP_DATA.value, 4),
            tag=report.tag,
            gen=report.gen,
            aux=report.status,
            length=Const(1, 5),
            gpu=self.gpu,
            dtype=report.dtype,
        )

    def _report_flit(self, report: data.View):
        return Cat(
            report.missing,
            Const(0, REPORT["missing"].width - self._params.gpus),
            report.faulty,
            Const(0, REPORT["faulty"].width - self._params.gpus),
        )


def _header(**fields):
    """Pack a response's header flit; fields that are not named are 0."""
    values = {"vc": Const(Vc.RESPONSE.value, 2), "aux": Const(Status.OK.value, 4)} | fields
    parts = []
    for name, field in HEADER:
        width = field.width
        value = values.get(name, Const(0, width))
        parts.append(Cat(value, Const(0, width))[:width])
    return Cat(parts)
