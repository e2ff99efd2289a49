# SPDX-License-Identifier: Apache-2.0
"""Properties of the request queue's counters, with users that keep the rules."""

from typing import Any

from amaranth.hdl import Assert, Assume, Module, Signal
from dysharp.rtl.params import SwitchParams
from dysharp.rtl.switch.request_queue import RequestQueue

__all__ = ["ASSUMPTIONS", "PEEK", "PROPERTIES", "request_queue_spec"]

PROPERTIES = 5
ASSUMPTIONS = 3
PEEK = {"peek_w": "dut.w_ptr", "peek_r": "dut.r_ptr"}
"""Pointers inside: the induction needs to be told what they have to do with the entries held."""


def request_queue_spec(params: SwitchParams, *, careless: bool = False) -> tuple[Module, list[Any]]:
    """Tell the truth about room, and never hold more than the depth, however long the queue runs.

    Parameters
    ----------
    params : SwitchParams
        The switch.
    careless : bool
        Let the reader pop from an empty queue; then a property must fail.
    """
    m = Module()
    m.submodules.dut = dut = RequestQueue(params)
    depth = params.request_depth
    # Entries held, and entries popped whose places were not written again.
    held = Signal(range(depth + 2))
    behind = Signal(range(depth + 1))

    m.d.sync += held.eq(held + dut.w_en - dut.pop + dut.back)
    # A write takes the place of the entry that was popped longest ago, when there is no other.
    takes_behind = dut.w_en & (held + behind == depth)
    m.d.sync += behind.eq(behind + dut.pop - dut.back - takes_behind)

    w_ptr, r_ptr = (Signal(range(2 * depth), name=f"peek_{end}") for end in "wr")
    m.d.comb += [
        Assume(~dut.w_en | (held + dut.back < depth)),
        Assume(~dut.pop | (held != 0) | careless),
        # A step back goes to an entry that is still there after this cycle's write.
        Assume(~dut.back | (~dut.pop & (behind > takes_behind))),
        # Of this spec itself, for the induction.
        Assert(held + behind <= depth),
        Assert((w_ptr - r_ptr)[: len(w_ptr)] == held),
        Assert(held <= depth),
        Assert(dut.room == (held <= dut.limit)),
        Assert(dut.nonempty == (held != 0)),
    ]
    return m, [dut.w_en, dut.pop, dut.back, dut.limit, w_ptr, r_ptr]
