# SPDX-License-Identifier: Apache-2.0
import random
from itertools import product

import pytest
from dysharp.rtl.flits import LANES, REDUCTIONS, TO_F32, WIDE, DType, ReduceOp
from dysharp.rtl.fp.vector import DEFAULT_STAGES, ReduceVector
from dysharp.verif.common.sim import raises, simulate
from dysharp.verif.fp.numbers import random_number
from dysharp.verif.fp.reference import F32, Format, Member, convert, element_format, flit_step, step

CASES = [
    (dtype, op, from_f32)
    for dtype, ops in REDUCTIONS.items()
    for op in ops
    for from_f32 in ((False, True) if dtype in WIDE else (False,))
]


def random_flit(rng: random.Random, dtype: Member, from_f32: bool) -> int:
    form = F32 if from_f32 else element_format(dtype) or F32
    count = 128 // form.bits
    return sum(random_number(rng, form) << form.bits * place for place in range(count))


def random_acc(rng: random.Random, dtype: Member, flit: int, from_f32: bool) -> int:
    """Two words of sums; some of them are the operand's opposite, so that they cancel."""
    if dtype in WIDE:
        return random_flit(rng, DType.F32, False) | random_flit(rng, DType.F32, False) << 128
    words = [random_flit(rng, dtype, False) for _ in range(2)]
    form = element_format(dtype) or F32
    if rng.random() < 0.3:
        signs = sum(1 << form.bits * (place + 1) - 1 for place in range(128 // form.bits))
        words[rng.randrange(2)] = flit ^ signs ^ rng.choice((0, 1, 2, 3))
    return words[0] | words[1] << 128


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("stages", [1, 2, DEFAULT_STAGES, 4])
def test_vector_is_the_contract(stages: int, seed: int) -> None:
    """Every type, operation, first or not, one flit a cycle, types and operations mixed."""
    rng = random.Random(seed * 10 + stages)
    dut = ReduceVector(stages=stages)
    rounds = 2 if stages == DEFAULT_STAGES else 1
    flits = [(*case, first) for case, first in product(CASES, (False, False, True))] * rounds
    rng.shuffle(flits)
    expected: list[tuple[int, int | None]] = []

    async def testbench(ctx):
        for cycle in range(len(flits) + dut.latency):
            if cycle >= dut.latency:
                total, result = expected[cycle - dut.latency]
                told = flits[cycle - dut.latency]
                assert ctx.get(dut.sum) == total, told
                assert result is None or ctx.get(dut.result) == result, told
            if cycle < len(flits):
                dtype, op, from_f32, first = flits[cycle]
                flit = random_flit(rng, dtype, from_f32)
                acc = random_acc(rng, dtype, flit, from_f32)
                half = rng.getrandbits(1)
                ctx.set(dut.dtype, dtype)
                ctx.set(dut.op, op)
                ctx.set(dut.first, first)
                ctx.set(dut.from_f32, from_f32)
                ctx.set(dut.half, half)
                ctx.set(dut.flit, flit)
                ctx.set(dut.acc, acc)
                expected.append(
                    flit_step(
                        dtype, op, first=first, from_f32=from_f32, half=half, flit=flit, acc=acc
                    )
                )
            await ctx.tick()

    simulate(dut, testbench, cycles=len(flits) + dut.latency + 1)


def naive(dtype: Member, op: Member, parts: list[int], total: Format | None) -> int:
    """Lane 0 of a result, with sums of the type `total`."""
    form = element_format(dtype)
    acc = None
    for part in parts:
        number = convert(form, total, part) if form and total else part
        acc = step(dtype, op, total, acc, number)
    assert acc is not None
    if form is None or total is None:
        return acc
    return convert(total, F32 if dtype in TO_F32 else form, acc)


def story(dtype: Member, op: Member) -> list[int]:
    """Parts, the same in every lane, whose sum tells order, width and rounding apart."""
    form = element_format(dtype)
    if form is None:
        return [0x80000000, 0x7FFFFFFF, 0x80000001, 0x7FFFFFFE]
    one = form.exponents // 2 << form.fraction
    negative = 1 << form.bits - 1
    if op is not ReduceOp.ADD:  # NaN first, zeros, and subnormal numbers
        sign = negative if op is ReduceOp.MAX else 0
        return [form.nan + 1, negative, 0, negative | 1 if sign else 1]
    half = one - (form.fraction + 1 << form.fraction)  # of the last place of 1
    if form is F32:
        return [one, half, half, negative | 1]
    # Rounded at every step: 1. In f32, rounded once: 1 and one last place, but in the other order
    # the smallest number is lost last instead of first.
    return [one, half, half, half + 1]


def test_vector_sums_in_order_and_width() -> None:
    """Several parts, the sums fed back: every type and operation, and none that is easier."""
    dut = ReduceVector()
    cases = [(dtype, op) for dtype, op, from_f32 in CASES if not from_f32]
    stories = [story(dtype, op) for dtype, op in cases]
    for (dtype, op), parts in zip(cases, stories, strict=True):
        form = element_format(dtype)
        total = F32 if dtype in WIDE else form
        right = naive(dtype, op, parts, total)
        if op is ReduceOp.ADD and form is not None:
            other = form if dtype in WIDE else F32
            assert form is F32 or naive(dtype, op, parts, other) != right
            if form is F32 or dtype not in WIDE:
                assert naive(dtype, op, parts[::-1], total) != right

    async def testbench(ctx):
        sums = [0] * len(cases)
        results = [0] * len(cases)
        for number in range(len(stories[0])):
            for cycle in range(len(cases) + dut.latency):
                if cycle >= dut.latency:
                    sums[cycle - dut.latency] = ctx.get(dut.sum)
                    results[cycle - dut.latency] = ctx.get(dut.result)
                if cycle < len(cases):
                    dtype, op = cases[cycle]
                    bits = (element_format(dtype) or F32).bits
                    part = stories[cycle][number]
                    ctx.set(dut.dtype, dtype)
                    ctx.set(dut.op, op)
                    ctx.set(dut.first, number == 0)
                    ctx.set(dut.half, number % 2)
                    ctx.set(dut.flit, sum(part << bits * lane for lane in range(128 // bits)))
                    ctx.set(dut.acc, sums[cycle])
                await ctx.tick()
        for (dtype, op), parts, total, result in zip(cases, stories, sums, results, strict=True):
            form = element_format(dtype)
            right = naive(dtype, op, parts, F32 if dtype in WIDE else form)
            bits = F32.bits if dtype in TO_F32 else (form or F32).bits
            told = total if dtype in TO_F32 else result
            size = 256 if dtype in TO_F32 else 128
            assert told == sum(right << bits * lane for lane in range(size // bits)), (dtype, op)

    simulate(dut, testbench, cycles=len(stories[0]) * (len(cases) + dut.latency) + 1)


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_vector_latency(stages: int) -> None:
    """A flit changes the outputs exactly `latency` cycles later, in every lane."""
    dut = ReduceVector(stages=stages)
    assert dut.latency == stages + 2

    async def testbench(ctx):
        ctx.set(dut.dtype, DType.F16)
        ctx.set(dut.op, ReduceOp.ADD)
        ctx.set(dut.first, 1)
        for _ in range(2 * dut.latency):
            await ctx.tick()
        assert ctx.get(dut.result) == 0
        ctx.set(dut.flit, sum(0x3C00 << 16 * lane for lane in range(LANES)))
        await ctx.tick()
        ctx.set(dut.flit, 0)
        for cycle in range(1, dut.latency + 3):
            wanted = sum(0x3C00 << 16 * lane for lane in range(LANES))
            assert ctx.get(dut.result) == (wanted if cycle == dut.latency else 0)
            await ctx.tick()

    simulate(dut, testbench, cycles=4 * dut.latency + 4)


@pytest.mark.parametrize("stages", [-1, 0, 5, "3"])
def test_vector_stages_wrong(stages: object) -> None:
    raises(
        lambda: ReduceVector(stages=stages),  # type: ignore[arg-type]
        ValueError,
        f"`stages` must be 1 to 4, not {stages!r}",
    )
