# SPDX-License-Identifier: Apache-2.0
"""Eight lanes: one flit of a reduction a cycle."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..flits import FLIT_BITS, LANES, DType, ReduceOp
from .lane import OPERATION, ReduceLane, delayed, is_f16, operation_of

__all__ = ["DEFAULT_STAGES", "LATENCY", "ReduceVector"]

DEFAULT_STAGES = 3
LATENCY = DEFAULT_STAGES + 2
"""Latency of :class:`ReduceVector` with so many stages."""


class ReduceVector(wiring.Component):
    """Adds one flit of a part to the accumulators of an entry, for every type and operation.

    Parameters
    ----------
    stages : int
        Registers inside the adders, 1 to 4.

    Members
    -------
    dtype : In(DType)
        Type of the entry.
    op : In(ReduceOp)
        Its operation, one of ``REDUCTIONS[dtype]``; with others the result may be anything.
    first : In(1)
        The part initialises: ``acc`` is ignored. Of a float only a NaN changes, into the canonical
        one.
    from_f32 : In(1)
        The entry is wide and the flit holds four f32 values.
    half : In(1)
        Which word of ``acc`` belongs to the flit, if it takes one word: its type is not wide, or
        with ``from_f32``.
    flit : In(128)
        Elements of the part.
    acc : In(256)
        Two words of sums, word 0 in the low half. A flit of 16-bit elements of a wide type takes
        both, elements 0 to 3 word 0.
    sum : Out(256)
        The words to write back. A flit that takes one word gives it in both halves.
    result : Out(128)
        The flit of the result, if this was the last part: the word, or of a wide type the sums
        rounded to 16 bits (with ``from_f32`` four of them, in both halves). A result that stays
        f32 is in ``sum``.

    Timing
    ------
    One flit a cycle. ``sum`` and ``result`` come out of registers, ``latency`` cycles after the
    inputs. There is no handshake and no valid: the user counts along. ``acc`` goes through a
    multiplexer and the conversion of 16-bit numbers into a register, so it may come from a RAM.

    Reset
    -----
    The registers have none.

    Area
    ----
    See ``docs/fp.md``.
    """

    def __init__(self, *, stages: int = DEFAULT_STAGES) -> None:
        self._lanes = [ReduceLane(stages=stages, words=lane < LANES // 2) for lane in range(LANES)]
        super().__init__(
            {
                "dtype": In(DType),
                "op": In(ReduceOp),
                "first": In(1),
                "from_f32": In(1),
                "half": In(1),
                "flit": In(FLIT_BITS),
                "acc": In(2 * FLIT_BITS),
                "sum": Out(2 * FLIT_BITS),
                "result": Out(FLIT_BITS),
            }
        )

    @property
    def stages(self) -> int:
        """Registers inside the adders."""
        return self._lanes[0].stages

    @property
    def latency(self) -> int:
        """Cycles from the inputs to the outputs: conversion, adder, rounding to 16 bits."""
        return self._lanes[0].latency + 1

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        lanes = self._lanes
        for number, lane in enumerate(lanes):
            m.submodules[f"lane{number}"] = lane

        dtype = self.dtype.as_value()
        words = dtype[2:] == 0  # elements of 32 bits
        wide = dtype[3] | dtype[1:3].all()
        one_word = ~wide | self.from_f32
        words_0_3 = self.acc.word_select(self.half & one_word, FLIT_BITS)
        chosen = self.acc.word_select(self.half, FLIT_BITS)

        operation = Signal(OPERATION, reset_less=True)
        m.d.sync += operation.eq(operation_of(m, dtype, self.op.as_value(), self.first))
        for number, lane in enumerate(lanes):
            low = number < LANES // 2
            acc_words = words_0_3 if low else self.acc[FLIT_BITS:]
            m.d.comb += [
                lane.part_word.eq(self.flit.word_select(number % 4, 32)),
                lane.acc_word.eq(acc_words.word_select(number % 4, 32)),
                lane.part_half.eq(self.flit.word_select(number, 16)),
                lane.acc_half.eq(chosen.word_select(number, 16)),
                # Values of 32 bits are in the low lanes only.
                lane.take_part_word.eq((words | self.from_f32) if low else 0),
                lane.take_acc_word.eq((words | wide) if low else wide),
                lane.f16.eq(is_f16(dtype)),
                lane.scaled.eq(~wide),
                lane.operation.eq(operation),
            ]

        # What of the request shapes the outputs goes along with the sums.
        layout = delayed(
            m, Cat(is_f16(dtype), words, wide, self.from_f32), lanes[0].latency, "layout"
        )
        f16, words, wide, from_f32 = layout
        for lane in lanes:
            m.d.comb += [lane.result_f16.eq(f16), lane.result_scaled.eq(~wide)]
        low_words = Cat(lane.word for lane in lanes[: LANES // 2])
        high_words = Cat(lane.word for lane in lanes[LANES // 2 :])
        halves = Cat(lane.half for lane in lanes)
        low_halves = halves[: FLIT_BITS // 2]
        upper_halves = halves[FLIT_BITS // 2 :]
        sums, result = Signal.like(self.sum, reset_less=True), Signal(FLIT_BITS, reset_less=True)
        m.d.sync += [
            sums[:FLIT_BITS].eq(Mux(words | wide, low_words, halves)),
            sums[FLIT_BITS:].eq(Mux(words | from_f32, low_words, Mux(wide, high_words, halves))),
            result.eq(
                Mux(words, low_words, Cat(low_halves, Mux(from_f32, low_halves, upper_halves)))
            ),
        ]
        m.d.comb += [self.sum.eq(sums), self.result.eq(result)]
        return m
