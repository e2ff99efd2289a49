# SPDX-License-Identifier: Apache-2.0
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dysharp.gen.traces import Trace, read_trace, synthetic_trace
from dysharp.golden.flits import unpack_field, unpack_targets
from dysharp.golden.route import link_of
from dysharp.rtl.flits import DType, Order, Stage
from dysharp.rtl.params import PRESETS
from dysharp.verif.lib.run import SimulationError
from dysharp.verif.lib.shared import shared_folder
from dysharp.verif.plan import ReplayError, Sums, plan_replay
from dysharp.verif.replay import load_trace, replay, switch_for
from dysharp.verif.switch.environment import PhaseResult

TINY = PRESETS["tiny"]
BUILD = Path(__file__).parents[1] / "build" / "sim"
OLMOE = "data/moe_routes/olmoe-1b-7b_top8of64_gsm8k_layer0.jsonl.gz"


def small_trace(tokens=60, experts=16, top_k=5, seed=1):
    return synthetic_trace("uniform", tokens=tokens, experts=experts, top_k=top_k, seed=seed)


def small_plan(trace, params=TINY, **changes):
    arguments = {"experts_per_gpu": 16 // params.gpus, "payload": 64, "packets_per_token": 3}
    return plan_replay(trace, params, **arguments | changes)


def fields_of(packets, *names):
    return [unpack_field(packets.headers, name).tolist() for name in names]


class TestPlan:
    def test_token_t_belongs_to_gpu_t_mod_n(self):
        trace = small_trace()
        plan = small_plan(trace)
        for gpu, packets in enumerate(plan.inputs):
            sources, addresses, counts, lengths = fields_of(
                packets, "gpu", "address", "count", "length"
            )
            first = plan.inputs[0].headers[0, 0] & np.uint64((1 << 48) - 1)
            tokens = [(address - int(first)) // 64 // 3 for address in addresses]
            assert tokens == [t for t in range(gpu, 60, 4) for _ in range(3)]
            assert set(sources) == {gpu}
            assert (set(counts), set(lengths)) == ({5}, {4})
            assert np.array_equal(
                unpack_targets(np.array([packet[1] for packet in packets]), counts).reshape(-1, 5),
                trace.ids[tokens],
            )

    def test_blocked_tokens_are_neighbours(self):
        plan = small_plan(small_trace(), placement="blocked", packets_per_token=1)
        (first,) = fields_of(plan.inputs[0], "address")
        (second,) = fields_of(plan.inputs[1], "address")
        assert first + second == [first[0] + 64 * token for token in range(30)]

    def test_packets_leave_by_the_link_of_their_address(self):
        params = replace(TINY, links_per_gpu=2)
        plan = small_plan(small_trace(), params, payload=128)
        for port, packets in enumerate(plan.inputs):
            assert len(packets)
            gpus, addresses = fields_of(packets, "gpu", "address")
            assert addresses == sorted(addresses)
            assert set(gpus) == {port // 2}
            assert set(link_of(np.array(addresses), 2).tolist()) == {port % 2}

    def test_every_link_carries_what_counting_by_hand_says(self):
        trace = small_trace(top_k=12)
        plan = small_plan(trace)
        flits, fan_out = [0] * 4, Counter()
        for ids in trace.ids.tolist():
            targets = Counter(expert // 4 for expert in ids)
            fan_out[len(targets)] += 3
            for gpu, count in targets.items():
                flits[gpu] += 3 * (1 + -(-count // 8) + 4)
        assert plan.flits_out.tolist() == flits
        assert plan.flits_in.tolist() == [15 * 3 * (1 + 2 + 4)] * 4
        assert plan.ideal_cycles == max(flits)
        assert {n: c for n, c in enumerate(plan.fan_out.tolist()) if c} == dict(fan_out)
        assert plan.copies == sum(n * c for n, c in fan_out.items())

    def test_gpus_without_tokens_send_nothing(self):
        plan = small_plan(small_trace(tokens=2))
        assert [len(packets) for packets in plan.inputs] == [3, 3, 0, 0]

    def test_equal_seeds_give_equal_data(self):
        plans = [small_plan(small_trace(), seed=seed) for seed in (1, 1, 2)]
        flits = [plan.inputs[0].flits.tobytes() for plan in plans]
        assert flits[0] == flits[1] != flits[2]

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"payload": 0}, "`payload` must be a multiple of 16 up to 256 bytes, not 0"),
            ({"payload": 24}, "`payload` must be a multiple of 16 up to 256 bytes, not 24"),
            ({"payload": 272}, "`payload` must be a multiple of 16 up to 256 bytes, not 272"),
            ({"packets_per_token": 0}, "`packets_per_token` must be 1 or more, not 0"),
            ({"experts_per_gpu": 0}, "`experts_per_gpu` must be 1 to 65535, not 0"),
            ({"experts_per_gpu": 65536}, "`experts_per_gpu` must be 1 to 65535, not 65536"),
            ({"experts_per_gpu": 3}, "an expert of the trace must be 0 to 11, not 15"),
            ({"placement": "any"}, "`placement` must be one of interleaved, blocked, not 'any'"),
            ({"seed": -1}, "`seed` must be 0 or more, not -1"),
        ],
    )
    def test_wrong_value(self, changes, message):
        with pytest.raises(ReplayError, match=f"^{re.escape(message)}$"):
            small_plan(small_trace(), **changes)

    def test_list_longer_than_the_switch_takes(self):
        trace = Trace(np.arange(20)[None])
        message = "tokens of the trace must have up to 16 experts on this switch, not 20"
        with pytest.raises(ReplayError, match=f"^{message}$"):
            small_plan(trace, experts_per_gpu=8)


class TestSwitchFor:
    def test_eight_gpus_are_the_preset(self):
        assert switch_for(8, top_k=64) == PRESETS["default"]

    @pytest.mark.parametrize(
        ("top_k", "depths"), [(65, (64, 64)), (300, (64, 128)), (512, (128, 256))]
    )
    def test_long_lists_make_buffers_grow(self, top_k, depths):
        params = switch_for(4, 2, top_k)
        assert (params.ports, params.links_per_gpu, params.max_targets) == (8, 2, top_k)
        assert (params.ingress_depth, params.request_depth) == depths

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((1,), "`gpus` must be 2 or more, not 1"),
            ((65,), "65 GPUs with 1 links each: `ports` must be 2 to 64, not 65"),
            ((40, 2), "40 GPUs with 2 links each: `ports` must be 2 to 64, not 80"),
            ((8, 0), "`links_per_gpu` must be 1 or more, not 0"),
            ((8, 3), "8 GPUs with 3 links each: `links_per_gpu` must be one of (1, 2, 4), not 3"),
            ((8, 1, 513), "8 GPUs with 1 links each: `max_targets` must be 1 to 512, not 513"),
        ],
    )
    def test_wrong_value(self, arguments, message):
        with pytest.raises(ReplayError, match=f"^{re.escape(message)}$"):
            switch_for(*arguments)


@pytest.mark.parametrize("tokens", [0, -1])
def test_load_trace_wants_a_token(tmp_path, tokens):
    with pytest.raises(ReplayError, match=f"^`tokens` must be 1 or more, not {tokens}$"):
        load_trace(tmp_path / "none", gpus=4, experts_per_gpu=4, tokens=tokens)


def small_replay(name, **changes):
    arguments = {"gpus": 4, "experts_per_gpu": 4, "payload": 128, "packets_per_token": 2}
    arguments |= {"params": TINY, "folder": BUILD, "seed": 3, "name": name}
    return replay(small_trace(tokens=100), **arguments | changes)


def test_replay_reports_what_the_monitors_saw():
    stages = []
    result = small_replay("replay_tiny", progress=lambda what, part=0.0: stages.append(what))
    assert np.array_equal(result.flits_in, result.plan.flits_in)
    assert np.array_equal(result.flits_out, result.plan.flits_out)
    assert result.copies == result.plan.copies
    assert 0.9 < result.efficiency <= 1
    figures = result.figures()
    assert figures["packets_per_expert_unicast"] == 5 * figures["packets"] == 1000
    assert figures["packets_saved_against_expert_unicast"] == pytest.approx(0.8)
    assert figures["request_flits_expert_unicast"] == 1000 * 10
    assert sum(figures["fan_out"].values()) == 200
    assert list(dict.fromkeys(stages)) == [
        "making packets",
        "generating and building the switch",
        "simulating",
        "checking every packet",
    ]


def test_replay_with_two_links_and_slow_receivers():
    params = replace(TINY, links_per_gpu=2)
    result = small_replay(
        "replay_links", params=params, gpus=2, links_per_gpu=2, experts_per_gpu=8, ready=70
    )
    assert (result.flits_in > 0).all()
    # Measured against links that take a flit in every cycle.
    assert 0.5 < result.efficiency < 0.8


@pytest.mark.parametrize("order", [Order.CANONICAL, Order.ARRIVAL])
def test_replay_combines_alone_and_together_with_dispatch(order):
    """Results are compared with the golden model; all links carry what was planned."""
    changes = {"sums": Sums(dtype=DType.BF16_ACC32, order=order), "delay": (0, 50)}
    for stages in ((Stage.COMBINE,), (Stage.DISPATCH, Stage.COMBINE)):
        name = f"replay_combine_{order.name.lower()}"
        result = small_replay(name, stages=stages, acknowledge=True, **changes)
        assert np.array_equal(result.flits_in, result.plan.flits_in)
        assert np.array_equal(result.flits_out, result.plan.flits_out)
        assert result.results == result.plan.packets == 200 * len(stages)


def test_replay_combines_by_parts_of_single_experts():
    sums = Sums(dtype=DType.F16_TO_F32, presum=False)
    result = small_replay("replay_parts", stages=(Stage.COMBINE,), sums=sums)
    assert np.array_equal(result.flits_in, result.plan.flits_in)
    assert np.array_equal(result.flits_out, result.plan.flits_out)


def test_replay_fails_when_a_packet_differs(monkeypatch):
    monkeypatch.setattr(PhaseResult, "problems", lambda self: ["port 1: wrong", "port 2: wrong"])
    message = "2 differences from the golden model, the first: port 1: wrong; seed 3, see .*"
    with pytest.raises(SimulationError, match=f"^{message}replay_wrong$"):
        small_replay("replay_wrong")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ready": 0}, "`ready` must be 1 to 100, not 0"),
        (
            {"gpus": 8},
            "`gpus` and `links_per_gpu` must be those of the switch (4 and 1), not 8 and 1",
        ),
    ],
)
def test_replay_wrong_value(changes, message):
    with pytest.raises(ReplayError, match=f"^{re.escape(message)}$"):
        small_replay("never_runs", **changes)


def test_real_routing_of_olmoe_keeps_the_busiest_link_busy():
    path = shared_folder() / OLMOE
    if not path.exists():
        pytest.skip(f"no real trace: set DYSHARP_SHARED to the folder that holds {OLMOE}")
    result = replay(
        read_trace(path, 64, 240),
        gpus=8,
        experts_per_gpu=8,
        payload=128,
        packets_per_token=1,
        folder=BUILD,
        seed=1,
        name="replay_olmoe",
    )
    assert result.params == PRESETS["default"]
    assert result.efficiency >= 0.96
