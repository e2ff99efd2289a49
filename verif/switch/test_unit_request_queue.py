# SPDX-License-Identifier: Apache-2.0
import random
from collections import deque
from typing import Any

import pytest
from dysharp.rtl.params import SwitchParams
from dysharp.rtl.switch.request_queue import RequestQueue, entry_layout
from dysharp.verif.common.sim import simulate
from dysharp.verif.switch.units import Entry

TINY: dict[str, Any] = {"ports": 4, "max_targets": 16, "groups": 4, "ingress_depth": 32}
SHAPES = {
    "tiny": SwitchParams(**TINY, request_depth=32),
    "deep": SwitchParams(**TINY, request_depth=64),
    "no-lists": SwitchParams(**TINY, request_depth=32, dynamic=False),
}


def random_entry(rng: random.Random) -> Entry:
    return Entry(rng.getrandbits(128), rng.random() < 0.3, rng.getrandbits(8), rng.random() < 0.5)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("params", SHAPES.values(), ids=SHAPES)
def test_request_queue_against_a_model(params: SwitchParams, seed: int) -> None:
    rng = random.Random(seed)
    dut = RequestQueue(params)
    depth = params.request_depth
    queue: deque[Entry] = deque()
    # Entries popped before whose place was not written again: the queue can step back over them.
    behind: deque[Entry] = deque()
    seen = {"full": 0, "empty": 0, "back": 0, "pop": 0}

    async def testbench(ctx):
        popped = None
        eager = (0.5, 0.5)
        for cycle in range(3000):
            if cycle % 150 == 0:
                eager = ((1.0, 0.2), (0.2, 0.9), (0.6, 0.6), (1.0, 1.0))[cycle // 150 % 4]
            used = len(queue)
            # Just enough, just too few, or any.
            limit = min(max(rng.choice([used, used - 1, rng.randrange(depth)]), 0), depth - 1)
            ctx.set(dut.limit, limit)
            assert ctx.get(dut.room) == (used <= limit)
            assert ctx.get(dut.nonempty) == (used > 0)
            if popped is not None:
                assert ctx.get(dut.r_entry) == entry_layout(params.dynamic).const(
                    popped.fields(params)
                )
            seen["full"] += used == depth
            seen["empty"] += used == 0

            write = rng.random() < eager[0] and used < depth
            pop = rng.random() < eager[1] and used > 0
            # Stepping back takes room, so an entry may not be written then to a full queue.
            back = params.dynamic and not pop and bool(behind) and rng.random() < 0.3
            back = back and used + write < depth
            entry = random_entry(rng)
            ctx.set(dut.w_en, write)
            ctx.set(dut.w_entry, entry.fields(params))
            ctx.set(dut.pop, pop)
            ctx.set(dut.back, back)
            await ctx.tick()
            if pop:
                popped = queue.popleft()
                behind.append(popped)
                seen["pop"] += 1
            if back:
                queue.appendleft(behind.pop())
                seen["back"] += 1
            if write:
                queue.append(entry)
            while len(behind) + len(queue) > depth:
                behind.popleft()

    simulate(dut, testbench, cycles=3001)
    assert seen["back"] > 20 or not params.dynamic
    assert min(n for name, n in seen.items() if name != "back") > 0, seen


def test_request_queue_streams_one_entry_per_cycle() -> None:
    params = SHAPES["tiny"]
    dut = RequestQueue(params)

    async def testbench(ctx):
        for n in range(100):
            ctx.set(dut.w_en, 1)
            ctx.set(dut.w_entry, Entry(n, False).fields(params))
            ctx.set(dut.pop, n > 0)  # what was written in the cycle before
            assert ctx.get(dut.nonempty) == (n > 0)
            if n > 1:
                assert ctx.get(dut.r_entry).flit == n - 2
            await ctx.tick()

    simulate(dut, testbench, cycles=101)


def test_request_queue_steps_back_over_a_header_and_its_list() -> None:
    params = SHAPES["tiny"]
    dut = RequestQueue(params)
    steps = 1 + params.max_extensions

    async def testbench(ctx):
        ctx.set(dut.w_en, 1)
        for n in range(params.request_depth):
            ctx.set(dut.w_entry, Entry(n, False).fields(params))
            await ctx.tick()
        ctx.set(dut.w_en, 0)
        for _ in range(3):
            ctx.set(dut.pop, 1)
            for n in range(steps):
                await ctx.tick()
                assert ctx.get(dut.r_entry).flit == n
            ctx.set(dut.pop, 0)
            ctx.set(dut.back, 1)
            for n in range(steps):
                held = params.request_depth - steps + n
                for limit in (held - 1, held):
                    ctx.set(dut.limit, limit)
                    assert ctx.get(dut.room) == (limit == held)
                await ctx.tick()
            ctx.set(dut.back, 0)
            assert ctx.get(dut.room) == 0

    simulate(dut, testbench, cycles=params.request_depth + 6 * steps + 1)
