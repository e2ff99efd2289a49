# SPDX-License-Identifier: Apache-2.0
"""Command line: ``dysharp run``."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from dysharp.rtl.flits import REDUCTIONS, DType, Order, ReduceOp, Stage

from .console import checks, make_console, shown_progress
from .layer import DTYPES, make_layer, run_layer
from .layer_report import print_layer
from .link_use import check_picture, draw_link_use
from .plan import PLACEMENTS, ReplayError, Sums
from .replay import load_trace, replay, switch_for
from .replay_report import print_replay
from .results import write_results
from .system.environment import Settings
from .system.moe_run import Mode

__all__ = ["run"]

_DTYPES = {dtype.name.lower(): dtype for dtype in DType if ReduceOp.ADD in REDUCTIONS[dtype]}
_ORDERS = {order.name.lower(): order for order in Order}
_MODES = {mode.value: mode for mode in Mode}


def run(
    *,
    trace: Annotated[Path, typer.Option(help="Routing trace, .jsonl or .jsonl.gz.")],
    gpus: Annotated[int, typer.Option(help="GPUs at the switch.")],
    experts_per_gpu: Annotated[int, typer.Option(help="Experts that each GPU holds.")],
    hidden: Annotated[
        int | None,
        typer.Option(metavar="BYTES", help="A whole layer, with tokens of so many bytes."),
    ] = None,
    payload: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES", help="The switch alone, with packets of so many bytes: 16 to 256."
        ),
    ] = None,
    packets_per_token: Annotated[
        int | None, typer.Option(help="Packets that a token is made of, with --payload.")
    ] = None,
    tokens: Annotated[int | None, typer.Option(help="Only the first so many tokens.")] = None,
    mode: Annotated[
        str | None, typer.Option(help=f"Of a layer: {', '.join(_MODES)}; by default serial.")
    ] = None,
    dispatch: Annotated[
        bool, typer.Option("--dispatch", help="Switch alone: dispatch; with --combine, both.")
    ] = False,
    combine: Annotated[
        bool, typer.Option("--combine", help="Switch alone: combine. By default both at once.")
    ] = False,
    links_per_gpu: Annotated[
        int, typer.Option(help="Links of each GPU: 1, 2 or 4; of a layer's: 1.")
    ] = 1,
    dtype: Annotated[
        str,
        typer.Option(help=f"Type of sums: {', '.join(_DTYPES)}; of a layer: {', '.join(DTYPES)}."),
    ] = "bf16_acc32",
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
        tuple[int, int] | None,
        typer.Option(
            metavar="MIN MAX",
            help="Cycles from a request at a GPU to its answer; of a layer, of a memory read.",
        ),
    ] = None,
    placement: Annotated[
        str, typer.Option(help=f"Which GPU has which token: {' or '.join(PLACEMENTS)}.")
    ] = "interleaved",
    at_once: Annotated[
        int, typer.Option(help="Of a layer: tokens that a GPU issues in turns, by packets.")
    ] = 1,
    inner: Annotated[
        int, typer.Option(help="Of a layer: elements between the two matrices of an expert.")
    ] = 64,
    ready: Annotated[
        int, typer.Option(metavar="PERCENT", help="Switch alone: cycles in which a flit is taken.")
    ] = 100,
    seed: Annotated[int, typer.Option(help="Seed of data, latencies and receivers.")] = 0,
    json: Annotated[Path | None, typer.Option(help="File for all figures.")] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Of a layer: link use over time, .png or .svg.")
    ] = None,
    dump: Annotated[
        Path | None, typer.Option(help="Of a layer: folder for memory images, sums and waves.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for Verilog, builds and logs.")] = Path(
        "build/run"
    ),
) -> None:
    """Run a routing trace: a whole layer (--hidden), or packets at the switch alone (--payload).

    Everything that comes out is compared with the golden model.
    """
    for option, value, known in (("dtype", dtype, _DTYPES), ("order", order, _ORDERS)):
        if value not in known:
            raise ReplayError(f"`{option}` must be one of {', '.join(known)}, not {value!r}")
    parameters: dict[str, Any] = {
        "trace": str(trace),
        "gpus": gpus,
        "experts_per_gpu": experts_per_gpu,
        "dtype": dtype,
        "order": order,
        "presum": presum,
        "acknowledge": acknowledge,
        "placement": placement,
    }
    if hidden is None:
        _refuse("with", mode=mode, picture=picture, dump=dump)
        if payload is None or packets_per_token is None:
            raise ReplayError("`hidden`, or `payload` and `packets_per_token`, must be given")
        figures = _replay(
            parameters,
            trace,
            tokens,
            stages=_stages(dispatch, combine),
            payload=payload,
            packets_per_token=packets_per_token,
            links_per_gpu=links_per_gpu,
            delay=delay or (0, 0),
            ready=ready,
            seed=seed,
            out=out,
        )
    else:
        _refuse(
            "without",
            payload=payload,
            packets_per_token=packets_per_token,
            dispatch=dispatch or None,
            combine=combine or None,
        )
        if links_per_gpu != 1:
            raise ReplayError(f"`links_per_gpu` of a layer must be 1, not {links_per_gpu!r}")
        figures = _layer(
            parameters,
            trace,
            tokens,
            hidden=hidden,
            mode=mode or Mode.SERIAL.value,
            delay=delay,
            at_once=at_once,
            inner=inner,
            seed=seed,
            picture=picture,
            dump=dump,
            out=out,
        )
    if json is not None:
        write_results(json, figures, parameters=parameters, seed=seed)
        typer.echo(f"wrote {json}")


def _refuse(how: str, **options: object) -> None:
    """Refuse options that mean nothing in this kind of run."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise ReplayError(f"`{given[0]}` goes {how} `hidden` only")


def _stages(dispatch: bool, combine: bool) -> tuple[Any, ...]:
    both = dispatch == combine
    wanted = {Stage.DISPATCH: dispatch or both, Stage.COMBINE: combine or both}
    return tuple(stage for stage, runs in wanted.items() if runs)


def _replay(
    parameters: dict[str, Any], trace: Path, tokens: int | None, *, out: Path, **options: Any
) -> dict[str, Any]:
    """Run the switch alone; `parameters` grows by what was run."""
    gpus, experts_per_gpu = parameters["gpus"], parameters["experts_per_gpu"]
    switch_for(gpus, options["links_per_gpu"])
    loaded = load_trace(trace, gpus=gpus, experts_per_gpu=experts_per_gpu, tokens=tokens)
    with checks(), shown_progress() as progress:
        result = replay(
            loaded,
            gpus=gpus,
            experts_per_gpu=experts_per_gpu,
            sums=Sums(
                dtype=_DTYPES[parameters["dtype"]],
                order=_ORDERS[parameters["order"]],
                presum=parameters["presum"],
            ),
            acknowledge=parameters["acknowledge"],
            placement=parameters["placement"],
            folder=out.absolute(),
            progress=progress,
            **options,
        )
    print_replay(make_console(), result)
    told = {name: value for name, value in options.items() if name not in ("stages", "seed")}
    parameters |= told | {
        "tokens": loaded.tokens,
        "top_k": loaded.top_k,
        "switch": asdict(result.params),
    }
    return result.figures()


def _layer(
    parameters: dict[str, Any],
    trace: Path,
    tokens: int | None,
    *,
    hidden: int,
    mode: str,
    delay: tuple[int, int] | None,
    at_once: int,
    inner: int,
    seed: int,
    picture: Path | None,
    dump: Path | None,
    out: Path,
) -> dict[str, Any]:
    """Run a layer; `parameters` grows by what was run."""
    gpus, experts_per_gpu = parameters["gpus"], parameters["experts_per_gpu"]
    dtype = parameters["dtype"]
    for option, value, known in (("dtype", dtype, DTYPES), ("mode", mode, _MODES)):
        if value not in known:
            names = ", ".join(known)
            raise ReplayError(f"`{option}` of a layer must be one of {names}, not {value!r}")
    if picture is not None:
        check_picture(picture)
    try:
        settings = Settings() if delay is None else Settings(read_min=delay[0], read_max=delay[1])
    except ValueError as error:
        raise ReplayError(f"`delay`: {error}") from error
    loaded = load_trace(
        trace, gpus=gpus, experts_per_gpu=experts_per_gpu, tokens=tokens, masked=True
    )
    layer = make_layer(
        loaded,
        gpus=gpus,
        experts_per_gpu=experts_per_gpu,
        hidden=hidden,
        dtype=DTYPES[dtype],
        placement=parameters["placement"],
        seed=seed,
    )
    with checks(), shown_progress() as progress:
        result = run_layer(
            layer,
            folder=out.absolute(),
            seed=seed,
            mode=_MODES[mode],
            order=_ORDERS[parameters["order"]],
            presum=parameters["presum"],
            posted=not parameters["acknowledge"],
            at_once=at_once,
            inner=inner,
            settings=settings,
            dump=dump,
            progress=progress,
        )
        if picture is not None:
            progress("drawing")
            draw_link_use(picture, result.uses())
    print_layer(make_console(), result)
    for path in (picture, dump):
        if path is not None:
            typer.echo(f"wrote {path}")
    parameters |= {
        "tokens": loaded.tokens,
        "top_k": loaded.top_k,
        "hidden": hidden,
        "mode": mode,
        "at_once": at_once,
        "inner": inner,
        "models": asdict(settings),
        "system": asdict(result.params),
    }
    return result.figures()
