# SPDX-License-Identifier: Apache-2.0
import random

import pytest
from dysharp.rtl.flits import LANES
from dysharp.rtl.switch.pruner import Pruner
from dysharp.verif.common.sim import evaluate

EVERYTHING = (1 << LANES) - 1


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("fill", range(LANES))
def test_pruner_exhaustive(fill: int, seed: int) -> None:
    rng = random.Random(seed * 10 + fill)
    dut = Pruner()

    async def testbench(ctx):
        ctx.set(dut.straight, 0)
        ctx.set(dut.fill, fill)
        for chosen in range(1 << LANES):
            words = [rng.getrandbits(16) for _ in range(LANES)]
            ctx.set(dut.i_flit, words)
            ctx.set(dut.chosen, chosen)
            ctx.set(dut.count, chosen.bit_count())
            kept = [words[lane] for lane in range(LANES) if chosen >> lane & 1]
            out = list(ctx.get(dut.o_flit))
            low = high = 0
            for n, word in enumerate(kept):
                place = fill + n
                assert out[place % LANES] == word
                if place < LANES:
                    low |= 1 << place
                else:
                    high |= 1 << place - LANES
            assert ctx.get(dut.low) == low
            assert ctx.get(dut.high) == high

    evaluate(dut, testbench)


@pytest.mark.parametrize("seed", [2])
def test_pruner_straight_changes_nothing(seed: int) -> None:
    rng = random.Random(seed)
    dut = Pruner()

    async def testbench(ctx):
        ctx.set(dut.straight, 1)
        for chosen in range(1 << LANES):
            words = [rng.getrandbits(16) for _ in range(LANES)]
            ctx.set(dut.i_flit, words)
            ctx.set(dut.chosen, chosen)
            ctx.set(dut.fill, rng.randrange(LANES))
            assert list(ctx.get(dut.o_flit)) == words

    evaluate(dut, testbench)
