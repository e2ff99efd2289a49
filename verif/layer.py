# SPDX-License-Identifier: Apache-2.0
"""Runs a whole MoE layer on the generated system: from instructions to memory, and back."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
from dysharp.gen.traces import Trace
from dysharp.golden.arrays import IntArray
from dysharp.golden.moe import MoeLayer, TwoGemms, from_float
from dysharp.golden.moe_bounds import far_from_exact
from dysharp.golden.moe_links import LinkFlits
from dysharp.golden.numerics import Bits
from dysharp.rtl.flits import FLIT_BYTES, DType, Order
from dysharp.rtl.hub_register_map import HUB_COUNTERS
from dysharp.rtl.system import SYSTEM_PRESETS, SystemParams

from .lib.progress import Progress, nothing, watched
from .lib.run import SimulationError
from .link_use import LinkUse
from .plan import PLACEMENTS, ReplayError, check_int
from .replay import switch_for
from .system.environment import Settings, StepResult, SystemEnvironment
from .system.harness import Sizes
from .system.moe_run import Mode, MoeRun

__all__ = ["DTYPES", "LayerResult", "make_layer", "run_layer", "system_for"]

DTYPES = {
    dtype.name.lower(): dtype
    for dtype in (DType.F32, DType.F16, DType.BF16, DType.F16_ACC32, DType.BF16_ACC32)
}
"""Types of a layer's numbers and sums, by name."""

_MAX_HIDDEN = 1 << 20
_MEMORIES = (1 << 20, 1 << 24, 1 << 26, 1 << 28, 1 << 30, 1 << 32)
_LISTS = (1 << 17, 1 << 20, 1 << 24)
"""Sizes are fixed when a simulator is built; few of them are enough to use builds again."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerResult:
    """What a run showed. All memories, AL maps and sums were as the golden model says.

    Parameters
    ----------
    params : SystemParams
        The system.
    layer : MoeLayer
        The work.
    mode : Mode
        What was done.
    links : Sequence[LinkFlits]
        For each step, what the links had to carry.
    steps : Sequence[StepResult]
        What each step showed.
    seconds : float
        Wall-clock time of the simulation, with its files, without the build.
    sums : ndarray or None
        Results of a combine, one row a token.
    """

    params: SystemParams
    layer: MoeLayer
    mode: Mode
    links: Sequence[LinkFlits]
    steps: Sequence[StepResult]
    seconds: float
    sums: npt.NDArray[Any] | None

    @property
    def cycles(self) -> list[int]:
        """Of each step, cycles from the first flit on a link to the last, both included."""
        return [last - first + 1 for first, last in map(_span, self.steps)]

    @property
    def names(self) -> list[str]:
        """What each step did."""
        if self.mode is Mode.SERIAL:
            return ["dispatch", "combine"]
        return [self.mode.value]

    def uses(self) -> list[LinkUse]:
        """When the links were in use, step by step."""
        return [
            LinkUse(
                name,
                cycles,
                [log.cycles - _span(step)[0] for log in step.up],
                [log.cycles - _span(step)[0] for log in step.down],
            )
            for name, cycles, step in zip(self.names, self.cycles, self.steps, strict=True)
        ]

    def figures(self) -> dict[str, Any]:
        """All figures as plain data; what they mean is in ``docs/run.md``."""
        ideal = [link.ideal_cycles for link in self.links]
        up, down = self._carried("up"), self._carried("down")
        cycles = sum(self.cycles)
        counters = {
            counter.name: sum(
                step.registers[f"{counter.name}{gpu}"] or 0
                for step in self.steps[-1:]
                for gpu in range(self.params.gpus)
            )
            for counter in HUB_COUNTERS
        }
        return {
            "efficiency": sum(ideal) / cycles,
            "ideal_cycles": sum(ideal),
            "measured_cycles": cycles,
            "bit_exact": True,
            "mode": self.mode.value,
            "tokens": len(self.layer.ids),
            "pairs": len(self.layer.token),
            "hidden": self.layer.hsize,
            "link_flits": int(up.sum() + down.sum()),
            "link_flits_per_s": float(up.sum() + down.sum()) / self.seconds,
            "planned_link_flits": int(sum(link.up.sum() + link.down.sum() for link in self.links)),
            **{f"hub_{name}": value for name, value in counters.items()},
            "tlb_hit_rate": counters["hits"] / max(1, counters["lookups"]),
            "steps": [
                {
                    "name": name,
                    "ideal_cycles": bound,
                    "measured_cycles": took,
                    "efficiency": bound / took,
                }
                for name, bound, took in zip(self.names, ideal, self.cycles, strict=True)
            ],
            "links": [
                {
                    "gpu": gpu,
                    "flits_up": int(up[gpu]),
                    "flits_down": int(down[gpu]),
                    "utilisation_up": float(up[gpu]) / cycles,
                    "utilisation_down": float(down[gpu]) / cycles,
                }
                for gpu in range(self.params.gpus)
            ],
        }

    def _carried(self, name: str) -> IntArray:
        """Flits that the monitors saw on each GPU's link, all steps together."""
        return np.array(
            [[len(log.flits) for log in getattr(step, name)] for step in self.steps]
        ).sum(axis=0)


def _span(step: StepResult) -> tuple[int, int]:
    """First and last cycle with a flit on a link."""
    logs = [log.cycles for log in (*step.up, *step.down) if len(log.cycles)]
    return min(int(log[0]) for log in logs), max(int(log[-1]) for log in logs)


def system_for(gpus: int, experts_per_gpu: int, top_k: int) -> SystemParams:
    """Return the preset ``default`` with other sizes, where it is too small for them.

    Raises
    ------
    ReplayError
        There is no such system.
    """
    switch = switch_for(gpus, 1, top_k)
    gpu = SYSTEM_PRESETS["default"].gpu
    try:
        return SystemParams(
            switch=switch,
            gpu=replace(
                gpu,
                gpus=gpus,
                experts=max(gpu.experts, experts_per_gpu),
                max_targets=switch.max_targets,
            ),
        )
    except ValueError as error:
        raise ReplayError(f"{gpus} GPUs with {experts_per_gpu} experts each: {error}") from error


def make_layer(
    trace: Trace,
    *,
    gpus: int,
    experts_per_gpu: int,
    hidden: int,
    dtype: Any = DType.BF16,
    placement: str = "interleaved",
    seed: int = 0,
) -> MoeLayer:
    """Make the layer of a trace, with random tokens.

    Parameters
    ----------
    trace : Trace
        Experts of each token, and weights; without, they are drawn.
    gpus, experts_per_gpu : int
        Size of the system.
    hidden : int
        Bytes of a token.
    dtype : DType
        One of :data:`DTYPES`.
    placement : str
        Token *t* belongs to GPU *t* mod N (``interleaved``), or each GPU has a run of neighbouring
        tokens (``blocked``).
    seed : int
        Of tokens and weights.

    Raises
    ------
    ReplayError
        A value is out of its range.
    """
    check_int("hidden", hidden, 1)
    check_int("seed", seed, 0)
    if hidden % FLIT_BYTES or hidden > _MAX_HIDDEN:
        raise ReplayError(
            f"`hidden` must be a multiple of {FLIT_BYTES} up to {_MAX_HIDDEN} bytes, not {hidden!r}"
        )
    if placement not in PLACEMENTS:
        raise ReplayError(f"`placement` must be one of {', '.join(PLACEMENTS)}, not {placement!r}")
    rng = np.random.default_rng(seed)
    number = np.arange(trace.tokens)
    weights = trace.weights
    if weights is None:
        weights = rng.random(trace.ids.shape, np.float32)
        weights /= weights.sum(axis=1, keepdims=True)
    elements = hidden // (4 if dtype is DType.F32 else 2)
    return MoeLayer(
        gpus=gpus,
        experts_per_gpu=experts_per_gpu,
        dtype=dtype,
        tokens=from_float(dtype, rng.standard_normal((trace.tokens, elements), np.float32)),
        sources=number % gpus if placement == "interleaved" else number * gpus // trace.tokens,
        ids=trace.ids,
        weights=weights.astype(np.float32),
    )


def run_layer(
    layer: MoeLayer,
    *,
    folder: Path,
    seed: int,
    latency_seed: int | None = None,
    mode: Mode = Mode.SERIAL,
    order: Any = Order.CANONICAL,
    presum: bool = True,
    posted: bool = False,
    at_once: int = 1,
    inner: int = 64,
    params: SystemParams | None = None,
    settings: Settings | None = None,
    sizes: Sizes | None = None,
    name: str = "layer",
    dump: Path | None = None,
    waves: bool = True,
    optimise: int = 1,
    progress: Progress | None = None,
) -> LayerResult:
    """Run a layer through the generated Verilog and check everything that it leaves.

    Parameters
    ----------
    layer : MoeLayer
        The work.
    folder : Path
        Generated files, builds and runs go there; builds are used again.
    seed : int
        Seed of the experts, and of all latencies without `latency_seed`.
    latency_seed : int, optional
        Seed of all latencies.
    mode : Mode
        What to do with it.
    order : Order
        Of the sums. In order of arrival their last bits depend on the timing, so they are compared
        with the exact sums within a bound; everything else is compared bit by bit.
    presum, posted, at_once
        As in :class:`.MoeRun` and :class:`.Issue`.
    inner : int
        Elements between the two matrices of an expert. They are computed outside the system.
    params : SystemParams, optional
        The system; by default :func:`system_for`.
    settings : Settings, optional
        Memories' latencies.
    sizes : Sizes, optional
        Memories' sizes; by default the next of a few that is large enough. The simulator is built
        anew for each.
    name : str
        Name of the run's folder.
    dump : Path, optional
        Folder for memory images, sums and the waveform.
    waves : bool
        Whether `dump` has a waveform; the simulator is built anew for it.
    optimise : int
        Of the C++ compiler, as in :func:`.run.build`.
    progress : Progress, optional
        Told what is under way.

    Raises
    ------
    ReplayError
        The layer does not fit the system.
    SimulationError
        Something was not as the golden model says.
    """
    tell = progress or nothing
    check_int("inner", inner, 1)
    check_int("at_once", at_once, 1)
    if not len(layer.token):
        raise ReplayError("the trace must have a token with an expert")
    params = params or system_for(layer.gpus, layer.experts_per_gpu, int(layer.counts.max()))
    if params.gpus != layer.gpus or int(layer.counts.max()) > params.gpu.max_targets:
        raise ReplayError("the layer does not fit `params`")
    tell("computing the experts")
    elements = layer.tokens.shape[1]
    outputs = layer.outputs(TwoGemms(layer.experts, elements, inner, seed))
    sizes = sizes or _sizes(layer, mode)
    run = MoeRun(
        layer,
        outputs,
        params,
        memory=sizes.memory,
        mode=mode,
        presum=presum,
        settings=settings,
        order=order,
        posted=posted,
        at_once=at_once,
    )
    tell("generating and building the system")
    environment = SystemEnvironment(
        params, folder, sizes=sizes, waves=waves and dump is not None, optimise=optimise
    )
    tell("simulating")
    links = run.links
    total = sum(int(link.up.sum() + link.down.sum()) for link in links)
    begin = perf_counter()
    with watched(environment.where(name), "[ud][po]*_*.log", total, tell):
        steps = environment.run(
            run.steps(), name=name, seed=seed if latency_seed is None else latency_seed
        )
    seconds = perf_counter() - begin
    tell("checking every memory and every sum")
    problems = run.problems(steps)
    has_sums = mode is not Mode.DISPATCH
    sums = run.sums(steps) if has_sums and not problems else None
    if sums is not None and order is Order.ARRIVAL:
        far = int(far_from_exact(layer, outputs, sums).sum())
        problems = [f"combine: {far} elements are too far from the exact sums"] if far else []
    if dump is not None:
        _dump(dump, environment.waveform(name), steps, sums)
    if problems:
        raise SimulationError(
            f"{len(problems)} differences from the golden model, the first: {problems[0]}; "
            f"seed {seed}, see {environment.where(name)}"
        )
    return LayerResult(
        params=params,
        layer=layer,
        mode=mode,
        links=links,
        steps=steps,
        seconds=seconds,
        sums=sums,
    )


def _sizes(layer: MoeLayer, mode: Mode) -> Sizes:
    """Return memories that are large enough, of few different sizes."""
    objects = 2 if mode is Mode.TOGETHER else 1
    rows = layer.nactive.reshape(layer.gpus, -1).sum(axis=1).max()
    slack = 3 * 256 * layer.experts_per_gpu
    wanted = int(2 * rows * layer.hsize + 4 * len(layer.ids) * layer.experts_per_gpu + slack)
    lists = np.zeros(layer.gpus, np.int64)
    np.add.at(lists, layer.sources, -(-2 * layer.counts // FLIT_BYTES) * FLIT_BYTES)
    return Sizes(
        memory=_fitting("memory", objects * wanted, _MEMORIES),
        shared=_fitting("target lists", objects * int(lists.max()), _LISTS),
    )


def _fitting(name: str, wanted: int, sizes: Sequence[int]) -> int:
    for size in sizes:
        if wanted <= size:
            return size
    raise ReplayError(f"the {name} of a GPU must be {sizes[-1]} bytes at most, not {wanted}")


def _dump(folder: Path, wave: Path, steps: Sequence[StepResult], sums: Bits | None) -> None:
    """Write memory images (an array a region, named by its address), sums and the waveform."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, step in enumerate(steps):
            for gpu, dump in enumerate(step.dumps):
                arrays: dict[str, Any] = {f"{address:#x}": content for address, content in dump}
                np.savez_compressed(folder / f"memory_step{number}_gpu{gpu}.npz", **arrays)
        if sums is not None:
            np.save(folder / "sums.npy", sums)
        if wave.exists():
            shutil.copy(wave, folder / "waves.vcd")
    except OSError as error:
        raise ReplayError(f"cannot write {folder}: {error.strerror}") from error
