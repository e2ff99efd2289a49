# SPDX-License-Identifier: Apache-2.0
"""Rates and latencies of the translation: the TLB alone, hits and misses of the translator."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
from dysharp.rtl.gpu_params import GpuParams
from dysharp.rtl.hub.al_tlb_cam import AlTlbCam
from dysharp.rtl.hub.al_tlb_sets import AlTlbSets
from dysharp.verif.common.sim import simulate, ticks

from .translation_bench import TranslatorBench, load, plain_objects, run_rows, touch

__all__ = ["hit_stream", "miss_overlap", "miss_rate", "tlb_stream"]

_TABLE_LATENCY = 200


def tlb_stream(dut: AlTlbCam | AlTlbSets, lookups: int = 200) -> tuple[float, int]:
    """Look a tag up in every cycle, all of which are there.

    Returns
    -------
    tuple
        Right answers a cycle, from the first to the last; and cycles from a lookup to its answer.
    """
    rng = random.Random(1)
    known = {1: rng.getrandbits(len(dut.data)), 2: rng.getrandbits(len(dut.data))}
    unknown = (1 << len(dut.tag)) - 1
    asked = [rng.choice([*known]) for _ in range(lookups)]
    answers: list[tuple[int, bool]] = []

    async def testbench(ctx: Any) -> None:
        ctx.set(dut.tag, unknown)
        for tag, word in known.items():
            ctx.set(dut.insert, 1)
            ctx.set(dut.insert_tag, tag)
            ctx.set(dut.insert_data, word)
            await ctx.tick()
            ctx.set(dut.insert, 0)
            await ticks(ctx, 2 * dut.SPACING)
        for cycle in range(lookups + 20):
            ctx.set(dut.tag, asked[cycle] if cycle < lookups else unknown)
            if ctx.get(dut.hit) and len(answers) < lookups:
                word = known[asked[len(answers)]]
                answers.append((cycle, ctx.get(dut.data) == word))
            await ctx.tick()

    simulate(dut, testbench, cycles=lookups + 100)
    right = sum(good for _, good in answers)
    return right / (answers[-1][0] - answers[0][0] + 1), answers[0][0]


def hit_stream(params: GpuParams, lookups: int = 200) -> tuple[float, int]:
    """Send lookups that hit back to back through a whole translator.

    Returns
    -------
    tuple
        Results a cycle, from the first to the last; and cycles from the first lookup to its result.
    """
    rows = [touch(number % 8) for number in range(lookups)]
    bench, counters = run_rows(rows, params, again=True)
    assert counters["hits"] >= lookups
    first, last = bench.result_times[0], bench.result_times[-1]
    latency = first - bench.accept_times[0]
    assert latency == bench.dut.latency
    return len(rows) / (last - first + 1), latency


def miss_rate(params: GpuParams, lookups: int, latency: int = _TABLE_LATENCY) -> float:
    """Measure lookups a cycle when each misses, and the table answers after so many cycles."""
    # Loads of entries that are there: nothing but reads.
    bench = TranslatorBench(params, 7, plain_objects(), (latency, latency))
    words = bench.image.view("<u4")
    words[:lookups] = np.arange(lookups) | 1 << 24
    bench.model_image[:] = bench.image

    async def testbench(ctx: Any) -> None:
        await bench.set_up(ctx)
        bench.todo = [load(number) for number in range(lookups)]
        await bench.drain(ctx)

    bench.run(testbench)
    assert bench.memory.reads == lookups
    return lookups / (bench.result_times[-1] - bench.accept_times[0])


def miss_overlap(params: GpuParams, latency: int = _TABLE_LATENCY) -> float:
    """Compare the throughput of nothing but misses with that of one miss at a time."""
    alone = miss_rate(replace(params, misses=1), 5, latency)
    return miss_rate(params, 6 * params.misses, latency) / alone
