# SPDX-License-Identifier: Apache-2.0
"""Properties of the arbiter.

Together they tell all about fairness, although the second proof looks at some cycles after reset
only: a cycle without ``advance`` changes nothing (first proof), and the one thing that a cycle with
``advance`` leaves behind is who was served, which one cycle brings to any value.
"""

from typing import Any

from amaranth.hdl import Assert, Module, Mux, Signal
from dysharp.rtl.common.round_robin import RoundRobin

__all__ = ["GRANT_PROPERTIES", "fair_spec", "grant_spec"]

GRANT_PROPERTIES = 4
"""Assertions of :func:`grant_spec`; :func:`fair_spec` has one for every requester."""


def grant_spec(count: int) -> tuple[Module, list[Any]]:
    """One-hot grants for who asks, whenever somebody asks; they stay without ``advance``."""
    m = Module()
    m.submodules.dut = dut = RoundRobin(count)
    stays = Signal()
    request, grant = Signal(count), Signal(count)
    m.d.sync += [stays.eq(~dut.advance), request.eq(dut.request), grant.eq(dut.grant)]
    m.d.comb += [
        Assert((dut.grant & (dut.grant - 1)) == 0),
        Assert((dut.grant & ~dut.request) == 0),
        Assert(dut.grant.any() == dut.request.any()),
        Assert(~(stays & (request == dut.request)) | (grant == dut.grant)),
    ]
    return m, [dut.request, dut.advance]


def fair_spec(count: int, longest: int) -> tuple[Module, list[Any]]:
    """Nobody who holds a request sees more than `longest` others served."""
    m = Module()
    m.submodules.dut = dut = RoundRobin(count)
    for n in range(count):
        waits = Signal(range(count + 2), name=f"waits{n}")
        late = dut.request[n] & ~dut.grant[n]
        with m.If(~late):
            m.d.sync += waits.eq(0)
        with m.Elif(dut.advance):
            m.d.sync += waits.eq(Mux(waits > count, waits, waits + 1))
        # `waits` counts the cycles before this one.
        m.d.comb += Assert(~late | ~dut.advance | (waits < longest))
    return m, [dut.request, dut.advance]
