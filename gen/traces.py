# SPDX-License-Identifier: Apache-2.0
"""Traces of expert routing: which experts each token was sent to.

A trace is a file of JSON lines, gzip-compressed when its name ends in ``.gz``. The first line may
be a record about the trace, ``{"type": "meta", ...}``; every other line is one token::

    {"t": 0, "ids": [45, 57, 46, 17], "w": [0.25, 0.23, 0.16, 0.14]}

``ids`` are the experts in the order of the router, ``w`` their weights (optional), ``t`` is the
token's number (optional, informative: the order of the lines counts).
"""

import gzip
import json
import math
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .errors import UserError

__all__ = [
    "KINDS",
    "Kind",
    "Trace",
    "TraceError",
    "check_int",
    "draw",
    "lines_of",
    "read_trace",
    "synthetic_trace",
    "write_trace",
]

Kind = Literal["uniform", "power", "normal"]
KINDS: tuple[Kind, ...] = ("uniform", "power", "normal")

_BLOCK = 1 << 22
"""Random numbers drawn at a time; it does not change the result."""


class TraceError(UserError):
    """A trace file that cannot be used; the message names the file and the line."""


@dataclass(frozen=True)
class Trace:
    """Expert choices of a sequence of tokens.

    Parameters
    ----------
    ids : numpy.ndarray
        Experts, int64, one row a token.
    meta : Mapping[str, Any]
        The record about the trace; empty if the file has none.
    weights : numpy.ndarray, optional
        What each expert's output is multiplied by, f32, in the shape of `ids`.
    """

    ids: NDArray[np.int64]
    meta: Mapping[str, Any] = field(default_factory=dict)
    weights: NDArray[np.float32] | None = None

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return int(self.ids.shape[0])

    @property
    def top_k(self) -> int:
        """Experts of one token."""
        return int(self.ids.shape[1])


def read_trace(
    path: Path, experts: int, tokens: int | None = None, *, masked: bool = False
) -> Trace:
    """Read a trace and check every line of it.

    Parameters
    ----------
    path : Path
        The file; gzip-compressed if its name ends in ``.gz``.
    experts : int
        Experts there are: ids are 0 to ``experts`` - 1.
    tokens : int, optional
        Read so many tokens only. By default all.
    masked : bool
        An id may be -1: no expert.

    Returns
    -------
    Trace
        At least one token. It has weights if all tokens have.

    Raises
    ------
    TraceError
        Missing or empty file, bad compression, or a line that is not as it must be. A list with
        an expert twice is refused as well: a router never makes one.
    """
    rows: list[list[int]] = []
    weights: list[list[float]] = []
    meta: dict[str, Any] = {}
    number = 0
    for number, line in lines_of(path):
        if tokens is not None and len(rows) == tokens:
            break
        where = f"{path}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise TraceError(f"{where}: malformed JSON: {reason}") from error
        if not isinstance(record, dict):
            raise TraceError(f"{where}: a line must be a JSON object, not {line.strip()[:40]!r}")
        if record.get("type") == "meta":
            if number > 1:
                raise TraceError(f"{where}: the meta record must be the first line")
            meta = record
            continue
        row = _row(record, experts, where, masked=masked)
        if rows and len(row) != len(rows[0]):
            raise TraceError(
                f"{where}: `ids` must have {len(rows[0])} experts like the lines before, "
                f"not {len(row)}"
            )
        rows.append(row)
        if "w" in record:
            weights.append(_weights(record["w"], len(row), where))
    if not rows:
        raise TraceError(f"{path}:{number or 1}: the trace holds no token")
    if tokens is not None and len(rows) < tokens:
        raise TraceError(f"{path}:{number}: the trace holds {len(rows)} tokens, not {tokens}")
    whole = len(weights) == len(rows)
    return Trace(
        np.array(rows, dtype=np.int64), meta, np.array(weights, np.float32) if whole else None
    )


def write_trace(path: Path, trace: Trace) -> None:
    """Write a trace; equal traces give equal bytes, compressed or not.

    Parameters
    ----------
    path : Path
        The file; gzip-compressed if its name ends in ``.gz``. Its folder is made.
    trace : Trace
        What to write.
    """
    lines = [json.dumps({"type": "meta", **trace.meta})] if trace.meta else []
    for number, row in enumerate(trace.ids.tolist()):
        record = {"t": number, "ids": row}
        if trace.weights is not None:
            # The shortest text that reads as the same f32.
            record["w"] = [float(str(weight)) for weight in trace.weights[number]]
        lines.append(json.dumps(record))
    content = ("\n".join(lines) + "\n").encode()
    if path.name.endswith(".gz"):
        content = gzip.compress(content, mtime=0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}")
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        raise TraceError(f"{error.filename}: {error.strerror}") from error


def synthetic_trace(
    kind: Kind | str,
    *,
    tokens: int,
    experts: int,
    top_k: int,
    seed: int,
    alpha: float = 1.0,
    std: float = 0.25,
) -> Trace:
    """Draw a trace: every token takes `top_k` different experts, independent of the others.

    An expert is drawn with a probability in proportion to its popularity, the next one among
    those that are left, and so on.

    Parameters
    ----------
    kind : str
        Popularity of the experts: ``uniform`` (all alike), ``power`` (the *r*-th has
        *r* to the power of -`alpha`) or ``normal`` (a bell curve over the expert's number, in
        the middle highest). In the last two the popular experts are spread over the numbers by a
        permutation that depends on the seed.
    tokens, experts, top_k : int
        Size; `top_k` is at most `experts`.
    seed : int
        Equal arguments give equal traces.
    alpha : float
        Exponent of the power law, 0 is uniform.
    std : float
        Standard deviation of the bell curve, as a part of `experts`.

    Returns
    -------
    Trace
        Its record holds the arguments.
    """
    check_int("tokens", tokens, 1)
    check_int("experts", experts, 1)
    check_int("top_k", top_k, 1)
    check_int("seed", seed, 0)
    if top_k > experts:
        raise TraceError(f"`top_k` must be at most `experts` ({experts}), not {top_k!r}")
    if kind not in KINDS:
        raise TraceError(f"`kind` must be one of {', '.join(KINDS)}, not {kind!r}")
    if not (alpha >= 0 and math.isfinite(alpha)):
        raise TraceError(f"`alpha` must be 0 or more, not {alpha!r}")
    if not (std > 0 and math.isfinite(std)):
        raise TraceError(f"`std` must be more than 0, not {std!r}")
    rng = np.random.default_rng(seed)
    rank = np.arange(experts)
    meta: dict[str, Any] = {
        "kind": kind,
        "top_k": top_k,
        "num_experts": experts,
        "seed": seed,
    }
    log_popularity: NDArray[np.floating[Any]] = np.zeros(experts)
    match kind:
        case "power":
            log_popularity = -alpha * np.log(rank + 1)
            meta["alpha"] = alpha
        case "normal":
            log_popularity = -0.5 * ((rank - (experts - 1) / 2) / (std * experts)) ** 2
            meta["std"] = std
    if kind != "uniform":
        log_popularity = rng.permutation(log_popularity)
    return Trace(draw(log_popularity, tokens=tokens, top_k=top_k, rng=rng), meta)


def draw(
    log_popularity: NDArray[np.floating[Any]],
    *,
    tokens: int,
    top_k: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw different experts for each token, one by one in proportion to their popularity."""
    experts = len(log_popularity)
    # Gumbel top-k: the k largest of log p + noise are a draw without replacement by p.
    step = max(1, _BLOCK // experts)
    ids = np.empty((tokens, top_k), dtype=np.int64)
    for start in range(0, tokens, step):
        rows = min(step, tokens - start)
        score = log_popularity + rng.gumbel(size=(rows, experts))
        ids[start : start + rows] = np.argsort(-score, axis=1, kind="stable")[:, :top_k]
    return ids


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line of a file, compressed if its name ends in ``.gz``."""
    number = 0
    try:
        opener = gzip.open if path.name.endswith(".gz") else open
        with opener(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                yield number, line
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TraceError(f"{path}:{number + 1}: bad gzip data: {error}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}:{number + 1}: not UTF-8 text: {error.reason}") from error
    except OSError as error:
        raise TraceError(f"{path}:1: {error.strerror}") from error


def _row(record: Mapping[str, Any], experts: int, where: str, *, masked: bool) -> list[int]:
    if "ids" not in record:
        raise TraceError(f"{where}: `ids` is missing")
    ids = record["ids"]
    if not isinstance(ids, list) or not ids:
        raise TraceError(f"{where}: `ids` must be a list of experts, not {ids!r}")
    for expert in ids:
        if not isinstance(expert, int) or isinstance(expert, bool):
            raise TraceError(f"{where}: an expert must be an integer, not {expert!r}")
        if not -masked <= expert < experts:
            raise TraceError(f"{where}: an expert must be 0 to {experts - 1}, not {expert!r}")
    chosen = [expert for expert in ids if expert >= 0]
    if len(set(chosen)) != len(chosen):
        raise TraceError(f"{where}: the experts of a token must differ, not {ids!r}")
    return ids


def _weights(values: object, count: int, where: str) -> list[float]:
    if not isinstance(values, list) or len(values) != count:
        raise TraceError(f"{where}: `w` must be a list of {count} weights, not {values!r}")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not _is_f32(value):
            raise TraceError(f"{where}: a weight must be a number, not {value!r}")
    return values


def _is_f32(value: float) -> bool:
    return abs(value) <= float(np.finfo(np.float32).max)


def check_int(name: str, value: object, low: int) -> None:
    """Refuse what is not an integer of `low` or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise TraceError(f"`{name}` must be an integer of {low} or more, not {value!r}")
