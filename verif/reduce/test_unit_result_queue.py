# SPDX-License-Identifier: Apache-2.0
import random
from collections import Counter, deque

import pytest
from dysharp.rtl.params import SwitchParams
from dysharp.rtl.reduce.result_queue import ResultQueue
from dysharp.verif.common.sim import simulate

SHAPES = {
    "tiny": SwitchParams(ports=4, result_depth=32),
    "deep": SwitchParams(ports=4, result_depth=128),
}


def drive(ctx, dut: ResultQueue, **inputs: int) -> None:
    """Set the inputs; 0 what is not named."""
    for name in ("reserve", "w_en", "w_flit", "w_last", "pop"):
        ctx.set(getattr(dut, name), inputs.get(name, 0))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("params", SHAPES.values(), ids=SHAPES)
def test_result_queue_against_a_model(params: SwitchParams, seed: int) -> None:
    rng = random.Random(seed)
    dut = ResultQueue(params)
    depth, longest = params.result_depth, params.max_response_flits
    queue: deque[tuple[int, int]] = deque()
    seen: Counter[str] = Counter()

    async def testbench(ctx):
        reserved = 0  # flits that may still be written
        popped = None
        pop = False
        for cycle in range(4000):
            if cycle % 200 == 0:
                rates = ((1.0, 1.0, 0.2), (0.02, 0.9, 1.0), (0.2, 0.5, 0.5), (1, 1, 1))[
                    cycle // 200 % 4
                ]
            # What is popped in a cycle is counted two cycles later.
            room = depth - len(queue) - reserved - pop
            assert ctx.get(dut.room) == room
            assert ctx.get(dut.nonempty) == bool(queue)
            if popped is not None:
                assert (ctx.get(dut.flit), ctx.get(dut.last)) == popped
            seen["no room"] += room == 0
            seen["full"] += len(queue) == depth
            seen["empty"] += not queue

            reserve = 0
            if rng.random() < rates[0]:
                reserve = rng.choice([min(room, longest), rng.randint(0, min(room, longest))])
            write = reserved > 0 and rng.random() < rates[1]
            pop = bool(queue) and rng.random() < rates[2]
            flit = (rng.getrandbits(128), rng.getrandbits(1))
            drive(ctx, dut, reserve=reserve, w_en=write, w_flit=flit[0], w_last=flit[1], pop=pop)
            await ctx.tick()
            reserved += reserve - write
            if pop:
                popped = queue.popleft()
                seen["pop"] += 1
            if write:
                queue.append(flit)

    simulate(dut, testbench, cycles=4001)
    assert seen["pop"] > 1000
    assert min(seen["no room"], seen["full"], seen["empty"]) > 10, seen


def test_result_queue_streams_one_flit_per_cycle() -> None:
    """A flit can be popped in the cycle behind its write, and reserved one by one before it."""
    dut = ResultQueue(SHAPES["tiny"])
    flits = 100

    async def testbench(ctx):
        for cycle in range(flits + 3):
            writes, pops = 1 <= cycle <= flits, 2 <= cycle <= flits + 1
            drive(ctx, dut, reserve=cycle < flits, w_en=writes, w_flit=cycle - 1, pop=pops)
            assert ctx.get(dut.nonempty) == pops
            if cycle > 2:
                assert ctx.get(dut.flit) == cycle - 3
            await ctx.tick()
        await ctx.tick()
        assert ctx.get(dut.room) == SHAPES["tiny"].result_depth

    simulate(dut, testbench, cycles=flits + 5)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"reserve": 17}, "result queue: reserved more than there is"),
        ({"w_en": 1}, "result queue: overflow"),
        ({"pop": 1}, "result queue: popped while empty"),
    ],
)
def test_result_queue_notices_who_breaks_a_rule(inputs: dict[str, int], message: str) -> None:
    params = SHAPES["tiny"]
    dut = ResultQueue(params)

    async def testbench(ctx):
        drive(ctx, dut, **inputs)
        for _ in range(params.result_depth + 2):
            await ctx.tick()

    with pytest.raises(AssertionError, match=message):
        simulate(dut, testbench, cycles=params.result_depth + 3)
