# SPDX-License-Identifier: Apache-2.0
"""Latency of an idle switch on all pairs of ports, and its rate, from the logs of the links."""

import numpy as np
import pytest
from dysharp.golden.flits import unpack_headers
from dysharp.golden.packets import Packets
from dysharp.golden.switch import SwitchConfig
from dysharp.rtl.flits import Opcode, Status
from dysharp.rtl.params import PRESETS
from dysharp.rtl.switch.switch import Switch
from dysharp.verif.switch.environment import Phase
from dysharp.verif.switch.shapes import SHAPES
from dysharp.verif.switch.stimulus import make_packets

EXPERTS = 8
APART = 64
"""Cycles from one packet to the next, enough for the switch to be idle again."""


def header_cycles(log):
    """Address and cycle of every header on a link."""
    packets = log.packets
    fields = unpack_headers(packets.headers)
    # Nobody answers, so loads end with results of the switch; those have no address.
    is_result = (fields["opcode"] >> 2 == 3) & (fields["aux"] == Status.REPLACED.value)
    addresses = fields["address"][~is_result].tolist()
    return dict(zip(addresses, log.cycles[packets.starts][~is_result].tolist(), strict=True))


def one_at_a_time(params, kinds):
    """Packets of the kinds from each port in turn, with the switch idle in between."""
    inputs, gaps = [], []
    for port in range(params.ports):
        packets, gap = [], []
        for kind in kinds:
            for other in range(params.ports):
                # The address tells packets apart.
                address = [len(packets) << 8 | port]
                packets.append(kind(port, other, address))
                size = len(packets[-2].flits) if len(packets) > 1 else 0
                first = 2000 + APART * port
                gap.append(APART * params.ports - size if len(packets) > 1 else first)
        inputs.append(Packets.concatenate(*packets))
        gaps.append(np.array(gap))
    config = SwitchConfig(
        experts_per_gpu=EXPERTS,
        groups=tuple(1 << g if g < params.gpus else 0 for g in range(params.groups)),
        partitions=(0,) * params.ports,
    )
    return Phase(inputs=inputs, config=config, gaps=gaps)


def latencies(result):
    """Cycles from header in to header out, for all copies."""
    came = {}
    for log in result.inputs:
        came |= header_cycles(log)
    return [
        cycle - came[address]
        for log in result.outputs
        for address, cycle in header_cycles(log).items()
    ]


def stated(params):
    """Return latencies that the component states: without and with a list, of responses."""
    switch = Switch(params)
    switch._MustUse__silence = True  # it is not elaborated
    return switch.latency, switch.list_latency, switch.response_latency


def unicast(port, other, address):
    return make_packets(Opcode.WRITE, gpu=port, address=address, count=other, length=2)


def load(port, other, address):
    return make_packets(Opcode.READ, gpu=port, address=address, count=other)


def group(port, other, address):
    return make_packets(Opcode.MM_ST, gpu=port, address=address, count=other, length=2)


def response(port, other, address):
    return make_packets(Opcode.RSP_DATA, gpu=other, address=address, length=2)


def one_target(port, other, address):
    target = [[other * EXPERTS + 3]]
    return make_packets(Opcode.DY_ST, gpu=port, address=address, length=2, targets=target)


def eight_targets(port, other, address):
    targets = [[other * EXPERTS + lane for lane in range(8)]]
    return make_packets(Opcode.DY_ST, gpu=port, address=address, length=2, targets=targets)


def load_of_eight(port, other, address):
    targets = [[other * EXPERTS + lane for lane in range(8)]]
    return make_packets(Opcode.DY_LD_REDUCE, gpu=port, address=address, length=8, targets=targets)


@pytest.mark.parametrize("preset", ["tiny", "default"])
def test_latency_without_list(bench, trial, preset):
    params = PRESETS[preset]
    for seed in trial.seeds():
        requests, responses = bench.check(
            params,
            one_at_a_time(params, [unicast, load, group]),
            one_at_a_time(params, [response]),
            seed=seed,
        )
        latency, _, of_responses = stated(params)
        seen = latencies(requests)
        assert len(seen) == 3 * params.ports**2
        assert set(seen) == {latency}
        assert set(latencies(responses)) == {of_responses}


@pytest.mark.parametrize(
    "name", ["tiny", "default", "ports2_lanes2", "ports3_lanes1", "ports5_lanes4_route2"]
)
def test_latency_with_list(bench, trial, name):
    params = {**PRESETS, **SHAPES}[name]
    for seed in trial.seeds():
        phase = one_at_a_time(params, [one_target, eight_targets, load_of_eight])
        (result,) = bench.check(params, phase, seed=seed)
        seen = latencies(result)
        assert len(seen) == 3 * params.ports**2
        assert set(seen) == {stated(params)[1]}


@pytest.mark.parametrize("preset", ["tiny", "default"])
def test_latency_of_multicast(bench, trial, preset):
    """All copies of an idle switch leave together; a list costs no more than stated."""
    params = PRESETS[preset]

    def everyone(port, other, address):
        targets = [[(other + step) % params.gpus * EXPERTS for step in range(8)]]
        return make_packets(Opcode.DY_ST, gpu=port, address=address, length=2, targets=targets)

    for seed in trial.seeds():
        (result,) = bench.check(params, one_at_a_time(params, [everyone]), seed=seed)
        seen = latencies(result)
        assert len(seen) == params.ports**3
        assert set(seen) == {stated(params)[1]}
    latency, list_latency, _ = stated(params)
    assert list_latency - latency == 1


@pytest.mark.parametrize("length", [1, 8, 16])
@pytest.mark.parametrize("preset", ["tiny", "default"])
def test_permutation_runs_at_full_rate(bench, trial, preset, length):
    """One flit per cycle and port from the first header to the last flit."""
    params = PRESETS[preset]
    for seed in trial.seeds():
        rng = np.random.default_rng(seed)
        inputs = [
            make_packets(
                Opcode.WRITE,
                gpu=port,
                address=rng.integers(0, 1 << 48, 200),
                count=(port + 1) % params.ports,
                length=length,
            )
            for port in range(params.ports)
        ]
        phase = Phase(inputs=inputs, config=SwitchConfig.at_reset(params))
        (result,) = bench.check(params, phase, seed=seed)
        for log in result.outputs:
            assert log.cycles[-1] - log.cycles[0] + 1 == len(log.cycles)


@pytest.mark.parametrize("preset", ["tiny", "default"])
def test_list_costs_a_cycle(bench, trial, preset):
    """A packet with a list of one flit costs its input one cycle more than its flits."""
    params = PRESETS[preset]
    for seed in trial.seeds():
        rng = np.random.default_rng(seed)
        inputs = [
            make_packets(
                Opcode.DY_ST,
                gpu=port,
                address=rng.integers(0, 1 << 48, 200),
                length=8,
                targets=[[(port + 1) % params.gpus * EXPERTS + lane for lane in range(8)]] * 200,
            )
            for port in range(params.ports)
        ]
        config = SwitchConfig(
            experts_per_gpu=EXPERTS, groups=(0,) * params.groups, partitions=(0,) * params.ports
        )
        (result,) = bench.check(params, Phase(inputs=inputs, config=config), seed=seed)
        for log in result.outputs:
            assert log.cycles[-1] - log.cycles[0] + 1 <= len(log.cycles) + 200
