# SPDX-License-Identifier: Apache-2.0
import random
from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dysharp.rtl.gpu_params import GPU_PRESETS, GpuParams
from dysharp.rtl.hub.al_walker import AlWalker
from dysharp.verif.common.sim import simulate
from dysharp.verif.hub.translation_units import TableMemory

TINY = GPU_PRESETS["tiny"]
SHAPES = {"tiny": TINY, "one": replace(TINY, misses=1), "eight": replace(TINY, misses=8)}
EPOCH = 7
BLOCKS = 32


class Bench:
    """Decides lookups against the walker alone: everything misses a TLB that is a dictionary."""

    def __init__(self, params: GpuParams, seed: int) -> None:
        self.params = params
        self.rng = random.Random(seed)
        self.dut = AlWalker(params)
        self.rows = params.objects * params.experts
        self.image = np.zeros(4 * BLOCKS * self.rows, np.uint8)
        words = self.image.view("<u4")
        self.words = words
        for at in range(len(words)):
            kind = self.rng.randrange(3)
            if kind:  # an old one, or one that is valid
                words[at] = self.rng.getrandbits(24) | (EPOCH if kind == 1 else EPOCH - 1) << 24
        self.start = words.copy()
        self.memory = TableMemory(self.dut.table, self.image, self.rng, (1, 30), 0.6)
        self.used = [0] * self.rows
        self.nactive = [self.rng.choice([0, 3, BLOCKS]) for _ in range(self.rows)]
        self.order: deque[tuple[int, int, bool]] = deque()  # (id, tag, allocate)
        self.tlb: dict[int, int] = {}
        self.model: dict[int, int] = {}
        self.model_used = [0] * self.rows
        self.ended = self.merged = self.blocked = 0
        self._pipe: tuple[int, bool] | None = None

    def wanted(self, tag: int, allocate: bool) -> tuple[bool, int]:
        """How a lookup ends if it is carried out alone."""
        row, block = tag >> 24, tag & 0xFFFFFF
        word = int(self.start[row * BLOCKS + block])
        if word >> 24 == EPOCH:
            return True, word & 0xFFFFFF
        if tag in self.model:
            return True, self.model[tag]
        if allocate and self.model_used[row] < self.nactive[row]:
            self.model[tag] = self.model_used[row]
            self.model_used[row] += 1
            return True, self.model[tag]
        return False, 0

    async def run(self, ctx: Any, lookups: list[tuple[int, bool]]) -> None:
        dut, rng = self.dut, self.rng
        for epoch in dut.epoch:
            ctx.set(epoch, EPOCH)
        todo = deque(lookups)
        deciding: tuple[int, bool] | None = None
        result: tuple[bool, int] | None = None
        table = counts = None
        expected: deque[tuple[bool, int]] = deque()
        quiet = 0
        while todo or deciding or self.order or quiet < 150:
            quiet = 0 if todo or deciding or self.order else quiet + 1
            # The expert table answers a cycle later.
            if table is not None:
                ctx.set(dut.table_word, table * BLOCKS)
            if counts is not None:
                ctx.set(dut.nactive, self.nactive[counts])
                ctx.set(dut.used.count, self.used[counts])
                ctx.set(dut.used.epoch, EPOCH if self.used[counts] else 3)
            # A lookup is decided a cycle after its tag was there; none follows one that is decided,
            # now and then, so that a blocked one comes again.
            ctx.set(dut.want, deciding is not None)
            if deciding:
                ctx.set(dut.allocate, deciding[1])
                ctx.set(dut.object, (deciding[0] >> 24) // self.params.experts)
            again = bool(deciding) and ctx.get(dut.blocked)
            if deciding and not again:
                self.order.append((ctx.get(dut.id), *deciding))
                self.merged += ctx.get(dut.merged)
                assert ctx.get(dut.merged) != ctx.get(dut.created)
                expected.append(self.wanted(*deciding))
            if again and deciding:
                self.blocked += 1
                todo.appendleft(deciding)
            looking = None
            if todo and not again and rng.random() < 0.7:
                looking = todo.popleft()
            ctx.set(dut.look, looking is not None)
            if looking:
                ctx.set(dut.look_tag, looking[0])
            if result is not None:
                good, index = result
                assert ctx.get(dut.result.good) == good
                if good:
                    assert ctx.get(dut.result.index) == index
            # Those that wait go on, in order.
            result = None
            takes = bool(self.order) and ctx.get(dut.resolved) >> self.order[0][0] & 1
            if deciding and not again and len(self.order) == 1:
                takes = False  # not in the cycle of its decision
            takes = bool(takes and rng.random() < 0.8)
            ctx.set(dut.take, takes)
            if takes:
                number, _, _ = self.order.popleft()
                ctx.set(dut.take_id, number)
                result = expected.popleft()
                self.ended += 1
            if ctx.get(dut.insert):
                tag = ctx.get(dut.insert_tag)
                assert tag not in self.tlb, "a tag is inserted twice"
                self.tlb[tag] = ctx.get(dut.insert_data)
            table = ctx.get(dut.table_row) if ctx.get(dut.table_en) else None
            counts = ctx.get(dut.count_row) if ctx.get(dut.count_en) else None
            if ctx.get(dut.use):
                assert ctx.get(dut.use_value.epoch) == EPOCH
                self.used[ctx.get(dut.use_row)] = ctx.get(dut.use_value.count)
            deciding = looking
            await self.memory.cycle(ctx)
        assert ctx.get(dut.idle)
        assert not self.memory.pending


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_walker_random(shape: str, seed: int) -> None:
    """Each ends as if alone; what can be found in memory is inserted once, nothing else is."""
    bench = Bench(SHAPES[shape], seed)
    rng = bench.rng
    tags = [rng.randrange(bench.rows) << 24 | rng.randrange(BLOCKS) for _ in range(40)]
    # A block is looked up in a burst, and not again: there is no TLB to find it in.
    lookups = []
    for tag in dict.fromkeys(tags):
        lookups += [(tag, rng.random() < 0.5) for _ in range(rng.randint(1, 4))]
    for at in range(0, len(lookups) - 6, 6):
        part = lookups[at : at + 6]
        rng.shuffle(part)
        lookups[at : at + 6] = part

    async def testbench(ctx: Any) -> None:
        await bench.run(ctx, lookups)

    # A block whose miss has gone already is read again, and inserted again: allowed here only.
    class Once(dict[int, int]):
        def __contains__(self, tag: object) -> bool:
            return False

    bench.tlb = Once()
    simulate(bench.dut, testbench, cycles=12000)
    assert bench.ended == len(lookups)
    assert bench.used == bench.model_used
    for tag, index in bench.model.items():
        row, block = tag >> 24, tag & 0xFFFFFF
        assert bench.words[row * BLOCKS + block] == index | EPOCH << 24
    changed = np.flatnonzero(bench.words != bench.start)
    assert len(changed) == len(bench.model) == bench.memory.writes
    assert bench.memory.reads == len(lookups) - bench.merged
    if shape == "one":
        assert bench.blocked > 10


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_walker_two_lookups_of_one_block(first: bool, second: bool, known: bool) -> None:
    """They share a miss unless only the second may allocate; the tag is inserted once at most."""
    bench = Bench(TINY, 3)
    tag = 1 << 24 | 5
    bench.nactive = [BLOCKS] * bench.rows
    bench.words[BLOCKS + 5] = 99 | (EPOCH if known else 0) << 24
    bench.start = bench.words.copy()

    async def testbench(ctx: Any) -> None:
        await bench.run(ctx, [(tag, first), (tag, second)])

    simulate(bench.dut, testbench, cycles=1000)
    assert bench.merged == (0 if second and not first else 1)
    assert bench.memory.writes == (not known and (first or second))
    assert list(bench.tlb) == ([tag] if known or first or second else [])
