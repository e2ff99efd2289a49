# SPDX-License-Identifier: Apache-2.0
"""What a waveform shows agrees with what the monitors logged."""

import numpy as np
import pytest
from dysharp.verif.switch.environment import PACES
from dysharp.verif.switch.shapes import SHAPES
from dysharp.verif.switch.stimulus import Mix
from dysharp.verif.switch.test_switch_random import random_phase
from dysharp.verif.switch.waves import Links, header_latencies, occupancy, read_links

PARAMS = SHAPES["ports2_lanes2"]


def test_waveform_agrees_with_monitors(bench, trial):
    for seed in trial.seeds():
        phase = random_phase(PARAMS, seed, 40, Mix())
        (result,) = bench.check(PARAMS, phase, seed=seed, pace=PACES["light"], waves=True)
        seen = read_links(trial.waveforms[-1], PARAMS.ports)
        logged = Links(inputs=result.inputs, outputs=result.outputs)
        # Cycles of the monitors are counted from another zero; it is one for all links.
        shifts = set()
        for one, other in zip(
            seen.inputs + seen.outputs, logged.inputs + logged.outputs, strict=True
        ):
            np.testing.assert_array_equal(one.flits, other.flits)
            shifts |= set((one.cycles - other.cycles).tolist())
            assert occupancy(one) == pytest.approx(occupancy(other), abs=0)
            assert 0.3 < occupancy(one) <= 1
        assert len(shifts) == 1
        assert header_latencies(seen) == header_latencies(logged)


def test_waveform_of_another_design_is_refused(tmp_path):
    path = tmp_path / "other.vcd"
    path.write_text(
        "$timescale 1ns $end\n$scope module top $end\n$var wire 1 ! clk $end\n$upscope $end\n"
        "$enddefinitions $end\n#0\n0!\n"
    )
    with pytest.raises(ValueError, match="no clk, rx__0__flit"):
        read_links(path, 1)
