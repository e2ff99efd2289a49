# SPDX-License-Identifier: Apache-2.0
"""Forgets the AL map of an object: counts epochs, and wipes when they wrap."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import one_hot_mux
from ..gpu_params import GpuParams
from .expert_table import USED
from .translation_layouts import (
    EPOCH_BITS,
    OBJECT_CONFIG,
    USED_BITS,
    WORD_BITS,
    row_bits,
)

__all__ = ["AlClear"]

_UNSEEN_BITS = 8
_LOW = 24
"""An address counts up in two halves."""


class AlClear(wiring.Component):
    """Clears objects, one after the other, while no translation is under way.

    Parameters
    ----------
    params : GpuParams
        The hub.

    Members
    -------
    clear : In(objects)
        Clear these objects.
    objects : In, one per object
        Their registers.
    idle : In(1)
        No translation is under way, if none was let in.
    hold : Out(1)
        Let none in; from the cycle after ``clear`` on.
    busy : Out(1)
        Something is not cleared yet.
    flush : Out(1)
        Forget the entries of the TLB.
    epoch : Out(8), one per object
        The epoch, 1 to 255.
    table_en, table_row, table_word : Out, Out, In
        Reads the address of an AL table; only while translations are held.
    use, use_row, use_value : Out
        Writes the blocks in use.
    table_write, table_address, table_ready, written
        Writes a zero to an AL table.

    Timing
    ------
    A clear takes 3 cycles from when it is idle. Every 255th of an object writes zeros over its AL
    tables first, one word a cycle.

    Reset
    -----
    For a cycle a row after reset, translations are held: the blocks in use are set to none.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        rows = row_bits(params)
        super().__init__(
            {
                "clear": In(params.objects),
                "objects": In(OBJECT_CONFIG).array(params.objects),
                "idle": In(1),
                "hold": Out(1),
                "busy": Out(1),
                "flush": Out(1),
                "epoch": Out(EPOCH_BITS, init=1).array(params.objects),
                "table_en": Out(1),
                "table_row": Out(rows),
                "table_word": In(WORD_BITS),
                "use": Out(1),
                "use_row": Out(rows),
                "use_value": Out(USED),
                "table_write": Out(1),
                "table_address": Out(48),
                "table_ready": In(1),
                "written": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        pending = Signal(params.objects)
        first = Signal(params.objects)
        m.d.comb += first.eq(pending & ~(pending - 1)[: params.objects])
        chosen = Signal(params.objects)
        epoch = Signal(EPOCH_BITS)
        dynamic = Signal()
        experts = Signal(OBJECT_CONFIG["experts"].width)
        blocks = Signal(USED_BITS)
        row = Signal(row_bits(params))
        left = Signal(range(params.objects * params.experts + 1))  # rows
        words = Signal(USED_BITS)
        address = Signal(WORD_BITS)
        carry = Signal()
        unseen = Signal(_UNSEEN_BITS)  # words written that reads may not see yet
        writes = Signal()
        working = Signal()
        held = Signal(init=1)
        starts = Signal()
        m.d.sync += [
            pending.eq((pending & ~(first & starts.replicate(params.objects))) | self.clear),
            unseen.eq(unseen + writes - (self.written & (unseen != 0))),
        ]
        m.d.comb += [
            self.busy.eq(pending.any() | working),
            self.hold.eq(pending.any() | held),
            self.table_row.eq(row),
            self.use_row.eq(row),
            self.table_address.eq(Cat(Const(0, 2), address)),
        ]

        def row_of(chosen_bits):
            return one_hot_mux(
                chosen_bits,
                [Const(n * params.experts, len(row)) for n in range(params.objects)],
            )

        def rewind():
            return [row.eq(row_of(chosen)), left.eq(experts)]

        with m.FSM(init="RESET", name="clear_state"):
            with m.State("RESET"):
                # All rows are of no epoch.
                m.d.comb += self.use.eq(1)
                m.d.sync += row.eq(row + 1)
                with m.If(row == params.objects * params.experts - 1):
                    m.d.sync += held.eq(0)
                    m.next = "IDLE"
            with m.State("IDLE"):
                m.d.comb += starts.eq(pending.any())
                with m.If(pending.any()):
                    m.d.sync += [chosen.eq(first), held.eq(1), working.eq(1)]
                    m.next = "DRAIN"
            with m.State("DRAIN"):
                configs = list(self.objects)
                m.d.sync += [
                    epoch.eq(one_hot_mux(chosen, list(self.epoch))),
                    dynamic.eq(one_hot_mux(chosen, [item.dynamic for item in configs])),
                    experts.eq(one_hot_mux(chosen, [item.experts for item in configs])),
                    blocks.eq(one_hot_mux(chosen, [item.blocks for item in configs])),
                ]
                with m.If(self.idle):
                    m.next = "LOOK"
            with m.State("LOOK"):
                m.d.sync += rewind()
                with m.If(~epoch.all()):
                    m.next = "COUNT"
                with m.Else():
                    m.next = "TABLE"
            with m.State("COUNT"):
                for one in range(params.objects):
                    with m.If(chosen[one]):
                        m.d.sync += self.epoch[one].eq(epoch + 1)
                m.d.comb += self.flush.eq(1)
                m.d.sync += [held.eq(0), working.eq(0)]
                m.next = "IDLE"

            # The epochs wrap: zeros into the tables, then into the blocks in use.
            with m.State("TABLE"):
                m.d.comb += self.table_en.eq(1)
                with m.If(~dynamic | (left == 0)):
                    m.next = "ROWS"
                with m.Else():
                    m.next = "BASE"
            with m.State("BASE"):
                m.d.sync += [address.eq(self.table_word), words.eq(blocks)]
                m.next = "FILL"
            with m.State("FILL"):
                low = address[:_LOW]
                with m.If(carry):
                    m.d.sync += [address[_LOW:].eq(address[_LOW:] + 1), carry.eq(0)]
                with m.Elif(words == 0):
                    m.d.sync += [row.eq(row + 1), left.eq(left - 1)]
                    m.next = "TABLE"
                with m.Elif(~unseen.all()):
                    m.d.comb += self.table_write.eq(1)
                    with m.If(self.table_ready):
                        m.d.comb += writes.eq(1)
                        m.d.sync += [
                            low.eq(low + 1),
                            carry.eq(low.all()),
                            words.eq(words - 1),
                        ]
            with m.State("ROWS"):
                m.d.sync += [row.eq(row_of(chosen)), left.eq(params.experts - 1)]
                m.next = "WIPE"
            with m.State("WIPE"):
                m.d.comb += self.use.eq(1)
                m.d.sync += [row.eq(row + 1), left.eq(left - 1)]
                with m.If(left == 0):
                    m.next = "SEEN"
            with m.State("SEEN"):
                m.d.sync += epoch.eq(0)
                with m.If(unseen == 0):
                    m.next = "COUNT"
        return m
