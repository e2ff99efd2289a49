# SPDX-License-Identifier: Apache-2.0
"""Stores: tells the end of stores when all their writes can be seen."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..common.ram_fifo import RamFifo
from ..flits import FLIT_BITS, Status
from .path_layouts import answer_header, answer_opcode, store_record_layout

__all__ = ["Stores"]

_WRITES = 256
_TARGETS = 64


class Stores(wiring.Component):
    """Counts writes off against the targets that they belong to.

    Members
    -------
    record_en, record, record_full : In, In, Out
        Append a target (:func:`store_record_layout`), in the order of the writes.
    mark_en, mark, mark_full : In, In, Out
        A write is sent; with ``mark`` its data could not be read.
    written, write_error : In
        The oldest write has ended.
    answer : Out
        Stream of ``gpu`` and ``flit``: acknowledgements.
    refused : Out(1)
        A request ended with an error.

    Timing
    ------
    A write and a target a cycle. Four cycles from the last ``written`` to the acknowledgement.

    Ordering
    --------
    Acknowledgements come in the order of the writes.

    Reset
    -----
    Empty.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "record_en": In(1),
                "record": In(store_record_layout()),
                "record_full": Out(1),
                "mark_en": In(1),
                "mark": In(1),
                "mark_full": Out(1),
                "written": In(1),
                "write_error": In(1),
                "answer": Out(stream.Signature(data.StructLayout({"gpu": 6, "flit": FLIT_BITS}))),
                "refused": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        layout = store_record_layout()
        m.submodules.records = records = RamFifo(layout.size, _TARGETS)
        m.submodules.marks = marks = RamFifo(1, _WRITES)
        m.submodules.ends = ends = RamFifo(1, _WRITES)
        came = Signal()
        failed = Signal()
        m.d.sync += [came.eq(self.written), failed.eq(self.write_error)]
        m.d.comb += [
            records.w_en.eq(self.record_en),
            records.w_data.eq(self.record),
            self.record_full.eq(records.full),
            marks.w_en.eq(self.mark_en),
            marks.w_data.eq(self.mark),
            self.mark_full.eq(marks.full),
            ends.w_en.eq(came),
            ends.w_data.eq(failed),
        ]

        # The target at work is in registers; `left` writes of it have not ended.
        have = Signal()
        record = Signal(layout)
        left = Signal(5)
        bad = Signal()  # a target before, or a write of this one
        ended = Signal()  # the writes of this one
        through = Signal()
        needs = Signal()
        counts = Signal()
        error = Signal()
        free = Signal()
        loads = Signal()
        tells = Signal()
        m.d.comb += [
            needs.eq(left != 0),
            counts.eq(have & needs & ends.o.valid & marks.o.valid),
            ends.o.ready.eq(counts),
            marks.o.ready.eq(counts),
            error.eq(bad | (counts & (ends.o.payload | marks.o.payload)) | (record.writes == 0)),
            ended.eq(~needs | (counts & (left == 1))),
            free.eq(~self.answer.valid | self.answer.ready),
            tells.eq(record.last & ~record.silent),
            through.eq(have & ended & (free | ~tells)),
            loads.eq(records.o.valid & (~have | through)),
            records.o.ready.eq(loads),
        ]
        with m.If(counts):
            m.d.sync += [left.eq(left - 1), bad.eq(error)]
        with m.If(through):
            m.d.sync += [have.eq(0), bad.eq(error & ~record.last)]
        with m.If(loads):
            m.d.sync += [
                have.eq(1),
                record.eq(records.o.payload),
                left.eq(data.View(layout, records.o.payload).writes),
            ]
        m.d.sync += self.refused.eq(through & record.last & error)
        with m.If(through & tells):
            answer = record.answer
            m.d.sync += [
                self.answer.valid.eq(1),
                self.answer.payload.gpu.eq(answer.gpu),
                self.answer.payload.flit.eq(
                    answer_header(
                        answer,
                        opcode=answer_opcode(answer.unicast, Const(0, 1)),
                        count=record.count,
                        aux=Mux(error, Const(Status.BAD_ADDRESS.value, 4), 0),
                    )
                ),
            ]
        with m.Elif(self.answer.ready):
            m.d.sync += self.answer.valid.eq(0)
        return m
