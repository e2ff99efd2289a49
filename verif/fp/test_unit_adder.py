# SPDX-License-Identifier: Apache-2.0
"""The adder without modes, which the vector does not use, and the conversions at their ends."""

import random

import pytest
from dysharp.rtl.fp.adder import Fp32Adder
from dysharp.rtl.fp.convert import Fp16To32, Fp32To16
from dysharp.verif.common.sim import evaluate, raises, simulate
from dysharp.verif.fp.numbers import random_number, specials
from dysharp.verif.fp.reference import BF16, F16, F32, add, convert


def operands(rng: random.Random, count: int) -> list[tuple[int, int]]:
    special = specials(F32)
    found = [(a, b) for a in special for b in special]
    found += [(random_number(rng, F32), random_number(rng, F32)) for _ in range(count)]
    for _ in range(count):  # that nearly cancel
        a = random_number(rng, F32)
        found.append((a, (a ^ 1 << 31) + rng.randint(-3, 3) & 0xFFFFFFFF))
    return found


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("stages", [0, 1, 2, 3, 4])
def test_adder(stages: int, seed: int) -> None:
    rng = random.Random(seed)
    pairs = operands(rng, 500)
    if stages:
        pairs = rng.sample(pairs, 300)
    dut = Fp32Adder(stages=stages)

    async def testbench(ctx):
        for cycle in range(len(pairs) + stages):
            if cycle < len(pairs):
                ctx.set(dut.a, pairs[cycle][0])
                ctx.set(dut.b, pairs[cycle][1])
            if cycle >= stages:
                a, b = pairs[cycle - stages]
                assert ctx.get(dut.sum) == add(F32, a, b), (hex(a), hex(b))
            if stages:
                await ctx.tick()

    if stages:
        simulate(dut, testbench, cycles=len(pairs) + stages + 1)
    else:
        evaluate(dut, testbench)


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("form", [F16, BF16], ids=["f16", "bf16"])
def test_conversions(form, seed: int) -> None:
    rng = random.Random(seed)
    widen, narrow = Fp16To32(), Fp32To16()

    async def widens(ctx):
        ctx.set(widen.f16, form is F16)
        for bits in [*specials(form), *(random_number(rng, form) for _ in range(500))]:
            if not form.is_nan(bits):  # its fraction stays
                ctx.set(widen.i, bits)
                assert ctx.get(widen.o) == convert(form, F32, bits), hex(bits)

    async def narrows(ctx):
        ctx.set(narrow.f16, form is F16)
        places = F32.fraction - form.fraction
        around = [(1 << places - 1) + near for near in (-1, 0, 1)]
        wide = [*specials(F32), *(random_number(rng, F32) for _ in range(500))]
        for bits in [*specials(form), *(random_number(rng, form) for _ in range(500))]:
            centre = convert(form, F32, bits)
            wide += [centre, *(centre + near & 0xFFFFFFFF for near in around)]
        for bits in wide:
            ctx.set(narrow.i, bits)
            assert ctx.get(narrow.o) == convert(F32, form, bits), hex(bits)

    evaluate(widen, widens)
    evaluate(narrow, narrows)


@pytest.mark.parametrize("stages", [-1, 5, "1"])
def test_adder_stages_wrong(stages: object) -> None:
    raises(
        lambda: Fp32Adder(stages=stages),  # type: ignore[arg-type]
        ValueError,
        f"`stages` must be 0 to 4, not {stages!r}",
    )
