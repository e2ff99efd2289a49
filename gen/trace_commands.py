# SPDX-License-Identifier: Apache-2.0
"""Command line: ``dysharp trace``."""

from pathlib import Path
from typing import Annotated

import typer

from .traces import KINDS, synthetic_trace, write_trace

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("trace")(_trace)


def _trace(
    *,
    kind: Annotated[str, typer.Option(help=f"Popularity of experts: {', '.join(KINDS)}.")],
    tokens: Annotated[int, typer.Option(help="Number of tokens.")],
    experts: Annotated[int, typer.Option(help="Number of experts.")],
    top_k: Annotated[int, typer.Option(help="Experts of one token.")],
    out: Annotated[Path, typer.Option(help="File to write; compressed if it ends in .gz.")],
    seed: Annotated[int, typer.Option(help="Equal seeds give equal traces.")] = 0,
    alpha: Annotated[float, typer.Option(help="Exponent of the power law.")] = 1.0,
    std: Annotated[
        float, typer.Option(help="Width of the bell curve, as a part of the experts.")
    ] = 0.25,
) -> None:
    """Draw a synthetic trace of expert routing."""
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
    typer.echo(f"wrote {out}: {trace.tokens} tokens, {trace.top_k} of {experts} experts each")
