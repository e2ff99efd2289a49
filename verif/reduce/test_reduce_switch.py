# SPDX-License-Identifier: Apache-2.0
"""Combine through the whole switch, with models of GPUs that answer."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dysharp.golden.arrays import value_of
from dysharp.golden.flits import pack_headers, unpack_headers
from dysharp.golden.packets import Packets
from dysharp.golden.switch import SwitchConfig
from dysharp.rtl.flits import WIDE, DType, Opcode, Order, ReduceOp, Status
from dysharp.rtl.params import PRESETS
from dysharp.verif.lib.responder import Responder, random_memories
from dysharp.verif.reduce.fault_soak import fault_soak
from dysharp.verif.reduce.requests import EVERY_SUM, random_requests
from dysharp.verif.replay import check_answered
from dysharp.verif.switch.environment import PACES, Phase
from dysharp.verif.switch.shapes import SHAPES
from dysharp.verif.switch.stimulus import random_config

TINY = PRESETS["tiny"]
BUILD = Path(__file__).parents[2] / "build" / "sim"


def answered_phase(params, seed, count, **changes):
    """Let all ports send requests of every kind, which are answered well."""
    rng = np.random.default_rng(seed)
    config = random_config(params, rng)
    requests = changes.pop("requests", {})
    settings = {"delay_max": 60, "reorder": True} | changes
    return Phase(
        inputs=[
            random_requests(params, config, port, count, rng, **requests)
            for port in range(params.ports)
        ],
        config=config,
        responder=Responder(memories=random_memories(params.ports, rng), **settings),
        tags=True,
        checker=check_answered,
        cycles=50_000 + 600 * count,
    )


@pytest.mark.parametrize("pace", PACES)
def test_every_kind_of_request_and_sum(bench, trial, pace):
    """Random numbers of all kinds; the results' bits, whatever the delays and the receivers do."""
    for seed in trial.seeds(2):
        phase = answered_phase(TINY, seed, 250, presum=bool(seed % 2))
        (result,) = bench.check(TINY, phase, seed=seed, pace=PACES[pace])
        assert all(result.registers[f"armed{port}"] == 0 for port in range(TINY.ports))
        sums = {
            (int(a), int(b))
            for arms in result.scoreboard.expected.arms
            for a, b in zip(arms.dtype, arms.op, strict=True)
        }
        assert sums >= {(value_of(dtype), value_of(op)) for dtype, op in EVERY_SUM}


def test_pre_sums_of_wide_types_are_f32(bench, trial):
    for seed in trial.seeds():
        wide = [(dtype, op) for dtype, op in EVERY_SUM if dtype in WIDE]
        phase = answered_phase(
            TINY, seed, 200, presum=True, f32=True, requests={"sums": wide, "longest": 8}
        )
        bench.check(TINY, phase, seed=seed)


@pytest.mark.parametrize(
    "shape",
    [pytest.param("links2", marks=pytest.mark.regress), "ports3_lanes1", "static"],
)
def test_other_shapes(bench, trial, shape):
    params = SHAPES[shape]
    for seed in trial.seeds():
        requests = {"longest": 8}
        if not params.dynamic:
            requests["opcodes"] = (Opcode.MM_LD_REDUCE, Opcode.MM_ST, Opcode.MM_RED)
        phase = answered_phase(params, seed, 120, requests=requests)
        bench.check(params, phase, seed=seed)


def test_default_preset(bench, trial):
    params = PRESETS["default"]
    for seed in trial.seeds():
        phase = answered_phase(params, seed, 300, delay_max=500)
        bench.check(params, phase, seed=seed, pace=PACES["light"])


def test_static_collectives_do_not_depend_on_dynamic_support(bench, trial):
    """Cycle for cycle, flit for flit, on every link."""
    for seed in trial.seeds():
        opcodes = (Opcode.MM_LD_REDUCE, Opcode.MM_ST, Opcode.MM_RED)
        outputs = []
        for params in (TINY, replace(TINY, dynamic=False)):
            phase = answered_phase(params, seed, 150, requests={"opcodes": opcodes})
            (result,) = bench.check(params, phase, seed=seed)
            outputs.append(
                [(log.cycles - result.inputs[0].cycles[0], log.flits) for log in result.outputs]
            )
        for (cycles, flits), (other_cycles, other_flits) in zip(*outputs, strict=True):
            assert np.array_equal(cycles, other_cycles)
            assert np.array_equal(flits, other_flits)


def test_time_out_names_the_gpus_that_did_not_answer(bench, trial):
    """Nobody answers; every request ends with all its GPUs as the missing ones."""
    for seed in trial.seeds():
        phase = answered_phase(TINY, seed, 30, faults={"drop": 1000}, delay_max=0)
        phase = replace(phase, config=replace(phase.config, timeout=3), checker=lambda result: [])
        (result,) = bench.check(TINY, phase, seed=seed)
        for port, log in enumerate(result.outputs):
            arms = result.scoreboard.expected.arms[port]
            packets = log.packets
            fields = unpack_headers(packets.headers)
            mine = np.flatnonzero(fields["opcode"] == value_of(Opcode.RSP_DATA))
            assert len(mine) == len(arms) == 30
            assert (fields["aux"][mine] == value_of(Status.TIMEOUT)).all()
            assert result.registers[f"timeouts{port}"] == 30
            assert result.registers[f"armed{port}"] == 0
            told = {}
            for index in mine:
                key = int(fields["tag"][index]), int(fields["gen"][index])
                told.setdefault(key, []).append(packets[index][1].tolist())
            for tag, gen, expected in zip(arms.tag, arms.gen, arms.expected, strict=True):
                assert told[int(tag), int(gen)].pop(0) == [int(expected), 0]


def test_late_answers_of_an_earlier_use_are_harmless(bench, trial):
    """Answers come after the time-out, while the tag is in use again by another generation."""
    for seed in trial.seeds():
        phase = answered_phase(TINY, seed, 60, delay_min=500, delay_max=700)
        phase = replace(phase, config=replace(phase.config, timeout=2), checker=lambda result: [])
        (result,) = bench.check(TINY, phase, seed=seed)
        late = sum(result.registers[f"late{port}"] for port in range(TINY.ports))
        ended = sum(result.registers[f"timeouts{port}"] for port in range(TINY.ports))
        # With two bits of generation an answer that is four uses late is taken for a new one.
        assert ended > 0.9 * 60 * TINY.ports
        assert late > 60
        assert all(result.registers[f"armed{port}"] == 0 for port in range(TINY.ports))


def test_parts_do_not_leave_their_partition(bench, trial):
    """All pairs of ports; parts for another partition leave no trace there."""
    for seed in trial.seeds():
        config = replace(SwitchConfig.at_reset(TINY), partitions=(0, 0, 1, 1))
        gpus = np.arange(TINY.gpus)
        inputs = []
        for _port in range(TINY.ports):
            codes = [Opcode.PART_ACK, Opcode.PART_DATA, Opcode.RSP_ACK, Opcode.RSP_DATA]
            opcode = np.repeat([value_of(code) for code in codes], len(gpus))
            length = np.where(opcode & 2, 3, 0)
            headers = pack_headers(
                address=np.arange(len(opcode)) + 1,
                count=1,
                opcode=opcode,
                length=length,
                gpu=np.tile(gpus, len(codes)),
                vc=1,
            )
            data = np.zeros((int(length.sum()), 2), np.uint64)
            inputs.append(Packets.build(headers, data=data))
        (result,) = bench.check(TINY, Phase(inputs=inputs, config=config), seed=seed)
        for port in range(TINY.ports):
            assert result.registers[f"dropped{port}"] == 8
            assert result.registers[f"late{port}"] == 4
            assert result.registers[f"tx_responses{port}"] == 4


def test_reset_in_the_middle_of_sums(bench, trial):
    for seed in trial.seeds():
        cut = replace(answered_phase(TINY, seed, 200), cycles=900, checker=lambda result: [])
        whole = answered_phase(TINY, seed + 1, 60)
        first, second = bench.run(TINY, [cut, whole], seed=seed)
        assert first.end == "cut"
        assert second.problems() == []


def test_all_tags_of_a_port_at_once(bench, trial):
    """As many sums as there are entries wait for their last part, and come in any order."""
    params = PRESETS["default"]
    for seed in trial.seeds():
        rng = np.random.default_rng(seed)
        config = replace(SwitchConfig.at_reset(params), experts_per_gpu=1)
        inputs = [Packets() for _ in range(params.ports)]
        headers = pack_headers(
            address=np.arange(params.entries) << 7,
            count=2,
            opcode=value_of(Opcode.DY_LD_REDUCE),
            tag=np.arange(params.entries),
            aux=value_of(ReduceOp.ADD) | value_of(Order.CANONICAL) << 3,
            length=8,
            gpu=3,
            dtype=value_of(DType.F32),
        )
        targets = np.stack([rng.permutation(params.gpus)[:2] for _ in range(params.entries)])
        inputs[3] = Packets.build(headers, targets=targets.reshape(-1))
        phase = Phase(
            inputs=inputs,
            config=config,
            responder=Responder(
                memories=random_memories(params.ports, rng),
                delay_min=2000,
                delay_max=4000,
                reorder=True,
            ),
            tags=True,
            checker=check_answered,
        )
        bench.check(params, phase, seed=seed)


@pytest.mark.parametrize("requests", [8_000, pytest.param(1_000_000, marks=pytest.mark.regress)])
def test_no_request_is_forgotten_when_answers_go_wrong(trial, requests):
    for seed in trial.seeds():
        found = fault_soak(BUILD, seed=seed, requests=requests)
        assert found.requests == requests
        assert found.unanswered == 0
        assert found.leaked == 0
        assert 0.05 * requests < found.errors < 0.5 * requests
