# SPDX-License-Identifier: Apache-2.0
"""Cycle traces: all ports of a design at every clock edge, and their replay in pysim.

The harness writes one line per clock edge with the values just before it, in hexadecimal, below a
line with the names of the ports.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amaranth.hdl import ClockDomain, Module, Value
from amaranth.lib.wiring import Component, Flow
from amaranth.sim import Simulator
from dysharp.gen.elaborate import port_name

__all__ = ["Trace", "read_trace", "replay"]


@dataclass(frozen=True)
class Trace:
    """Values of all ports in every cycle.

    Parameters
    ----------
    names : tuple[str, ...]
        The ports, ``rst`` first.
    rows : list[tuple[str, ...]]
        One row per clock edge, hexadecimal; ``x`` and ``z`` stand for bits that are unknown.
    """

    names: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def column(self, name: str) -> list[str]:
        """All values of one port."""
        index = self.names.index(name)
        return [row[index] for row in self.rows]

    def unknown(self, name: str, qualifier: str | None = None) -> list[int]:
        """Cycles after reset in which a port has unknown bits, or only those with `qualifier`."""
        valid = self.column(qualifier) if qualifier else ["1"] * len(self.rows)
        reset = self.column("rst")
        began = reset.index("1")  # nothing is known before the first reset
        return [
            cycle
            for cycle, value in enumerate(self.column(name))
            if cycle > began
            and reset[cycle] == "0"
            and valid[cycle] != "0"
            and set(value.lower()) & set("xz")
        ]


def read_trace(path: Path) -> Trace:
    """Read a ``trace.log``."""
    lines = path.read_text().splitlines()
    return Trace(tuple(lines[0].split()), [tuple(line.split()) for line in lines[1:]])


def replay(component: Component, trace: Trace) -> list[str]:
    """Drive a component in Amaranth's simulator with the inputs of a trace, from time 0.

    Returns
    -------
    list[str]
        Every output that differs from the trace in any cycle, at most 20.
    """
    domain = ClockDomain("sync")
    module = Module()
    module.domains.sync = domain
    module.submodules.dut = component
    inputs: dict[str, Any] = {"rst": domain.rst}
    outputs: dict[str, Any] = {}
    for path, member, value in component.signature.flatten(component):
        (inputs if member.flow is Flow.In else outputs)[port_name(path)] = Value.cast(value)
    wrong: list[str] = []

    async def testbench(ctx: Any) -> None:
        before: dict[str, str] = {}
        for cycle, row in enumerate(trace.rows):
            values = dict(zip(trace.names, row, strict=True))
            for name, signal in inputs.items():
                if values[name] != before.get(name):
                    ctx.set(signal, int(values[name], 16))
            before = values
            wrong.extend(_differences(cycle, values, {n: ctx.get(s) for n, s in outputs.items()}))
            if len(wrong) >= 20:
                return
            await ctx.tick()

    simulator = Simulator(module)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
    return wrong[:20]


def _differences(cycle: int, wanted: Mapping[str, str], got: Mapping[str, int]) -> Iterator[str]:
    for name, value in got.items():
        if value != int(wanted[name], 16):
            yield f"cycle {cycle}: {name} is {value:x}, not {wanted[name]}"
