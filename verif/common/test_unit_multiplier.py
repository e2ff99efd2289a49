# SPDX-License-Identifier: Apache-2.0
import random
from typing import Any

import pytest
from dysharp.golden.al_map import QUOTIENT_BITS, reciprocal
from dysharp.rtl.common.multiplier import Multiplier
from dysharp.verif.common.sim import raises, simulate

SHAPES: dict[str, dict[str, Any]] = {
    "quotient": {"a_bits": 36, "b_bits": 37},
    "rest": {"a_bits": 16, "b_bits": 16, "addend_bits": [16], "out_bits": 16},
    "place": {"a_bits": 17, "b_bits": 24, "addend_bits": [44, 44], "out_bits": 44},
    "bit": {"a_bits": 1, "b_bits": 1},
    "square": {"a_bits": 2, "b_bits": 2, "levels": 1, "segment": 1},
    "deep": {"a_bits": 9, "b_bits": 5, "levels": 2, "segment": 3, "addend_bits": [3, 20]},
    "narrow": {"a_bits": 12, "b_bits": 12, "out_bits": 5, "levels": 20, "segment": 40},
}


def numbers(rng: random.Random, bits: int) -> int:
    """Corners and random numbers, dense or sparse."""
    full = (1 << bits) - 1
    return rng.choice(
        [0, 1, full, full - 1 & full, 1 << rng.randrange(bits), rng.getrandbits(bits)]
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_multiplier_random(shape: str) -> None:
    """A new product every cycle, none depends on its neighbours."""
    rng = random.Random(1)
    arguments = SHAPES[shape]
    dut = Multiplier(**arguments)
    addends = [getattr(dut, f"addend{n}") for n in range(len(arguments.get("addend_bits", [])))]
    wanted: list[int] = []

    async def testbench(ctx) -> None:
        for cycle in range(1000):
            a, b = numbers(rng, len(dut.a)), numbers(rng, len(dut.b))
            total = a * b
            ctx.set(dut.a, a)
            ctx.set(dut.b, b)
            for addend in addends:
                value = numbers(rng, len(addend))
                ctx.set(addend, value)
                total += value
            wanted.append(total % (1 << len(dut.out)))
            if cycle >= dut.latency:
                assert ctx.get(dut.out) == wanted[cycle - dut.latency]
            await ctx.tick()

    simulate(dut, testbench, cycles=1000)


@pytest.mark.parametrize("bits", [(4, 4, 8), (5, 3, 8), (3, 5, 4)])
def test_multiplier_exhaustive(bits: tuple[int, int, int]) -> None:
    a_bits, b_bits, out_bits = bits
    dut = Multiplier(a_bits, b_bits, out_bits=out_bits, levels=1, segment=3)
    wanted = [a * b % (1 << out_bits) for a in range(1 << a_bits) for b in range(1 << b_bits)]

    async def testbench(ctx) -> None:
        for cycle in range(len(wanted) + dut.latency):
            ctx.set(dut.a, cycle >> b_bits)
            ctx.set(dut.b, cycle)
            if cycle >= dut.latency:
                assert ctx.get(dut.out) == wanted[cycle - dut.latency]
            await ctx.tick()

    simulate(dut, testbench, cycles=len(wanted) + dut.latency)


def test_multiplier_divides_exactly() -> None:
    """Quotients by reciprocals at the boundaries, for block sizes of all shifts."""
    rng = random.Random(2)
    dut = Multiplier(QUOTIENT_BITS, QUOTIENT_BITS + 1)
    blocks = [1, 2, 180, 448, 896, 65535, 65536]
    blocks += [rng.randint((1 << shift - 1) + 1, 1 << shift) for shift in range(1, 17)]
    blocks += [(1 << shift) + 1 for shift in range(1, 16)]
    last = (1 << QUOTIENT_BITS) - 1
    cases = []
    for block in blocks:
        top = last // block * block
        near = [0, block, top, rng.randrange(last // block + 1) * block]
        cases += [(n + step, block) for n in near for step in (-1, 0, 1) if 0 <= n + step <= last]
        cases += [(last, block), (rng.randrange(last), block)]
    shifts = {reciprocal(block)[1] for block in blocks}
    assert shifts == set(range(17))

    async def testbench(ctx) -> None:
        for cycle in range(len(cases) + dut.latency):
            if cycle < len(cases):
                dividend, block = cases[cycle]
                ctx.set(dut.a, dividend)
                ctx.set(dut.b, reciprocal(block)[0])
            if cycle >= dut.latency:
                dividend, block = cases[cycle - dut.latency]
                shift = reciprocal(block)[1]
                assert ctx.get(dut.out) >> QUOTIENT_BITS + shift == dividend // block
            await ctx.tick()

    simulate(dut, testbench, cycles=len(cases) + dut.latency)


@pytest.mark.parametrize("name", ["a_bits", "b_bits", "out_bits", "levels", "segment"])
def test_multiplier_refuses(name: str) -> None:
    arguments: dict[str, Any] = {"a_bits": 2, "b_bits": 2, name: 0}
    raises(lambda: Multiplier(**arguments), ValueError, f"`{name}` must be 1 or more, not 0")
