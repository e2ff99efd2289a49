# SPDX-License-Identifier: Apache-2.0
"""List pruner: moves chosen lanes of a flit next to each other, without changing their order."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import prefix_counts, prefix_or
from ..flits import EXTENSION, LANES

__all__ = ["Pruner"]

_INDEX_BITS = (LANES - 1).bit_length()


class Pruner(wiring.Component):
    """Compacts the chosen lanes of a flit to the lanes ``fill``, ``fill + 1``, ... modulo 8.

    Three columns of multiplexers (a butterfly, lowest distance first). Lanes that keep their order
    and go to neighbouring places never meet in one multiplexer, so every choice can be routed.

    Members
    -------
    i_flit : In
        The flit.
    chosen : In(8)
        The lanes to keep.
    straight : In(1)
        Pass the flit through unchanged; ``chosen`` is ignored.
    fill : In(3)
        The place of the first chosen lane.
    o_flit : Out
        Lanes that no chosen lane goes to are undefined, unless ``straight``.
    low : Out(8)
        Places that are filled without going round, that is ``fill`` and up.
    high : Out(8)
        Places that are filled after going round past lane 7.
    count : In(4)
        Number of chosen lanes.

    Timing
    ------
    Combinational.

    Area
    ----
    24 multiplexers of 16 bits.
    """

    i_flit: In(EXTENSION)
    chosen: In(LANES)
    straight: In(1)
    fill: In(_INDEX_BITS)
    o_flit: Out(EXTENSION)
    low: Out(LANES)
    high: Out(LANES)
    count: In(_INDEX_BITS + 1)

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        lanes = list(self.i_flit)
        valids, places = [], []
        ranks = prefix_counts(self.chosen)
        for lane in range(LANES):
            place = Signal(_INDEX_BITS, name=f"place{lane}")
            m.d.comb += place.eq(self.fill + ranks[lane])
            valids.append(self.chosen[lane] & ~self.straight)
            places.append(place)
        for column in range(_INDEX_BITS):
            distance = 1 << column
            swaps = []
            for lane in range(LANES):
                mate = lane ^ distance
                # Take the mate's word when it wants to be on this side.
                swap = Signal(name=f"swap{column}_{lane}")
                wants = places[mate][column] == (lane >> column & 1)
                m.d.comb += swap.eq(valids[mate] & wants)
                swaps.append(swap)
            sides = [places[lane][column] == (lane >> column & 1) for lane in range(LANES)]
            mates = [lane ^ distance for lane in range(LANES)]
            lanes, valids, places = (
                [Mux(swaps[lane], lanes[mates[lane]], lanes[lane]) for lane in range(LANES)],
                [swaps[lane] | (valids[lane] & sides[lane]) for lane in range(LANES)],
                [Mux(swaps[lane], places[mates[lane]], places[lane]) for lane in range(LANES)],
            )
        end = self.fill + self.count
        begun = prefix_or(Cat(self.fill == lane for lane in range(LANES)))
        for lane in range(LANES):
            m.d.comb += [
                self.o_flit[lane].eq(lanes[lane]),
                self.low[lane].eq(begun[lane] & (end > lane)),
                self.high[lane].eq(end > lane + LANES),
            ]
        return m
