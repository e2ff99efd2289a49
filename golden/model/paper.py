# SPDX-License-Identifier: Apache-2.0
"""Figures of the paper on DySHARP (arXiv 2605.05607), and what the model says to them."""

from dataclasses import dataclass, replace

import numpy as np

from .layer import LayerTime, simulate_layer
from .machine import Machine
from .systems import SYSTEMS
from .workload import WORKLOADS

__all__ = ["LAYER_GEOMEAN", "LAYER_MAX", "Ablation", "Comparison", "ablation", "compare", "tiles"]

LAYER_GEOMEAN = {
    "DeepEP": 2.26,
    "NVLS": 4.25,
    "FasterMoE": 2.14,
    "Tutel": 1.96,
    "CCFuser": 1.84,
    "COMET": 1.78,
}
"""Speedup of the layer over each system, geometric mean (section VI-A)."""

LAYER_MAX = {
    "DeepEP": 2.77,
    "NVLS": 6.93,
    "FasterMoE": 2.48,
    "Tutel": 2.32,
    "CCFuser": 2.01,
    "COMET": 1.94,
}
"""The same, greatest."""

_GRID = tuple(f"{size}-{top_k}" for size in "SML" for top_k in (8, 16, 32))
_LITTLE = 1 / 3


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One figure.

    Parameters
    ----------
    name : str
        What it is.
    paper, ours : float
        The two values.
    """

    name: str
    paper: float
    ours: float

    @property
    def difference(self) -> float:
        """Relative to the paper's."""
        return self.ours / self.paper - 1


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """Speedups over DeepEP on one workload.

    Parameters
    ----------
    speedup : dict
        Of each system of the ablation.
    """

    speedup: dict[str, float]

    @property
    def cut_gains_little(self) -> bool:
        """Less traffic alone, on DeepEP or on COMET, brings under a third of what all brings."""
        speedup = self.speedup
        full = speedup["DySHARP"]
        basic = speedup["DySHARP-Basic"] - 1
        tiles_too = speedup["DySHARP-COMET"] / speedup["COMET"] - 1
        return basic < _LITTLE * (full - 1) and tiles_too < _LITTLE * (full / speedup["COMET"] - 1)

    @property
    def fusion_over_comet(self) -> float:
        """How much faster fusion alone is than COMET; the paper has none of it."""
        return self.speedup["fusion-only"] / self.speedup["COMET"]

    @property
    def full_is_best(self) -> bool:
        """Whether nothing is as fast as all together."""
        return max(self.speedup, key=lambda name: self.speedup[name]) == "DySHARP"


def compare(machine: Machine | None = None) -> tuple[Comparison, ...]:
    """Hold the layer's speedups over S, M and L with 8, 16 and 32 experts against the paper's.

    Parameters
    ----------
    machine : Machine, optional
        By default the paper's, with the model's constants.
    """
    machine = machine or Machine()
    times: dict[str, list[float]] = {name: [] for name in ("DySHARP", *LAYER_GEOMEAN)}
    for system, values in times.items():
        values += [simulate_layer(WORKLOADS[name], machine, system).seconds for name in _GRID]
    found = []
    for system, paper in LAYER_GEOMEAN.items():
        ratio = np.array(times[system]) / np.array(times["DySHARP"])
        found += [
            Comparison(
                name=f"layer_geomean_vs_{system}",
                paper=paper,
                ours=float(np.exp(np.log(ratio).mean())),
            ),
            Comparison(
                name=f"layer_max_vs_{system}", paper=LAYER_MAX[system], ours=float(ratio.max())
            ),
        ]
    return tuple(found)


def ablation(machine: Machine | None = None, workload: str = "L-8") -> Ablation:
    """Run the systems of the paper's ablation (Fig. 16).

    Parameters
    ----------
    machine : Machine, optional
        By default the paper's.
    workload : str
        A name of :data:`.WORKLOADS`.
    """
    machine = machine or Machine()
    names = ("DeepEP", "COMET", "DySHARP-Basic", "DySHARP-COMET", "fusion-only", "DySHARP")
    assert set(names) <= set(SYSTEMS)
    times = {name: simulate_layer(WORKLOADS[workload], machine, name).seconds for name in names}
    return Ablation(speedup={name: times["DeepEP"] / time for name, time in times.items()})


def tiles(
    machine: Machine | None = None,
    workload: str = "S-8",
    sizes: tuple[int, ...] = (64, 128, 256),
) -> dict[int, LayerTime]:
    """Run DySHARP with several sizes of a tile (Fig. 30).

    Parameters
    ----------
    machine : Machine, optional
        By default the paper's.
    workload : str
        A name of :data:`.WORKLOADS`.
    sizes : tuple of int
        Tokens of a tile.
    """
    machine = machine or Machine()
    shape = WORKLOADS[workload]
    return {size: simulate_layer(replace(shape, tile=size), machine) for size in sizes}
