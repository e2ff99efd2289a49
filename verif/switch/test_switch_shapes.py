# SPDX-License-Identifier: Apache-2.0
"""Random packets through all shapes, and longest packets through the smallest buffers."""

import numpy as np
import pytest
from dysharp.golden.packets import Packets
from dysharp.golden.switch import SwitchConfig
from dysharp.rtl.flits import MAX_DATA_FLITS, Opcode
from dysharp.rtl.params import PRESETS
from dysharp.rtl.switch.egress import CREDIT_MARGIN
from dysharp.verif.switch.environment import PACES, Pace, Phase
from dysharp.verif.switch.shapes import SHAPES
from dysharp.verif.switch.stimulus import Mix, make_packets
from dysharp.verif.switch.test_switch_random import random_phase


@pytest.mark.parametrize("shape", SHAPES)
def test_shape(bench, trial, shape):
    params = SHAPES[shape]
    mix = Mix(faults=0.05, dynamic=2.0 if params.dynamic else 0.0)
    for seed in trial.seeds():
        for pace in ("none", "heavy"):
            phase = random_phase(params, 10 + seed, 400, mix)
            bench.check(params, phase, seed=seed, pace=PACES[pace])


def test_lists_are_unknown_opcodes_without_dynamic_support(bench, trial):
    params = SHAPES["static"]
    for seed in trial.seeds():
        phase = random_phase(params, seed, 200, Mix(dynamic=4.0, max_targets=8))
        (result,) = bench.check(params, phase, seed=seed, pace=PACES["heavy"])
        assert all(result.registers[f"refused{port}"] > 50 for port in range(params.ports))


@pytest.mark.parametrize("shape", ["smallest_buffers", "tiny"])
def test_longest_packets_through_smallest_buffers(bench, trial, shape):
    """All targets on one port, spread over all, and lists of all lengths around a flit."""
    params = {**SHAPES, **PRESETS}[shape]
    experts = 16
    longest = params.max_targets
    assert params.request_depth - params.queue_margin >= params.max_request_flits
    for seed in trial.seeds():
        rng = np.random.default_rng(seed)
        config = SwitchConfig(
            experts_per_gpu=experts, groups=(7,) * params.groups, partitions=(0,) * params.ports
        )
        inputs = []
        for port in range(params.ports):
            lists = [
                *(rng.integers(0, experts, longest) + gpu * experts for gpu in range(params.gpus)),
                *(rng.integers(0, experts * params.gpus, longest) for _ in range(20)),
                *(
                    rng.integers(0, experts * params.gpus, size)
                    for size in (1, 7, 8, 9, 15, 16, longest - 1)
                ),
            ]
            order = rng.permutation(len(lists))
            inputs.append(
                Packets.concatenate(
                    make_packets(
                        Opcode.DY_ST,
                        gpu=port,
                        address=rng.integers(0, 1 << 48, len(lists)),
                        length=MAX_DATA_FLITS,
                        targets=[lists[index].tolist() for index in order],
                    ),
                    make_packets(
                        Opcode.MM_ST,
                        gpu=port,
                        address=rng.integers(0, 1 << 48, 20),
                        length=MAX_DATA_FLITS,
                    ),
                    make_packets(
                        Opcode.RSP_DATA,
                        gpu=(port + 1) % params.gpus,
                        address=rng.integers(0, 1 << 48, 20),
                        length=MAX_DATA_FLITS,
                    ),
                )
            )
        phase = Phase(inputs=inputs, config=config)
        smallest = params.max_request_flits + CREDIT_MARGIN
        for pace in (Pace(depth=smallest), Pace(depth=smallest, ready=50, burst=8)):
            bench.check(params, phase, seed=seed, pace=pace)
