# SPDX-License-Identifier: Apache-2.0
"""Runs a system in a simulator: accesses and memory images in, results, logs and images out."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from dysharp.gen.writer import write_top
from dysharp.golden.arrays import IntArray
from dysharp.golden.moe import Segment
from dysharp.golden.packets import Packets
from dysharp.golden.programming import Programming
from dysharp.rtl.gpu_params import GpuParams
from dysharp.verif.lib.flit_files import FlitLog, read_log
from dysharp.verif.lib.run import Build, SimulationError, build, emptied, locked, simulate

from .driver import (
    BusAccess,
    Region,
    read_bus_log,
    read_cycles,
    read_dump,
    read_results,
    write_accesses,
    write_bus,
    write_dump_list,
    write_ordinary,
    write_segments,
)
from .harness import SETTINGS, SOURCES, Sizes, write_harness

__all__ = [
    "Settings",
    "Step",
    "StepResult",
    "SystemEnvironment",
    "program",
    "write_loads",
    "write_step",
    "zeros_of",
]

_BENCH = "dysharp.verif.system.bench_system"
_MAX_LATENCY = 1500
_BLOCKS = ("endpoint", "reduce_vector*")
"""Modules that occur once a GPU, or once a port of the switch."""
_SETTLE = 256


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the models around a system behave (``verif/lib/sv``).

    Parameters
    ----------
    read_min, read_max, write_min, write_max : int
        Latencies of the memory, in cycles.
    memory_percent : int
        In how many percent of the cycles it takes a read, and a write.
    table_min, table_max, table_percent : int
        The same for words of AL tables.
    shared_min, shared_max, global_min, global_max, list_percent : int
        The same for target lists.
    result_percent : int
        In how many percent of the cycles a result is taken.
    links : bool
        Whether the flits on the links are logged.
    """

    read_min: int = 40
    read_max: int = 60
    write_min: int = 20
    write_max: int = 40
    memory_percent: int = 100
    table_min: int = 40
    table_max: int = 80
    table_percent: int = 100
    shared_min: int = 4
    shared_max: int = 12
    global_min: int = 40
    global_max: int = 80
    list_percent: int = 100
    result_percent: int = 100
    links: bool = True

    def __post_init__(self) -> None:
        for name in ("read", "write", "table", "shared", "global"):
            low, high = getattr(self, f"{name}_min"), getattr(self, f"{name}_max")
            least = 1 if name in ("shared", "global", "table") else 2
            if not least <= low <= high <= _MAX_LATENCY:
                raise ValueError(
                    f"`{name}_min` and `{name}_max` must be {least} to {_MAX_LATENCY} in order, "
                    f"not {low!r} and {high!r}"
                )
        for name in ("memory", "table", "list", "result"):
            percent = getattr(self, f"{name}_percent")
            if not 1 <= percent <= 100:
                raise ValueError(f"`{name}_percent` must be 1 to 100, not {percent!r}")

    def line(self, seed: int) -> str:
        """Line of the settings' file."""
        values = {"seed": seed & 0x7FFF_FFFF, **dataclasses.asdict(self)}
        return " ".join(str(int(values[name])) for name in SETTINGS)

    @property
    def patience(self) -> int:
        """Cycles without a movement after which nothing more is to be expected."""
        return 400 + 2 * _MAX_LATENCY


@dataclass(frozen=True, kw_only=True)
class Step:
    """One stretch of a run: load, set registers, play to the end, read registers, dump.

    What the system and the memories have stays from step to step.

    Parameters
    ----------
    accesses : Sequence
        Per GPU: an array of :data:`.driver.ACCESS`, or None.
    ordinary : Sequence
        Per GPU: packets of ordinary loads and stores, or None.
    ordinary_gaps, ordinary_waits : Sequence
        Per GPU: of each packet, as in :func:`.driver.write_ordinary`.
    shared, global_ : Sequence
        Per GPU: bytes of the memories of target lists from address 0, or None for those before.
    loads : Sequence
        Per GPU: segments to be written into the memory.
    dumps : Sequence
        Per GPU: regions of the memory to be read at the end.
    writes : Sequence[BusAccess]
        Register accesses before the players begin.
    reads : Mapping[str, BusAccess]
        Register accesses after they have ended, by name.
    settings : Settings
        Behaviour of the models.
    cycles : int
        Time-out; also the way to cut a step short.
    files : Mapping[str, bytes]
        More files for the folder of the run, for `prepare`.
    prepare : str
        ``module:function``, called inside the simulator with the folder of the run and the number
        of the step before it begins. It may write the step's files anew (:func:`write_step`,
        :func:`write_loads`) from those that earlier steps have left.
    """

    accesses: Sequence[npt.NDArray[Any] | None] = ()
    ordinary: Sequence[Packets | None] = ()
    ordinary_gaps: Sequence[IntArray | None] = ()
    ordinary_waits: Sequence[IntArray | None] = ()
    shared: Sequence[npt.NDArray[np.uint8] | None] = ()
    global_: Sequence[npt.NDArray[np.uint8] | None] = ()
    loads: Sequence[Sequence[Segment]] = ()
    dumps: Sequence[Sequence[Region]] = ()
    writes: Sequence[BusAccess] = ()
    reads: Mapping[str, BusAccess] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    cycles: int = 1_000_000
    files: Mapping[str, bytes] = field(default_factory=dict)
    prepare: str = ""


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What a step showed; lists are per GPU."""

    end: str
    """``done``, ``hang`` or ``cut``."""
    start: int
    """Cycle in which the players began."""
    fault: bool
    """An endpoint has cut the switch off."""
    results: list[npt.NDArray[Any]] = field(repr=False)
    """Arrays of :data:`.driver.RESULT`."""
    issues: list[IntArray] = field(repr=False)
    """The cycle in which each access was taken."""
    answers: list[FlitLog] = field(repr=False)
    """Flits of the answers to ordinary requests."""
    up: list[FlitLog] = field(repr=False)
    """Flits to the switch."""
    down: list[FlitLog] = field(repr=False)
    """Flits from the switch."""
    dumps: list[list[Segment]] = field(repr=False)
    """Contents of the regions that were asked for."""
    registers: dict[str, int | None] = field(repr=False)
    """Values that were read; None if the access ended with an error."""

    @property
    def cycles(self) -> int:
        """Cycles from the players' begin to the last result."""
        last = [int(log["cycle"][-1]) for log in self.results if len(log)]
        return max(last) - self.start + 1 if last else 0


def program(todo: Programming, gpus: int) -> list[BusAccess]:
    """Return the register accesses of what the runtime asks for; hubs first."""
    writes = [
        BusAccess(device, address, value)
        for device in sorted(todo.hubs)
        for address, value in todo.hubs[device]
    ]
    return writes + [BusAccess(gpus, address, value) for address, value in todo.switch]


def zeros_of(todo: Programming, gpus: int) -> list[list[Segment]]:
    """Return the segments, per GPU, that the runtime wants to be zero; rounded up to 16 B."""
    segments: list[list[Segment]] = [[] for _ in range(gpus)]
    for device, address, size in todo.zeros:
        segments[device].append((address, np.zeros(-(-size // 16) * 16, np.uint8)))
    return segments


class SystemEnvironment:
    """A system that was generated and built for the simulator.

    Parameters
    ----------
    params : SystemParams
        The system.
    folder : Path
        Where generated files, builds and runs go.
    sizes : Sizes, optional
        How large the memories are.
    waves : bool
        Whether runs write a waveform.
    write : callable, optional
        Writes the design into a folder, in place of the system: a stub.
    optimise : int
        Of the C++ compiler, as in :func:`.run.build`.
    """

    def __init__(
        self,
        params: Any,
        folder: Path,
        *,
        sizes: Sizes | None = None,
        waves: bool = False,
        write: Callable[[Any, Path], Path] | None = None,
        optimise: int = 1,
    ) -> None:
        self._params = params
        self._folder = folder
        self._waves = waves
        self._gpu: GpuParams = params.gpu
        self._sizes = sizes or Sizes()
        self._made = _build(params, folder, self._sizes, waves, write or _write_system, optimise)

    @property
    def params(self) -> Any:
        """Parameters of the system."""
        return self._params

    @property
    def sizes(self) -> Sizes:
        """How large the memories are."""
        return self._sizes

    def where(self, name: str) -> Path:
        """Folder with the files of the run `name`."""
        return self._folder / "runs" / name

    def waveform(self, name: str) -> Path:
        """Waveform of the run `name`, if it writes one."""
        return self.where(name) / "dump.vcd"

    def run(self, steps: Sequence[Step], *, name: str, seed: int) -> list[StepResult]:
        """Play `steps` and return what each showed; those after a hang are left out.

        Raises
        ------
        SimulationError
            The simulation ended with an error, or a register write did.
        """
        where = self.where(name)
        with emptied(where):
            for number, step in enumerate(steps):
                self._check_sizes(step)
                write_step(where, number, step, self._gpu.gpus, seed)
            config = {
                "settle": _SETTLE + self._gpu.entries + self._gpu.hub_flits,
                "steps": [
                    {
                        "cycles": step.cycles,
                        "poll": 256,
                        "quiet": step.settings.patience // 8,
                        "hang": 6000 + step.settings.patience,
                        "prepare": step.prepare,
                    }
                    for step in steps
                ],
            }
            simulate(
                self._made,
                module=_BENCH,
                folder=where,
                seed=seed,
                plusargs={"dir": where},
                config=config,
                waves=self._waves,
            )
            state = json.loads((where / "state.json").read_text())
            return [
                self._result(where, number, steps[number], seen)
                for number, seen in enumerate(state["steps"])
            ]

    def _check_sizes(self, step: Step) -> None:
        for name in ("shared", "global_"):
            size = getattr(self._sizes, name)
            for image in getattr(step, name):
                if image is not None and not len(image) % 16 == 0 < len(image) <= size:
                    raise ValueError(
                        f"`{name}` must be a multiple of 16 B, {size} at most, not {len(image)}"
                    )

    def _result(self, where: Path, number: int, step: Step, seen: Mapping[str, Any]) -> StepResult:
        gpus = range(self._gpu.gpus)
        if any(error for _, error in read_bus_log(where / f"bus{number}_0.log")):
            raise SimulationError(f"{where}: a register write of step {number} ended with an error")
        values = read_bus_log(where / f"bus{number}_1.log")
        dumps: list[list[Segment]] = []
        for gpu in gpus:
            path = where / f"dump{number}_{gpu}"
            # Not what the step asked for at first, if it was prepared.
            regions = _regions(path.with_suffix(".list"))
            dumps.append(read_dump(path.with_suffix(".bin"), regions) if regions else [])
        return StepResult(
            end=seen["end"],
            start=seen["start"],
            fault=bool(seen["fault"]),
            results=[read_results(where / f"result{number}_{gpu}.log") for gpu in gpus],
            issues=[read_cycles(where / f"issue{number}_{gpu}.log") for gpu in gpus],
            answers=[read_log(where / f"answer{number}_{gpu}.log") for gpu in gpus],
            up=[read_log(where / f"up{number}_{gpu}.log") for gpu in gpus],
            down=[read_log(where / f"down{number}_{gpu}.log") for gpu in gpus],
            dumps=dumps,
            registers={
                name: None if error else value
                for name, (value, error) in zip(step.reads, values, strict=True)
            },
        )


def write_step(where: Path, number: int, step: Step, gpus: int, seed: int) -> None:
    """Write the files of a step; of a sequence that is empty, none."""
    (where / f"settings{number}.cfg").write_text(step.settings.line(seed) + "\n")
    write_bus(where / f"bus{number}_0.bin", step.writes)
    write_bus(where / f"bus{number}_1.bin", list(step.reads.values()))
    for name in ("accesses", "ordinary", "shared", "global_", "loads", "dumps"):
        given = getattr(step, name)
        if len(given) not in (0, gpus):
            raise ValueError(f"`{name}` must be of {gpus} GPUs, not {len(given)}")
    for name, content in step.files.items():
        (where / name).write_bytes(content)
    for gpu, accesses in enumerate(step.accesses):
        # An empty file would end like one that is not there.
        if accesses is not None and len(accesses):
            write_accesses(where / f"access{number}_{gpu}.bin", accesses)
    for gpu, packets in enumerate(step.ordinary):
        if packets is not None and len(packets):
            write_ordinary(
                where / f"ordinary{number}_{gpu}.bin",
                packets,
                step.ordinary_gaps[gpu] if step.ordinary_gaps else None,
                step.ordinary_waits[gpu] if step.ordinary_waits else None,
            )
    for kind, images in (("shared", step.shared), ("global", step.global_)):
        for gpu, image in enumerate(images):
            if image is not None:
                np.ascontiguousarray(image, np.uint8).tofile(where / f"{kind}{number}_{gpu}.bin")
    write_loads(where, number, step.loads)
    for gpu, regions in enumerate(step.dumps):
        write_dump_list(where / f"dump{number}_{gpu}.list", regions)


def write_loads(where: Path, number: int, loads: Sequence[Sequence[Segment]]) -> None:
    """Write what a step loads into each GPU's memory."""
    for gpu, segments in enumerate(loads):
        write_segments(where / f"load{number}_{gpu}.bin", segments)


def _regions(path: Path) -> list[Region]:
    if not path.exists():
        return []
    pairs = np.fromfile(path, ">u8").reshape(-1, 2).tolist()
    return [(address, size) for address, size in pairs]


def _write_system(params: Any, out: Path) -> Path:
    return write_top("system", params, out)


@cache
def _build(
    params: Any,
    folder: Path,
    sizes: Sizes,
    waves: bool,
    write: Callable[[Any, Path], Path],
    optimise: int,
) -> Build:
    key = json.dumps(
        [
            dataclasses.asdict(params),
            dataclasses.asdict(sizes),
            f"{write.__module__}.{write.__qualname__}",
        ],
        sort_keys=True,
        default=str,
    )
    out = folder / "rtl" / hashlib.sha256(key.encode()).hexdigest()[:12]
    with locked(out):
        design = write(params, out)
        harness, control = write_harness(design.stem, params.gpu, sizes, out)
        return build(
            [harness, *SOURCES, design],
            top="harness",
            folder=folder / "builds",
            control=[control],
            waves=waves,
            blocks=[f"{design.stem}_{name}" for name in _BLOCKS]
            if write is _write_system and not waves
            else [],
            optimise=optimise,
        )
