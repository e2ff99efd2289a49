# SPDX-License-Identifier: Apache-2.0
"""Loads: makes parts of what the memory replies, and does the arithmetic of ``MM_RED``."""

from itertools import pairwise

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import one_hot_mux
from ..common.check import check
from ..common.ram import Ram
from ..common.ram_fifo import RamFifo
from ..flits import FLIT_BITS, FLIT_BYTES, MAX_DATA_FLITS, DType, ReduceOp, Status
from ..fp.lane import delayed
from ..fp.vector import ReduceVector
from ..gpu_params import GpuParams
from .path_layouts import (
    ANSWER,
    COUNT_BITS,
    MAX_REDS,
    STREAMS,
    Sum,
    answer_header,
    answer_opcode,
    load_record_layout,
)

__all__ = ["Loads", "part_layout"]

_RECORDS = 64
_READ = 2  # cycles from a step to the operands of the first adder
_ADDERS = STREAMS - 1


def part_layout() -> data.StructLayout:
    """One flit of a part.

    ``offset``: its place in the part, 0 is the header. ``last``: of the part. ``commit``: the
    part, of ``flits`` flits, is complete; ``unused`` more were reserved.
    """
    return data.StructLayout(
        {
            "gpu": 6,
            "offset": 5,
            "flit": FLIT_BITS,
            "last": 1,
            "commit": 1,
            "flits": 5,
            "unused": 5,
        }
    )


class Loads(wiring.Component):
    """Takes the replies in the order of the records, and adds.

    Three adders stand in a row. The first one adds the flits of stream 0, or the sums of an
    earlier pass, and of stream 1; the second one that of stream 2, the third one that of
    stream 3. A pass may begin at any stream, and its flits enter there, but ends with the last
    one: so everything leaves in the order in which it came, and nothing has to pass an adder
    behind its last operand. A flit is taken from its stream when its adder's turn comes.

    Parameters
    ----------
    params : GpuParams
        The hub.

    Members
    -------
    record_en, record, record_full : In, In, Out
        Append a part or an ``MM_RED`` (:func:`load_record_layout`). A part's targets come by the
        streams from ``begin`` to the last one, then by those from 1 on, again and again: the
        number of targets is such that it ends with the last one. An ``MM_RED`` comes by the last
        but one.
    some, claim, flit, error, take : In, Out, In, In, Out
        Each stream (:class:`ReplyStream`).
    red_en, red_flit, red_strobe, red_take : In, In, In, Out
        Data of ``MM_RED``: a flit has come, and the oldest one.
    room : In(gpus)
        There is room for the longest part in this GPU's queue.
    reserve, reserve_gpu, reserve_flits : Out
        A part of so many flits is begun.
    part_en, part : Out
        A flit of it (:func:`part_layout`): data, then the header.
    back_en, back_flit, back_strobe, back_error : Out
        A flit of an ``MM_RED``.
    red_done : Out(1)
        ... and it is its last.
    refused : Out(1)
        A load ended with an error.

    Timing
    ------
    A part of *n* data flits takes *n* + 1 cycles, whether it is of one target or the sum of up to
    four; of up to three in f32, where there are twice as many flits. Each three further targets
    take a pass more, 18 cycles after the begin of the one before. ``part`` follows 17 cycles after
    a flit's turn.

    Ordering
    --------
    Records in their order.

    Errors
    ------
    Header last, since a beat that the memory cannot read may be the last one.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        self._lanes = [ReduceVector() for _ in range(_ADDERS)]
        super().__init__(
            {
                "record_en": In(1),
                "record": In(load_record_layout()),
                "record_full": Out(1),
                "some": In(STREAMS),
                "claim": Out(STREAMS),
                "flit": In(data.ArrayLayout(FLIT_BITS, STREAMS)),
                "error": In(STREAMS),
                "take": Out(STREAMS),
                "red_en": In(1),
                "red_flit": In(FLIT_BITS),
                "red_strobe": In(FLIT_BYTES),
                "red_take": Out(1),
                "room": In(params.gpus),
                "reserve": Out(1),
                "reserve_gpu": Out(6),
                "reserve_flits": Out(5),
                "part_en": Out(1),
                "part": Out(part_layout()),
                "back_en": Out(1),
                "back_flit": Out(FLIT_BITS),
                "back_strobe": Out(FLIT_BYTES),
                "back_error": Out(1),
                "red_done": Out(1),
                "refused": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        layout = load_record_layout()
        m.submodules.records = records = RamFifo(layout.size, _RECORDS)
        m.submodules.sums = sums = Ram(width=2 * FLIT_BITS, depth=MAX_DATA_FLITS)
        latency = self._lanes[0].latency
        length_of_row = _READ + _ADDERS * latency  # cycles from a step to its sum
        settle_cycles = length_of_row + 1  # ... to a step that reads the sum

        # What only the header needs waits at the end of the row.
        head_layout = data.StructLayout(
            {"answer": ANSWER, "count": COUNT_BITS, "length": 5, "wide": 1, "more": 1, "bad": 1}
        )
        m.submodules.heads = heads = RamFifo(head_layout.size, _RECORDS)
        m.d.comb += [
            records.w_en.eq(self.record_en),
            records.w_data.eq(self.record),
            heads.w_en.eq(self.record_en & (self.record.kind != Sum.RED)),
            heads.w_data.eq(
                Cat(
                    self.record.answer,
                    self.record.count,
                    self.record.length,
                    self.record.kind == Sum.WIDE,
                    self.record.more,
                    self.record.bad,
                )
            ),
            self.record_full.eq(records.full | heads.full),
        ]

        # Data of `MM_RED` that are not claimed.
        red_count = Signal(range(MAX_REDS * MAX_DATA_FLITS + 1))
        red_claim = Signal()
        m.d.sync += red_count.eq(red_count + self.red_en - red_claim)

        # The record at work.
        have = Signal()
        record = Signal(layout)
        begun = Signal()
        needs = Signal(STREAMS)  # streams that take part in the pass
        from_sums = Signal()  # ... and the sums
        index = Signal(4)  # of the flit
        again = Signal()  # second step of a flit that gives two
        left = Signal.like(record.targets)  # targets behind the pass
        last_pass = Signal()
        header = Signal()  # the data is through: the header
        settle = Signal(range(settle_cycles + 1))
        red = record.kind == Sum.RED
        wide = record.kind == Sum.WIDE
        twice = wide & last_pass
        last_flit = index == (record.length - 1)[:4]
        has_room = Signal()
        to_gpu = Cat(record.answer.gpu == n for n in range(params.gpus))
        begins = Signal()
        takes = Signal()
        moves = Signal()
        through = Signal()
        m.d.comb += [
            has_room.eq(begun | red | one_hot_mux(to_gpu, self.room)),
            moves.eq(
                have
                & ~header
                & has_room
                & (settle == 0)
                & (self.some | ~needs).all()
                & (~red | (red_count != 0))
            ),
            takes.eq(moves & (~twice | again)),
            self.claim.eq(takes.replicate(STREAMS) & needs),
            red_claim.eq(takes & red),
        ]
        pass_ends = takes & last_flit
        header_step = have & header & has_room
        red_ends = pass_ends & red
        m.d.comb += through.eq(header_step | red_ends)
        with m.If(settle != 0):
            m.d.sync += settle.eq(settle - 1)
        with m.If(moves | header_step):
            m.d.sync += begun.eq(1)
        with m.If(moves):
            m.d.sync += again.eq(twice & ~again)
        with m.If(takes):
            m.d.sync += index.eq(index + 1)
        with m.If(pass_ends):
            m.d.sync += [
                index.eq(0),
                header.eq(last_pass),
                needs.eq(~Const(1, STREAMS)),
                from_sums.eq(1),
                left.eq(left - _ADDERS),
                last_pass.eq(left == _ADDERS),
            ]
            with m.If(~last_pass):
                m.d.sync += settle.eq(settle_cycles - record.length)
        with m.If(through):
            m.d.sync += have.eq(0)
        loads = records.o.valid & (~have | through)
        m.d.comb += records.o.ready.eq(loads)
        with m.If(loads):
            new = data.View(layout, records.o.payload)
            new_red = new.kind == Sum.RED
            last = Mux(new_red, STREAMS - 2, STREAMS - 1)
            m.d.sync += [
                have.eq(1),
                record.eq(new),
                begun.eq(0),
                header.eq(new.bad),
                needs.eq(Cat((new.begin <= n) & (last >= n) for n in range(STREAMS))),
                from_sums.eq(0),
                left.eq(new.targets + new.begin - STREAMS),
                last_pass.eq(new_red | (new.targets + new.begin == STREAMS)),
            ]
        m.d.comb += [
            begins.eq((moves | header_step) & ~begun & ~red),
            self.reserve.eq(begins),
            self.reserve_gpu.eq(record.answer.gpu),
            self.reserve_flits.eq(Mux(wide, record.length << 1, record.length) + 1),
        ]

        # A step goes along the row.
        step_layout = data.StructLayout(
            {
                "takes": 1,
                "red": 1,
                "wide": 1,
                "dtype": DType,
                "op": ReduceOp,
                "needs": STREAMS,
                "from_sums": 1,
                "to_sums": 1,
                "to_part": 1,
                "to_back": 1,
                "header": 1,
                "index": 4,
                "word": 1,
                "last": 1,
            }
        )
        # A pair of operands in 16 bits is rounded once, as if in f32 and rounded then.
        dtype = record.answer.dtype
        red_dtype = Cat(dtype[0], Const(DType.F16.value >> 1, 3))
        is_wide_type = dtype[3] | dtype[1:3].all()
        steps = [Signal(step_layout, name=f"step{n}") for n in range(length_of_row + 1)]
        errors = [Signal(name=f"error{n}") for n in range(length_of_row + 1)]
        step = steps[0]
        m.d.comb += [
            step.takes.eq(takes),
            step.red.eq(red),
            step.wide.eq(wide),
            step.dtype.eq(Mux(red & is_wide_type, red_dtype, dtype)),
            step.op.eq(record.op),
            step.needs.eq(needs),
            step.from_sums.eq(from_sums),
            step.to_sums.eq(moves & ~last_pass),
            step.to_part.eq((moves & last_pass & ~red) | header_step),
            step.to_back.eq(moves & red),
            step.header.eq(header_step),
            step.index.eq(index),
            step.word.eq(again),
            step.last.eq(last_flit & (~twice | again)),
            sums.r_en.eq(moves & from_sums),
            sums.r_addr.eq(index),
        ]
        failing: dict[int, Value] = {}  # by the cycle, whether an operand has an error
        operand_layout = data.StructLayout({"dtype": DType, "op": ReduceOp, "first": 1})
        acc = Signal(2 * FLIT_BITS)
        m.d.sync += acc.eq(Mux(steps[1].from_sums, sums.r_data, self.flit[0].replicate(2)))
        m.d.comb += self.take[0].eq(steps[1].takes & steps[1].needs[0])
        strobe = self.red_strobe
        for number, lanes in enumerate(self._lanes):
            m.submodules[f"lanes{number}"] = lanes
            when = _READ - 1 + number * latency
            at = steps[when]
            source = number + 1
            flit = self.flit[source]
            m.d.comb += self.take[source].eq(at.takes & at.needs[source])
            if source == STREAMS - 1:
                flit = Mux(at.red, self.red_flit, flit)
                m.d.comb += self.red_take.eq(at.takes & at.red)
                strobe = delayed(m, self.red_strobe, length_of_row - when, "strobe")
            # What enters here passes as it is, unless it is converted.
            first = ~at.needs[number] & (~at.from_sums if number == 0 else 1)
            passes = first & ~at.wide
            operands = Signal(operand_layout, name=f"operands{number}")
            y = Signal(FLIT_BITS, name=f"y{number}")
            m.d.sync += [
                operands.dtype.eq(Mux(passes, DType.B32.value, at.dtype)),
                operands.op.eq(Mux(passes, ReduceOp.OR.value, at.op)),
                operands.first.eq(first),
                y.eq(flit),
            ]
            m.d.comb += [
                lanes.dtype.eq(operands.dtype),
                lanes.op.eq(operands.op),
                lanes.first.eq(operands.first),
                lanes.flit.eq(y),
                lanes.acc.eq(acc),
            ]
            acc = lanes.sum
            failing[when] = at.needs[source] & self.error[source]
            if number == 0:
                failing[when] |= at.needs[0] & self.error[0]
        for number, (earlier, later) in enumerate(pairwise(steps)):
            m.d.sync += [
                later.eq(earlier),
                errors[number + 1].eq(errors[number] | failing.get(number, Const(0))),
            ]

        # It arrives at the end.
        out = steps[-1]
        error = errors[-1]
        lanes = self._lanes[-1]
        head = data.View(head_layout, heads.o.payload)
        failed_before = Signal()
        request_failed = Signal()  # a part before
        failed = failed_before | head.bad
        check(m, platform, ~out.to_part | heads.o.valid, "loads: a part without a record")
        with m.If(out.header):
            m.d.sync += [
                failed_before.eq(0),
                request_failed.eq((request_failed | failed) & head.more),
            ]
        with m.Elif(out.to_part | out.to_sums):
            m.d.sync += failed_before.eq(failed_before | error)
        length = Signal(5)
        m.d.comb += length.eq(Mux(head.wide, head.length << 1, head.length))
        m.d.sync += self.refused.eq(out.header & ~head.more & (request_failed | failed))
        header_flit = answer_header(
            head.answer,
            opcode=answer_opcode(head.answer.unicast, ~failed),
            count=head.count,
            aux=Mux(failed, Const(Status.BAD_ADDRESS.value, 4), 0),
            length=Mux(failed, 0, length),
            more=head.more,
            dtype=Mux(head.wide & ~failed, Const(DType.F32.value, 4), head.answer.dtype),
        )
        number_of_flit = Mux(out.wide, Cat(out.word, out.index), out.index)
        m.d.comb += [
            heads.o.ready.eq(out.header),
            sums.w_en.eq(out.to_sums),
            sums.w_addr.eq(out.index),
            sums.w_data.eq(lanes.sum),
            self.part_en.eq(out.to_part),
            self.part.gpu.eq(head.answer.gpu),
            self.part.offset.eq(Mux(out.header, 0, number_of_flit + 1)),
            self.part.flit.eq(
                Mux(
                    out.header,
                    header_flit,
                    Mux(out.wide, lanes.sum.word_select(out.word, FLIT_BITS), lanes.result),
                )
            ),
            self.part.last.eq(Mux(out.header, failed, out.last)),
            self.part.commit.eq(out.header),
            self.part.flits.eq(Mux(failed, 1, length + 1)),
            self.part.unused.eq(Mux(failed, length, 0)),
            self.back_en.eq(out.to_back),
            self.back_flit.eq(lanes.result),
            self.back_strobe.eq(strobe),
            self.back_error.eq(error),
            self.red_done.eq(out.to_back & out.last),
        ]
        return m
