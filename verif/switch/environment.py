# SPDX-License-Identifier: Apache-2.0
"""Runs a switch in a simulator: stimulus in, logs and registers out."""

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from math import ceil
from pathlib import Path

from dysharp.gen.writer import write_top
from dysharp.golden.arrays import IntArray
from dysharp.golden.packets import Packets
from dysharp.golden.switch import SwitchConfig
from dysharp.rtl.params import SwitchParams
from dysharp.rtl.register_map import COUNTERS, address_of, register_map
from dysharp.verif.lib.flit_files import FlitLog, read_log, write_stimulus
from dysharp.verif.lib.harness import SOURCES, write_harness
from dysharp.verif.lib.run import Build, SimulationError, build, simulate

from .scoreboard import Scoreboard

__all__ = ["Pace", "Phase", "PhaseResult", "SwitchEnvironment"]

_BENCH = "dysharp.verif.switch.bench_switch"


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How the receivers at the outputs behave (see ``sv/link_sink.sv``)."""

    depth: int = 64
    ready: int = 100
    burst: int = 0
    stall: int = 0
    stall_until: int = 0


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One stretch of a run, from a reset to the next.

    Parameters
    ----------
    inputs : Sequence[Packets]
        What each port sends.
    config : SwitchConfig
        How the registers are programmed.
    gaps, inner_gaps : Sequence, optional
        Per port: idle cycles before each packet, before each flit.
    forced : frozenset[int]
        Ports that send without regard to credits.
    cycles : int
        Time-out; also the way to cut a phase short.
    writes : Sequence[tuple[int, int]]
        More register writes.
    """

    inputs: Sequence[Packets]
    config: SwitchConfig
    gaps: Sequence[IntArray | None] | None = None
    inner_gaps: Sequence[IntArray | None] | None = None
    forced: frozenset[int] = frozenset()
    cycles: int = 200_000
    writes: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, kw_only=True)
class PhaseResult:
    """What a phase showed."""

    end: str
    """``done``, ``hang`` or ``cut``."""
    inputs: list[FlitLog]
    outputs: list[FlitLog]
    registers: dict[str, int] = field(repr=False)
    scoreboard: Scoreboard = field(repr=False)

    def problems(self) -> list[str]:
        """All that is not as the model says, a line each."""
        if self.end != "done":
            return [f"the simulation ended with {self.end}"]
        found = self.scoreboard.mismatches([log.flits for log in self.outputs])
        return found + self.scoreboard.counter_mismatches(self.registers)

    @property
    def cycles(self) -> int:
        """Cycles from the first flit in to the last flit out, both included."""
        begins = [int(log.cycles[0]) for log in self.inputs if len(log.cycles)]
        ends = [int(log.cycles[-1]) for log in self.outputs if len(log.cycles)]
        return max(ends) - min(begins) + 1 if begins and ends else 0


class SwitchEnvironment:
    """A switch that was generated and built for a simulator.

    Parameters
    ----------
    params : SwitchParams
        The switch.
    folder : Path
        Where generated files, builds and runs go.
    simulator : str
        ``verilator`` or ``icarus``.
    waves : bool
        Whether runs write a waveform.
    asserts : bool
        Whether assertions are checked.
    """

    def __init__(
        self,
        params: SwitchParams,
        folder: Path,
        *,
        simulator: str = "verilator",
        waves: bool = False,
        asserts: bool = True,
    ) -> None:
        self._params = params
        self._folder = folder
        self._waves = waves
        self._made = _build(params, folder, simulator, waves, asserts)

    @property
    def params(self) -> SwitchParams:
        """Parameters of the switch."""
        return self._params

    def run(
        self, phases: Sequence[Phase], *, name: str, seed: int, pace: Pace | None = None
    ) -> list[PhaseResult]:
        """Play `phases` and return what each showed.

        The files of the run are in ``<folder>/runs/<name>``.
        """
        params = self._params
        pace = pace or Pace()
        where = self._folder / "runs" / name
        shutil.rmtree(where, ignore_errors=True)
        for number, phase in enumerate(phases):
            for port, packets in enumerate(phase.inputs):
                write_stimulus(
                    where / f"stim{number}_{port}.bin",
                    packets,
                    phase.gaps[port] if phase.gaps else None,
                    inner_gaps=phase.inner_gaps[port] if phase.inner_gaps else None,
                    forced=port in phase.forced,
                )
        config = {
            "phases": [
                {
                    "writes": [*program(params, phase.config), *phase.writes],
                    "settle": params.gpus + 2 * pace.depth + params.ingress_depth,
                    "cycles": phase.cycles,
                    "poll": 256,
                    "quiet": 200,
                    "hang": 3000 + pace.stall_until,
                    "reads": _reads(params),
                }
                for phase in phases
            ]
        }
        simulate(
            self._made,
            module=_BENCH,
            folder=where,
            seed=seed,
            plusargs={
                "dir": where,
                "seed": seed,
                "depth": pace.depth,
                "ready": pace.ready,
                "burst": pace.burst,
                "stall": f"{pace.stall:x}",
                "stall_until": pace.stall_until,
            },
            config=config,
            waves=self._waves,
        )
        state = json.loads((where / "state.json").read_text())
        results = []
        for number, (phase, seen) in enumerate(zip(phases, state["phases"], strict=True)):
            if any(seen["write_errors"]):
                raise SimulationError(f"{where}: a register write ended with an error")
            ports = range(params.ports)
            inputs = [read_log(where / f"in{number}_{port}.log") for port in ports]
            outputs = [read_log(where / f"out{number}_{port}.log") for port in ports]
            whole = [log.packets for log in inputs] if seen["end"] == "done" else phase.inputs
            results.append(
                PhaseResult(
                    end=seen["end"],
                    inputs=inputs,
                    outputs=outputs,
                    registers=seen["registers"],
                    scoreboard=Scoreboard(params, phase.config, whole),
                )
            )
        return results

    def check(
        self, phase: Phase, *, name: str, seed: int, pace: Pace | None = None
    ) -> PhaseResult:
        """Play one phase and fail with all differences from the model.

        Raises
        ------
        AssertionError
            With the differences, and where the files of the run are.
        """
        result = self.run([phase], name=name, seed=seed, pace=pace)[0]
        problems = result.problems()
        if problems:
            where = self._folder / "runs" / name
            raise AssertionError("\n".join([f"seed {seed}, see {where}:", *problems[:20]]))
        return result


def program(params: SwitchParams, config: SwitchConfig) -> list[tuple[int, int]]:
    """Register writes that bring a switch from reset to `config`."""
    writes = []
    if params.dynamic:
        writes.append((address_of(params, "experts_per_gpu"), config.experts_per_gpu))
    writes += [
        (address_of(params, f"partition{port}"), partition)
        for port, partition in enumerate(config.partitions)
        if partition
    ]
    for group, mask in enumerate(config.groups):
        writes += [
            (address_of(params, f"group{group}_{word}"), mask >> 32 * word & 0xFFFF_FFFF)
            for word in range(ceil(params.gpus / 32))
            if mask
        ]
    return writes


def _reads(params: SwitchParams) -> dict[str, int]:
    names = tuple(counter.name for counter in COUNTERS)
    return {
        register.name: register.address
        for register in register_map(params)
        if register.name.startswith((*names, "fault"))
    }


@cache
def _build(
    params: SwitchParams, folder: Path, simulator: str, waves: bool, asserts: bool
) -> Build:
    key = json.dumps(dataclasses.asdict(params), sort_keys=True)
    out = folder / "rtl" / hashlib.sha256(key.encode()).hexdigest()[:12]
    design = write_top("switch", params, out)
    harness, control = write_harness(design.stem, params.ports, out)
    return build(
        [design, *SOURCES, harness],
        top="harness",
        folder=folder / "builds",
        simulator=simulator,
        control=[control],
        waves=waves,
        asserts=asserts,
    )
