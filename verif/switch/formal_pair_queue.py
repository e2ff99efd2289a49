# SPDX-License-Identifier: Apache-2.0
"""Properties of the pair queue's counters, with users that keep the rules."""

from typing import Any

from amaranth.hdl import Assert, Assume, Module, Signal
from dysharp.rtl.params import SwitchParams
from dysharp.rtl.switch.pair_queue import PairQueue

__all__ = ["ASSUMPTIONS", "PEEK", "PROPERTIES", "pair_queue_spec"]

PROPERTIES = 10
ASSUMPTIONS = 3
PEEK = {f"peek_{end}{vc}": f"dut.{end}_ptr{vc}" for end in "wr" for vc in range(2)}
"""Pointers inside: the induction needs to be told what they have to do with the entries held."""


def pair_queue_spec(params: SwitchParams, *, careless: bool = False) -> tuple[Module, list[Any]]:
    """Tell the truth about room, and never hold more than the depth, however long the queue runs.

    Parameters
    ----------
    params : SwitchParams
        The switch.
    careless : bool
        Let the reader pop from an empty queue; then a property must fail.
    """
    m = Module()
    m.submodules.dut = dut = PairQueue(params)
    depths = (params.request_depth, params.response_depth)
    # Entries held, and requests popped whose places were not written again.
    held = [Signal(range(depth + 2), name=f"held{vc}") for vc, depth in enumerate(depths)]
    behind = Signal(range(depths[0] + 1))

    writes = [dut.w_en & (dut.w_vc == vc) for vc in range(2)]
    pops = [dut.pop & (dut.pop_vc == vc) for vc in range(2)]
    for vc in range(2):
        back = dut.back if vc == 0 else 0
        m.d.sync += held[vc].eq(held[vc] + writes[vc] - pops[vc] + back)
    # A write takes the place of the request that was popped longest ago, when there is no other.
    takes_behind = writes[0] & (held[0] + behind == depths[0])
    m.d.sync += behind.eq(behind + pops[0] - dut.back - takes_behind)

    room = [~writes[vc] | (held[vc] + (dut.back if vc == 0 else 0) < depths[vc]) for vc in range(2)]
    m.d.comb += [
        Assume(room[0] & room[1]),
        Assume(((~pops[0] | (held[0] != 0)) & (~pops[1] | (held[1] != 0))) | careless),
        # A step back goes to a request that is still there after this cycle's write.
        Assume(~dut.back | (~dut.pop & (behind > takes_behind))),
        # Of this spec itself, for the induction.
        Assert(held[0] + behind <= depths[0]),
    ]
    limits, rooms = (dut.limit_request, dut.limit_response), (dut.room_request, dut.room_response)
    peeks = []
    for vc, depth in enumerate(depths):
        w_ptr, r_ptr = (Signal(range(2 * depth), name=f"peek_{end}{vc}") for end in "wr")
        peeks += [w_ptr, r_ptr]
        m.d.comb += [
            Assert((w_ptr - r_ptr)[: len(w_ptr)] == held[vc]),
            Assert(held[vc] <= depth),
            Assert(rooms[vc] == (held[vc] <= limits[vc])),
            Assert(dut.nonempty[vc] == (held[vc] != 0)),
        ]
    m.d.comb += Assert(dut.full_response == (held[1] == depths[1]))
    return m, [dut.w_en, dut.w_vc, dut.pop, dut.pop_vc, dut.back, *limits, *peeks]
