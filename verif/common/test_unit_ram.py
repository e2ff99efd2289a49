# SPDX-License-Identifier: Apache-2.0
import random

import pytest
from dysharp.rtl.common.ram import Ram
from dysharp.verif.common.sim import raises, simulate


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("width", "depth"), [(1, 2), (8, 3), (129, 16), (17, 96)])
def test_ram_against_a_list(width: int, depth: int, seed: int) -> None:
    rng = random.Random(seed)
    dut = Ram(width=width, depth=depth)
    words: dict[int, int] = {}
    reads = 0

    async def testbench(ctx):
        nonlocal reads
        held = None
        for _ in range(800):
            w_en, r_en = rng.random() < 0.5, rng.random() < 0.5
            w_addr, w_data = rng.randrange(depth), rng.getrandbits(width)
            readable = [a for a in words if not (w_en and a == w_addr)]
            r_en = r_en and bool(readable)
            r_addr = rng.choice(readable) if r_en else rng.randrange(depth)
            for signal, value in (
                (dut.w_en, w_en),
                (dut.w_addr, w_addr),
                (dut.w_data, w_data),
                (dut.r_en, r_en),
                (dut.r_addr, r_addr),
            ):
                ctx.set(signal, value)
            if held is not None:
                assert ctx.get(dut.r_data) == held
            await ctx.tick()
            if r_en:
                held = words[r_addr]
                reads += 1
            if w_en:
                words[w_addr] = w_data
        assert len(words) > 0.9 * depth

    simulate(dut, testbench, cycles=801)
    assert reads > 200


def test_ram_reads_the_word_of_the_cycle_before() -> None:
    dut = Ram(width=8, depth=4)

    async def testbench(ctx):
        for n in range(8):
            ctx.set(dut.w_en, 1)
            ctx.set(dut.w_addr, n % 4)
            ctx.set(dut.w_data, 0x10 + n)
            ctx.set(dut.r_en, n > 0)
            ctx.set(dut.r_addr, (n - 1) % 4)
            await ctx.tick()
            if n:
                assert ctx.get(dut.r_data) == 0x10 + n - 1

    simulate(dut, testbench, cycles=9)


def test_ram_shows_its_parameters() -> None:
    dut = Ram(width=5, depth=12)
    assert (dut.width, dut.depth) == (5, 12)
    assert len(dut.w_addr) == len(dut.r_addr) == 4


@pytest.mark.parametrize(("width", "depth"), [(0, 2), (1, 1), (-1, 4), (8, 0)])
def test_ram_wrong(width: int, depth: int) -> None:
    message = f"a memory must be 1x2 or more, not {width}x{depth}"
    raises(lambda: Ram(width=width, depth=depth), ValueError, message)
