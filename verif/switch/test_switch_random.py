# SPDX-License-Identifier: Apache-2.0
"""Constrained random packets under every class of back-pressure."""

import numpy as np
import pytest
from dysharp.golden.packets import Packets
from dysharp.golden.switch import SwitchModel
from dysharp.rtl.params import PRESETS, SwitchParams
from dysharp.verif.lib.coverage import Coverage, expected_bins, sample
from dysharp.verif.switch.environment import PACES, Phase
from dysharp.verif.switch.stimulus import Mix, random_config, random_packets

TINY = PRESETS["tiny"]
SEEDS = 3
PACKETS = 1200


def random_phase(params: SwitchParams, seed: int, packets: int, mix: Mix | None = None) -> Phase:
    """Everything random: registers, packets, faults, and idle times on half of the ports."""
    rng = np.random.default_rng(seed)
    config = random_config(params, rng, partitions=1 if seed % 3 else 2)
    mix = mix or Mix(faults=0.05)
    inputs = [
        random_packets(params, config, port, packets, mix, rng) for port in range(params.ports)
    ]
    gaps, inner_gaps = [], []
    for port, sent in enumerate(inputs):
        idle = port % 2 == 1
        gaps.append(rng.geometric(0.2, len(sent)) - 1 if idle else None)
        inner_gaps.append(rng.geometric(0.9, len(sent.flits)) - 1 if idle else None)
    return Phase(
        inputs=inputs,
        config=config,
        gaps=gaps,
        inner_gaps=inner_gaps,
        cycles=20_000 + 200 * packets,
    )


def test_smoke(bench, trial):
    """A few good packets of every kind."""
    for seed in trial.seeds():
        phase = random_phase(TINY, seed, 20, Mix())
        (result,) = bench.check(TINY, phase, seed=seed)
        assert all(len(log.flits) for log in result.outputs)


@pytest.mark.parametrize("pace", PACES)
@pytest.mark.parametrize("preset", ["tiny", "default"])
def test_random(bench, trial, preset, pace):
    params = PRESETS[preset]
    for seed in trial.seeds(SEEDS):
        phase = random_phase(params, seed, PACKETS)
        bench.check(params, phase, seed=seed, pace=PACES[pace], coverage=pace)


@pytest.mark.parametrize("pace", ["none", "heavy"])
def test_random_on_icarus(bench, trial, pace):
    for seed in trial.seeds():
        phase = random_phase(TINY, seed, 60)
        bench.check(TINY, phase, seed=seed, pace=PACES[pace], simulator="icarus")


@pytest.mark.regress
@pytest.mark.parametrize("pace", PACES)
@pytest.mark.parametrize("preset", ["tiny", "default"])
def test_random_long(bench, trial, preset, pace):
    params = PRESETS[preset]
    for seed in trial.seeds(20):
        phase = random_phase(params, 1000 + seed, 2000)
        bench.check(params, phase, seed=seed, pace=PACES[pace], coverage=pace)


@pytest.mark.parametrize("preset", ["tiny", "default"])
def test_random_leaves_no_bin_empty(preset):
    """The packets of `test_random` reach every bin; their effect is taken from the model."""
    params = PRESETS[preset]
    bins = Coverage()
    for seed in range(1, SEEDS + 1):
        phase = random_phase(params, seed, PACKETS)
        result = SwitchModel(params, phase.config).process(phase.inputs)
        for pace in PACES:
            sample(bins, params, phase.inputs, phase.config, result, pace)
    assert bins.empty(expected_bins(params, list(PACES))) == []


def test_coverage_files_add_up(tmp_path):
    phase = random_phase(TINY, 1, 50)
    result = SwitchModel(TINY, phase.config).process(phase.inputs)
    for pace in ("none", "heavy"):
        bins = Coverage()
        sample(bins, TINY, phase.inputs, phase.config, result, pace)
        bins.dump(tmp_path / f"{pace}.json")
    merged = Coverage.merge(tmp_path.glob("*.json"))
    assert merged.empty(["cp_response:RSP_DATA/none", "cp_response:RSP_DATA/heavy"]) == []
    assert merged.empty(["cp_response:RSP_DATA/light"]) == ["cp_response:RSP_DATA/light"]
    empty = SwitchModel(TINY, phase.config).process([Packets()] * TINY.ports)
    sample(merged, TINY, [Packets()] * TINY.ports, phase.config, empty, "light")
    assert merged.empty(["cp_response:RSP_DATA/light"])
