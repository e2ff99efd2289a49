# SPDX-License-Identifier: Apache-2.0
"""Event counters."""

from amaranth.hdl import Module, Signal, Value

__all__ = ["event_counter"]


def event_counter(m: Module, name: str, event: Value) -> Signal:
    """Count to 32 bits in two halves, so that the carry has two cycles for its way.

    The upper half follows the lower half by a cycle.
    """
    count = Signal(32, name=name)
    carry = Signal(name=f"{name}_carry")
    low, high = count[:16], count[16:]
    m.d.sync += carry.eq(event & low.all())
    with m.If(event):
        m.d.sync += low.eq(low + 1)
    with m.If(carry):
        m.d.sync += high.eq(high + 1)
    return count
