# SPDX-License-Identifier: Apache-2.0
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from dysharp.golden.al_map import set_of, tlb_hits
from dysharp.rtl.hub.al_tlb_cam import AlTlbCam
from dysharp.rtl.hub.al_tlb_sets import AlTlbSets
from dysharp.verif.common.sim import raises, simulate
from dysharp.verif.hub.measure import tlb_stream

TAG, DATA = 20, 24


def cam(entries: int = 16, tag_bits: int = TAG) -> AlTlbCam:
    return AlTlbCam(tag_bits=tag_bits, data_bits=DATA, entries=entries)


def sets(entries: int = 16, ways: int = 2, tag_bits: int = TAG) -> AlTlbSets:
    return AlTlbSets(tag_bits=tag_bits, data_bits=DATA, entries=entries, ways=ways)


FORMS: dict[str, tuple[Callable[[], AlTlbCam | AlTlbSets], str, int]] = {
    "cam": (cam, "cam", 16),
    "cam of 2": (lambda: cam(2), "cam", 2),
    "sets": (sets, "sets", 2),
    "direct": (lambda: sets(8, 1), "sets", 1),
    "ways of 8": (lambda: sets(16, 8), "sets", 8),
}


@dataclass
class Record:
    """A tag that was inserted: when, and when its place was taken or it was flushed."""

    tag: int
    data: int
    since: int
    taken: int = 1 << 30
    flushed: int = 1 << 30


class Bench:
    """Looks a tag up every cycle, and inserts; every answer is checked against FIFO lists."""

    def __init__(self, form: str, seed: int) -> None:
        make, self.kind, self.ways = FORMS[form]
        self.dut = make()
        self.rng = random.Random(seed)
        self.entries = {"cam of 2": 2, "direct": 8}.get(form, 16)
        self.sets = 1 if self.kind == "cam" else self.entries // self.ways
        self.lists: list[list[Record]] = [[] for _ in range(self.sets)]
        self.hits = 0
        self._records: list[Record] = []
        self._asked: list[int] = []

    def set_of(self, tag: int) -> int:
        return int(set_of([tag], self.sets)[0]) if self.sets > 1 else 0

    def holds(self, tag: int) -> bool:
        return any(record.tag == tag for record in self.lists[self.set_of(tag)])

    async def cycle(
        self, ctx, tag: int, insert: tuple[int, int] | None = None, flush: bool = False
    ) -> bool | None:
        """One lookup; tell whether that of three cycles ago has hit."""
        dut, time = self.dut, len(self._asked)
        ctx.set(dut.tag, tag)
        ctx.set(dut.insert, insert is not None)
        ctx.set(dut.insert_tag, insert[0] if insert else self.rng.getrandbits(TAG))
        ctx.set(dut.insert_data, insert[1] if insert else self.rng.getrandbits(DATA))
        ctx.set(dut.flush, flush)
        self._asked.append(tag)
        if insert:
            assert not self.holds(insert[0])
            held = self.lists[self.set_of(insert[0])]
            if len(held) == (self.ways if self.kind == "sets" else self.entries):
                held.pop(0).taken = time
            held.append(Record(*insert, since=time))
            self._records.append(held[-1])
        if flush:
            for held in self.lists:
                for record in held:
                    record.flushed = time
                held.clear()
        hit = self._check(ctx, time - dut.LATENCY) if time >= dut.LATENCY else None
        await ctx.tick()
        return hit

    def _check(self, ctx, then: int) -> bool:
        dut, tag = self.dut, self._asked[then]
        may = must = False
        words = set()
        for record in self._records:
            if record.tag == tag and record.since < then:
                # Around a change, a tag may be found or not.
                if then < record.taken + dut.DELAY and then <= record.flushed:
                    may = True
                    words.add(record.data)
                settled = record.since + dut.DELAY <= then <= record.taken
                must |= settled and then < record.flushed - 2
        hit = bool(ctx.get(dut.hit))
        assert hit or not must, (then, hex(tag))
        assert may or not hit, (then, hex(tag))
        if hit:
            assert ctx.get(dut.data) in words
            self.hits += 1
        return hit


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("form", FORMS)
def test_tlb_random(form: str, seed: int) -> None:
    """A lookup every cycle, inserts as close as may be, flushes; tags that collide."""
    bench = Bench(form, seed)
    rng = bench.rng
    pool = [rng.getrandbits(TAG) for _ in range(12)]
    pool += [tag ^ 1 << rng.randrange(TAG) for tag in pool for _ in range(3)]

    async def testbench(ctx) -> None:
        wait = 0
        for cycle in range(2500):
            insert = None
            if cycle - wait >= bench.dut.SPACING and rng.random() < 0.5:
                tag = rng.choice(pool)
                if not bench.holds(tag):
                    insert = (tag, rng.getrandbits(DATA))
                    wait = cycle
            flush = not insert and cycle - wait > bench.dut.SPACING and rng.random() < 0.005
            await bench.cycle(ctx, rng.choice(pool), insert, flush)

    simulate(bench.dut, testbench, cycles=2500)
    assert bench.hits > 80


@pytest.mark.parametrize("form", FORMS)
def test_tlb_flush_forgets_everything(form: str) -> None:
    bench = Bench(form, 3)

    async def testbench(ctx) -> None:
        for tag in range(bench.entries):
            await bench.cycle(ctx, tag, (tag, 100 + tag))
            for _ in range(bench.dut.SPACING):
                await bench.cycle(ctx, tag)
        for tag in range(bench.entries):  # each set is full, and no more
            await bench.cycle(ctx, tag)
        assert bench.hits >= bench.entries
        await bench.cycle(ctx, 0, flush=True)
        for tag in range(bench.entries + 3):
            before = bench.hits
            await bench.cycle(ctx, tag % bench.entries)
        assert bench.hits == before

    simulate(bench.dut, testbench, cycles=200)


@pytest.mark.parametrize("form", ["cam", "sets"])
def test_tlb_tells_tags_apart_by_every_bit(form: str) -> None:
    """Only the whole tag hits, not one that differs in one bit, whichever."""
    tag_bits = 48
    dut = cam(16, tag_bits) if form == "cam" else sets(16, 2, tag_bits)
    tag = 0xA5A5_0F0F_3C96

    async def testbench(ctx) -> None:
        ctx.set(dut.insert, 1)
        ctx.set(dut.insert_tag, tag)
        ctx.set(dut.insert_data, 0x123456)
        await ctx.tick()
        ctx.set(dut.insert, 0)
        for _ in range(4):
            await ctx.tick()
        asked = [tag, *(tag ^ 1 << bit for bit in range(tag_bits)), tag]
        for number in range(len(asked) + dut.LATENCY):
            if number < len(asked):
                ctx.set(dut.tag, asked[number])
            if number >= dut.LATENCY:
                assert ctx.get(dut.hit) == (asked[number - dut.LATENCY] == tag)
                if ctx.get(dut.hit):
                    assert ctx.get(dut.data) == 0x123456
            await ctx.tick()

    simulate(dut, testbench, cycles=80)


@pytest.mark.parametrize("form", FORMS)
def test_tlb_replaces_as_the_model(form: str) -> None:
    """Lookup, insert if it missed: hits as the golden model of the TLB says. Latency 3."""
    bench = Bench(form, 4)
    rng = bench.rng
    top = 1 << TAG - 1
    tags = [rng.choice([rng.randrange(24), rng.randrange(12)]) for _ in range(250)]
    found: list[bool] = []
    dut = bench.dut
    assert dut.LATENCY <= 3

    async def testbench(ctx) -> None:
        for tag in tags:
            ctx.set(dut.tag, tag)
            await ctx.tick()
            ctx.set(dut.tag, rng.getrandbits(TAG) | top)  # one cycle is enough
            for _ in range(dut.LATENCY - 1):
                await ctx.tick()
            found.append(bool(ctx.get(dut.hit)))
            if not found[-1]:
                ctx.set(dut.insert, 1)
                ctx.set(dut.insert_tag, tag)
                await ctx.tick()
                ctx.set(dut.insert, 0)
                for _ in range(4):
                    await ctx.tick()

    simulate(dut, testbench, cycles=3000)
    wanted = tlb_hits(np.array(tags), bench.entries, bench.kind, bench.ways)
    assert found == wanted.tolist()
    assert 10 < sum(found) < 240


@pytest.mark.parametrize("form", FORMS)
def test_tlb_one_lookup_per_cycle(form: str) -> None:
    dut = FORMS[form][0]()
    assert tlb_stream(dut) == (1.0, dut.LATENCY)
    assert dut.LATENCY <= 3


@pytest.mark.parametrize("form", ["cam", "sets"])
def test_tlb_lookup_beside_an_insert(form: str) -> None:
    """Lookups of the old and the new tag in every cycle around an insert give no wrong data."""
    idle = 0xFFFFF
    for shift in range(-3, 8):
        for asks_old in (True, False):
            bench = Bench(form, 5)
            group = [tag for tag in range(1 << 10) if bench.set_of(tag) == 0]
            tags = group[: (bench.ways if form == "sets" else bench.entries) + 1]

            async def testbench(ctx, bench=bench, tags=tags, asks_old=asks_old, shift=shift):
                for number, tag in enumerate(tags[:-1]):
                    await bench.cycle(ctx, idle, (tag, number + 1))
                    for _ in range(bench.dut.SPACING):
                        await bench.cycle(ctx, idle)
                for cycle in range(-4, 14):
                    asked = tags[0] if asks_old else tags[-1]
                    tag = asked if cycle == shift else idle
                    await bench.cycle(ctx, tag, (tags[-1], 999) if cycle == 0 else None)

            simulate(bench.dut, testbench, cycles=200)
            if (shift <= 0 and asks_old) or (shift >= bench.dut.DELAY and not asks_old):
                assert bench.hits == 1


def test_tlb_cam_asserts_against_twins() -> None:
    dut = cam()

    async def testbench(ctx) -> None:
        for _ in range(2):
            ctx.set(dut.insert, 1)
            await ctx.tick()
            ctx.set(dut.insert, 0)
            for _ in range(5):
                await ctx.tick()

    with pytest.raises(AssertionError, match="the tag is in the TLB already"):
        simulate(dut, testbench, cycles=20)


def test_tlb_refuses() -> None:
    raises(lambda: cam(12), ValueError, "`entries` must be a power of two, 2 or more, not 12")
    raises(lambda: sets(12), ValueError, "`entries` must be a power of two, not 12")
    raises(lambda: sets(16, 3), ValueError, "`ways` must be a power of two, not 3")
    raises(lambda: sets(16, 16), ValueError, "`entries` must be twice `ways` or more, not 16")
