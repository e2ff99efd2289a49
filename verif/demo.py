# SPDX-License-Identifier: Apache-2.0
"""The main job on the preset ``default``: Verilog, a check, area, and a trace on the RTL."""

from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from dysharp.gen.traces import synthetic_trace, write_trace
from dysharp.gen.writer import write_top
from dysharp.golden.flits import unpack_field
from dysharp.rtl.flits import Stage
from dysharp.rtl.params import PRESETS
from dysharp.synth.flow import AreaResult, synthesise
from dysharp.synth.report import print_report, report_dict, write_report
from rich.console import Console
from rich.table import Table

from .lib.progress import Progress
from .lib.run import SimulationError
from .replay import replay
from .replay_report import print_replay
from .results import write_results
from .switch.environment import Pace, Phase, SwitchEnvironment
from .switch.stimulus import Mix, random_config, random_packets

__all__ = ["demo"]

_PRESET = "default"
_PACKETS = 300
_EXPERTS = 64
_TOP_K = 8
_TOKENS = 512
_PAYLOAD = 128
_PACKETS_PER_TOKEN = 4


def demo(folder: Path, *, seed: int, console: Console, progress: Progress) -> None:
    """Run the demonstration and print what it found.

    Parameters
    ----------
    folder : Path
        Where all results go.
    seed : int
        Seed of the packets and the trace.
    console : Console
        To print to.
    progress : Progress
        Told what is under way.

    Raises
    ------
    SimulationError
        A simulation failed, or differs from the golden model.
    """
    params = PRESETS[_PRESET]
    progress("generating Verilog")
    design = write_top("switch", params, folder / "rtl", checks=False)
    console.print(
        f"[bold]1. Verilog[/] of a switch with {params.ports} ports: {_shown(design)}",
        soft_wrap=True,
    )

    # Synthesis needs one core for longer than all else; it goes on beside the simulation.
    with _started(design, folder / "area") as synthesis:
        progress("building the simulation (synthesis goes on beside it)")
        environment = SwitchEnvironment(params, folder)
        _check(environment, seed, console, progress)
        _replay(folder, seed, console, progress)
        progress("synthesis")
        area = synthesis.result()
    console.print("[bold]4. Area[/]")
    print_report(console, area, None, "`dysharp area` has more: parts, other libraries, timing.")
    write_report(folder / "area.json", report_dict(area, None, {"preset": _PRESET}))

    table = Table("file", "what", title="results", title_justify="left")
    for path, what in (
        (design, "SystemVerilog"),
        (design.with_suffix(".json"), "its ports, memories, parameters"),
        (folder / "runs", "stimulus and logs of both simulations"),
        (folder / "trace.jsonl.gz", "the routing trace"),
        (folder / "replay.json", "figures of the replay"),
        (folder / "area.json", "figures of the area"),
    ):
        table.add_row(str(_shown(path)), what)
    console.print(table)


def _check(environment: SwitchEnvironment, seed: int, console: Console, progress: Progress) -> None:
    """Compare random packets, broken ones among them, with the golden model."""
    progress("random packets against the golden model")
    params = environment.params
    rng = np.random.default_rng(seed)
    config = random_config(params, rng)
    inputs = [
        random_packets(params, config, port, _PACKETS, Mix(faults=0.05), rng)
        for port in range(params.ports)
    ]
    phase = Phase(inputs=inputs, config=config)
    (result,) = environment.run([phase], name="random", seed=seed, pace=Pace(ready=90))
    problems = result.problems()
    if problems:
        raise SimulationError(f"the random check differs from the model: {problems[0]}")
    counters = result.scoreboard.expected.counters
    sent = int(counters["tx_requests"].sum() + counters["tx_responses"].sum())
    multicasts = sum(
        int(np.isin(unpack_field(packets.headers, "opcode") >> 2, (1, 2)).sum())
        for packets in inputs
    )
    console.print(
        f"[bold]2. Check[/]: {_PACKETS * params.ports:,} random packets, {multicasts:,} of them "
        f"multicasts, became {sent:,} "
        f"in {result.cycles:,} cycles; {int(counters['refused'].sum())} were refused. "
        "All bits and counters are those of the golden model.",
        highlight=False,
        soft_wrap=True,
    )


def _replay(folder: Path, seed: int, console: Console, progress: Progress) -> None:
    """Run a small synthetic trace."""
    gpus = PRESETS[_PRESET].gpus
    trace = synthetic_trace("power", tokens=_TOKENS, experts=_EXPERTS, top_k=_TOP_K, seed=seed)
    write_trace(folder / "trace.jsonl.gz", trace)
    result = replay(
        trace,
        gpus=gpus,
        experts_per_gpu=_EXPERTS // gpus,
        payload=_PAYLOAD,
        packets_per_token=_PACKETS_PER_TOKEN,
        stages=(Stage.DISPATCH, Stage.COMBINE),
        folder=folder,
        seed=seed,
        progress=progress,
    )
    console.print(
        f"[bold]3. Trace[/]: {trace.tokens} tokens, each to {trace.top_k} of {_EXPERTS} experts "
        f"(power law) on {gpus} GPUs and summed back, {_PACKETS_PER_TOKEN} packets of {_PAYLOAD} "
        "bytes a token each way",
        highlight=False,
        soft_wrap=True,
    )
    print_replay(console, result)
    write_results(
        folder / "replay.json",
        result.figures(),
        parameters={
            "trace": trace.meta,
            "tokens": trace.tokens,
            "gpus": gpus,
            "experts_per_gpu": _EXPERTS // gpus,
            "payload": _PAYLOAD,
            "packets_per_token": _PACKETS_PER_TOKEN,
            "switch": asdict(result.params),
        },
        seed=seed,
    )


def _shown(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


@contextmanager
def _started(design: Path, folder: Path) -> Iterator["Future[AreaResult]"]:
    """Start synthesis in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        future: Future[AreaResult] = pool.submit(_area, design, folder)
        try:
            yield future
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _area(design: Path, folder: Path) -> AreaResult:
    return synthesise(design, design.stem, workdir=folder, tree_levels=0)
