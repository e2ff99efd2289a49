# SPDX-License-Identifier: Apache-2.0
"""Command line: ``dysharp area``."""

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from .errors import FlowError
from .flow import EMBEDDED_LIB, synthesise
from .report import print_report, report_dict, write_report
from .timing import analyse, sta_available

__all__ = ["register"]

_NO_CLOCK = "No timing: state --clock-ps; without, nothing is buffered."
_NO_STA = "No timing: the program `sta` of OpenSTA is not on the path."


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("area")(_area)


def _area(
    *,
    top: Annotated[str, typer.Option(help="Top to generate.")] = "switch",
    preset: Annotated[str, typer.Option(help="Preset of its parameters.")] = "default",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a parameter.")
    ] = None,
    lib: Annotated[
        list[Path] | None,
        typer.Option(help="Liberty file, plain or gzipped; repeat it for a library in parts."),
    ] = None,
    clock_ps: Annotated[
        float | None, typer.Option(help="Clock period to aim for, in picoseconds.")
    ] = None,
    ram_threshold: Annotated[
        int, typer.Option(metavar="BITS", help="A memory of more bits is a RAM macro.")
    ] = 2048,
    levels: Annotated[
        int, typer.Option(help="Levels below the top in the table by parts; 0 is twice as fast.")
    ] = 1,
    json: Annotated[Path | None, typer.Option(help="File for all figures.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for netlist, logs and paths.")] = None,
) -> None:
    """Map a top to standard cells: area, RAM bits and, with OpenSTA, its longest paths."""
    console = Console()
    if out is not None:
        _run(console, top, preset, settings, lib, clock_ps, ram_threshold, levels, json, out)
        return
    with tempfile.TemporaryDirectory(prefix="dysharp-area-") as folder:
        _run(
            console, top, preset, settings, lib, clock_ps, ram_threshold, levels, json, Path(folder)
        )


def _run(
    console: Console,
    top: str,
    preset: str,
    settings: Sequence[str] | None,
    libs: Sequence[Path] | None,
    clock_ps: float | None,
    ram_threshold: int,
    levels: int,
    json: Path | None,
    out: Path,
) -> None:
    from dysharp.gen import registry
    from dysharp.gen.writer import write_top

    params = registry.get(top).params(preset, _overrides(settings or ()))
    with console.status(f"generating {top}"):
        design = write_top(top, params, out, checks=False)
    with console.status(f"synthesising {top}"):
        area = synthesise(
            design,
            design.stem,
            workdir=out,
            libs=libs or (EMBEDDED_LIB,),
            clock_ps=clock_ps,
            ram_threshold_bits=ram_threshold,
            tree_levels=levels,
        )
    timing, note = None, _NO_CLOCK
    if clock_ps is not None:
        note = "" if sta_available() else _NO_STA
        if sta_available():
            with console.status("timing"):
                timing = analyse(area)
    print_report(console, area, timing, note)
    parameters = {"preset": preset, **_plain(params)}
    if json is not None:
        write_report(json, report_dict(area, timing, parameters))


def _overrides(settings: Sequence[str]) -> dict[str, str]:
    overrides = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not key or not equals:
            raise FlowError(f"`--set` must be KEY=VALUE, not {setting!r}")
        overrides[key] = value
    return overrides


def _plain(params: Any) -> dict[str, Any]:
    return dataclasses.asdict(params)
