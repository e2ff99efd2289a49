# SPDX-License-Identifier: Apache-2.0
import random
from dataclasses import replace
from typing import Any

import pytest
from dysharp.golden.packets import Packets
from dysharp.rtl.gpu_params import GPU_PRESETS
from dysharp.verif.hub.path_bench import PathBench, Timing, make_request, random_requests, run_all

TINY = GPU_PRESETS["tiny"]
ODD = replace(
    TINY,
    gpus=3,
    memory_flits=4,
    hub_flits=32,
    max_targets=9,
    lookups=4,
    misses=1,
    response_flits=32,
)


WIDE_BEAT = replace(TINY, memory_flits=8)
NARROW_BEAT = replace(ODD, memory_flits=1)

SLOW = Timing(memory="light", answer="light", read_latency=(1, 20))
HEAVY = Timing(memory="heavy", credits="heavy", write_latency=(1, 40))
BURSTY = Timing(input="bursty", answer="bursty", memory="bursty", lookup_latency=(1, 60))
STARVED = Timing(answer="heavy", response_slots=17, read_latency=(1, 30), write_latency=(1, 30))


@pytest.mark.parametrize(
    ("params", "cases"),
    [
        (TINY, [(1, Timing(), True), (2, SLOW, False), (7, replace(STARVED, reset_at=200), True)]),
        (ODD, [(3, HEAVY, True), (6, replace(STARVED, reset_at=300), False), (8, BURSTY, True)]),
        pytest.param(NARROW_BEAT, [(4, BURSTY, True)], marks=pytest.mark.regress),
        (WIDE_BEAT, [(5, BURSTY, True)]),
        pytest.param(NARROW_BEAT, [(9, Timing(input="light"), False)], marks=pytest.mark.regress),
        pytest.param(WIDE_BEAT, [(10, STARVED, True)], marks=pytest.mark.regress),
    ],
    ids=["tiny", "odd", "narrow", "wide", "narrow_parts", "wide_starved"],
)
def test_hub_path_random(params, cases) -> None:
    """All kinds of requests to addresses that overlap, with errors: bit for bit as the model."""
    benches = [
        PathBench(
            params,
            random_requests(random.Random(seed), params, 45),
            timing,
            seed=seed,
            presum=presum,
        )
        for seed, timing, presum in cases
    ]
    run_all(benches)
    for bench in benches:
        bench.check()
        assert bench.free_slots == params.hub_flits


def test_hub_path_malformed_does_not_hang() -> None:
    """What the switch would never send is dropped whole, and the next request is carried out."""
    rng = random.Random(11)
    malformed: list[dict[str, Any]] = [
        {"opcode": 0x0},
        {"opcode": 0x3, "length": 31},
        {"opcode": 0xB, "targets": range(20), "length": 2},
        {"opcode": 0x9, "count": 0},
        {"opcode": 0x9, "targets": range(300), "length": 1},
        {"opcode": 0xA, "targets": range(17), "length": 1},
        {"opcode": 0x1, "length": 0},
        {"opcode": 0x5, "length": 17},
        {"opcode": 0x2, "length": 0},
        {"opcode": 0x2, "enables": 5},
        {"opcode": 0x1, "length": 9, "enables": 5},
        {"opcode": 0xC},
        {"opcode": 0xE, "length": 3},
        {"opcode": 0x1, "vc": 1},
        {"opcode": 0x1, "gpu": 7},
    ]
    packets = []
    for number, fields in enumerate(malformed):
        packets.append(make_request(2 * number, **fields))
        packets.append(
            make_request(2 * number + 1, opcode=rng.choice((1, 2, 5)), length=2, address=64)
        )
    bench = PathBench(TINY, Packets.concatenate(*packets)).run()
    bench.check()
    assert bench.refused == len(malformed)
    assert bench.free_slots == TINY.hub_flits


def test_hub_path_reduction_that_does_not_exist_does_not_hang() -> None:
    """The values are anything, but the answers come."""
    packets = [
        make_request(n, opcode=opcode, dtype=dtype, aux=op, length=2, targets=targets)
        for n, (opcode, dtype, op, targets) in enumerate(
            [(0xA, 15, 7, (1, 2)), (0xA, 0, 0, (1, 2, 3)), (7, 12, 6, ()), (0xA, 6, 5, (1, 2, 3))]
        )
    ]
    bench = PathBench(TINY, Packets.concatenate(*packets)).run()
    assert len(bench.answers) == 4
    assert bench.free_slots == TINY.hub_flits


@pytest.mark.regress
def test_hub_path_long_lists() -> None:
    """Loads and stores with as many targets as there may be, the last one refused or not."""
    params = replace(TINY, max_targets=64, lookups=4, misses=1, hub_flits=32)
    packets = []
    for number, (opcode, dtype, refused) in enumerate(
        [(0x9, 3, None), (0xA, 3, None), (0x9, 3, 0), (0xA, 3, 63), (0xA, 6, None)]
    ):
        targets = [(number + n) % 12 for n in range(64)]
        if refused is not None:
            targets[refused] = 50
        packets.append(
            make_request(
                number, opcode=opcode, length=3, address=16 * number, dtype=dtype, targets=targets
            )
        )
    benches = [
        PathBench(params, Packets.concatenate(*packets), presum=presum, idle_bound=400)
        for presum in (True, False)
    ]
    run_all(benches)
    for bench in benches:
        bench.check()
