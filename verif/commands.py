# SPDX-License-Identifier: Apache-2.0
"""Command line: ``dysharp run``, ``verify``, ``demo`` and ``bench``."""

import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from dysharp.gen.errors import UserError

from .console import checks, make_console, make_table, shown_progress
from .demo import demo
from .results import write_results
from .run_command import run

__all__ = ["BENCHES", "register"]

BENCHES = {
    "switch": "dysharp.verif.switch.bench",
    "reduce": "dysharp.verif.reduce.bench",
    "gpu": "dysharp.verif.hub.bench",
    "system": "dysharp.verif.system.bench",
}
"""Module of each bench; its ``bench(folder, seed, quick, progress)`` returns figures by name."""

_VERIF = Path(__file__).parent


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("run")(run)
    app.command("verify")(_verify)
    app.command("demo")(_demo)
    app.command("bench")(_bench)


def _verify(
    *,
    expression: Annotated[
        str | None, typer.Option("-k", metavar="EXPR", help="Only tests that match, as in pytest.")
    ] = None,
    regress: Annotated[bool, typer.Option("--regress", help="The long tests as well.")] = False,
    simulator: Annotated[
        str | None,
        typer.Option(help="icarus: only tests on Icarus; verilator: all but these."),
    ] = None,
    jobs: Annotated[int, typer.Option(help="Tests at a time; 0: one a core.")] = 0,
) -> None:
    """Run the regression, with pytest underneath; the exit code is pytest's."""
    conditions = [f"({expression})"] if expression else []
    if simulator == "icarus":
        conditions.append("icarus")
    elif simulator == "verilator":
        conditions.append("not icarus")
    elif simulator is not None:
        raise UserError(f"`--simulator` must be verilator or icarus, not {simulator!r}")
    if jobs < 0:
        raise UserError(f"`--jobs` must be 0 or more, not {jobs!r}")
    arguments = [str(_VERIF), "-n", str(jobs or os.cpu_count() or 1)]
    if conditions:
        arguments += ["-k", " and ".join(conditions)]
    if not regress:
        arguments += ["-m", "not regress"]
    if not (_VERIF.parent / "pyproject.toml").exists():
        # Installed as a package: what else the project file says.
        arguments += [
            "--import-mode=importlib",
            "-p",
            "no:cacheprovider",
            "-o",
            "markers=regress: long",
        ]
    if find_spec("pytest") is None or find_spec("xdist") is None:
        raise UserError('pytest is missing: pip install "dysharp[sim]"')
    typer.echo(f"pytest {' '.join(arguments[1:])}")
    raise typer.Exit(subprocess.run([sys.executable, "-m", "pytest", *arguments]).returncode)


def _demo(
    *,
    out: Annotated[Path, typer.Option(help="Folder for all results.")] = Path("build/demo"),
    seed: Annotated[int, typer.Option(help="Seed of packets and trace.")] = 0,
) -> None:
    """Do the main job once: Verilog, check against the model, a routing trace, area."""
    console = make_console()
    with checks(), shown_progress(console) as progress:
        demo(out.absolute(), seed=seed, console=console, progress=progress)


def _bench(
    *,
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(BENCHES)}.")],
    json: Annotated[Path, typer.Option(help="File for the figures.")],
    seed: Annotated[int, typer.Option(help="Seed of all traffic.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for Verilog, builds and logs.")] = Path(
        "build/bench"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="Short runs, to see that it works; not to quote.")
    ] = False,
) -> None:
    """Measure the figures of a block; bench/README.md says how."""
    if name not in BENCHES:
        raise UserError(f"the bench must be one of {', '.join(BENCHES)}, not {name!r}")
    bench = import_module(BENCHES[name]).bench
    with checks(), shown_progress() as progress:
        values = bench(out.absolute() / name, seed, quick, progress)
    table = make_table(f"bench {name}{', quick' if quick else ''}", "value", first="key")
    for key, value in values.items():
        table.add_row(key, f"{value:,.4g}" if isinstance(value, float) else str(value))
    make_console().print(table)
    write_results(json, values, parameters={"bench": name, "quick": quick}, seed=seed)
    typer.echo(f"wrote {json}")
