# SPDX-License-Identifier: Apache-2.0
"""The deadlock soak: overlapping multicasts of several flits, outputs that stall.

A multicast that holds one output while it waits for another one, and two of them that do so
crosswise, is how crossbars of this kind hang; with outputs that are always ready it never shows.
"""

from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
from dysharp.golden.packets import Packets
from dysharp.golden.switch import SwitchConfig
from dysharp.rtl.params import PRESETS, SwitchParams

from .environment import Pace, Phase, PhaseResult, SwitchEnvironment
from .stimulus import Mix, random_packets

__all__ = ["SoakResult", "soak", "soak_phases"]

_PACES = tuple(
    Pace(ready=ready, burst=burst)
    for ready, burst in ((90, 0), (70, 0), (100, 0), (70, 16), (90, 16))
)
_MIXES = (
    Mix(unicast=1, static=0, dynamic=4, response=0, load=0, cluster=0, spread=0.8),
    Mix(unicast=1, static=4, dynamic=0, response=0, load=0),
    Mix(unicast=1, static=2, dynamic=2, response=1, load=0.1, cluster=0, spread=0.8),
)
_SHARE = 400
"""Packets of a port in one phase."""


@dataclass(frozen=True)
class SoakResult:
    """What a soak showed.

    Parameters
    ----------
    hangs : int
        Phases that did not end, or left packets inside the switch.
    cycles : int
        Cycles under traffic.
    """

    hangs: int
    cycles: int


def soak_phases(params: SwitchParams, seed: int) -> list[Phase]:
    """One phase for each number of multicasting inputs, from 2 up, and each mix.

    All groups, and most lists, have the first three GPUs in common. The other inputs add unicast
    noise.
    """
    rng = np.random.default_rng(seed)
    common = (1 << min(3, params.gpus)) - 1
    groups = common | rng.integers(0, 1 << min(params.gpus, 62), params.groups)
    groups[:1] = common
    config = SwitchConfig(
        experts_per_gpu=8,
        groups=tuple(int(mask) for mask in groups),
        partitions=(0,) * params.ports,
    )
    noise = Mix(static=0, dynamic=0)
    phases = []
    for number, senders in enumerate(range(2, params.ports + 1)):
        chosen = set(rng.permutation(params.ports)[:senders].tolist())
        mix = _MIXES[(number + seed) % len(_MIXES)] if params.dynamic else _MIXES[1]
        inputs: list[Packets] = [
            random_packets(params, config, port, _SHARE, mix if port in chosen else noise, rng)
            for port in range(params.ports)
        ]
        phases.append(Phase(inputs=inputs, config=config, cycles=60 * _SHARE * params.ports))
    return phases


def soak(
    params: SwitchParams = PRESETS["tiny"],
    *,
    folder: Path,
    seed: int = 1,
    cycles: int = 1_000_000,
    name: str = "soak",
    waves: bool = False,
) -> SoakResult:
    """Run phases with new seeds until `cycles` have passed under traffic.

    Parameters
    ----------
    params : SwitchParams
        The switch.
    folder : Path
        Where builds and runs go.
    seed : int
        First seed.
    cycles : int
        Cycles under traffic, at least.
    name : str
        Name of the runs.
    waves : bool
        Whether runs write a waveform.

    Raises
    ------
    AssertionError
        Packets came out that differ from the model's. Missing ones count as a hang.
    """
    environment = SwitchEnvironment(params, folder, waves=waves)
    hangs = spent = 0
    for number in count():
        pace = _PACES[number % len(_PACES)]
        phases = soak_phases(params, seed + number)
        for result in environment.run(phases, name=name, seed=seed + number, pace=pace):
            hangs += _hangs(result, seed + number)
            spent += result.cycles
        # One that always hangs would take the time-outs of all phases. Waves show one hang.
        if spent >= cycles or hangs > (0 if waves else 3):
            return SoakResult(hangs, spent)
    raise AssertionError("not reached")


def _hangs(result: PhaseResult, seed: int) -> bool:
    if result.end != "done":
        return True
    wanted = result.scoreboard.expected.counters["tx_flits"]
    got = [len(log.flits) for log in result.outputs]
    if sum(got) < sum(wanted):
        return True
    problems = result.problems()
    if problems:
        raise AssertionError("\n".join([f"soak, seed {seed}:", *problems[:20]]))
    return False
