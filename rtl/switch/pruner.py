# SPDX-License-Identifier: Apache-2.0
"""List pruner: moves chosen lanes of a flit next to each other, without changing their order."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import popcount
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
    count : Out(4)
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
    count: Out(_INDEX_BITS + 1)

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        m.d.comb += self.count.eq(popcount(self.chosen))

        layout = data.StructLayout({"valid": 1, "round": 1, "place": _INDEX_BITS})
        lanes = []
        tags = []
        for lane in range(LANES):
            tag = Signal(layout, name=f"tag{lane}")
            place = self.fill + (popcount(self.chosen[:lane]) if lane else 0)
            m.d.comb += [
                tag.valid.eq(self.chosen[lane] & ~self.straight),
                Cat(tag.place, tag.round).eq(place),
            ]
            lanes.append(self.i_flit[lane])
            tags.append(tag)
        for column in range(_INDEX_BITS):
            distance = 1 << column
            nxt_lanes, nxt_tags = [], []
            for lane in range(LANES):
                mate = lane ^ distance
                # Take the mate's word when it wants to be on this side.
                swap = Signal(name=f"swap{column}_{lane}")
                wants = tags[mate].place[column] == (lane >> column & 1)
                m.d.comb += swap.eq(tags[mate].valid & wants)
                tag = Signal(layout, name=f"tag{column}_{lane}")
                stays = tags[lane].place[column] == (lane >> column & 1)
                m.d.comb += [
                    tag.valid.eq(swap | (tags[lane].valid & stays)),
                    tag.round.eq(Mux(swap, tags[mate].round, tags[lane].round)),
                    tag.place.eq(Mux(swap, tags[mate].place, tags[lane].place)),
                ]
                nxt_lanes.append(Mux(swap, lanes[mate], lanes[lane]))
                nxt_tags.append(tag)
            lanes, tags = nxt_lanes, nxt_tags
        for lane in range(LANES):
            m.d.comb += [
                self.o_flit[lane].eq(lanes[lane]),
                self.low[lane].eq(tags[lane].valid & ~tags[lane].round),
                self.high[lane].eq(tags[lane].valid & tags[lane].round),
            ]
        return m
