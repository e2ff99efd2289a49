# SPDX-License-Identifier: Apache-2.0
"""Command line: ``dysharp trace``."""

from pathlib import Path
from typing import Annotated

import typer

from .loads import trace_of_loads
from .traces import KINDS, TraceError, synthetic_trace, write_trace

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("trace")(_trace)


def _trace(
    *,
    kind: Annotated[
        str | None, typer.Option(help=f"Popularity of experts: {', '.join(KINDS)}.")
    ] = None,
    loads: Annotated[
        Path | None,
        typer.Option(help="In place of --kind and --experts: a file of measured loads."),
    ] = None,
    layer: Annotated[int, typer.Option(help="Layer of the file of loads.")] = 0,
    tokens: Annotated[int, typer.Option(help="Number of tokens.")],
    experts: Annotated[int | None, typer.Option(help="Number of experts.")] = None,
    top_k: Annotated[int, typer.Option(help="Experts of one token.")],
    out: Annotated[Path, typer.Option(help="File to write; compressed if it ends in .gz.")],
    seed: Annotated[int, typer.Option(help="Equal seeds give equal traces.")] = 0,
    alpha: Annotated[float, typer.Option(help="Exponent of the power law.")] = 1.0,
    std: Annotated[
        float, typer.Option(help="Width of the bell curve, as a part of the experts.")
    ] = 0.25,
) -> None:
    """Draw a synthetic trace of expert routing."""
    if loads is not None:
        if kind is not None or experts is not None:
            raise TraceError("`--loads` goes without `--kind` and `--experts`")
        trace = trace_of_loads(loads, layer=layer, tokens=tokens, top_k=top_k, seed=seed)
    elif kind is None or experts is None:
        raise TraceError("`--kind` and `--experts`, or `--loads`, must be given")
    else:
        trace = synthetic_trace(
            kind,
            tokens=tokens,
            experts=experts,
            top_k=top_k,
            seed=seed,
            alpha=alpha,
            std=std,
        )
    write_trace(out, trace)
    typer.echo(
        f"wrote {out}: {trace.tokens} tokens, {trace.top_k} of {trace.meta['num_experts']} "
        "experts each"
    )
