# SPDX-License-Identifier: Apache-2.0
"""Places of the targets, collected until those of a whole request are there."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..common.ram_fifo import RamFifo
from ..flits import Status
from ..gpu_params import GpuParams
from .path_layouts import MAX_PLACE_BITS
from .ports import Translation

__all__ = ["Places"]


class Places(wiring.Component):
    """Buffers translations, and says of each request whether all its targets have a place.

    Parameters
    ----------
    params : GpuParams
        The hub.

    Members
    -------
    mark, mark_en, mark_full : In, In, Out
        For each lookup, in order: it is the request's last.
    translation : In
        Stream of :class:`Translation`, in the order of the lookups.
    verdict_valid, verdict_bad, verdict_take : Out, Out, In
        All translations of the oldest request are there; one of them is an error.
    valid, place, good, take : Out, Out, Out, In
        The oldest translation: address in flits, and whether it has one.

    Timing
    ------
    Three cycles from a translation to its place, one a cycle.

    Reset
    -----
    Empty.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        super().__init__(
            {
                "mark": In(1),
                "mark_en": In(1),
                "mark_full": Out(1),
                "translation": In(stream.Signature(Translation)),
                "verdict_valid": Out(1),
                "verdict_bad": Out(1),
                "verdict_take": In(1),
                "valid": Out(1),
                "place": Out(MAX_PLACE_BITS),
                "good": Out(1),
                "take": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        # A request is begun when all its places are there: two of the longest fit.
        depth = max(16, 2 << (params.max_targets - 1).bit_length())
        m.submodules.marks = marks = RamFifo(1, max(8, 2 * params.lookups))
        m.submodules.places = places = RamFifo(MAX_PLACE_BITS + 1, depth)
        m.submodules.verdicts = verdicts = RamFifo(1, depth)
        comes = Signal()
        bad = Signal()
        was_bad = Signal()
        translation = self.translation
        # A register before the RAMs; it holds one when `full` turns on, hence the margin below.
        w_en = Signal()
        w_place = Signal(MAX_PLACE_BITS)
        w_good = Signal()
        w_last = Signal()
        level = Signal(range(depth + 2))
        has_room = Signal()
        m.d.comb += [
            translation.ready.eq(marks.o.valid & has_room),
            comes.eq(translation.ready & translation.valid),
            marks.o.ready.eq(comes),
            marks.w_en.eq(self.mark_en),
            marks.w_data.eq(self.mark),
            self.mark_full.eq(marks.full),
            bad.eq(~w_good | was_bad),
            places.w_en.eq(w_en),
            places.w_data.eq(Cat(w_place, w_good)),
            verdicts.w_en.eq(w_en & w_last),
            verdicts.w_data.eq(bad),
            self.verdict_valid.eq(verdicts.o.valid),
            self.verdict_bad.eq(verdicts.o.payload),
            verdicts.o.ready.eq(self.verdict_take),
            self.valid.eq(places.o.valid),
            Cat(self.place, self.good).eq(places.o.payload),
            places.o.ready.eq(self.take),
        ]
        m.d.sync += [
            w_en.eq(comes),
            w_place.eq(translation.payload.address[4:]),
            w_good.eq(translation.payload.status == Status.OK),
            w_last.eq(marks.o.payload),
            level.eq(level + comes - self.take),
            has_room.eq(level < depth - 2),
        ]
        with m.If(w_en):
            m.d.sync += was_bad.eq(bad & ~w_last)
        return m
