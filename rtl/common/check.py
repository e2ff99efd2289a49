# SPDX-License-Identifier: Apache-2.0
"""Assertions beside the RTL, written through one helper."""

from amaranth.hdl import Assert, Module, ResetSignal, Value

__all__ = ["check"]


def check(m: Module, platform: object, condition: Value, message: str) -> None:
    """Assert `condition` at every clock edge outside reset.

    It is sampled at the edge, so that a simulator does not trip over a value that is not settled.

    Assertions are written for simulation only: with ``platform="synthesis"`` nothing is added.
    """
    if platform == "synthesis":
        return
    with m.If(~ResetSignal()):
        m.d.sync += Assert(condition, message)
