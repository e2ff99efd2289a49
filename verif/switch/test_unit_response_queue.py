# SPDX-License-Identifier: Apache-2.0
import random
from collections import Counter, deque

import pytest
from dysharp.rtl.params import SwitchParams
from dysharp.rtl.switch.response_queue import ResponseQueue
from dysharp.verif.common.sim import simulate

SHAPES = {
    "tiny": SwitchParams(ports=4, response_depth=32),
    "deep": SwitchParams(ports=4, response_depth=128),
}


def drive(ctx, dut: ResponseQueue, **inputs: int) -> None:
    """Set the inputs; 0 what is not named."""
    for name in ("w_en", "w_flit", "w_last", "take"):
        ctx.set(getattr(dut, name), inputs.get(name, 0))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("honest", [True, False])
@pytest.mark.parametrize("params", SHAPES.values(), ids=SHAPES)
def test_response_queue_against_a_model(params: SwitchParams, honest: bool, seed: int) -> None:
    """An honest sender has a credit for each flit; another one writes whenever there is room."""
    rng = random.Random(seed)
    dut = ResponseQueue(params)
    depth = params.response_depth
    queue: deque[tuple[int, int, int]] = deque()  # flit, last, and when it was written
    seen: Counter[str] = Counter()

    async def testbench(ctx):
        eager = (0.5, 0.5)
        exposed = 0  # first cycle in which the oldest flit had none before it
        for cycle in range(4000):
            if cycle % 200 == 0:
                eager = ((1.0, 0.2), (0.2, 0.9), (0.6, 0.6), (1.0, 1.0))[cycle // 200 % 4]
            # One flit is in sight, outside the RAM.
            full = bool(ctx.get(dut.full))
            assert full == (len(queue) == depth + 1)
            seen["full"] += full
            seen["level"] = max(seen["level"], len(queue))
            valid = bool(ctx.get(dut.valid))
            if not queue:
                assert not valid
                seen["empty"] += 1
            else:
                flit, last, written = queue[0]
                # In sight two cycles after it was written, or when the one before it is gone.
                assert valid == (cycle >= max(written + 2, exposed))
                if valid:
                    assert (ctx.get(dut.flit), ctx.get(dut.last)) == (flit, last)

            credits = depth - len(queue)
            write = rng.random() < eager[0] and (credits > 0 if honest else not full)
            take = valid and rng.random() < eager[1]
            flit, last = rng.getrandbits(128), rng.getrandbits(1)
            drive(ctx, dut, w_en=write, w_flit=flit, w_last=last, take=take)
            await ctx.tick()
            if take:
                queue.popleft()
                exposed = cycle + 1
                seen["take"] += 1
            if write:
                queue.append((flit, last, cycle))

    simulate(dut, testbench, cycles=4001)
    assert seen["take"] > 1000
    assert seen["empty"] > 10
    assert seen["level"] == (depth if honest else depth + 1)
    assert (seen["full"] > 0) != honest


def test_response_queue_streams_one_flit_per_cycle_two_cycles_late() -> None:
    dut = ResponseQueue(SHAPES["tiny"])
    flits = 200

    async def testbench(ctx):
        for cycle in range(flits + 3):
            shown = 2 <= cycle < flits + 2
            assert ctx.get(dut.valid) == shown
            if shown:
                assert ctx.get(dut.flit) == cycle - 2
                assert ctx.get(dut.last) == (cycle - 2) % 3 // 2
            writes = cycle < flits
            drive(ctx, dut, w_en=writes, w_flit=cycle, w_last=cycle % 3 // 2, take=shown)
            assert ctx.get(dut.full) == 0
            await ctx.tick()

    simulate(dut, testbench, cycles=flits + 4)


def test_response_queue_shows_a_flit_until_it_is_taken() -> None:
    dut = ResponseQueue(SHAPES["tiny"])

    async def testbench(ctx):
        drive(ctx, dut, w_en=1, w_flit=5, w_last=1)
        await ctx.tick()
        drive(ctx, dut)
        await ctx.tick()
        for n in range(10):
            drive(ctx, dut, w_en=1, w_flit=6 + n)
            assert ctx.get(dut.valid) == 1
            assert (ctx.get(dut.flit), ctx.get(dut.last)) == (5, 1)
            await ctx.tick()
        for n in range(11):
            drive(ctx, dut, take=1)
            assert ctx.get(dut.valid) == 1
            assert ctx.get(dut.flit) == 5 + n
            await ctx.tick()
        drive(ctx, dut)
        assert ctx.get(dut.valid) == 0

    simulate(dut, testbench, cycles=30)


@pytest.mark.parametrize("params", SHAPES.values(), ids=SHAPES)
def test_response_queue_has_room_for_all_credits(params: SwitchParams) -> None:
    dut = ResponseQueue(params)
    depth = params.response_depth

    async def testbench(ctx):
        for n in range(depth + 1):
            assert ctx.get(dut.full) == 0
            drive(ctx, dut, w_en=1, w_flit=n)
            await ctx.tick()
        drive(ctx, dut)
        assert ctx.get(dut.full) == 1
        drive(ctx, dut, take=1)
        await ctx.tick()
        drive(ctx, dut)
        assert ctx.get(dut.full) == 0
        assert ctx.get(dut.flit) == 1

    simulate(dut, testbench, cycles=depth + 4)


@pytest.mark.parametrize(
    ("rule", "message"),
    [("w_en", "response queue: written while full"), ("take", "response queue: took what is not")],
)
def test_response_queue_notices_who_breaks_a_rule(rule: str, message: str) -> None:
    params = SHAPES["tiny"]
    dut = ResponseQueue(params)

    async def testbench(ctx):
        drive(ctx, dut, **{rule: 1})
        for _ in range(params.response_depth + 3):
            await ctx.tick()

    with pytest.raises(AssertionError, match=message):
        simulate(dut, testbench, cycles=params.response_depth + 4)
