# SPDX-License-Identifier: Apache-2.0
"""Accumulator: the sums of a port's entries, and the lanes that add to them."""

from itertools import pairwise

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..common.ram import Ram
from ..flits import FLIT_BITS, SLOT_FLITS
from ..fp.vector import ReduceVector
from ..params import SwitchParams
from .taker import beat_layout, row_bits

__all__ = ["Accumulator"]


class Accumulator(wiring.Component):
    """Reads, adds and writes back one flit a cycle.

    Parameters
    ----------
    params : SwitchParams
        ``entries`` is used.

    Members
    -------
    r_en, r_row : In
        Read these words of this row, for the beat of the next cycle.
    beat, flit : In
        What goes through the lanes (:func:`beat_layout`).
    w_en, w_flit, w_last : Out
        A flit of a result.

    Timing
    ------
    A beat in cycle *t* is a flit of a result, or is written back, in *t* + ``latency``. The same
    row can be read again a cycle after that.

    Area
    ----
    ``entries`` times 128 B of RAM in two banks, and the lanes.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        self._lanes = ReduceVector()
        super().__init__(
            {
                "r_en": In(2),
                "r_row": In(row_bits(params)),
                "beat": In(beat_layout(params)),
                "flit": In(FLIT_BITS),
                "w_en": Out(1),
                "w_flit": Out(FLIT_BITS),
                "w_last": Out(1),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from a beat to its result."""
        return self._lanes.latency

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        m.submodules.lanes = lanes = self._lanes
        rows = self._params.entries * SLOT_FLITS // 2
        banks = [Ram(width=FLIT_BITS, depth=rows) for _ in range(2)]

        # What becomes of a beat goes along with it.
        keep = ("row", "w_en", "half", "to_result", "as_f32", "packs", "last")
        kept_layout = data.StructLayout({name: self.beat[name].shape() for name in keep})
        valids = Signal(self.latency)
        kept = [Signal(kept_layout, name=f"kept{n}") for n in range(self.latency)]
        m.d.sync += valids.eq(Cat(self.beat.valid, valids))
        m.d.sync += [kept[0][name].eq(self.beat[name]) for name in keep]
        m.d.sync += [later.eq(earlier) for earlier, later in pairwise(kept)]
        out, out_valid = kept[-1], valids[-1]

        for number, bank in enumerate(banks):
            m.submodules[f"bank{number}"] = bank
            m.d.comb += [
                bank.r_en.eq(self.r_en[number]),
                bank.r_addr.eq(self.r_row),
                bank.w_en.eq(out_valid & out.w_en[number]),
                bank.w_addr.eq(out.row),
                bank.w_data.eq(lanes.sum.word_select(number, FLIT_BITS)),
            ]
        m.d.comb += [
            lanes.dtype.eq(self.beat.dtype),
            lanes.op.eq(self.beat.op),
            lanes.first.eq(self.beat.first),
            lanes.from_f32.eq(self.beat.from_f32),
            lanes.half.eq(self.beat.half),
            lanes.flit.eq(self.flit),
            lanes.acc.eq(Cat(bank.r_data for bank in banks)),
        ]

        # Of f32 parts of a wide type two results of four elements make one flit.
        quarter = FLIT_BITS // 2
        low = Signal(quarter)
        with m.If(out_valid):
            m.d.sync += low.eq(lanes.result)
        word = lanes.sum.word_select(out.half, FLIT_BITS)
        packed = Cat(Mux(out.packs, low, lanes.result[:quarter]), lanes.result[quarter:])
        m.d.comb += [
            self.w_en.eq(out_valid & out.to_result),
            self.w_flit.eq(Mux(out.as_f32, word, packed)),
            self.w_last.eq(out.last),
        ]
        return m
