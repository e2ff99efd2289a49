# SPDX-License-Identifier: Apache-2.0
"""The pruner against a naive one, for every flit, mask and fill."""

from typing import Any

from amaranth.hdl import Array, Assert, Assume, Module, Signal
from dysharp.rtl.flits import LANES
from dysharp.rtl.switch.pruner import Pruner

__all__ = ["ASSUMPTIONS", "PROPERTIES", "pruner_spec"]

PROPERTIES = 2 * LANES + 2
ASSUMPTIONS = 1


def pruner_spec(*, slip: int = 0) -> tuple[Module, list[Any]]:
    """Every chosen lane is where counting the chosen ones below it puts it.

    Parameters
    ----------
    slip : int
        Look for the lanes so many places further on; other than 0 must fail.
    """
    m = Module()
    m.submodules.dut = dut = Pruner()
    below = 0  # chosen lanes so far
    out = Array(dut.o_flit[lane] for lane in range(LANES))
    low = high = 0
    for lane in range(LANES):
        place = Signal(range(2 * LANES), name=f"place{lane}")
        chosen = dut.chosen[lane]
        m.d.comb += [
            place.eq(dut.fill + below),
            Assert(~chosen | dut.straight | (out[(place + slip)[:3]] == dut.i_flit[lane])),
            Assert(~dut.straight | (dut.o_flit[lane] == dut.i_flit[lane])),
        ]
        low = low | ((chosen & (place < LANES)) << place[:3])
        high = high | ((chosen & (place >= LANES)) << place[:3])
        below = below + chosen
    m.d.comb += [
        Assume(dut.count == below),
        Assert(dut.straight | (dut.low == low)),
        Assert(dut.straight | (dut.high == high)),
    ]
    return m, [dut.i_flit.as_value(), dut.chosen, dut.straight, dut.fill, dut.count]
