# SPDX-License-Identifier: Apache-2.0
"""Time of a mixture-of-experts layer on a machine, for a system that is given as data."""

from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt

from ...rtl.flits import FLIT_BYTES, LANES
from .compute import COLUMNS
from .machine import Machine
from .systems import SYSTEMS, System
from .timeline import Span, Step, run_timeline
from .workload import Workload

__all__ = ["LayerTime", "LinkLoad", "link_loads", "simulate_layer"]

_UP, _DOWN, _SMS = range(3)


@dataclass(frozen=True, kw_only=True)
class LinkLoad:
    """Flits of the busiest GPU's links for one packet's worth of each of a GPU's tokens.

    Parameters
    ----------
    up, down : float
        To the switch, and from it; headers, lists, requests and acknowledgements included.
    """

    up: float
    down: float


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerTime:
    """What a run of the model found.

    Parameters
    ----------
    seconds : float
        The layer, from the first token on a link to the last sum.
    up_seconds, down_seconds, compute_seconds : float
        How long the links of each direction and the SMs were in use.
    dispatch_seconds, combine_seconds : float
        Bounds of the two exchanges, each alone: the direction that takes longer.
    tiles : int
        Tiles of the busiest GPU.
    spans : tuple of Span
        Steps, for a picture.
    """

    seconds: float
    up_seconds: float
    down_seconds: float
    compute_seconds: float
    dispatch_seconds: float
    combine_seconds: float
    tiles: int
    spans: tuple[Span, ...]

    @property
    def bound(self) -> str:
        """Name of what is in use longest: ``up``, ``down`` or ``compute``."""
        uses = {
            "up": self.up_seconds,
            "down": self.down_seconds,
            "compute": self.compute_seconds,
        }
        return max(uses, key=lambda name: uses[name])


def link_loads(workload: Workload, machine: Machine, traffic: str) -> tuple[LinkLoad, LinkLoad]:
    """Count the flits of dispatch and of combine.

    Every write has a header and is acknowledged by one flit; every packet of a sum is asked for.
    The switch merges acknowledgements of its copies into one. A GPU's own part stays off the links.

    Parameters
    ----------
    workload, machine
        Sizes.
    traffic : str
        As in :class:`.System`.
    """
    gpus = machine.gpus
    data = machine.packet // FLIT_BYTES
    write = 1 + data
    distinct = workload.distinct(gpus)
    # From a token's own point of view, and at the GPU that most tokens go to.
    sent = float(distinct.sum()) * (gpus - 1) / gpus
    got = float(distinct.max()) * (gpus - 1)
    if traffic == "expert":
        load = workload.popularity().reshape(gpus, -1).sum(axis=1)
        sent = workload.top_k * (gpus - 1) / gpus
        got = float(load.max()) * (gpus - 1)
    if traffic in ("gpu", "expert"):
        # Acknowledgements go the other way: the two exchanges mirror each other.
        dispatch = LinkLoad(up=sent * write + got, down=got * write + sent)
        return dispatch, LinkLoad(up=got * write + sent, down=sent * write + got)
    if traffic == "nvls":
        sent = got = gpus - 1
        lists = kept = 0
    elif traffic == "dynamic":
        lists = ceil(workload.top_k / LANES)
        each = workload.top_k / float(distinct.sum())
        kept = ceil(each / LANES) if machine.lists == "kept" else 0
    else:
        raise ValueError(f"`traffic` must be 'gpu', 'expert', 'nvls' or 'dynamic', not {traffic!r}")
    return (
        LinkLoad(up=write + lists + got, down=got * (write + kept) + 1),
        LinkLoad(up=1 + lists + got * write, down=got * (1 + kept) + write),
    )


def simulate_layer(
    workload: Workload, machine: Machine, system: System | str = "DySHARP"
) -> LayerTime:
    """Run one layer, tile by tile, on the GPU that has most to do.

    All GPUs have as many tokens to send; the one with most rows has the busiest links and
    SMs, and the others wait for it, so that it alone is simulated.

    Parameters
    ----------
    workload, machine
        The layer and where it runs.
    system : System or str
        How; a name of :data:`.SYSTEMS`.
    """
    if isinstance(system, str):
        if system not in SYSTEMS:
            raise ValueError(f"`system` must be one of {', '.join(SYSTEMS)}, not {system!r}")
        system = SYSTEMS[system]
    if system.reserved >= machine.sms:
        raise ValueError(
            f"`sms` must be above the {system.reserved} that move data, not {machine.sms!r}"
        )
    if not system.together and system.gemm1_gemm2 < 0:
        raise ValueError("`gemm1_gemm2` must be 0 or more if the exchanges may not be together")
    rows = workload.rows(machine.gpus)
    busiest = rows[int(rows.sum(axis=1).argmax())]
    size, wave = _tiles(busiest, workload.tile)
    part = size / size.sum()
    in_switch = system.traffic in ("nvls", "dynamic")
    rate = machine.rate * (machine.switch_efficiency if in_switch else machine.software_efficiency)
    loads = link_loads(workload, machine, system.traffic)
    packets = [
        workload.tokens * workload.hidden * width / machine.packet
        for width in (workload.dispatch_bytes, workload.combine_bytes)
    ]
    (dispatch_up, dispatch_down), (combine_up, combine_down) = (
        (load.up * count * FLIT_BYTES / rate, load.down * count * FLIT_BYTES / rate)
        for load, count in zip(loads, packets, strict=True)
    )
    sms = machine.sms - system.reserved
    first = _gemm(workload, machine, workload.matrices - 1, workload.hidden, workload.inner)
    second = _gemm(workload, machine, 1, workload.inner, workload.hidden)
    moved = 2 * float(busiest.sum()) * workload.hidden / machine.memory_rate
    before = system.passes / 2 * moved * workload.dispatch_bytes
    behind = system.passes / 2 * moved * workload.combine_bytes
    ones = np.ones(len(size))
    single = np.arange(len(size))
    # A token is summed when all its rows are done, so that combine goes by waves of tiles.
    gates = [
        _gate(system.dispatch_gemm1, single, machine.sync, before),
        _gate(system.gemm1_gemm2, single, machine.sync, 0.0),
        _gate(system.gemm2_combine, wave, machine.sync, behind),
    ]
    steps = (
        Step(name="dispatch up", server=_UP, work=part * dispatch_up),
        Step(
            name="dispatch down",
            server=_DOWN,
            work=part * dispatch_down,
            after=machine.latency,
        ),
        Step(
            name="GEMM-1",
            server=_SMS,
            work=ones * first[0] * first[1] / sms,
            after=first[1],
            group=gates[0][0],
            wait=gates[0][1],
        ),
        Step(
            name="GEMM-2",
            server=_SMS,
            work=ones * second[0] * second[1] / sms,
            after=second[1],
            group=gates[1][0],
            wait=gates[1][1],
        ),
        Step(
            name="combine up",
            server=_UP,
            work=part * combine_up,
            group=gates[2][0],
            wait=gates[2][1],
        ),
        Step(
            name="combine down",
            server=_DOWN,
            work=part * combine_down,
            after=2 * machine.latency if in_switch else machine.latency,
        ),
    )
    spans = run_timeline(steps)
    uses = [sum(span.busy for span in spans if span.server == server) for server in range(3)]
    seconds = float(spans[-1].end.max()) + system.barriers * machine.sync
    if system.overlap_next:
        idle = system.barriers * machine.sync + before + behind
        seconds = max(max(dispatch_up, dispatch_down) + max(combine_up, combine_down), uses[_SMS])
        seconds += idle
    return LayerTime(
        seconds=seconds,
        up_seconds=uses[_UP],
        down_seconds=uses[_DOWN],
        compute_seconds=uses[_SMS],
        dispatch_seconds=max(dispatch_up, dispatch_down),
        combine_seconds=max(combine_up, combine_down),
        tiles=len(size),
        spans=spans,
    )


def _tiles(
    rows: npt.NDArray[np.int64], tile: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return size and wave of all tiles of the experts with so many rows, as they fill up.

    Tokens come from all GPUs in turns, so that all experts fill at once. A token of a wave has
    rows in tiles of that wave, and not in later ones.
    """
    size, at = [], []
    for count in rows.tolist():
        ends = np.minimum(np.arange(tile, count + tile, tile), count)
        size.append(np.diff(ends, prepend=0))
        at.append(ends / max(count, 1))
    sizes, ends = np.concatenate(size), np.concatenate(at)
    order = np.argsort(ends, kind="stable")
    waves = max(len(part) for part in size)
    wave = np.minimum(np.ceil(ends[order] * waves - 1e-9).astype(np.int64), waves) - 1
    _, wave = np.unique(wave, return_inverse=True)
    return sizes[order].astype(np.float64), wave.astype(np.int64)


def _gate(
    grain: int, finest: npt.NDArray[np.int64], sync: float, moved: float
) -> tuple[npt.NDArray[np.int64], float]:
    """Return `group` and `wait` of a step behind an edge of this grain."""
    if grain < 0:
        return finest, 0.0
    tiles = len(finest)
    chunks = max(min(grain, tiles), 1)
    # A grain of 0 has its barriers in `System.barriers`.
    return np.arange(tiles) * chunks // tiles, moved / chunks + (sync if grain else 0.0)


def _gemm(
    workload: Workload, machine: Machine, matrices: int, depth: int, width: int
) -> tuple[int, float]:
    """Return the thread blocks of a tile, and the seconds of one of them on one SM."""
    blocks = matrices * ceil(width / COLUMNS)
    rate = machine.flops * machine.gemm_efficiency / machine.sms
    columns = min(width, COLUMNS)
    return blocks, 2 * workload.tile * columns * depth / rate + machine.block_overhead
