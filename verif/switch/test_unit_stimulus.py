# SPDX-License-Identifier: Apache-2.0
"""Random packets are what their mix says, as the model sees them."""

from dataclasses import replace

import numpy as np
import pytest
from dysharp.golden.flits import unpack_field, unpack_headers
from dysharp.golden.switch import SwitchConfig, SwitchModel
from dysharp.rtl.flits import Kind, Opcode
from dysharp.rtl.params import PRESETS, SwitchParams
from dysharp.verif.switch.stimulus import (
    FAULT_STATUSES,
    FAULTS,
    Mix,
    make_packets,
    random_config,
    random_packets,
)

SHAPES = {
    "tiny": PRESETS["tiny"],
    "default": PRESETS["default"],
    "static-only": SwitchParams(ports=4, groups=4, dynamic=False, entries=64),
}


def run(params, mix, seed=1, count=300, **changes):
    rng = np.random.default_rng(seed)
    config = replace(random_config(params, rng), **changes)
    if not params.dynamic:
        mix = replace(mix, dynamic=0.0)
    inputs = [random_packets(params, config, port, count, mix, rng) for port in range(params.ports)]
    return inputs, SwitchModel(params, config).process(inputs)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", SHAPES)
def test_without_faults_nothing_is_refused(shape, seed):
    inputs, result = run(SHAPES[shape], Mix(load=0.4, waiting=0.4), seed)
    assert not result.counters["refused"].any()
    assert not result.counters["dropped"].any()
    assert all(result.settled)
    assert result.counters["replaced"].min() > 0
    kinds = {(arm.kind, arm.canonical) for arms in result.arms for arm in arms}
    load, store = Kind.LOAD.value, Kind.STORE.value
    assert kinds == {(load, True), (load, False), (store, False)}
    assert {arm.dtype for arms in result.arms for arm in arms if arm.kind == load} == set(range(10))
    lengths = np.concatenate([arms.length for arms in result.arms])
    assert {1, 16} <= set(lengths.tolist())
    assert sum(len(packets) for packets in inputs) == 300 * SHAPES[shape].ports


def test_only_those_wait_that_the_mix_lets_wait():
    _, result = run(SHAPES["tiny"], Mix(load=0.0))
    assert not any(map(len, result.arms))
    _, result = run(SHAPES["tiny"], Mix(load=0.0, waiting=1.0))
    requests = sum(
        int(np.count_nonzero(unpack_field(packets.headers, "opcode") >= 5))
        for output in result.outputs
        for (_, vc), packets in output.items()
        if vc == 0
    )
    assert 0 < sum(map(len, result.arms)) <= requests


def test_stray_parts_are_all_late():
    mix = Mix(load=0.0, part=2.0, faults=0.2)
    inputs, result = run(SHAPES["tiny"], mix)
    assert all(result.settled)
    for port, sources in enumerate(result.parts):
        assert len(sources) == 4
        assert result.counters["late"][port] == sum(map(len, sources.values())) > 50
    opcodes = np.concatenate([unpack_field(packets.headers, "opcode") for packets in inputs])
    assert {Opcode.PART_ACK.value, Opcode.PART_DATA.value} <= set(opcodes.tolist())
    _, result = run(SHAPES["tiny"], Mix())
    assert not any(result.parts)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_fault_has_its_status(shape, fault):
    params = SHAPES[shape]
    if not params.dynamic and fault in ("count_zero", "too_many", "far_too_many", "bad_target"):
        return  # unknown opcodes there
    mix = Mix(faults=0.3, fault_kinds=(fault,), load=0.4, waiting=0.3)
    _, result = run(params, mix, experts_per_gpu=7)
    statuses = [unpack_headers(packets.headers)["aux"] for packets in result.refusals]
    seen = set(np.concatenate(statuses).tolist())
    if fault == "bad_response":
        assert seen == set()
        assert result.counters["dropped"].min() >= 50
    else:
        assert seen == {FAULT_STATUSES[fault].value}
        assert result.counters["refused"].min() >= 30


def test_wrong_fault():
    message = r"^`fault` must be one of \('unknown_opcode', .*\), not 'none'$"
    with pytest.raises(ValueError, match=message):
        run(SHAPES["tiny"], Mix(faults=1.0, fault_kinds=("none",)))


def test_made_stores_are_posted_and_made_sums_exist():
    config = SwitchConfig.at_reset(SHAPES["tiny"])
    config = replace(config, groups=(3, 0, 0, 0))
    for opcode in (Opcode.MM_ST, Opcode.MM_RED, Opcode.MM_LD_REDUCE, Opcode.DY_ST):
        targets = [[0, 1]] * 2 if opcode is Opcode.DY_ST else None
        for fields in ({}, {"posted": 0}):
            packets = make_packets(opcode, gpu=0, address=[1, 2], targets=targets, **fields)
            inputs = [packets, *[packets.slice(0, 0)] * 3]
            result = SwitchModel(SHAPES["tiny"], config).process(inputs)
            assert not result.counters["refused"].any()
            waits = fields or opcode is Opcode.MM_LD_REDUCE
            assert len(result.arms[0]) == (2 if waits else 0)
