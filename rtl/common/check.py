# SPDX-License-Identifier: Apache-2.0
"""Assertions beside the RTL, written through one helper."""

from amaranth.hdl import Assert, Module, ResetSignal, Value

__all__ = ["check"]


def check(m: Module, platform: object, condition: Value, message: str) -> None:
    """Assert `condition` in every cycle outside reset.

    Assertions are written for simulation only: with ``platform="synthesis"`` nothing is added.
    """
    if platform == "synthesis":
        return
    with m.If(~ResetSignal()):
        m.d.comb += Assert(condition, message)
