# SPDX-License-Identifier: Apache-2.0
import random
from collections import Counter

import pytest
from dysharp.rtl.switch.vc_buffer import VcBuffer
from dysharp.verif.common.sim import raises, simulate


def drive(ctx, dut: VcBuffer, **inputs: int) -> None:
    """Set the inputs of a cycle; those that are not named are 0."""
    for name in ("w_en", "w_flit", "w_last", "take", "restart", "mark", "commit"):
        ctx.set(getattr(dut, name), inputs.get(name, 0))


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("depth", [2, 4, 32])
@pytest.mark.parametrize("honest", [True, False], ids=["honest", "without-credits"])
def test_vc_buffer_against_a_model(depth: int, honest: bool, seed: int) -> None:
    rng = random.Random(seed * 100 + depth)
    dut = VcBuffer(depth)
    flits: list[tuple[int, int]] = []  # everything that was stored: flit, last
    written_at: list[int] = []
    seen: Counter[str] = Counter()

    async def testbench(ctx):
        read = start = marked = given = 0
        restarted = -2
        may_commit = True  # what was remembered stands before the reader
        write_rate = take_rate = 0.5
        for cycle in range(4000):
            if cycle % 100 == 0:
                write_rate, take_rate = rng.choice([(1.0, 1.0), (0.9, 0.3), (0.3, 0.9), (0.5, 0.5)])
            stored = len(flits)
            assert stored - start <= depth
            full = stored - start == depth
            assert ctx.get(dut.full) == full
            seen["full"] += full

            write = rng.random() < write_rate and (given > stored if honest else True)
            flit = (rng.getrandbits(128), rng.getrandbits(1))
            restart = rng.random() < 0.05
            drive(ctx, dut, w_en=write, w_flit=flit[0], w_last=flit[1], restart=restart)
            seen["lost"] += write and full
            write = write and not full
            if write:
                flits.append(flit)
                written_at.append(cycle)

            valid = ctx.get(dut.r_valid)
            if read == stored:  # caught up: only a flit that comes in now
                assert valid == write
                seen["bypass"] += write
            elif written_at[read] <= cycle - 2 and restarted <= cycle - 2:
                assert valid
            if valid:
                assert (ctx.get(dut.r_flit), ctx.get(dut.r_last)) == flits[read]
            take = valid and rng.random() < take_rate
            ctx.set(dut.take, take)

            mark = rng.random() < 0.3
            commit = may_commit and not restart and rng.random() < 0.3
            ctx.set(dut.mark, mark)
            ctx.set(dut.commit, commit)
            credit = ctx.get(dut.credit)
            assert credit == (cycle > 0 and given < start + depth)  # none with a reset
            given += credit
            seen["commit"] += commit and marked > start
            await ctx.tick()
            if commit:
                start = marked
            if mark:
                marked = read
                may_commit = True
            if restart:
                seen["again"] += read > start
                read, restarted, may_commit = start, cycle, False
            elif take:
                read += 1
                seen["take"] += 1

    simulate(dut, testbench, cycles=4001)
    assert seen["take"] > 500
    assert min(seen[name] for name in ("bypass", "again", "commit")) > 10, seen
    # An honest sender fills the buffer, but never writes to it then.
    assert seen["full"] > 10
    assert (seen["lost"] == 0) == honest


@pytest.mark.parametrize("depth", [2, 8, 64])
def test_vc_buffer_hands_out_its_depth_after_reset(depth: int) -> None:
    dut = VcBuffer(depth)

    async def testbench(ctx):
        credits = 0
        for _ in range(3 * depth):
            credits += ctx.get(dut.credit)
            await ctx.tick()
        assert credits == depth

    simulate(dut, testbench, cycles=3 * depth + 1)


@pytest.mark.parametrize("behind", [0, 3])
def test_vc_buffer_streams_one_flit_per_cycle(behind: int) -> None:
    """Flit *n* is taken `behind` cycles after it was written, for far more flits than fit."""
    dut = VcBuffer(8)
    flits = 200

    async def testbench(ctx):
        for cycle in range(flits + behind):
            taking = cycle >= behind
            drive(ctx, dut, w_en=cycle < flits, w_flit=cycle, mark=1, commit=1, take=taking)
            assert ctx.get(dut.full) == 0
            if taking:
                assert ctx.get(dut.r_valid) == 1
                assert ctx.get(dut.r_flit) == cycle - behind
            await ctx.tick()

    simulate(dut, testbench, cycles=flits + behind + 1)


def test_vc_buffer_restart_reads_exactly_the_same_again() -> None:
    dut = VcBuffer(16)
    length = 10

    async def testbench(ctx):
        # Two flits of a packet before are committed: the restart does not go back to them.
        for n in range(length + 2):
            drive(ctx, dut, w_en=1, w_flit=100 + n, w_last=n == length + 1, take=1, mark=n == 2)
            assert ctx.get(dut.r_flit) == 100 + n
            await ctx.tick()
        drive(ctx, dut, commit=1)
        await ctx.tick()
        for _ in range(4):
            drive(ctx, dut, restart=1)
            await ctx.tick()
            drive(ctx, dut)
            await ctx.tick()
            for n in range(2, length + 2):
                drive(ctx, dut, take=1)
                assert ctx.get(dut.r_valid) == 1
                assert ctx.get(dut.r_flit) == 100 + n
                assert ctx.get(dut.r_last) == (n == length + 1)
                await ctx.tick()
            drive(ctx, dut)
            assert ctx.get(dut.r_valid) == 0

    simulate(dut, testbench, cycles=80)


def test_vc_buffer_refuses_a_take_of_nothing() -> None:
    dut = VcBuffer(4)

    async def testbench(ctx):
        drive(ctx, dut, take=1)
        await ctx.tick()
        await ctx.tick()

    with pytest.raises(AssertionError, match=r"vc buffer: took a flit that is not there"):
        simulate(dut, testbench, cycles=4)


@pytest.mark.parametrize("depth", [0, 1, 3, 12, -4])
def test_vc_buffer_wrong(depth: int) -> None:
    message = f"`depth` must be a power of two from 2 on, not {depth}"
    raises(lambda: VcBuffer(depth), ValueError, message)
