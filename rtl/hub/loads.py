# SPDX-License-Identifier: Apache-2.0
"""Loads: makes parts of what the memory replies, and does the arithmetic of ``MM_RED``."""

from itertools import pairwise

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import one_hot_mux
from ..common.ram import Ram
from ..flits import FLIT_BITS, FLIT_BYTES, MAX_DATA_FLITS, DType, ReduceOp, Status
from ..fp.vector import ReduceVector
from ..gpu_params import GpuParams
from .path_layouts import Sum, answer_header, answer_opcode, load_record_layout
from .ram_fifo import RamFifo

__all__ = ["Loads", "part_layout"]

_RECORDS = 64
_READ = 2  # cycles from a step to the operands of the lanes


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

    Parameters
    ----------
    params : GpuParams
        The hub.

    Members
    -------
    record_en, record, record_full : In, In, Out
        Append a part or an ``MM_RED`` (:func:`load_record_layout`). Its targets' flits come in
        turns by both streams.
    valid, flit, error, take : In, In, In, Out
        The next flit of each stream.
    red_valid, red_flit, red_strobe, red_take : In, In, In, Out
        Data of ``MM_RED``.
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
    A part of *n* data flits takes *n* + 1 cycles, whether it is of one target or the sum of two;
    each further target *n* more (8, if *n* is less), in f32 one target more and the last one twice.
    ``part`` follows seven cycles later.

    Ordering
    --------
    Records in their order.

    Errors
    ------
    Header last, since a beat that the memory cannot read may be the last one.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        self._lanes = ReduceVector()
        super().__init__(
            {
                "record_en": In(1),
                "record": In(load_record_layout()),
                "record_full": Out(1),
                "valid": In(2),
                "flit": In(data.ArrayLayout(FLIT_BITS, 2)),
                "error": In(2),
                "take": Out(2),
                "red_valid": In(1),
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
        m.submodules.lanes = lanes = self._lanes
        m.submodules.records = records = RamFifo(width=layout.size, depth=_RECORDS)
        m.submodules.sums = sums = Ram(width=2 * FLIT_BITS, depth=MAX_DATA_FLITS)
        m.d.comb += [
            records.w_en.eq(self.record_en),
            records.w_data.eq(self.record),
            self.record_full.eq(records.full),
        ]
        settle_cycles = _READ + lanes.latency + 1  # from a step to the next one with its sum

        # The record at work.
        have = Signal()
        record = Signal(layout)
        begun = Signal()
        index = Signal(4)  # of the flit
        first_pass = Signal()
        again = Signal()  # second step of a flit that gives two
        left = Signal.like(record.targets)  # targets of which nothing was taken
        heads = Signal()  # the data is through: the header
        settle = Signal(range(settle_cycles + 1))
        failed = Signal()
        request_failed = Signal()  # a part before
        side = Signal()
        red = record.kind == Sum.RED
        wide = record.kind == Sum.WIDE
        pair = (record.kind == Sum.NARROW) & first_pass
        takes_left = Mux(pair, 2, 1)
        last_pass = left == takes_left
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
                & ~heads
                & has_room
                & (settle == 0)
                & Mux(side, self.valid[1], self.valid[0])
                & (~pair | Mux(side, self.valid[0], self.valid[1]))
                & (~red | self.red_valid)
            ),
            takes.eq(moves & (~twice | again)),
            self.take.eq(Cat(takes & (pair | ~side), takes & (pair | side))),
            self.red_take.eq(takes & red),
        ]
        pass_ends = takes & last_flit
        error = Mux(side, self.error[1], self.error[0]) | (
            pair & Mux(side, self.error[0], self.error[1])
        )
        header_step = have & heads & has_room
        red_ends = pass_ends & red
        m.d.comb += through.eq(header_step | red_ends)
        with m.If(settle != 0):
            m.d.sync += settle.eq(settle - 1)
        with m.If(moves | header_step):
            m.d.sync += begun.eq(1)
        with m.If(moves):
            m.d.sync += [again.eq(twice & ~again), failed.eq(failed | error)]
        with m.If(takes):
            m.d.sync += index.eq(index + 1)
        with m.If(pass_ends):
            m.d.sync += [
                index.eq(0),
                first_pass.eq(0),
                left.eq(left - takes_left),
                heads.eq(last_pass),
                side.eq(side ^ ~pair),
            ]
            with m.If(~last_pass & (record.length < settle_cycles)):
                m.d.sync += settle.eq(settle_cycles - record.length)
        with m.If(through):
            m.d.sync += have.eq(0)
        loads = records.valid & (~have | through)
        m.d.comb += records.take.eq(loads)
        with m.If(loads):
            new = data.View(layout, records.r_data)
            m.d.sync += [
                have.eq(1),
                record.eq(new),
                begun.eq(0),
                first_pass.eq(1),
                left.eq(new.targets),
                heads.eq(new.bad),
                failed.eq(new.bad),
            ]
        length = Signal(5)
        m.d.comb += [
            length.eq(Mux(wide, record.length << 1, record.length)),
            begins.eq((moves | header_step) & ~begun & ~red),
            self.reserve.eq(begins),
            self.reserve_gpu.eq(record.answer.gpu),
            self.reserve_flits.eq(length + 1),
        ]
        with m.If(header_step):
            m.d.sync += request_failed.eq((request_failed | failed) & record.more)
        m.d.sync += self.refused.eq(header_step & ~record.more & (request_failed | failed))

        # Operands. What is not to be added passes the lanes as it is.
        passes = (record.kind == Sum.NONE) | heads
        header = answer_header(
            record.answer,
            opcode=answer_opcode(record.answer.unicast, ~failed),
            count=record.count,
            aux=Mux(failed, Const(Status.BAD_ADDRESS.value, 4), 0),
            length=Mux(failed, 0, length),
            more=record.more,
            dtype=Mux(wide & ~failed, Const(DType.F32.value, 4), record.answer.dtype),
        )
        near = Mux(side, self.flit[1], self.flit[0])
        far = Mux(side, self.flit[0], self.flit[1])
        kept = data.StructLayout(
            {
                "to_sums": 1,
                "to_part": 1,
                "to_back": 1,
                "index": 4,
                "as_word": 1,
                "word": 1,
                "strobe": FLIT_BYTES,
                "error": 1,
                "ends": 1,
                "gpu": 6,
                "offset": 5,
                "last": 1,
                "commit": 1,
                "flits": 5,
                "unused": 5,
            }
        )
        operand = data.StructLayout({"dtype": DType, "op": ReduceOp, "first": 1, "from_sums": 1})
        step = Signal(operand)
        keep = Signal(kept)
        # A pair of operands in 16 bits is rounded once, as if in f32 and rounded then.
        dtype = record.answer.dtype
        red_dtype = Cat(dtype[0], Const(DType.F16.value >> 1, 3))
        is_wide_type = dtype[3] | dtype[1:3].all()
        flits = Mux(failed, 1, length + 1)
        m.d.comb += [
            step.dtype.eq(Mux(passes, DType.B32.value, Mux(red & is_wide_type, red_dtype, dtype))),
            step.op.eq(Mux(passes, ReduceOp.OR.value, record.op)),
            step.first.eq(passes | (wide & first_pass)),
            step.from_sums.eq(~pair & ~red),
            keep.to_sums.eq(moves & ~last_pass),
            keep.to_part.eq((moves & last_pass & ~red) | header_step),
            keep.to_back.eq(moves & red),
            keep.index.eq(index),
            keep.as_word.eq(wide & ~heads),
            keep.word.eq(again),
            keep.strobe.eq(self.red_strobe),
            keep.error.eq(error),
            keep.ends.eq(red_ends),
            keep.gpu.eq(record.answer.gpu),
            keep.offset.eq(Mux(heads, 0, Mux(wide, Cat(again, index), index) + 1)),
            keep.last.eq(Mux(heads, failed, last_flit & (~twice | again))),
            keep.commit.eq(header_step),
            keep.flits.eq(flits),
            keep.unused.eq(Mux(failed, length, 0)),
            sums.r_en.eq(moves & ~first_pass),
            sums.r_addr.eq(index),
        ]
        operands = [Signal(operand, name=f"operand{n}") for n in range(_READ)]
        ys = [Signal(FLIT_BITS, name=f"y{n}") for n in range(_READ)]
        x0 = Signal(FLIT_BITS)
        acc = Signal(2 * FLIT_BITS)
        keeps = [Signal(kept, name=f"keep{n}") for n in range(_READ + lanes.latency)]
        m.d.sync += [
            operands[0].eq(step),
            ys[0].eq(Mux(heads, header, Mux(red, self.red_flit, Mux(pair, far, near)))),
            x0.eq(near),
            operands[1].eq(operands[0]),
            ys[1].eq(ys[0]),
            acc.eq(Mux(operands[0].from_sums, sums.r_data, Cat(x0, x0))),
            keeps[0].eq(keep),
        ]
        m.d.sync += [later.eq(earlier) for earlier, later in pairwise(keeps)]
        out = keeps[-1]
        m.d.comb += [
            lanes.dtype.eq(operands[1].dtype),
            lanes.op.eq(operands[1].op),
            lanes.first.eq(operands[1].first),
            lanes.flit.eq(ys[1]),
            lanes.acc.eq(acc),
            sums.w_en.eq(out.to_sums),
            sums.w_addr.eq(out.index),
            sums.w_data.eq(lanes.sum),
            self.part_en.eq(out.to_part),
            self.part.flit.eq(
                Mux(out.as_word, lanes.sum.word_select(out.word, FLIT_BITS), lanes.result)
            ),
            self.back_en.eq(out.to_back),
            self.back_flit.eq(lanes.result),
            self.back_strobe.eq(out.strobe),
            self.back_error.eq(out.error),
            self.red_done.eq(out.ends),
        ]
        m.d.comb += [
            self.part[name].eq(out[name])
            for name in ("gpu", "offset", "last", "commit", "flits", "unused")
        ]
        return m
