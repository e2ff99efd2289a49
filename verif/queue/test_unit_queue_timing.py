# SPDX-License-Identifier: Apache-2.0
import random
from dataclasses import replace

import numpy as np
import pytest
from dysharp.golden.queue import make_accesses
from dysharp.rtl.flits import DType, Opcode
from dysharp.rtl.gpu_params import GpuParams
from dysharp.verif.queue.units import TINY, Bench, Lists, Responder, random_lists

FULL = replace(TINY, queue_depth=32, entries=64)
"""As many entries as the preset ``default``; what is left of it is no matter here."""
SHORT = replace(FULL, packet_flits=1)


def stores(number: int, /, **fields: int) -> np.ndarray:
    """Aligned 16-byte stores that follow on each other, 8 targets in shared memory."""
    numbers = np.arange(number)
    values = {"opcode": Opcode.DY_ST.value, "size": 2, "count": 8, "shared": 1, "list": 0x40}
    return make_accesses(
        number,
        address=(1 << 40) + 16 * numbers,
        rd=numbers,
        data=np.stack([numbers, ~numbers], axis=1).astype(np.uint64),
        **(values | fields),
    )


def run(params: GpuParams, accesses: np.ndarray, **options) -> Bench:
    """Play accesses without back-pressure; the lists come after 20 cycles."""
    rng = random.Random(1)
    memories = random_lists(rng)
    bench = Bench(
        params,
        accesses,
        memories,
        rng,
        lists=Lists(memories, rng, latency=(20, 20)),
        responder=Responder(rng, params.tags, latency=(20, 20), errors=0.0, stale=0.0),
        **options,
    )
    bench.run()
    bench.check()
    return bench


def rate(bench: Bench) -> float:
    """Return accesses a cycle at the slower end: taken, or sent in packets of equal length."""
    taken = bench.accepted[100:]
    begins = [cycle for cycle, present, _ in bench.beats if present & 1][12:]
    each = len(bench.accepted) / len(bench.packets)
    return min(
        (len(taken) - 1) / (taken[-1] - taken[0]),
        each * (len(begins) - 1) / (begins[-1] - begins[0]),
    )


def test_queue_takes_a_store_a_cycle() -> None:
    """128 B packets with 8 targets: 8 beats for 8 stores, and no cycle is lost."""
    bench = run(FULL, stores(600))
    assert rate(bench) >= 0.95, rate(bench)
    cycles = [cycle for cycle, *_ in bench.beats]
    assert len(cycles) == 600
    assert [present for _, present, _ in bench.beats] == ([0b111] + [0b100] * 7) * 75
    # Also the link sees no pause.
    assert (cycles[-1] - cycles[64]) / (len(cycles) - 65) <= 1 / 0.95
    print("accesses a cycle", rate(bench))


@pytest.mark.parametrize(
    ("name", "fields", "least"),
    [
        ("posted", {"posted": 1}, 0.95),
        # The list begins in the middle of a word: it is written straight as it comes.
        ("misaligned list", {"list": 0x46}, 0.95),
        ("global", {"shared": 0}, 0.95),
        ("static", {"opcode": Opcode.MM_ST.value}, 0.95),
        ("16 targets", {"count": 16}, 0.85),
    ],
)
def test_queue_rates(name: str, fields: dict[str, int], least: float) -> None:
    bench = run(FULL, stores(600, **fields))
    assert rate(bench) >= least, (name, rate(bench))
    print(name, rate(bench))


@pytest.mark.parametrize(
    ("fields", "cycles"),
    [({"posted": 1}, 2.05), ({}, 3.6), ({"opcode": Opcode.MM_ST.value, "posted": 1}, 2.05)],
    ids=["posted", "answered", "static"],
)
def test_queue_short_packets(fields: dict[str, int], cycles: float) -> None:
    """Packets of one access; the link needs 2 or 3 cycles for each."""
    bench = run(SHORT, stores(300, **fields))
    print(1 / rate(bench))
    assert 1 / rate(bench) <= cycles, 1 / rate(bench)


def test_queue_latency() -> None:
    """From an access that ends its packet to the header, and from the response to the result."""
    static = stores(1, opcode=Opcode.MM_ST.value, last=1)
    dynamic = stores(1, last=1)
    first_beat = []
    for accesses in (static, dynamic):
        bench = run(FULL, accesses)
        first_beat.append(bench.beats[0][0] - bench.accepted[0])
        result = bench.results[0][0] - bench.beats[-1][0] - 20
    assert first_beat == [13, 40], first_beat
    assert result == 9, result


def test_queue_sends_what_does_not_grow() -> None:
    """A packet without an end leaves `flush_cycles` after its last access."""
    ended = run(FULL, stores(1, opcode=Opcode.MM_ST.value, last=1))
    flushed = run(FULL, stores(1, opcode=Opcode.MM_ST.value))
    wait = flushed.beats[0][0] - flushed.accepted[0] - (ended.beats[0][0] - ended.accepted[0])
    assert wait == FULL.flush_cycles - 1


@pytest.mark.parametrize("size", [0, 1, 2])
def test_queue_load_results_a_cycle(size: int) -> None:
    """A result a cycle for small loads; 16-byte ones as fast as the link brings them."""
    numbers = np.arange(256)
    accesses = make_accesses(
        256,
        opcode=Opcode.DY_LD_REDUCE.value,
        size=size,
        dtype=DType.F32.value,
        count=2,
        shared=1,
        rd=numbers,
        address=(4 << size) * numbers,
    )
    bench = run(FULL, accesses)
    given = [cycle for cycle, _ in bench.results][32:]
    pace = (given[-1] - given[0]) / (len(given) - 1)
    print(size, pace)
    assert pace <= [1.1, 1.15, 1.35][size]
