# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Fragment, ResetInserter, Signal
from dysharp.golden.al_map import (
    DYNAMIC,
    DynamicObject,
    Expert,
)
from dysharp.rtl.gpu_params import GPU_PRESETS, TlbForm
from dysharp.rtl.hub.translator import Translator
from dysharp.verif.common.pressure import PRESSURES, pressure
from dysharp.verif.common.sim import simulate
from dysharp.verif.hub.measure import hit_stream, miss_overlap
from dysharp.verif.hub.translation_bench import (
    BLOCK,
    MEMORY,
    TINY,
    Row,
    TranslatorBench,
    load,
    plain_objects,
    run_rows,
    touch,
)
from dysharp.verif.hub.translation_units import random_lookups

SHAPES = {
    "tiny": TINY,
    "sets": replace(TINY, tlb_form=TlbForm.SETS),
    "odd": replace(TINY, objects=3, experts=5, misses=2, lookups=32, tlb_entries=32),
    "one": replace(TINY, objects=1, experts=1, misses=1, lookups=1),
}


@pytest.mark.parametrize("level", PRESSURES)
@pytest.mark.parametrize("shape", SHAPES)
def test_translator_random(shape: str, level: str) -> None:
    """All kinds of lookups, right and wrong, with clears between them."""
    seed = 10 * list(SHAPES).index(shape) + PRESSURES.index(level)
    bench = TranslatorBench(SHAPES[shape], seed, ready=1.0 if level == "none" else 0.5)
    rng = bench.rng
    bench.offers = pressure(level if level != "heavy" else "none", rng)
    bench.takes = pressure(level, rng)
    count = 50 if shape != "one" else 16

    async def testbench(ctx: Any) -> None:
        await bench.set_up(ctx)
        for _ in range(2):
            bench.todo = random_lookups(rng, bench.objects, count, MEMORY)
            await bench.drain(ctx)
            await bench.check(ctx)
            await bench.clear(ctx, rng.randrange(1, 1 << bench.params.objects))
            await bench.wait_clear(ctx)
        bench.todo = random_lookups(rng, bench.objects, count, MEMORY)
        await bench.drain(ctx)
        counters = await bench.check(ctx)
        assert min(counters["misses"], counters["refusals"]) > 3

    bench.run(testbench)


@pytest.mark.parametrize("form", TlbForm)
def test_translator_one_hit_per_cycle(form: TlbForm) -> None:
    """Hits stream at one a cycle, through the TLB too."""
    params = replace(TINY, lookups=64, tlb_form=form)
    rate, latency = hit_stream(params)
    assert rate == 1
    assert latency <= 40


def test_translator_misses_overlap() -> None:
    """With 16 misses at once, throughput is 8 times that of one at a time, or more."""
    assert miss_overlap(replace(TINY, misses=16, lookups=64)) >= 8


def test_translator_first_touches_overlap() -> None:
    """Allocations overlap too, though their misses are kept until what they wrote is visible."""
    rates = {}
    for misses in (1, 16):
        count = 4 if misses == 1 else 96
        bench, _ = run_rows(
            [touch(n) for n in range(count)],
            replace(TINY, misses=misses, lookups=64),
            latency=200,
        )
        rates[misses] = count / (bench.result_times[-1] - bench.accept_times[0])
    assert rates[16] / rates[1] >= 8


def test_translator_hits_go_on_under_misses() -> None:
    """Behind a miss, hits are decided while it lasts: they come out right behind it."""
    rows = [touch(0), touch(1), touch(2)]
    params = replace(TINY, lookups=64)
    bench = TranslatorBench(params, 7, plain_objects(), (300, 300))

    async def testbench(ctx: Any) -> None:
        await bench.set_up(ctx)
        bench.todo = list(rows)
        await bench.drain(ctx)
        await bench.idle(ctx, 700)
        bench.todo = [touch(9), *(rows * 10)]
        bench.result_times.clear()
        await bench.drain(ctx)

    bench.run(testbench)
    assert bench.result_times[-1] - bench.result_times[0] == 30


@pytest.mark.parametrize("gap", [0, 1, 5, 30])
def test_translator_two_first_touches_make_one_allocation(gap: int) -> None:
    rows = [touch(3), *([touch(100, 1)] * gap), touch(3)]
    bench, counters = run_rows(rows)
    assert counters["allocations"] == 1 + (gap > 0)
    assert bench.wanted[0] == bench.wanted[-1]


def test_translator_load_before_store_is_an_error() -> None:
    """The order of arrival counts: load first is refused, store first is not."""
    bench, counters = run_rows([load(5), touch(5), load(5), load(6), touch(7), touch(6)])
    assert [status for _, status in bench.got] == [15, 0, 0, 15, 0, 0]
    places = [place for place, _ in bench.got]
    # The stores that came get places in their order, whatever was read first.
    assert places[1] == 0x1_0000_0000
    assert places[4] == 0x1_0000_0000 + BLOCK * 16
    assert places[5] == 0x1_0000_0000 + 2 * BLOCK * 16
    assert counters["allocations"] == 3


def test_translator_does_not_keep_invalid_entries() -> None:
    """A load that was refused leaves nothing: the store after it allocates, the next load hits."""
    bench = TranslatorBench(TINY, 7, plain_objects())

    async def testbench(ctx: Any) -> None:
        await bench.set_up(ctx)
        for row in (load(5), load(5), touch(5), load(5)):
            bench.todo = [row]
            await bench.drain(ctx)
            await bench.idle(ctx, 100)
        counters = await bench.check(ctx)
        assert (counters["misses"], counters["hits"]) == (3, 1)

    bench.run(testbench)


def test_translator_full_expert_refuses() -> None:
    """No place is left: neither allocated nor kept, and the blocks that have one go on."""
    rows = [touch(0), touch(1), touch(2), touch(3), load(2), touch(0), touch(2, 1), touch(2)]
    bench, counters = run_rows(rows, nactive=2)
    assert [status for _, status in bench.got] == [0, 0, 15, 15, 15, 0, 0, 15]
    assert counters["allocations"] == 3


@pytest.mark.parametrize("same", [True, False])
def test_translator_combine_during_dispatch(same: bool) -> None:
    """A combine's walk overlapped by a dispatch's, of another and of the same block."""
    # The same block in every cycle of a walk, its insert and its end.
    bench = TranslatorBench(TINY, 5, plain_objects(), (4, 4) if same else (3, 25))
    gaps = range(10, 34) if same else range(0, 40, 5)
    words = bench.image.view("<u4")
    words[: len(gaps)] = np.arange(50, 50 + len(gaps)) | 1 << 24  # places that are known
    bench.model_image[:] = bench.image

    async def testbench(ctx: Any) -> None:
        await bench.set_up(ctx)
        for block, gap in enumerate(gaps):
            other = block if same else 100 + block
            bench.todo = [load(block)]
            while bench.todo:
                await bench.cycle(ctx)
            await bench.idle(ctx, gap)
            bench.todo = [touch(other), load(block), touch(other), load(other)]
            await bench.drain(ctx)
        await bench.check(ctx)

    bench.run(testbench)


def test_translator_clear_in_every_cycle_of_a_walk() -> None:
    """The walk ends with the place of before; a lookup after the clear finds nothing."""
    bench = TranslatorBench(TINY, 3, plain_objects(blocks=64), (6, 6))

    async def testbench(ctx: Any) -> None:
        await bench.set_up(ctx)
        for wait in range(0, 80, 4):
            bench.todo = [touch(1), touch(2, 1)]
            while bench.todo:
                await bench.cycle(ctx)
            await bench.idle(ctx, wait)
            await bench.clear(ctx, 1)
            bench.todo = [load(1), touch(3), load(2, 1), touch(1)]
            await bench.drain(ctx)
            assert [status for _, status in bench.got[-4:]] == [15, 0, 15, 0]
        await bench.check(ctx)

    bench.run(testbench)


def test_translator_epochs_wrap() -> None:
    """The 255th clear wipes the tables; other objects keep what they have."""
    objects = plain_objects(blocks=16)
    table = 4 * 64
    first = objects[0]
    objects[1] = DynamicObject(
        base=0x8000_0000,
        blocks=16,
        block=BLOCK,
        first_expert=8,
        experts=(Expert(table=table, nactive=16, dispatch=0x5000_0000),),
    )
    bench = TranslatorBench(TINY, 3, objects, (2, 9), ready=0.7)
    other: Row = (DYNAMIC, 0, True, 8, 0x8000_0000, 1)

    async def testbench(ctx: Any) -> None:
        await bench.set_up(ctx)
        bench.todo = [touch(1), other]
        await bench.drain(ctx)
        for number in range(256):
            await bench.clear(ctx, 1)
            await bench.wait_clear(ctx)
            if number in (253, 254):
                bench.todo = [load(1), touch(2), touch(1), touch(3, 1), other]
                await bench.drain(ctx)
                await bench.check(ctx)
        assert bench.model.epoch(0) == 2
        await bench.check(ctx)

    assert first is objects[0]
    bench.run(testbench)


def test_translator_reset_in_the_middle() -> None:
    """A reset during walks: then everything starts anew, with memory zeroed."""
    bench = TranslatorBench(TINY, 3, plain_objects(), (20, 20))
    dut = ResetInserter({"sync": (reset := Signal())})(bench.dut)

    async def testbench(ctx: Any) -> None:
        for wait in (0, 3, 17, 30, 45, 60):
            await bench.set_up(ctx)
            bench.todo = random_lookups(bench.rng, bench.objects, 40, MEMORY)
            await bench.idle(ctx, 20 + wait)
            bench.todo.clear()
            ctx.set(reset, 1)
            ctx.set(bench.dut.request.valid, 0)
            ctx.set(bench.dut.bus.valid, 0)
            ctx.set(bench.dut.table.reply, 0)
            ctx.set(bench.dut.table.written, 0)
            await ctx.tick()
            ctx.set(reset, 0)
            bench.restart()
        await bench.set_up(ctx)
        bench.todo = random_lookups(bench.rng, bench.objects, 60, MEMORY)
        await bench.drain(ctx)
        await bench.check(ctx)

    simulate(dut, testbench, cycles=20000)


def test_translator_presets_build() -> None:
    for params in GPU_PRESETS.values():
        Fragment.get(Translator(params), "synthesis")
