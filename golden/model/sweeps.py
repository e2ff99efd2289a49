# SPDX-License-Identifier: Apache-2.0
"""Sweeps of the time model: one thing changes, all else stays."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType

from .layer import simulate_layer
from .machine import Machine
from .workload import Workload

__all__ = ["SWEEPS", "Point", "run_sweep"]

_Change = Callable[[Workload, Machine, float], tuple[Workload, Machine]]


@dataclass(frozen=True, kw_only=True)
class Point:
    """Time of one system at one value.

    Parameters
    ----------
    value : float
        What was changed.
    system : str
        Name of the system.
    seconds : float
        The layer.
    speedup : float
        Time of DeepEP at this value over this time.
    bound : str
        What is in use longest.
    """

    value: float
    system: str
    seconds: float
    speedup: float
    bound: str


@dataclass(frozen=True, kw_only=True)
class _Sweep:
    values: tuple[float, ...]
    change: _Change


SWEEPS = MappingProxyType(
    {
        "top-k": _Sweep(
            values=(1, 2, 4, 8, 16, 32),
            change=lambda w, m, v: (replace(w, top_k=int(v)), m),
        ),
        "gpus": _Sweep(
            values=(4, 8, 16, 32, 64), change=lambda w, m, v: (w, replace(m, gpus=int(v)))
        ),
        "tokens": _Sweep(
            values=(1024, 2048, 4096, 8192, 16384),
            change=lambda w, m, v: (replace(w, tokens=int(v)), m),
        ),
        "normal": _Sweep(
            values=(0.01, 0.02, 0.032, 0.04, 0.05),
            change=lambda w, m, v: (replace(w, spread="normal", width=v), m),
        ),
        "power": _Sweep(
            values=(0.5, 1.0, 1.5, 2.0, 2.5),
            change=lambda w, m, v: (replace(w, spread="power", width=v), m),
        ),
        "tile": _Sweep(
            values=(32, 64, 128, 256, 512),
            change=lambda w, m, v: (replace(w, tile=int(v)), m),
        ),
    }
)
"""What may be swept, by name, with the values of the paper's sweeps where it has them."""


def run_sweep(
    name: str,
    workload: Workload,
    machine: Machine,
    systems: tuple[str, ...] = ("DeepEP", "COMET", "DySHARP"),
) -> tuple[Point, ...]:
    """Run all systems at all values of a sweep.

    Parameters
    ----------
    name : str
        A key of :data:`SWEEPS`.
    workload, machine
        What stays.
    systems : tuple of str
        Names of :data:`.SYSTEMS`.
    """
    if name not in SWEEPS:
        raise ValueError(f"`name` must be one of {', '.join(SWEEPS)}, not {name!r}")
    found = []
    for value in SWEEPS[name].values:
        shape, place = SWEEPS[name].change(workload, machine, value)
        base = simulate_layer(shape, place, "DeepEP").seconds
        for system in systems:
            time = simulate_layer(shape, place, system)
            found.append(
                Point(
                    value=value,
                    system=system,
                    seconds=time.seconds,
                    speedup=base / time.seconds,
                    bound=time.bound,
                )
            )
    return tuple(found)
