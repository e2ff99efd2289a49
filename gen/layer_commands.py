# SPDX-License-Identifier: Apache-2.0
"""Command line: ``dysharp layer``."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from ..golden.model.layer import simulate_layer
from ..golden.model.machine import Machine
from ..golden.model.paper import ablation, compare, tiles
from ..golden.model.sweeps import SWEEPS, Point, run_sweep
from ..golden.model.systems import SYSTEMS
from ..golden.model.workload import WORKLOADS, Workload
from .errors import UserError
from .json_text import json_text

__all__ = ["register"]

_MICRO = 1e6
_T = TypeVar("_T")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("layer")(_layer)


def _layer(
    *,
    workload: Annotated[str, typer.Option(help=f"One of {', '.join(WORKLOADS)}.")] = "L-8",
    system: Annotated[str, typer.Option(help=f"all, or one of {', '.join(SYSTEMS)}.")] = "all",
    gpus: Annotated[int, typer.Option(help="GPUs of the machine.")] = 32,
    link_rate: Annotated[float, typer.Option(help="GB/s of a link, each way.")] = 25.0,
    lists: Annotated[
        str, typer.Option(help="Lists on copies: stripped (paper) or kept (this RTL).")
    ] = "stripped",
    tile: Annotated[int, typer.Option(help="Tokens of a tile.")] = 128,
    compare_paper: Annotated[
        bool, typer.Option("--compare-paper", help="Hold the model against the paper's figures.")
    ] = False,
    sweep: Annotated[str | None, typer.Option(help=f"One of {', '.join(SWEEPS)}.")] = None,
    json: Annotated[Path | None, typer.Option(help="Also write the result here.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Picture of a sweep, PNG or SVG; needs matplotlib.")
    ] = None,
) -> None:
    """Predict the time of a mixture-of-experts layer."""
    if workload not in WORKLOADS:
        raise UserError(f"`--workload` must be one of {', '.join(WORKLOADS)}, not {workload!r}")
    names = tuple(SYSTEMS) if system == "all" else (system,)
    if not set(names) <= set(SYSTEMS):
        raise UserError(f"`--system` must be all or one of {', '.join(SYSTEMS)}, not {system!r}")
    if plot is not None and sweep is None:
        raise UserError("`--plot` goes with `--sweep`")
    machine = _checked(lambda: Machine(gpus=gpus, link_rate=link_rate * 1e9, lists=lists))
    shape = _checked(lambda: replace(WORKLOADS[workload], tile=tile))
    if compare_paper:
        report = _compare(machine)
    elif sweep is not None:
        points = _checked(lambda: run_sweep(sweep, shape, machine, names))
        report = _sweep(sweep, points, plot)
    else:
        report = _checked(lambda: _times(shape, machine, names))
    if json is not None:
        try:
            json.write_text(json_text(report), encoding="utf-8")
        except OSError as error:
            raise UserError(f"{json}: {error.strerror}") from error


def _checked(make: Callable[[], _T]) -> _T:
    """Tell the user of values that the model refuses."""
    try:
        return make()
    except (TypeError, ValueError) as error:
        raise UserError(str(error)) from error


def _show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _times(shape: Workload, machine: Machine, names: Sequence[str]) -> dict[str, Any]:
    rows = []
    report: dict[str, Any] = {"workload": asdict(shape), "machine": asdict(machine)}
    for name in names:
        time = simulate_layer(shape, machine, name)
        parts = (time.seconds, time.up_seconds, time.down_seconds, time.compute_seconds)
        rows.append([name, *(f"{part * _MICRO:.1f}" for part in parts), time.bound])
        report[name] = {
            "seconds": time.seconds,
            "up_seconds": time.up_seconds,
            "down_seconds": time.down_seconds,
            "compute_seconds": time.compute_seconds,
            "bound": time.bound,
        }
    _show("layer", ["system", "us", "up us", "down us", "SMs us", "bound"], rows)
    return report


def _compare(machine: Machine) -> dict[str, Any]:
    found = compare(machine)
    rows = [[c.name, f"{c.paper:.2f}", f"{c.ours:.2f}", f"{c.difference:+.1%}"] for c in found]
    _show("the paper's figures", ["figure", "paper", "ours", "difference"], rows)
    parts = ablation(machine)
    _show(
        "L-8, speedup over DeepEP",
        ["system", "speedup"],
        [[name, f"{value:.2f}"] for name, value in parts.speedup.items()],
    )
    sizes = {
        name: {str(size): time.seconds for size, time in tiles(machine, name).items()}
        for name in ("S-8", "L-8")
    }
    _show(
        "tiles",
        ["workload", "tokens", "us"],
        [[n, s, f"{t * _MICRO:.1f}"] for n, times in sizes.items() for s, t in times.items()],
    )
    return {
        **{c.name: {"paper": c.paper, "ours": c.ours, "difference": c.difference} for c in found},
        "ablation": parts.speedup,
        "cut_gains_little": parts.cut_gains_little,
        "fusion_over_comet": parts.fusion_over_comet,
        "full_is_best": parts.full_is_best,
        "tiles": sizes,
    }


def _sweep(name: str, points: Sequence[Point], plot: Path | None) -> dict[str, Any]:
    rows = [
        [f"{p.value:g}", p.system, f"{p.seconds * _MICRO:.1f}", f"{p.speedup:.2f}", p.bound]
        for p in points
    ]
    _show(f"sweep of {name}", [name, "system", "us", "over DeepEP", "bound"], rows)
    if plot is not None:
        _draw(name, points, plot)
    return {"sweep": name, "points": [asdict(point) for point in points]}


def _draw(name: str, points: Sequence[Point], path: Path) -> None:
    if path.suffix not in (".png", ".svg"):
        raise UserError(f"the picture must end in .png or .svg, not {path.name!r}")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError('matplotlib is missing: pip install "dysharp[sim]"') from error
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for system in dict.fromkeys(point.system for point in points):
        own = [point for point in points if point.system == system]
        axes.plot([p.value for p in own], [p.speedup for p in own], marker="o", label=system)
    axes.set_xlabel(name)
    axes.set_ylabel("speedup over DeepEP")
    axes.legend()
    try:
        figure.savefig(path)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
