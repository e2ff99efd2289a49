# SPDX-License-Identifier: Apache-2.0
"""Equal shares of an output, and outputs that stall without harm to others."""

import numpy as np
import pytest
from dysharp.golden.flits import unpack_field
from dysharp.golden.packets import Packets
from dysharp.golden.switch import SwitchConfig
from dysharp.rtl.flits import Opcode, Vc
from dysharp.rtl.params import PRESETS
from dysharp.rtl.switch.egress import CREDIT_MARGIN
from dysharp.verif.switch.environment import Pace, Phase
from dysharp.verif.switch.shapes import SHAPES
from dysharp.verif.switch.stimulus import make_packets

TINY = PRESETS["tiny"]
NOTHING = Packets()
ROUNDS = 60


def addresses(rng, count):
    """Random addresses, different ones."""
    return rng.integers(0, 1 << 48, count)


@pytest.mark.parametrize(
    "shape",
    [
        "ports3_lanes1",
        "ports5_lanes4_route2",
        pytest.param("ports6_route1", marks=pytest.mark.regress),
        "ports7_route3",
    ],
)
def test_inputs_share_an_output_equally(bench, trial, shape):
    """In every round each of 2..N inputs sends one packet, whatever the lengths are."""
    params = SHAPES[shape]
    config = SwitchConfig.at_reset(params)
    for seed in trial.seeds():
        rng = np.random.default_rng(seed)
        phases, senders = [], []
        for count in range(2, params.ports + 1):
            chosen = rng.permutation(params.ports)[:count]
            inputs = [
                make_packets(
                    Opcode.WRITE,
                    gpu=port,
                    address=addresses(rng, ROUNDS),
                    length=rng.integers(2, 13, ROUNDS) if count % 2 else 4,
                    count=1,
                )
                if port in chosen
                else NOTHING
                for port in range(params.ports)
            ]
            phases.append(Phase(inputs=inputs, config=config))
            senders.append(sorted(chosen.tolist()))
        results = bench.check(params, *phases, seed=seed)
        for chosen, result in zip(senders, results, strict=True):
            order = unpack_field(result.outputs[1].packets.headers, "gpu")
            # The first round may be short of inputs that come later; at the end all have sent all.
            rounds = order[: len(order) // len(chosen) * len(chosen)]
            rounds = rounds[len(chosen) :].reshape(-1, len(chosen))
            for one in rounds[:-2]:
                assert sorted(one.tolist()) == chosen
            counts = np.bincount(order, minlength=params.ports)[chosen]
            assert (counts == ROUNDS).all()


def test_requests_and_responses_share_an_output(bench, trial):
    """While both channels wait they take turns, and each is fair between its inputs."""
    for seed in trial.seeds():
        rng = np.random.default_rng(seed)
        inputs = []
        for port in range(TINY.ports):
            pairs = []
            for _ in range(ROUNDS):
                pairs += [
                    make_packets(Opcode.WRITE, gpu=port, address=addresses(rng, 1), length=3),
                    # What tells the inputs of responses apart is their tag.
                    make_packets(
                        Opcode.RSP_DATA, gpu=0, address=addresses(rng, 1), length=3, tag=port
                    ),
                ]
            inputs.append(Packets.concatenate(*pairs))
        phase = Phase(inputs=inputs, config=SwitchConfig.at_reset(TINY))
        (result,) = bench.check(TINY, phase, seed=seed)
        headers = result.outputs[0].packets.headers
        channel = unpack_field(headers, "vc")
        body = channel[2 * TINY.ports : -4 * TINY.ports]
        assert (body[1:] != body[:-1]).all()
        for vc, field in ((Vc.REQUEST, "gpu"), (Vc.RESPONSE, "tag")):
            order = unpack_field(headers[channel == vc.value], field)[TINY.ports :]
            rounds = order[: len(order) // TINY.ports * TINY.ports].reshape(-1, TINY.ports)
            for one in rounds[:-2]:
                assert sorted(one.tolist()) == list(range(TINY.ports))


def test_stalled_output_does_not_slow_others(bench, trial):
    """Packets for a stalled output rest in their pair queues; the others run at full rate."""
    stall = Pace(stall=0b0001, stall_until=4000)
    for seed in trial.seeds():
        rng = np.random.default_rng(seed)
        inputs = []
        for port in range(TINY.ports):
            blocked = make_packets(Opcode.WRITE, gpu=port, address=addresses(rng, 3), length=6)
            through = make_packets(
                Opcode.WRITE,
                gpu=port,
                address=addresses(rng, 100),
                length=9,
                count=port % 3 + 1 if port else 0,
            )
            inputs.append(Packets.concatenate(blocked, through) if port else blocked)
        phase = Phase(inputs=inputs, config=SwitchConfig.at_reset(TINY))
        (result,) = bench.check(TINY, phase, seed=seed, pace=stall)
        for port in range(1, TINY.ports):
            cycles = result.outputs[port].cycles
            assert len(cycles) == 1000
            assert cycles[-1] - cycles[0] + 1 == 1000
            assert cycles[-1] < 4000


def test_stalled_output_does_not_hold_responses(bench, trial):
    """Requests for a stalled output fill pair queues and ingress; responses pass them all."""
    smallest = TINY.max_request_flits + CREDIT_MARGIN
    stall = Pace(stall=0b0001, stall_until=6000, depth=smallest)
    for seed in trial.seeds():
        rng = np.random.default_rng(seed)
        inputs = []
        for port in range(TINY.ports):
            # Five packets of five flits fit a pair's queue, and six the ingress.
            blocked = make_packets(Opcode.WRITE, gpu=port, address=addresses(rng, 10), length=4)
            responses = [
                make_packets(Opcode.RSP_DATA, gpu=gpu, address=addresses(rng, 50), length=3)
                for gpu in range(1, TINY.ports)
            ]
            inputs.append(Packets.concatenate(blocked, *responses))
        phase = Phase(inputs=inputs, config=SwitchConfig.at_reset(TINY))
        (result,) = bench.check(TINY, phase, seed=seed, pace=stall)
        # The requests really were held up, the responses were not.
        assert result.outputs[0].cycles[-1] > 6000
        assert (result.outputs[0].cycles > 6000).sum() >= 5 * 30
        for port in range(1, TINY.ports):
            assert len(result.outputs[port].cycles) == TINY.ports * 50 * 4
            assert result.outputs[port].cycles[-1] < 5000


def test_hot_output_does_not_starve_others(bench, trial):
    """Ten to one on one output, from all inputs; a GPU that nobody sends to still answers."""
    for seed in trial.seeds():
        rng = np.random.default_rng(seed)
        inputs = []
        for port in range(TINY.ports):
            address = addresses(rng, 330)
            count = np.where(np.arange(330) % 11 == 10, 1 + port % 2, 0)
            sent = make_packets(Opcode.WRITE, gpu=port, address=address, count=count, length=2)
            answers = make_packets(Opcode.RSP_ACK, gpu=3, address=address[:50], length=0)
            inputs.append(Packets.concatenate(sent, answers))
        phase = Phase(inputs=inputs, config=SwitchConfig.at_reset(TINY))
        (result,) = bench.check(TINY, phase, seed=seed)
        busy = result.outputs[0].cycles
        assert len(busy) / (busy[-1] - busy[0] + 1) > 0.99
