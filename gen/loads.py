# SPDX-License-Identifier: Apache-2.0
"""Traces after measured loads of experts.

A file of loads is a JSON object with ``logical_count``: a row of numbers for each layer, how many
tokens each expert got. It is gzip-compressed when its name ends in ``.gz``.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .traces import Trace, TraceError, check_int, draw, lines_of

__all__ = ["read_loads", "trace_of_loads"]


def read_loads(path: Path, layer: int) -> NDArray[np.float64]:
    """Read the loads of one layer's experts.

    Raises
    ------
    TraceError
        The file cannot be used, or has no such layer, or nobody used it.
    """
    check_int("layer", layer, 0)
    text = "".join(line for _, line in lines_of(path))
    try:
        record: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        raise TraceError(f"{path}:{line}: malformed JSON: {error}") from error
    rows = record.get("logical_count") if isinstance(record, dict) else None
    if not isinstance(rows, list) or not rows:
        raise TraceError(f"{path}:1: `logical_count` must be a list of layers")
    if layer >= len(rows):
        raise TraceError(f"{path}:1: `layer` must be 0 to {len(rows) - 1}, not {layer}")
    try:
        loads = np.array(rows[layer], np.float64)
    except (ValueError, TypeError) as error:
        raise TraceError(f"{path}:1: the loads of layer {layer} must be numbers") from error
    if loads.ndim != 1 or not np.isfinite(loads).all() or (loads < 0).any():
        raise TraceError(f"{path}:1: the loads of layer {layer} must be numbers of 0 or more")
    if not loads.any():
        raise TraceError(f"{path}:1: layer {layer} has no loads; another one may")
    return loads


def trace_of_loads(path: Path, *, layer: int, tokens: int, top_k: int, seed: int) -> Trace:
    """Draw a trace whose experts are as popular as in a layer of a file of loads.

    Parameters
    ----------
    path : Path
        The file.
    layer : int
        Row of the file.
    tokens, top_k : int
        Size; so many experts must have a load.
    seed : int
        Equal arguments give equal traces.
    """
    check_int("tokens", tokens, 1)
    check_int("top_k", top_k, 1)
    check_int("seed", seed, 0)
    loads = read_loads(path, layer)
    used = int((loads > 0).sum())
    if top_k > used:
        raise TraceError(f"`top_k` must be at most {used}, the experts with a load, not {top_k!r}")
    with np.errstate(divide="ignore"):
        popularity = np.log(loads)
    ids = draw(popularity, tokens=tokens, top_k=top_k, rng=np.random.default_rng(seed))
    meta = {
        "kind": "loads",
        "loads": path.name,
        "layer": layer,
        "top_k": top_k,
        "num_experts": len(loads),
        "seed": seed,
    }
    return Trace(ids, meta)
