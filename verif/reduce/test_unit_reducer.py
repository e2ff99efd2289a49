# SPDX-License-Identifier: Apache-2.0
import random
from collections import Counter
from dataclasses import replace

import pytest
from dysharp.golden.arrays import value_of
from dysharp.rtl.flits import DType, Kind, Opcode, Status, Vc
from dysharp.rtl.params import PRESETS, SwitchParams
from dysharp.verif.common.sim import simulate
from dysharp.verif.reduce.column import POPS, Bench, Top, part_of, simulate_plain
from dysharp.verif.reduce.measure import (
    arms_period,
    flit_rate,
    header_latency,
    request_for,
    result_latency,
)
from dysharp.verif.reduce.traffic import FAULTS, KINDS, Traffic
from dysharp.verif.switch import units

TINY = PRESETS["tiny"]
SHAPES = {
    "tiny": TINY,
    "three-gpus": SwitchParams(ports=3, max_targets=16, entries=32, result_depth=32),
    "links": SwitchParams(ports=6, links_per_gpu=2, max_targets=16, entries=16, result_depth=32),
    "links-and-three-gpus": SwitchParams(ports=12, links_per_gpu=4, max_targets=5, entries=8),
}
STORE = value_of(Kind.STORE)


def played(params: SwitchParams, play, *, cycles: int, **bench) -> Bench:
    """Play a story, ``await play(ctx, bench)``, with plain lanes; return its bench."""
    made = []

    def build(top: Top):
        async def testbench(ctx):
            made.append(Bench(top, params, **bench))
            await play(ctx, made[0])

        return testbench

    simulate_plain(params, build, cycles=cycles)
    return made[0]


async def armed(ctx, bench: Bench, *requests) -> None:
    """Arm the entries of requests."""
    bench.arms.extend(requests)
    while bench.arms:
        await bench.cycle(ctx)
    bench.accepted.clear()


def packets_of(bench: Bench) -> list[list[int]]:
    """Packets that have left."""
    packets, flits = [], [flit for _, flit in bench.came]
    while flits:
        size = units.framed_flits(flits[0])
        packets.append(flits[:size])
        flits = flits[size:]
    return packets


def passed_packet(length: int, gpu: int = 0) -> tuple[int, ...]:
    """Answer to a unicast request."""
    opcode = value_of(Opcode.RSP_DATA if length else Opcode.RSP_ACK)
    first = units.header(opcode=opcode, length=length, gpu=gpu, vc=value_of(Vc.RESPONSE), tag=3)
    return (first, *range(length))


@pytest.mark.parametrize(
    ("shape", "pop", "arrives"),
    [
        ("tiny", "none", 1.0),
        ("tiny", "light", 0.5),
        ("tiny", "heavy", 0.9),
        ("tiny", "bursty", 1.0),
        ("three-gpus", "none", 0.3),
        ("three-gpus", "bursty", 0.9),
        ("links", "none", 0.8),
        ("links", "heavy", 0.2),
        ("links-and-three-gpus", "light", 0.7),
    ],
)
def test_reducer_random(shape: str, pop: str, arrives: float) -> None:
    """Good and bad answers of every kind, time-outs, tags that are used again, passed responses."""
    params = SHAPES[shape]
    rng = random.Random(f"{shape} {pop}")
    many = (shape, pop) == ("tiny", "none")
    seen: Counter[str] = Counter()

    async def play(ctx, bench):
        bench.timeout = 60
        requests = 120 if many else 40
        traffic = Traffic(bench, rng, requests=requests, faults=0.5, kinds_of_fault=FAULTS[1:])
        await traffic.run(ctx, cycles=20000)
        await bench.finish(ctx, cycles=2000)
        seen.update(traffic.seen)
        seen.update(bench.seen)

    port = params.ports - 1
    played(params, play, cycles=23000, port=port, rng=rng, arrives=arrives, pops=POPS[pop])
    wanted = {"WAITS", "LATE", "WRONG", "TAKEN", "passed", "presum", "more"}
    ends = [Status.OK, Status.BAD_RESPONSE]
    if many:
        ends += [Status.TIMEOUT, Status.REPLACED, Status.BAD_ADDRESS]
        wanted.update(["DUPLICATE", *FAULTS])
    if pop in ("heavy", "bursty"):
        wanted.add("no room")
    wanted.update(f"status {value_of(end)}" for end in ends)
    assert wanted <= set(+seen), wanted - set(+seen)


@pytest.mark.parametrize("pop", ["none", "heavy"])
def test_reducer_without_faults_needs_no_timeout(pop: str) -> None:
    rng = random.Random(1)

    async def play(ctx, bench):
        traffic = Traffic(bench, rng, requests=40, faults=0.3, kinds_of_fault=FAULTS[2:])
        await traffic.run(ctx, cycles=10000)
        await bench.finish(ctx, cycles=2000)

    bench = played(TINY, play, cycles=13000, port=1, rng=rng, pops=POPS[pop])
    assert bench.seen[f"status {value_of(Status.TIMEOUT)}"] == bench.model.counters["timeouts"] == 0


def test_reducer_adds_as_the_model_does() -> None:
    """Real lanes: every type and operation in both orders, f32 pre-sums, numbers of all classes."""
    params = SHAPES["three-gpus"]
    rng = random.Random(7)
    top = Top(params)
    seen: Counter[str] = Counter()

    async def testbench(ctx):
        bench = Bench(top, params, port=1, rng=rng, pops=POPS["light"])
        for canonical in (False, True):
            traffic = Traffic(
                bench,
                rng,
                requests=len(KINDS),
                passed=0.1,
                kinds=KINDS,
                loads=1.0,
                longest=4,
                canonical=canonical,
            )
            await traffic.run(ctx, cycles=4000)
            seen.update(traffic.seen)
        await bench.finish(ctx, cycles=1000)
        seen.update(bench.seen)

    simulate(top, testbench, cycles=10000)
    assert seen["status 0"] == 2 * len(KINDS)
    for dtype, op in KINDS:
        for canonical in (False, True):
            assert seen[f"{value_of(dtype)} {value_of(op)} {canonical}"] == 1
    assert min(seen["presum"], seen["more"]) > 5
    # A column that answers correctly drops nothing.
    assert seen["LATE"] == seen["DUPLICATE"] == seen["WRONG"] == 0


@pytest.mark.parametrize(
    ("dtype", "longest"),
    [(DType.U32, 16), (DType.BF16, 16), (DType.F16_ACC32, 16), (DType.BF16_TO_F32, 8)],
)
def test_reducer_every_length(dtype: DType, longest: int) -> None:
    """Sums of every length stand beside each other, each in its own entries."""
    params = replace(TINY, entries=32)
    rng = random.Random(longest)
    seen: Counter[str] = Counter()

    async def play(ctx, bench):
        # Longest first, so that the aligned tags are still there.
        traffic = Traffic(
            bench,
            rng,
            requests=2 * longest,
            passed=0.0,
            kinds=[kind for kind in KINDS if kind[0] is dtype][:1],
            loads=1.0,
            lengths=[n for n in range(longest, 0, -1) for _ in range(2)],
        )
        await traffic.run(ctx, cycles=6000)
        await bench.finish(ctx, cycles=1000)
        seen.update(traffic.seen)

    bench = played(params, play, cycles=8000, rng=rng)
    assert bench.seen["status 0"] == 2 * longest
    assert all(seen[f"load of {length}"] == 2 for length in range(1, longest + 1))


def test_reducer_acknowledges_stores_with_their_type() -> None:
    """The type of a store means nothing; its acknowledgement tells it as it was."""

    async def play(ctx, bench):
        for dtype in range(16):
            request = request_for(TINY, 3, 16, kind=STORE, dtype=dtype)
            await armed(ctx, bench, request)
            for gpu in range(TINY.gpus):
                bench.put(gpu, part_of(request, 0, ()))
            await bench.run(ctx, cycles=200)
        await bench.finish(ctx, cycles=1)

    headers = [packet[0] for packet in packets_of(played(TINY, play, cycles=2000))]
    assert [units.field(header, "dtype") for header in headers] == list(range(16))
    assert {units.field(header, "opcode") for header in headers} == {value_of(Opcode.RSP_ACK)}
    assert {units.field(header, "length") for header in headers} == {0}


@pytest.mark.parametrize("pause", [1, 3, 8])
def test_reducer_adds_parts_that_pause(pause: int) -> None:
    """A response that pauses in its middle holds up the column, and its data is not lost.

    The next part of the entry is looked up meanwhile, and follows at once.
    """

    async def play(ctx, bench):
        for length in (1, 2, 5):
            request = request_for(TINY, 1, length)
            await armed(ctx, bench, request)
            for gpu in range(TINY.gpus):
                bench.put(gpu, part_of(request, 0, tuple(gpu + 2**n for n in range(length))))
            waits = [0] * TINY.gpus
            while not bench.idle:
                # Of every second GPU a flit comes so many cycles after the one before was taken.
                for number, source in enumerate(bench.sources[: TINY.gpus : 2]):
                    behind = source.taken > 0 and not source.there
                    waits[number] = waits[number] + 1 if behind else 0
                    source.holds = source.there > 0 or (behind and waits[number] < pause)
                await bench.cycle(ctx)
        await bench.finish(ctx, cycles=10)

    bench = played(TINY, play, cycles=1000)
    assert bench.seen["status 0"] == 3


@pytest.mark.parametrize("second", ["replaced", "bad part", "time-out"])
def test_reducer_tells_an_error_while_a_bad_packet_is_dropped(second: str) -> None:
    """The flits of a bad last part are still being dropped when the next request fails.

    Responses that are passed stand between, so that the order shows.
    """
    gaps = range(0, 20, 4)

    async def play(ctx, bench):
        for gap in gaps:
            request = request_for(TINY, 1, 16, expected=1, total=1)
            other = request_for(TINY, 2, 2, expected=8, total=1)
            await armed(ctx, bench, request, other)
            bench.put(0, part_of(request, 0, tuple(range(16)), dtype=value_of(DType.S32)))
            for source in (1, 2):
                bench.put(source, passed_packet(2))
            for _ in range(5 + gap):
                await bench.cycle(ctx)
            if second == "replaced":
                again = replace(other, gen=1)
                await armed(ctx, bench, again)
                bench.put(3, part_of(again, 0, (1, 2)))
            elif second == "bad part":
                bench.put(3, part_of(other, 0, (1, 2, 3)))
            else:
                bench.timeout = 1
            for _ in range(2):
                bench.put(4, passed_packet(0))
            while bench.model.armed:
                await bench.cycle(ctx)
            bench.timeout = 0
            await bench.run(ctx, cycles=200)
        await bench.finish(ctx, cycles=100)

    bench = played(TINY, play, cycles=4000)
    assert sum(bench.seen[f"status {n}"] for n in (12, 13, 14)) == 2 * len(gaps)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 15])
def test_reducer_times_out_under_full_load(length: int) -> None:
    """Ages are looked at however busy the column is."""
    params = TINY
    late = 3 * 16 * params.entries  # in the worst case; by far not so in an idle column

    async def play(ctx, bench):
        bench.timeout = 2
        await armed(ctx, bench, request_for(params, 5))
        since = bench.now
        while bench.model.armed:
            assert bench.now < since + 4 * bench.tick + late
            for source in range(params.ports):
                if bench.sources[source].total < 3 * (length + 1):
                    bench.put(source, passed_packet(length))
                    bench.sources[source].there = bench.sources[source].total
            await bench.cycle(ctx)
        await bench.finish(ctx, cycles=300)

    bench = played(params, play, cycles=2000)
    assert bench.model.counters["timeouts"] == 1


@pytest.mark.parametrize("now", [0, 0xFFF8])
@pytest.mark.parametrize("timeout", [1, 20])
def test_reducer_times_out_in_time(timeout: int, now: int) -> None:
    """Not before its time, and at most a round and two ticks later, also when time wraps."""
    params = SHAPES["three-gpus"]
    lateness = []

    async def play(ctx, bench):
        bench.now = now * bench.tick
        for tag in (0, 7, params.entries - 1):
            await armed(ctx, bench, request_for(params, tag))
            since = bench.now
            for _ in range(100):
                await bench.cycle(ctx)
            assert bench.model.armed == 1  # 0 is never
            bench.timeout = timeout
            while bench.model.armed:
                await bench.cycle(ctx)
                assert bench.now < since + 100 + (timeout + 2) * bench.tick + 16 * params.entries
            lateness.append(bench.now - since - timeout * bench.tick)
            bench.timeout = 0
        await bench.finish(ctx, cycles=50)

    bench = played(params, play, cycles=5000)
    assert bench.model.counters["timeouts"] == 3
    assert min(lateness) > -bench.tick


def test_reducer_reset_in_the_middle_of_packets() -> None:
    """After a reset nothing is left of what was under way."""
    rng = random.Random(3)
    through = []

    async def play(ctx, bench):
        for round_number in range(6):
            bench.timeout = rng.choice([0, 60])
            faults = FAULTS[1:] if bench.timeout else FAULTS[2:]
            traffic = Traffic(bench, rng, requests=30, faults=0.3, kinds_of_fault=faults)
            if round_number == 5:
                await traffic.run(ctx, cycles=5000)
                break
            for _ in range(rng.randint(60, 260)):
                traffic.step()
                await bench.cycle(ctx)
            through.append(any(source.taken for source in bench.sources))
            await bench.reset(ctx)
        await bench.finish(ctx, cycles=1000)

    bench = played(TINY, play, cycles=9000, port=3, rng=rng, pops=POPS["light"], arrives=0.7)
    assert sum(through) >= 3
    assert bench.seen["status 0"] > 20


def test_reducer_ascending_order_holds_up_nobody_else() -> None:
    """The part of a higher GPU waits for the lowest one's; requests and sources beside it do not.

    Another request's parts of the GPU that is waited for come first in its queue.
    """

    async def play(ctx, bench):
        slow = request_for(TINY, 1, 2, canonical=True)
        quick = request_for(TINY, 2, 2)
        await armed(ctx, bench, slow, quick)
        for gpu in (3, 2, 1):
            bench.put(gpu, part_of(slow, 0, (gpu, gpu)))
        for _ in range(40):
            await bench.cycle(ctx)
        assert not bench.took
        bench.put(4, passed_packet(0))
        bench.put(0, part_of(quick, 0, (5, 5)))
        for _ in range(40):
            await bench.cycle(ctx)
        assert [source for _, source, _ in bench.took].count(0) == 3
        assert [source for _, source, _ in bench.took].count(4) == 1
        for gpu in (1, 2, 3):
            bench.put(gpu, part_of(quick, 0, (6, 6)))
        bench.put(0, part_of(slow, 0, (7, 7)))
        await bench.finish(ctx, cycles=300)

    bench = played(TINY, play, cycles=500)
    tags = [units.field(packet[0], "tag") for packet in packets_of(bench)]
    assert tags == [3, 1, 2], tags
    headers = [source for _, source, is_header in bench.took if is_header]
    assert headers[0] == 4
    assert headers.index(1) < headers.index(2) < headers.index(3)


def test_reducer_result_latency() -> None:
    latency, lanes = result_latency(SHAPES["three-gpus"])
    assert latency == lanes + 3


@pytest.mark.parametrize("part", [True, False])
def test_reducer_header_latency(part: bool) -> None:
    assert header_latency(TINY, part=part) == 5


@pytest.mark.parametrize(
    ("ports", "length", "least"),
    [(4, 8, 1.0), (8, 8, 1.0), (5, 16, 1.0), (8, 1, 0.9)],
)
def test_reducer_full_rate(ports: int, length: int, least: float) -> None:
    """One flit a cycle, and with packets of one data flit nearly so."""
    params = SwitchParams(ports=ports, entries=64)
    assert flit_rate(params, length, requests=6 if length > 1 else 30) >= least


def test_reducer_full_rate_of_passed_responses() -> None:
    params = SwitchParams(ports=8, entries=16)
    assert flit_rate(params, 8, requests=5, part=False) == 1
    assert flit_rate(params, 1, requests=20, part=False) >= 0.9


def test_reducer_arms_an_entry_every_five_cycles() -> None:
    assert arms_period(TINY) == 5
