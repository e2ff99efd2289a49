# SPDX-License-Identifier: Apache-2.0
"""Sequencer: carries out requests in their order, target by target."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import any_of, is_one_of
from ..common.ram_fifo import RamFifo
from ..flits import MAX_PRESUM_FLITS, MIN_PRESUM_TARGETS, WIDE, Addressing, Kind
from ..gpu_params import GpuParams
from .path_layouts import (
    ANSWER,
    JOB,
    MAX_PLACE_BITS,
    MAX_REDS,
    STREAMS,
    Segment,
    Sum,
    answer_of,
    load_record_layout,
    segment_layout,
    store_record_layout,
)

__all__ = ["Sequencer"]

_AREA_FLITS = 4  # as a power of two: a target lies in one area of 16 flits or in two
_AREA_BITS = 12


def _remainder_of_3(value: Value) -> tuple[Value, Value]:
    """Whether a number has the remainder 1, and 2: those of the sum of its digits to base 4."""
    most = 3 * ((len(value) + 1) // 2)
    digits = sum((value[at : at + 2] for at in range(2, len(value), 2)), value[:2])
    digits = digits[: most.bit_length()]
    found = [is_one_of(digits, range(n, 1 << len(digits), 3)) for n in (1, 2)]
    return found[0], found[1]


class _State(enum.Enum, shape=2):
    IDLE = 0
    ENABLES = 1
    TARGETS = 2
    COPY = 3


class Sequencer(wiring.Component):
    """Makes segments for the memory, and records for the answers.

    Parameters
    ----------
    params : GpuParams
        The hub.

    Members
    -------
    presum : In(1)
        Add up the targets of a load.
    job, job_valid, job_take : In, In, Out
        The oldest request (:data:`JOB`).
    whole : In(1)
        All flits of one more request are there.
    verdict_valid, verdict_bad, verdict_take : In, In, Out
        The places of all its targets are there; one of them is refused.
    place, good, place_take : In, In, Out
        The next target's.
    segment : Out
        Stream of segments (:func:`segment_layout`).
    store, store_en, store_full : Out, Out, In
        A target of a store (:func:`store_record_layout`).
    load, load_en, load_full : Out, Out, In
        A part of a load (:func:`load_record_layout`).
    red_done : In(1)
        All flits of the oldest ``MM_RED`` have come back from the lanes.
    back_done : In(1)
        They are on their way to the memory.

    Timing
    ------
    A request takes one cycle, one for each target, one for byte enables and one more for
    ``MM_RED``.

    Ordering
    --------
    Requests in order, and before them whatever has come back from the lanes. A request with one
    target is not begun while an ``MM_RED`` that is under way may have the same place: its area of
    256 B is the same or the next one. One with a list waits for all of them.

    Reset
    -----
    Idle.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        super().__init__(
            {
                "presum": In(1),
                "job": In(JOB),
                "job_valid": In(1),
                "job_take": Out(1),
                "whole": In(1),
                "verdict_valid": In(1),
                "verdict_bad": In(1),
                "verdict_take": Out(1),
                "place": In(MAX_PLACE_BITS),
                "good": In(1),
                "place_take": Out(1),
                "segment": Out(stream.Signature(segment_layout(params))),
                "store": Out(store_record_layout()),
                "store_en": Out(1),
                "store_full": In(1),
                "load": Out(load_record_layout()),
                "load_en": Out(1),
                "load_full": In(1),
                "red_done": In(1),
                "back_done": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        state = Signal(_State)
        idle = state == _State.IDLE

        # `MM_RED` under way.
        red_layout = data.StructLayout(
            {"place": MAX_PLACE_BITS, "length": 5, "silent": 1, "answer": ANSWER}
        )
        m.submodules.reds = reds = RamFifo(red_layout.size, MAX_REDS)
        red = data.View(red_layout, reds.o.payload)
        backs = Signal(range(MAX_REDS + 1))  # back from the lanes
        areas = [Signal(_AREA_BITS, name=f"area_{n}") for n in range(MAX_REDS)]
        locked = Signal(MAX_REDS)
        oldest = Signal(MAX_REDS, init=1)
        newest = Signal(MAX_REDS, init=1)  # the next one's
        begins_red = Signal()
        with m.If(self.back_done):
            m.d.sync += [oldest.eq(oldest.rotate_left(1)), locked.eq(locked & ~oldest)]
        with m.If(begins_red):
            m.d.sync += [
                newest.eq(newest.rotate_left(1)),
                locked.eq((locked & ~(oldest & self.back_done.replicate(MAX_REDS))) | newest),
            ]
            for area, here in zip(areas, newest, strict=True):
                with m.If(here):
                    m.d.sync += area.eq(self.place[_AREA_FLITS:])

        # May the oldest request begin? Where an `MM_RED` is under way that takes two cycles
        # more.
        wholes = Signal(range(params.hub_flits + 1))
        wholes_next = Signal.like(wholes)
        has_whole = Signal()
        begins = Signal()
        m.d.comb += wholes_next.eq(wholes + self.whole - begins)
        m.d.sync += [wholes.eq(wholes_next), has_whole.eq(wholes_next != 0)]
        job_kind = self.job.opcode[:2]
        waiting = self.job_valid & self.verdict_valid
        here = Signal(_AREA_BITS)
        near = [
            lock & is_one_of((here - area)[:_AREA_BITS], (0, 1, -1 % (1 << _AREA_BITS)))
            for lock, area in zip(locked, areas, strict=True)
        ]
        no_reds = Signal(init=1)
        looked = Signal(2)
        clear = Signal()
        m.d.sync += [
            no_reds.eq((locked == 0) & ~begins_red),
            looked.eq(Cat(1, looked) & (idle & waiting & ~begins).replicate(2)),
            here.eq(self.place[_AREA_FLITS:]),
            clear.eq(
                (self.job.count == 1) & ~any_of(near) & ~((job_kind == Kind.RED) & locked.all())
            ),
        ]

        segment = self.segment
        room = Signal()  # for a segment
        writes_back = Signal()
        m.d.comb += [
            room.eq(~segment.valid | segment.ready),
            writes_back.eq(idle & (backs != 0) & reds.o.valid & room & ~self.store_full),
            begins.eq(
                idle
                & ~writes_back
                & self.job_valid
                & self.verdict_valid
                & has_whole
                & (no_reds | (looked[1] & clear))
            ),
            self.job_take.eq(begins),
            self.verdict_take.eq(begins),
            reds.o.ready.eq(writes_back),
        ]
        m.d.sync += backs.eq(backs + self.red_done - writes_back)

        # The request at work.
        job = Signal(JOB)
        bad = Signal()
        stores = Signal()
        loads = Signal()
        is_red = Signal()
        how = Signal(Sum)
        first = Signal()
        left = Signal.like(job.count)
        slots = Signal(5)  # of its data
        slot = Signal((params.hub_flits - 1).bit_length())
        to_stream = Signal(range(STREAMS))  # of the next read
        with m.If(begins):
            new = self.job
            dtype = new.dtype
            wide = is_one_of(dtype, WIDE)
            few = is_one_of(new.count, range(1, MIN_PRESUM_TARGETS))
            sums = (
                self.presum & (new.count != 1) & (~wide | (~few & (new.length <= MAX_PRESUM_FLITS)))
            )
            # Passes end with the last stream. Those behind the first one have three targets, and
            # their sums take the place of one.
            rest_1, rest_2 = _remainder_of_3(new.count)
            is_red_job = job_kind == Kind.RED
            m.d.sync += to_stream.eq(
                Mux(
                    is_red_job | (sums & rest_2),
                    STREAMS - 2,
                    Mux(sums & ~rest_1, STREAMS - 3, Mux(sums & ~wide, 0, STREAMS - 1)),
                )
            )
            m.d.sync += [
                job.eq(new),
                bad.eq(self.verdict_bad),
                stores.eq(job_kind == Kind.STORE),
                loads.eq(job_kind == Kind.LOAD),
                is_red.eq(is_red_job),
                how.eq(
                    Mux(
                        is_red_job,
                        Sum.RED.value,
                        Mux(sums, Mux(wide, Sum.WIDE.value, Sum.NARROW.value), Sum.NONE.value),
                    )
                ),
                first.eq(1),
                left.eq(new.count),
                slots.eq(Mux(job_kind == Kind.LOAD, 0, new.length + new.byte_enable)),
                state.eq(Mux(new.byte_enable, _State.ENABLES.value, _State.TARGETS.value)),
            ]

        # One step of it.
        last = left == 1
        each = loads & (how == Sum.NONE)
        goes = Signal()
        steps = Signal()
        m.d.comb += [
            steps.eq(room & ~self.store_full & ~self.load_full),
            goes.eq((state == _State.TARGETS) & steps),
            self.place_take.eq(goes),
            begins_red.eq(goes & is_red & self.good),
        ]
        made = Signal(segment_layout(params))
        makes = Signal()
        m.d.comb += [
            made.kind.eq(
                Mux(
                    self.good,
                    Mux(stores, Segment.WRITE.value, Segment.READ.value),
                    Segment.NONE.value,
                )
            ),
            made.place.eq(self.place),
            made.length.eq(job.length),
            made.slot.eq(slot + job.byte_enable),
            made.masked.eq(job.byte_enable),
            made.stream.eq(to_stream),
            made.free.eq(Mux(last & ~begins_red, slots, 0)),
            makes.eq(goes & ~(loads & bad)),
        ]
        with m.If(state == _State.ENABLES):
            m.d.comb += [
                made.kind.eq(Segment.ENABLES),
                made.slot.eq(slot),
                made.free.eq(0),
                makes.eq(room),
            ]
        with m.If(state == _State.COPY):
            m.d.comb += [
                made.kind.eq(Segment.COPY),
                made.free.eq(slots),
                makes.eq(room),
            ]
        with m.If(writes_back):
            m.d.comb += [
                made.kind.eq(Segment.BACK),
                made.place.eq(red.place),
                made.length.eq(red.length),
                made.free.eq(0),
                makes.eq(1),
            ]
        with m.If(makes):
            m.d.sync += [segment.payload.eq(made), segment.valid.eq(1)]
        with m.Elif(segment.ready):
            m.d.sync += segment.valid.eq(0)

        with m.If((state == _State.ENABLES) & room):
            m.d.sync += state.eq(_State.TARGETS)
        with m.If((state == _State.COPY) & room):
            m.d.sync += [state.eq(_State.IDLE), slot.eq(slot + slots)]
        with m.If(goes):
            m.d.sync += [first.eq(0), left.eq(left - 1)]
            with m.If(~each):
                m.d.sync += to_stream.eq(Mux(to_stream == STREAMS - 1, 1, to_stream + 1))
            with m.If(last):
                with m.If(begins_red):
                    m.d.sync += state.eq(_State.COPY)
                with m.Else():
                    m.d.sync += [state.eq(_State.IDLE), slot.eq(slot + slots)]
        m.d.comb += [
            reds.w_en.eq(begins_red),
            reds.w_data.eq(Cat(self.place, job.length, job.posted, answer_of(job))),
        ]

        # Records.
        unicast = job.opcode[2:4] == Addressing.UNICAST
        lane = (params.memory_flits - 1).bit_length()
        begin = self.place[:lane] if lane else 0
        beats = Signal(5)
        m.d.comb += beats.eq((begin + job.length + (params.memory_flits - 1))[lane:])
        m.d.comb += [
            self.store_en.eq(writes_back | (goes & (stores | (is_red & ~self.good)))),
            self.store.answer.eq(answer_of(job)),
            self.store.count.eq(job.count),
            self.store.writes.eq(Mux(self.good, beats, 0)),
            self.store.last.eq(last),
            self.store.silent.eq(job.posted & ~unicast),
            self.load_en.eq((goes & loads & Mux(bad, last, each | first)) | begins_red),
            self.load.answer.eq(answer_of(job)),
            self.load.kind.eq(how),
            self.load.length.eq(job.length),
            self.load.begin.eq(to_stream),
            self.load.targets.eq(Mux(each, 1, job.count)),
            self.load.count.eq(Mux(each & ~bad, 1, job.count)),
            self.load.op.eq(job.aux[:3]),
            self.load.more.eq(each & ~bad & ~last),
            self.load.bad.eq(loads & bad),
        ]
        with m.If(writes_back):
            m.d.comb += [
                self.store.answer.eq(red.answer),
                self.store.count.eq(1),
                self.store.writes.eq(red.length),
                self.store.last.eq(1),
                self.store.silent.eq(red.silent),
            ]
        return m
