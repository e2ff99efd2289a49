# SPDX-License-Identifier: Apache-2.0
import random
from dataclasses import replace
from itertools import chain, cycle

import numpy as np
import pytest
from dysharp.golden.queue import make_accesses
from dysharp.rtl.flits import DType, Opcode
from dysharp.rtl.gpu_params import GpuParams
from dysharp.verif.common.pressure import pressure
from dysharp.verif.queue.measure import play_freely, rate, store_rate, stores
from dysharp.verif.queue.units import TINY, Bench, Lists, Responder, fields_of, random_lists

FULL = replace(TINY, queue_depth=32, entries=64)
"""As many entries as the preset ``default``; what is left of it is no matter here."""
SHORT = replace(FULL, packet_flits=1)


def test_queue_takes_a_store_a_cycle() -> None:
    """128 B packets with 8 targets: 8 beats for 8 stores, and no cycle is lost."""
    bench = play_freely(FULL, stores(600))
    assert rate(bench) >= 0.95, rate(bench)
    cycles = [cycle for cycle, *_ in bench.beats]
    assert len(cycles) == 600
    assert [present for _, present, _ in bench.beats] == ([0b111] + [0b100] * 7) * 75
    # Also the link sees no pause.
    assert (cycles[-1] - cycles[64]) / (len(cycles) - 65) <= 1 / 0.95
    print("accesses a cycle", rate(bench))


def test_queue_fills_the_link() -> None:
    """Behind the serializer: 10 flits for 8 stores, and the link is never idle."""
    assert 0.79 < store_rate(FULL, on_link=True) <= 0.8


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
    bench = play_freely(FULL, stores(600, **fields))
    assert rate(bench) >= least, (name, rate(bench))
    print(name, rate(bench))


@pytest.mark.parametrize(
    ("fields", "cycles"),
    [({"posted": 1}, 2.05), ({}, 3.6), ({"opcode": Opcode.MM_ST.value, "posted": 1}, 2.05)],
    ids=["posted", "answered", "static"],
)
def test_queue_short_packets(fields: dict[str, int], cycles: float) -> None:
    """Packets of one access; the link needs 2 or 3 cycles for each."""
    bench = play_freely(SHORT, stores(300, **fields))
    print(1 / rate(bench))
    assert 1 / rate(bench) <= cycles, 1 / rate(bench)


def test_queue_latency() -> None:
    """From an access that ends its packet to the header, and from the response to the result."""
    static = stores(1, opcode=Opcode.MM_ST.value, last=1)
    dynamic = stores(1, last=1)
    first_beat = []
    for accesses in (static, dynamic):
        bench = play_freely(FULL, accesses)
        first_beat.append(bench.beats[0][0] - bench.accepted[0])
        result = bench.results[0][0] - bench.beats[-1][0] - 20
    assert first_beat == [13, 40], first_beat
    assert result == 9, result


def test_queue_sends_what_does_not_grow() -> None:
    """A packet without an end leaves `flush_cycles` after its last access."""
    ended = play_freely(FULL, stores(1, opcode=Opcode.MM_ST.value, last=1))
    flushed = play_freely(FULL, stores(1, opcode=Opcode.MM_ST.value))
    wait = flushed.beats[0][0] - flushed.accepted[0] - (ended.beats[0][0] - ended.accepted[0])
    assert wait == FULL.flush_cycles - 1


@pytest.mark.parametrize("late", [0, 1])
def test_queue_merges_what_comes_just_in_time(late: int) -> None:
    """An access in the cycle in which the entry would be closed still joins; a later one does not.

    The cycles count from the third after an access, when that is known to be merged or not.
    """
    gap = TINY.flush_cycles + 2 + late
    bench = play_freely(TINY, stores(2), gaps=cycle([True, *[False] * (gap - 1)]))
    assert bench.accepted[1] - bench.accepted[0] == gap
    assert len(bench.packets) == 1 + late


@pytest.mark.parametrize("level", ["none", "light"])
@pytest.mark.parametrize("params", [TINY, FULL], ids=["8 entries", "32 entries"])
def test_queue_stalled_link_splits_no_packet(params: GpuParams, level: str) -> None:
    """Mergeable accesses without end, and a link that stands still: all packets are full."""
    go = pressure(level, random.Random(2))
    bench = play_freely(params, stores(640), gaps=go, link_stop=(40, 540))
    # The stall was long enough for the intake to stand still.
    assert max(np.diff(bench.accepted)) > 2 * params.flush_cycles
    assert [fields_of(packet[0])["length"] for packet in bench.packets] == [8] * 80


@pytest.mark.parametrize("single", [False, True], ids=["list", "one beat"])
def test_queue_held_up_entry_takes_late_accesses(single: bool) -> None:
    """Behind a packet that cannot leave, accesses join though they come one by one."""
    late = 2 * TINY.flush_cycles
    first = stores(1, opcode=(Opcode.MM_ST if single else Opcode.DY_ST).value, last=1)
    rest = stores(8)
    rest["rd"] += 1
    rest["address"] += 1 << 20
    # It stands still at the output, or further back.
    gaps = chain([True, True], cycle([*[False] * (late - 1), True]))
    bench = play_freely(TINY, np.concatenate([first, rest]), gaps=gaps, link_stop=(0, 9 * late))
    assert np.diff(bench.accepted[1:]).min() >= late
    assert [fields_of(packet[0])["length"] for packet in bench.packets] == [1, 8]


@pytest.mark.parametrize("latency", [1, 300])
@pytest.mark.parametrize("older", [0, 1, 5])
def test_queue_sends_the_last_entry_in_any_case(older: int, latency: int) -> None:
    """Nothing comes behind it: it leaves `flush_cycles` after all that is older, however slow."""
    accesses = stores(older + 3)
    accesses["address"][:older] += np.arange(1, older + 1, dtype=np.uint64) << np.uint64(20)
    bench = play_freely(TINY, accesses, latency=latency)
    assert [fields_of(packet[0])["length"] for packet in bench.packets] == [1] * older + [3]
    last = max([bench.accepted[-1], *bench.sent[:-1]])
    # The way through the queue when nothing else is in it (`test_queue_latency`), with that list.
    assert bench.sent[-1] - last <= TINY.flush_cycles + latency + 25


def test_queue_slow_link_and_sparse_accesses() -> None:
    """Each access is sent, whatever the link and the cores do; the rule is checked by the model."""
    for seed in range(3):
        rng = random.Random(seed)
        memories = random_lists(rng)
        # Accesses come in bursts.
        chances = [0.02, 0.9]
        offers = [rng.random() < p for _ in range(200) for p in [rng.choice(chances)] * 20]
        bench = Bench(
            replace(TINY, flush_cycles=8),
            stores(150),
            memories,
            rng,
            gaps=cycle(offers),
            link=rng.choice(["heavy", "bursty"]),
            lists=Lists(memories, rng, latency=(1, 200)),
            responder=Responder(rng, TINY.tags, errors=0.0, stale=0.0),
        )
        bench.run(quiet=300)
        bench.check()
        lengths = [fields_of(packet[0])["length"] for packet in bench.packets]
        assert sum(lengths) == 150
        assert len(set(lengths)) > 1


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
    bench = play_freely(FULL, accesses)
    given = [cycle for cycle, _ in bench.results][32:]
    pace = (given[-1] - given[0]) / (len(given) - 1)
    print(size, pace)
    assert pace <= [1.1, 1.15, 1.35][size]
