# SPDX-License-Identifier: Apache-2.0
"""A translator with tables in memory and its model, for tests and measurements."""

import random
from typing import Any

import numpy as np
from dysharp.golden.al_map import (
    DYNAMIC,
    AlMap,
    DynamicObject,
    Expert,
    StaticObject,
    lookup_array,
)
from dysharp.rtl.flits import Stage
from dysharp.rtl.gpu_params import GPU_PRESETS, GpuParams
from dysharp.rtl.hub.ports import Space
from dysharp.rtl.hub.translator import Translator
from dysharp.verif.common.pressure import pressure
from dysharp.verif.common.sim import simulate

from .translation_units import Bus, TableMemory, random_objects, settings

__all__ = [
    "BLOCK",
    "MEMORY",
    "TINY",
    "Row",
    "TranslatorBench",
    "load",
    "plain_objects",
    "run_rows",
    "touch",
]

TINY = GPU_PRESETS["tiny"]
MEMORY = 0x1234_5670
BLOCK = 4
"""Block size of :func:`plain_objects`, in flits."""
Row = tuple[int, int, bool, int, int, int]
"""A lookup, with the fields of ``LOOKUPS`` in order."""


class TranslatorBench:
    """A translator with tables in memory; what comes out is compared with the model in order."""

    def __init__(
        self,
        params: GpuParams,
        seed: int,
        objects: list | None = None,
        latency: tuple[int, int] = (2, 40),
        ready: float = 1.0,
    ) -> None:
        self.rng = random.Random(seed)
        self.params = params
        self.dut = Translator(params)
        self.objects = objects or random_objects(self.rng, params)
        self.image = np.zeros(1 << 16, np.uint8)
        self.model_image = self.image.copy()
        self.model = AlMap(self.objects, self.model_image, MEMORY)
        self.memory = TableMemory(self.dut.table, self.image, self.rng, latency, ready)
        self.bus = Bus(self.dut.bus, params, self.cycle)
        self.todo: list[Row] = []
        self.accepted: list[Row] = []
        self.wanted: list[tuple[int, int]] = []
        self.got: list[tuple[int, int]] = []
        self.time = 0
        self.accept_times: list[int] = []
        self.result_times: list[int] = []
        self.offers = pressure("none", self.rng)
        self.takes = pressure("none", self.rng)
        self._offering = False

    async def cycle(self, ctx: Any) -> None:
        """One cycle of requests, results and memory."""
        dut = self.dut
        if not self._offering:
            self._offering = bool(self.todo) and next(self.offers)
            ctx.set(dut.request.valid, self._offering)
            row = self.todo[0] if self._offering else None
            if row:
                space, stage, allocate, target, address, length = row
            else:
                space, stage, allocate, target, address, length = (
                    self.rng.randrange(3),
                    self.rng.randrange(2),
                    self.rng.random() < 0.5,
                    self.rng.getrandbits(16),
                    self.rng.getrandbits(44) * 16,
                    self.rng.randint(1, 16),
                )
            payload = dut.request.payload
            ctx.set(payload.space, Space(space))
            ctx.set(payload.stage, Stage(stage))
            ctx.set(payload.allocate, allocate)
            ctx.set(payload.target, target)
            ctx.set(payload.address, address)
            ctx.set(payload.length, length)
        if self._offering and ctx.get(dut.request.ready):
            self._offering = False
            self.accepted.append(self.todo.pop(0))
            self.accept_times.append(self.time)
            places, status = self.model.translate(lookup_array(self.accepted[-1:]))
            self.wanted.append((int(places[0]), int(status[0])))
        takes = next(self.takes)
        ctx.set(dut.result.ready, takes)
        if takes and ctx.get(dut.result.valid):
            value = (
                ctx.get(dut.result.payload.address),
                ctx.get(dut.result.payload.status).value,
            )
            number = len(self.got)
            assert number < len(self.wanted), "a result that nobody asked for"
            assert value == self.wanted[number], (number, self.accepted[number])
            self.got.append(value)
            self.result_times.append(self.time)
        self.time += 1
        await self.memory.cycle(ctx)

    async def set_up(self, ctx: Any) -> None:
        """Write all registers."""
        for name, value in settings(self.objects, MEMORY):
            await self.bus.write(ctx, name, value)
        await self.idle(ctx, 4)

    async def idle(self, ctx: Any, cycles: int) -> None:
        """Let some cycles pass; what is under way goes on."""
        for _ in range(cycles):
            await self.cycle(ctx)

    async def drain(self, ctx: Any, within: int = 20000) -> None:
        """Until everything is answered and written."""
        for _ in range(within):
            if not self.todo and len(self.got) == len(self.wanted):
                break
            await self.cycle(ctx)
        else:
            raise AssertionError(f"{len(self.got)} of {len(self.wanted)} results came")

    async def clear(self, ctx: Any, mask: int) -> None:
        """Clear, and wait until it is over; lookups may go on before."""
        await self.bus.write(ctx, "clear", mask)
        for number in range(self.params.objects):
            if mask >> number & 1:
                self.model.clear(number)

    async def wait_clear(self, ctx: Any) -> None:
        """Read `busy` until a clear is over."""
        for _ in range(2000):
            if not await self.bus.read(ctx, "busy"):
                return
        raise AssertionError("the clear does not end")

    async def check(self, ctx: Any) -> dict[str, int]:
        """Compare counters, blocks in use and memory with the model."""
        while self.memory.pending:
            await self.cycle(ctx)
        await self.idle(ctx, 20)
        counters = await self.bus.counters(ctx)
        for name in ("lookups", "allocations", "refusals"):
            assert counters[name] == self.model.counters[name], name
        assert counters["hits"] + counters["misses"] + counters["merged"] == counters["lookups"]
        assert counters["misses"] == self.memory.reads
        for number, item in enumerate(self.objects):
            if isinstance(item, DynamicObject):
                for local, used in enumerate(self.model.used(number)):
                    assert await self.bus.read(ctx, f"expert{number}_{local}_used") == used
        assert np.array_equal(self.image, self.model_image)
        return counters

    def restart(self) -> None:
        """Forget what was under way, as a reset does, and zero the memory."""
        self.image[:] = 0
        self.model_image[:] = 0
        self.model = AlMap(self.objects, self.model_image, MEMORY)
        self.memory = TableMemory(self.dut.table, self.image, self.rng, (2, 20))
        self.todo.clear()
        self.accepted.clear()
        self.wanted.clear()
        self.got.clear()
        self._offering = False

    def run(self, testbench: Any, cycles: int = 60000) -> None:
        """Simulate the translator alone."""
        simulate(self.dut, testbench, cycles=cycles)


def plain_objects(experts: int = 2, blocks: int = 256, nactive: int = 1 << 24) -> list:
    """One object, tables one behind the other."""
    return [
        DynamicObject(
            base=0x10_0000,
            blocks=blocks,
            block=BLOCK,
            first_expert=8,
            experts=tuple(
                Expert(
                    table=4 * blocks * n,
                    nactive=nactive,
                    dispatch=0x1_0000_0000 * (n + 1),
                    combine=0x100_0000_0000 * (n + 1),
                )
                for n in range(experts)
            ),
        ),
        StaticObject(base=0x8000_0000, size=1 << 20, memory=0x7000_0000),
    ]


def touch(block: int, expert: int = 0, allocate: bool = True, stage: int = 0) -> Row:
    """Lookup of a block of :func:`plain_objects`; by default a store's."""
    return (DYNAMIC, stage, allocate, 8 + expert, 0x10_0000 + block * BLOCK * 16, 1)


def load(block: int, expert: int = 0) -> Row:
    """Lookup of a load from the other stage."""
    return touch(block, expert, allocate=False, stage=1)


def run_rows(
    rows: list[Row],
    params: GpuParams = TINY,
    *,
    latency: int = 30,
    again: bool = False,
    **more: int,
) -> tuple[TranslatorBench, dict[str, int]]:
    """Run lookups back to back (twice with `again`); give the bench and its counters."""
    bench = TranslatorBench(params, 7, plain_objects(**more), (latency, latency))
    counters: dict[str, int] = {}

    async def testbench(ctx: Any) -> None:
        await bench.set_up(ctx)
        for _ in range(1 + again):
            bench.accept_times.clear()
            bench.result_times.clear()
            bench.todo = list(rows)
            await bench.drain(ctx)
        times = bench.accept_times[:], bench.result_times[:]
        counters.update(await bench.check(ctx))
        bench.accept_times, bench.result_times = times

    bench.run(testbench)
    return bench, counters
