# SPDX-License-Identifier: Apache-2.0
"""What is kept for each expert of each object: bases, AL table, room, and blocks in use."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..common.ram import Ram
from ..gpu_params import GpuParams
from .translation_layouts import (
    EPOCH_BITS,
    PLACE_BITS,
    USED_BITS,
    WORD_BITS,
    ring_size,
    row_bits,
)

__all__ = ["USED", "ExpertTable"]

USED = data.StructLayout({"count": USED_BITS, "epoch": EPOCH_BITS})
"""Blocks in use, and the epoch in which they were counted; of another epoch there are none."""


class ExpertTable(wiring.Component):
    """RAMs with a word a row; a row is a pair of object and local expert.

    Parameters
    ----------
    params : GpuParams
        The hub.

    Members
    -------
    set_base, set_table, set_nactive : In
        Write a register of a row; of bases: bit *s*, that of stage *s*.
    set_row, set_place, set_word, set_count : In
        The row, and the values: in flits, in words of 4 B, in blocks.
    base_en, base_row, base_stage, base : In, Out
        Read a base.
    table_en, table_row, table : In, Out
        Read the address of an AL table.
    count_en, count_row, nactive, used : In, Out
        Read the room and the blocks in use.
    use, use_row, use_value : In
        Write the blocks in use.
    look, look_row : In
        Read the blocks in use when nobody else does; held until ``looked``.
    looked, look_used : Out
        ... here they are.

    Timing
    ------
    Data follows the enable by one cycle and is held.

    Reset
    -----
    Contents have no reset: the blocks in use are written by :class:`AlClear`.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        rows = row_bits(params)
        super().__init__(
            {
                "set_base": In(2),
                "set_table": In(1),
                "set_nactive": In(1),
                "set_row": In(rows),
                "set_place": In(PLACE_BITS),
                "set_word": In(WORD_BITS),
                "set_count": In(USED_BITS),
                "base_en": In(1),
                "base_row": In(rows),
                "base_stage": In(1),
                "base": Out(PLACE_BITS),
                "table_en": In(1),
                "table_row": In(rows),
                "table": Out(WORD_BITS),
                "count_en": In(1),
                "count_row": In(rows),
                "nactive": Out(USED_BITS),
                "used": Out(USED),
                "use": In(1),
                "use_row": In(rows),
                "use_value": In(USED),
                "look": In(1),
                "look_row": In(rows),
                "looked": Out(1),
                "look_used": Out(USED),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        depth = ring_size(self._params.objects * self._params.experts)
        m.submodules.bases = bases = Ram(width=PLACE_BITS, depth=2 * depth)
        m.submodules.tables = tables = Ram(width=WORD_BITS, depth=depth)
        m.submodules.nactives = nactives = Ram(width=USED_BITS, depth=depth)
        m.submodules.useds = useds = Ram(width=USED.size, depth=depth)
        m.d.comb += [
            bases.w_en.eq(self.set_base.any()),
            bases.w_addr.eq(Cat(self.set_base[1], self.set_row)),
            bases.w_data.eq(self.set_place),
            bases.r_en.eq(self.base_en),
            bases.r_addr.eq(Cat(self.base_stage, self.base_row)),
            self.base.eq(bases.r_data),
            tables.w_en.eq(self.set_table),
            tables.w_addr.eq(self.set_row),
            tables.w_data.eq(self.set_word),
            tables.r_en.eq(self.table_en),
            tables.r_addr.eq(self.table_row),
            self.table.eq(tables.r_data),
            nactives.w_en.eq(self.set_nactive),
            nactives.w_addr.eq(self.set_row),
            nactives.w_data.eq(self.set_count),
            nactives.r_en.eq(self.count_en),
            nactives.r_addr.eq(self.count_row),
            self.nactive.eq(nactives.r_data),
            useds.w_en.eq(self.use),
            useds.w_addr.eq(self.use_row),
            useds.w_data.eq(self.use_value),
            self.used.eq(useds.r_data),
            self.look_used.eq(useds.r_data),
        ]
        # The registers read in a cycle in which the walker neither reads nor writes.
        looks = Signal()
        m.d.comb += [
            looks.eq(self.look & ~self.looked & ~self.count_en & ~self.use),
            useds.r_en.eq(self.count_en | looks),
            useds.r_addr.eq(self.look_row),
        ]
        with m.If(self.count_en):
            m.d.comb += useds.r_addr.eq(self.count_row)
        m.d.sync += self.looked.eq(looks)
        return m
