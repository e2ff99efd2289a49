# SPDX-License-Identifier: Apache-2.0
"""Properties of the ingress buffer's pointers and credits, with a reader that keeps the rules."""

from typing import Any

from amaranth.hdl import Assert, Assume, Module, Signal
from dysharp.rtl.switch.vc_buffer import VcBuffer

__all__ = ["ASSUMPTIONS", "PROPERTIES", "vc_buffer_spec"]

PROPERTIES = 7
"""Five here and two in the buffer: no flit is taken that is not there, no restart with a commit."""
ASSUMPTIONS = 2


def vc_buffer_spec(depth: int, *, promise: int = 0) -> tuple[Module, list[Any]]:
    """Room and credits are counted right; a flit is shown in time and only when it is there.

    Parameters
    ----------
    depth : int
        Flits.
    promise : int
        Credits that must be out at least when all that were handed out are not used; over `depth`
        it must fail.
    """
    m = Module()
    m.submodules.dut = dut = VcBuffer(depth)
    bits = range(2 * depth)  # positions modulo twice the depth: full and empty differ
    stored, start, read, marked, given = (
        Signal(bits, name=name) for name in ("stored", "start", "read", "marked", "given")
    )
    span = [Signal(bits, name=f"span{n}") for n in range(4)]
    m.d.comb += [
        span[0].eq(stored - start),
        span[1].eq(read - start),
        span[2].eq(given - start),
        span[3].eq(marked - start),
    ]
    write = dut.w_en & ~dut.full
    fresh = Signal(init=1)  # what was remembered is not left over from before a restart
    awake = Signal()  # the first cycle behind a reset is over
    m.d.sync += [stored.eq(stored + write), given.eq(given + dut.credit), awake.eq(1)]
    with m.If(dut.commit):
        m.d.sync += start.eq(marked)
    with m.If(dut.restart):
        m.d.sync += [read.eq(start), fresh.eq(0)]
    with m.Elif(dut.take):
        m.d.sync += read.eq(read + 1)
    with m.If(dut.mark):
        m.d.sync += marked.eq(read)
        with m.If(~dut.restart):
            m.d.sync += fresh.eq(1)
    # Cycles since the last write or restart: by the second one a flit must be shown.
    settled = Signal(2)
    m.d.sync += settled.eq(settled + (settled != 3))
    with m.If(write | dut.restart):
        m.d.sync += settled.eq(0)

    m.d.comb += [
        Assume(~dut.take | dut.r_valid),
        Assume(~dut.commit | (fresh & ~dut.restart)),
        Assert(dut.full == (span[0] == depth)),
        Assert(span[2] <= depth),
        Assert(dut.credit == (awake & (span[2] < depth))),
        # Nothing is shown that was not written.
        Assert(~dut.r_valid | (read != stored) | write),
        Assert((settled != 1) | (read == stored) | dut.r_valid),
    ]
    if promise:
        m.d.comb += Assert((span[2] < depth) | (span[2] >= promise))
    return m, [dut.w_en, dut.take, dut.restart, dut.mark, dut.commit]
