# SPDX-License-Identifier: Apache-2.0
"""Runs a switch in a simulator: stimulus in, logs and registers out."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from math import ceil
from pathlib import Path

import numpy as np
from dysharp.gen.writer import write_top
from dysharp.golden.arrays import IntArray
from dysharp.golden.flits import packet_flits
from dysharp.golden.packets import Packets
from dysharp.golden.switch import SwitchConfig
from dysharp.rtl.params import SwitchParams
from dysharp.rtl.reduce.layouts import TICK_CYCLES
from dysharp.rtl.register_map import COUNTERS, address_of, register_map
from dysharp.verif.lib.flit_files import FlitLog, read_log, write_stimulus
from dysharp.verif.lib.harness import SOURCES, write_harness
from dysharp.verif.lib.responder import Responder, write_responder
from dysharp.verif.lib.run import Build, SimulationError, build, emptied, locked, simulate

from .scoreboard import Scoreboard

__all__ = ["PACES", "Pace", "Phase", "PhaseResult", "SwitchEnvironment"]

_BENCH = "dysharp.verif.switch.bench_switch"


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How the receivers at the outputs behave (see ``sv/link_sink.sv``)."""

    depth: int = 64
    ready: int = 100
    burst: int = 0
    stall: int = 0
    stall_until: int = 0

    @property
    def patience(self) -> int:
        """Cycles without a flit after which nothing more is to be expected of a receiver."""
        return 200 + self.stall_until + 4000 * self.burst // max(1, self.ready)


PACES = {
    "none": Pace(),
    "light": Pace(ready=90),
    "heavy": Pace(ready=50),
    "bursty": Pace(ready=70, burst=16),
}
"""Classes of back-pressure."""


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
    probes : Sequence[tuple[int, int | None]]
        Accesses after those, for their answers: address, and data to write or None to read.
    cut : Mapping[int, int]
        Ports whose sender stops for good after so many flits. The switch must fill the packet that
        it leaves open with zero flits, so these are expected.
    responder : Responder, optional
        How the GPUs answer requests; without, they do not.
    tags : bool
        Senders hold back a multicast request while its tag is in use.
    checker : callable, optional
        Finds all that is wrong with the result, in place of the scoreboard.
    """

    inputs: Sequence[Packets]
    config: SwitchConfig
    gaps: Sequence[IntArray | None] | None = None
    inner_gaps: Sequence[IntArray | None] | None = None
    forced: frozenset[int] = frozenset()
    cycles: int = 200_000
    writes: Sequence[tuple[int, int]] = ()
    probes: Sequence[tuple[int, int | None]] = ()
    cut: Mapping[int, int] = field(default_factory=dict)
    responder: Responder | None = None
    tags: bool = False
    checker: "Callable[[PhaseResult], list[str]] | None" = None


@dataclass(frozen=True, kw_only=True)
class PhaseResult:
    """What a phase showed."""

    params: SwitchParams
    phase: Phase = field(repr=False)
    end: str
    """``done``, ``hang`` or ``cut``."""
    inputs: list[FlitLog]
    """All that went to the switch: what was played, and the answers of responders between it."""
    outputs: list[FlitLog]
    registers: dict[str, int] = field(repr=False)
    probes: list[tuple[int, bool]] = field(repr=False)
    """Value and error flag of each probe."""

    @cached_property
    def received(self) -> list[Packets]:
        """What the switch received on every link, in whole packets.

        With the end that it adds when a sender stops; what was to be sent, after a hang.
        """
        if self.end != "done":
            return list(self.phase.inputs)
        return [
            _completed(log) if port in self.phase.cut else log.packets
            for port, log in enumerate(self.inputs)
        ]

    @cached_property
    def scoreboard(self) -> Scoreboard:
        """The model's view of what the switch received."""
        return Scoreboard(self.params, self.phase.config, self.received)

    def problems(self) -> list[str]:
        """All that is not as the model says, a line each."""
        if self.end != "done":
            return [f"the simulation ended with {self.end}"]
        if self.phase.checker is not None:
            return self.phase.checker(self)
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
    initial_values : bool
        Whether registers and memories begin with what Amaranth assumes; without, with X on Icarus.
    """

    def __init__(
        self,
        params: SwitchParams,
        folder: Path,
        *,
        simulator: str = "verilator",
        waves: bool = False,
        asserts: bool = True,
        initial_values: bool = True,
    ) -> None:
        self._params = params
        self._folder = folder
        self._simulator = simulator
        self._waves = waves
        self._made = _build(params, folder, simulator, waves, asserts, initial_values)

    @property
    def params(self) -> SwitchParams:
        """Parameters of the switch."""
        return self._params

    def where(self, name: str) -> Path:
        """Folder with the files of the run `name`."""
        return self._folder / "runs" / name

    def waveform(self, name: str) -> Path:
        """Waveform of the run `name`, if it writes one."""
        if self._simulator == "verilator":
            return self.where(name) / "dump.vcd"
        return self._made.folder / "harness.fst"

    def run(
        self,
        phases: Sequence[Phase],
        *,
        name: str,
        seed: int,
        pace: Pace | None = None,
        trace: bool = False,
    ) -> list[PhaseResult]:
        """Play `phases` and return what each showed.

        The files of the run are in :meth:`where`; with `trace` there is a ``trace.log`` too
        (:mod:`dysharp.verif.lib.trace`).
        """
        where = self.where(name)
        with emptied(where):
            return self._run(phases, where, seed, pace or Pace(), trace)

    def _run(
        self, phases: Sequence[Phase], where: Path, seed: int, pace: Pace, trace: bool
    ) -> list[PhaseResult]:
        params = self._params
        for number, phase in enumerate(phases):
            for port, packets in enumerate(phase.inputs):
                write_stimulus(
                    where / f"stim{number}_{port}.bin",
                    packets,
                    phase.gaps[port] if phase.gaps else None,
                    inner_gaps=phase.inner_gaps[port] if phase.inner_gaps else None,
                    forced=port in phase.forced,
                    tags=phase.tags,
                    flits=phase.cut.get(port),
                )
            if phase.responder is not None:
                write_responder(where, number, phase.responder, seed)
        config = {
            "phases": [
                {
                    "writes": [*program(params, phase.config), *phase.writes],
                    # Credits and, in the switch, thresholds and entries.
                    "settle": params.gpus
                    + 2 * pace.depth
                    + params.ingress_depth
                    + params.response_depth
                    + params.entries,
                    "cycles": phase.cycles,
                    "probes": phase.probes,
                    "poll": 256,
                    "quiet": _patience(params, phase, pace),
                    "hang": 3000 + _patience(params, phase, pace),
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
                "trace": int(trace),
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
            results.append(
                PhaseResult(
                    params=params,
                    phase=phase,
                    end=seen["end"],
                    inputs=inputs,
                    outputs=outputs,
                    registers=seen["registers"],
                    probes=[tuple(probe) for probe in seen["probes"]],
                )
            )
        return results

    def check(self, phase: Phase, *, name: str, seed: int, pace: Pace | None = None) -> PhaseResult:
        """Play one phase and fail with all differences from the model.

        Raises
        ------
        AssertionError
            With the differences, and where the files of the run are.
        """
        result = self.run([phase], name=name, seed=seed, pace=pace)[0]
        problems = result.problems()
        if problems:
            lines = [f"seed {seed}, see {self.where(name)}:", *problems[:20]]
            raise AssertionError("\n".join(lines))
        return result


def _completed(log: FlitLog) -> Packets:
    """Return what a monitor saw, with the end that the switch adds when a sender stops."""
    sizes = packet_flits(log.flits).tolist()
    size = 0
    while size < len(log.flits):
        size += sizes[size]
    filling = np.zeros((size - len(log.flits), 2), dtype=np.uint64)
    return Packets(np.concatenate([log.flits, filling]))


def _patience(params: SwitchParams, phase: Phase, pace: Pace) -> int:
    """Cycles without a flit after which nothing more is to be expected."""
    cycles = pace.patience
    if phase.cut:
        cycles += params.rx_timeout
    if phase.responder is not None:
        cycles += phase.responder.delay_max
    ticks = dict([*program(params, phase.config), *phase.writes]).get(_timeout(params), 0)
    if ticks:
        cycles += TICK_CYCLES * (ticks + 2) + 2 * params.entries
    return cycles


def _timeout(params: SwitchParams) -> int:
    """Address of the register with the time-out of reduction entries."""
    return address_of(params, "timeout")


def program(params: SwitchParams, config: SwitchConfig) -> list[tuple[int, int]]:
    """Register writes that bring a switch from reset to `config`."""
    writes = []
    if params.dynamic:
        writes.append((address_of(params, "experts_per_gpu"), config.experts_per_gpu))
    if config.timeout:
        writes.append((_timeout(params), config.timeout))
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
        if register.name.startswith((*names, "fault", "armed"))
    }


@cache
def _build(
    params: SwitchParams,
    folder: Path,
    simulator: str,
    waves: bool,
    asserts: bool,
    initial_values: bool,
) -> Build:
    key = json.dumps([dataclasses.asdict(params), initial_values], sort_keys=True)
    out = folder / "rtl" / hashlib.sha256(key.encode()).hexdigest()[:12]
    with locked(out):
        design = write_top("switch", params, out, initial_values=initial_values)
        harness, control = write_harness(design.stem, params, out)
        return build(
            [harness, *SOURCES, design],
            top="harness",
            folder=folder / "builds",
            simulator=simulator,
            control=[control],
            waves=waves,
            asserts=asserts,
        )
