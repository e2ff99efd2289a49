# SPDX-License-Identifier: Apache-2.0
import random
from collections import deque

import pytest
from dysharp.rtl.common.ram_fifo import AHEAD, RamFifo
from dysharp.rtl.common.shift_fifo import ShiftFifo
from dysharp.verif.common.pressure import PRESSURES, pressure
from dysharp.verif.common.sim import raises, simulate, ticks

SHAPES = [("shift", 1), ("shift", 3), ("ram", 2), ("ram", 8), ("flops", 2), ("flops", 8)]


def build(kind: str, depth: int):
    if kind == "shift":
        return ShiftFifo(9, depth)
    return RamFifo(9, depth, head_in_flops=kind == "flops")


@pytest.mark.parametrize("level", PRESSURES)
@pytest.mark.parametrize(("kind", "depth"), SHAPES)
def test_queue_fifo_random(kind: str, depth: int, level: str) -> None:
    """Whenever there is room something may come; all of it leaves in order."""
    rng = random.Random(f"{kind} {depth} {level}")
    dut = build(kind, depth)
    seen = 0

    async def testbench(ctx):
        nonlocal seen
        held: deque[int] = deque()
        takes = pressure(level, rng)
        for cycle in range(1500):
            if cycle % 200 == 0:
                share = rng.choice([0.2, 0.5, 1.0])
            ready = next(takes)
            ctx.set(dut.o.ready, ready)
            valid = ctx.get(dut.o.valid)
            assert not (valid and not held)
            leaves = valid and ready
            w_en = rng.random() < share and len(held) < depth
            word = rng.getrandbits(9)
            ctx.set(dut.w_en, w_en)
            ctx.set(dut.w_data, word)
            if valid:
                assert ctx.get(dut.o.payload) == held[0]
            await ctx.tick()
            if leaves:
                held.popleft()
                seen += 1
            if w_en:
                held.append(word)

    simulate(dut, testbench, cycles=1501)
    assert seen > 100


@pytest.mark.parametrize(
    ("kind", "depth", "latency"), [("shift", 3, 1), ("ram", 8, 2), ("flops", 8, 3)]
)
def test_queue_fifo_timing(kind: str, depth: int, latency: int) -> None:
    """The first word comes after `latency` cycles; then one a cycle."""
    dut = build(kind, depth)

    async def testbench(ctx):
        ctx.set(dut.o.ready, 1)
        for cycle in range(40):
            ctx.set(dut.w_en, 1)
            ctx.set(dut.w_data, cycle)
            assert ctx.get(dut.o.valid) == (cycle >= latency)
            if cycle >= latency:
                assert ctx.get(dut.o.payload) == cycle - latency
            await ctx.tick()

    simulate(dut, testbench, cycles=41)


@pytest.mark.parametrize(("kind", "words"), [("shift", 3), ("ram", 8 + 1), ("flops", 8 + AHEAD)])
def test_queue_fifo_tells_a_word_without_room(kind: str, words: int) -> None:
    dut = build(kind, 3 if kind == "shift" else 8)

    told = False

    async def testbench(ctx):
        nonlocal told
        ctx.set(dut.w_en, 1)
        for _ in range(words):
            await ctx.tick()
        told = True
        await ticks(ctx, 3)

    with pytest.raises(AssertionError, match="a word came without room"):
        simulate(dut, testbench, cycles=20)
    assert told


def test_queue_fifo_depth() -> None:
    raises(lambda: RamFifo(8, 6), ValueError, "`depth` must be a power of two, 2 or more, not 6")
