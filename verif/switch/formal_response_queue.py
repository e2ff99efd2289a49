# SPDX-License-Identifier: Apache-2.0
"""Properties of the response queue's counters, with users that keep the rules."""

from typing import Any, Literal

from amaranth.hdl import Assert, Assume, Module, Signal
from dysharp.rtl.params import SwitchParams
from dysharp.rtl.switch.response_queue import ResponseQueue

__all__ = ["ASSUMPTIONS", "PEEK", "PROPERTIES", "response_queue_spec"]

PROPERTIES = 9
"""Seven here and two in the queue: no flit is written while full, none taken that is not there."""
ASSUMPTIONS = 2
PEEK = {"peek_w": "dut.w_ptr", "peek_r": "dut.r_ptr"}
"""Pointers inside: the induction needs to be told what they have to do with the flits held."""


def response_queue_spec(
    params: SwitchParams, *, careless: Literal["writer", "reader"] | None = None
) -> tuple[Module, list[Any]]:
    """Lose nothing, hold no more than there is room for, and be full for no honest sender.

    Parameters
    ----------
    params : SwitchParams
        The switch.
    careless : str, optional
        Let this one write while the queue is full, or take what is not there; then a property must
        fail.
    """
    m = Module()
    m.submodules.dut = dut = ResponseQueue(params)
    depth = params.response_depth
    held = Signal(range(depth + 3))  # flits written and not taken: a word more than the RAM
    m.d.sync += held.eq(held + dut.w_en - dut.take)
    due = Signal()  # a flit was there a cycle ago, and was not taken then
    m.d.sync += due.eq(held != dut.take)

    w_ptr, r_ptr = (Signal(range(2 * depth), name=f"peek_{end}") for end in "wr")
    stored = Signal(range(2 * depth))
    m.d.comb += [
        stored.eq(w_ptr - r_ptr),
        Assume(~dut.w_en | ~dut.full | (careless == "writer")),
        Assume(~dut.take | dut.valid | (careless == "reader")),
        # Nothing is lost and nothing is written over.
        Assert(stored + dut.valid == held),
        Assert(stored <= depth),
        Assert(held <= depth + 1),
        Assert(dut.full == (stored == depth)),
        # A sender that holds a credit for each flit never finds it full.
        Assert(~dut.full | (held > depth)),
        # A flit is shown in time, and only when it is there.
        Assert(~due | dut.valid),
        Assert(~dut.valid | (held != 0)),
    ]
    return m, [dut.w_en, dut.take, w_ptr, r_ptr]
