# SPDX-License-Identifier: Apache-2.0
"""Overlapping multicasts must not hang the switch; see ``soak.py``."""

from dataclasses import replace

import pytest
from dysharp.rtl.params import PRESETS
from dysharp.verif.switch.conftest import BUILD
from dysharp.verif.switch.soak import soak

TINY = PRESETS["tiny"]


def run(trial, params, cycles, seed):
    name, folder = f"{trial.name}-{seed}", BUILD / "sim"
    if trial.waves:
        trial.waveforms.append(folder / "runs" / name / "dump.vcd")
    result = soak(params, folder=folder, seed=seed, cycles=cycles, name=name, waves=trial.waves)
    assert result.hangs == 0
    assert result.cycles >= cycles


@pytest.mark.parametrize("preset", ["tiny", "default"])
def test_soak(trial, preset):
    for seed in trial.seeds():
        run(trial, PRESETS[preset], 100_000, seed)


@pytest.mark.regress
@pytest.mark.parametrize(
    "params",
    [
        pytest.param(TINY, id="tiny"),
        pytest.param(PRESETS["default"], id="default"),
        pytest.param(replace(TINY, ports=3, max_targets=48), id="smallest_buffers"),
        pytest.param(replace(TINY, dynamic=False), id="static"),
    ],
)
def test_soak_long(trial, params):
    for seed in trial.seeds():
        run(trial, params, 1_000_000, 1000 * seed)
