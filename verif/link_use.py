# SPDX-License-Identifier: Apache-2.0
"""Picture of how the links are used over time."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from dysharp.gen.errors import UserError
from dysharp.golden.arrays import IntArray

__all__ = ["LinkUse", "check_picture", "draw_link_use"]

_WINDOWS = 240


@dataclass(frozen=True, eq=False)
class LinkUse:
    """When the links carried a flit in one run.

    Parameters
    ----------
    name : str
        What ran.
    cycles : int
        How long it took.
    up, down : Sequence of ndarray
        For each GPU the cycles, from 0, in which its link to the switch, and that from the switch,
        carried a flit.
    """

    name: str
    cycles: int
    up: Sequence[IntArray]
    down: Sequence[IntArray]

    def shares(self, links: Sequence[IntArray], windows: int) -> npt.NDArray[np.float64]:
        """Share of the cycles of each of `windows` equal windows in which each link was busy."""
        edges = np.linspace(0, self.cycles, windows + 1)
        counts = [np.histogram(cycles, edges)[0] for cycles in links]
        shares: npt.NDArray[np.float64] = np.array(counts) / np.diff(edges)
        return shares


def check_picture(path: Path) -> None:
    """Refuse names that are of no known kind of picture."""
    if path.suffix not in (".png", ".svg"):
        raise UserError(f"the picture must end in .png or .svg, not {path.name!r}")


def draw_link_use(path: Path, runs: Sequence[LinkUse]) -> None:
    """Draw the use of all links, runs one after the other, as PNG or SVG.

    Raises
    ------
    UserError
        The file name ends otherwise, or the file cannot be written.
    """
    check_picture(path)
    # Not at the top: it takes a second to import.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    total = sum(run.cycles for run in runs)
    # At least a cycle a window.
    windows = [max(1, min(run.cycles, _WINDOWS * run.cycles // total)) for run in runs]
    edges = np.concatenate(
        [
            begin + np.linspace(0, run.cycles, count + 1)[:-1]
            for run, count, begin in zip(runs, windows, _begins(runs), strict=True)
        ]
        + [[total]]
    )
    directions = {
        "GPU to switch": [
            run.shares(run.up, count) for run, count in zip(runs, windows, strict=True)
        ],
        "switch to GPU": [
            run.shares(run.down, count) for run, count in zip(runs, windows, strict=True)
        ],
    }
    figure, axes = pyplot.subplots(
        3, 1, figsize=(10, 7), sharex=True, height_ratios=(2, 2, 1.4), layout="constrained"
    )
    gpus = len(runs[0].up)
    for axis, (name, shares) in zip(axes, directions.items(), strict=False):
        all_shares = np.concatenate(shares, axis=1)
        mesh = axis.pcolormesh(
            edges, np.arange(gpus + 1) - 0.5, all_shares, vmin=0, vmax=1, cmap="viridis"
        )
        axis.set_ylabel(f"{name}\nGPU")
        axis.set_yticks(range(gpus))
        axis.invert_yaxis()
        axes[2].stairs(all_shares.mean(axis=0), edges, label=name, baseline=None)
    figure.colorbar(mesh, ax=axes[:2], label="share of cycles with a flit")
    axes[2].set_ylabel("mean of links")
    axes[2].set_ylim(0, 1.05)
    axes[2].set_xlabel("cycle")
    axes[2].legend(loc="lower right")
    for run, begin in zip(runs, _begins(runs), strict=True):
        axes[0].text(begin, -0.7, run.name, va="bottom")
        if begin:
            for axis in axes:
                axis.axvline(begin, color="white" if axis is not axes[2] else "black", lw=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
    finally:
        pyplot.close(figure)


def _begins(runs: Sequence[LinkUse]) -> list[int]:
    return [sum(run.cycles for run in runs[:number]) for number in range(len(runs))]
