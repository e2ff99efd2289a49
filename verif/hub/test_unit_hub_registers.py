# SPDX-License-Identifier: Apache-2.0
import random
from dataclasses import replace
from typing import Any

import pytest
from amaranth.hdl import Module, Signal
from dysharp.rtl.gpu_params import GPU_PRESETS, GpuParams
from dysharp.rtl.hub.registers import HubRegisters, event_counter
from dysharp.rtl.hub_register_map import (
    HUB_COUNTERS,
    HUB_ID_VALUE,
    hub_address_of,
    hub_register_map,
)
from dysharp.verif.common.sim import pulse, simulate, ticks
from dysharp.verif.hub.translation_units import Bus

TINY = GPU_PRESETS["tiny"]
SHAPES = {"tiny": TINY, "odd": replace(TINY, objects=3, experts=5)}
BITS = {
    "presum": 1,
    "memory_lo": 32,
    "memory_hi": 16,
    "mode": 2,
    "base_lo": 0xFFFF_FFF0,
    "base_hi": 16,
    "blocks": 25,
    "block": 17,
    "reciprocal_lo": 32,
    "reciprocal_hi": 5,
    "shift": 5,
    "size_lo": 0xFFFF_FFF0,
    "size_hi": 9,
    "first_expert": 16,
    "experts": 10,
    "stages": 2,
}


def mask_of(name: str) -> int:
    """Bits of a register that can be written."""
    if name == "object_memory_lo":
        return 0xFFFF_FFF0
    bits = BITS[name.removeprefix("object_")]
    return bits if bits > 32 else (1 << bits) - 1


class Bench:
    """The registers, with a stand-in for the table of experts."""

    def __init__(self, params: GpuParams) -> None:
        self.params = params
        self.dut = HubRegisters(params)
        self.bus = Bus(self.dut.bus, params, self.cycle)
        self.used: dict[int, tuple[int, int]] = {}
        self.wait = 0
        self.writes: list[tuple[str, int, int]] = []
        self.clears: list[int] = []

    async def cycle(self, ctx: Any) -> None:
        dut = self.dut
        row = ctx.get(dut.set_row)
        if ctx.get(dut.set_base):
            self.writes.append((f"base{ctx.get(dut.set_base) - 1}", row, ctx.get(dut.set_place)))
        if ctx.get(dut.set_table):
            self.writes.append(("table", row, ctx.get(dut.set_word)))
        if ctx.get(dut.set_nactive):
            self.writes.append(("nactive", row, ctx.get(dut.set_count)))
        if ctx.get(dut.clear):
            self.clears.append(ctx.get(dut.clear))
        looked = False
        if ctx.get(dut.look):
            self.wait -= 1
            looked = self.wait < 0
        if looked:
            count, epoch = self.used[ctx.get(dut.look_row)]
            ctx.set(dut.look_used.count, count)
            ctx.set(dut.look_used.epoch, epoch)
        ctx.set(dut.looked, looked)
        await ctx.tick()


@pytest.mark.parametrize("shape", SHAPES)
def test_registers_all(shape: str) -> None:
    """Reset values, what a write leaves, and that it leaves all others alone."""
    bench = Bench(SHAPES[shape])
    params = bench.params
    rng = random.Random(1)
    dut = bench.dut
    wanted = {r.name: r.reset for r in hub_register_map(params)}
    assert wanted["id"] == HUB_ID_VALUE

    async def compare(ctx: Any) -> None:
        for register in hub_register_map(params):
            if register.name.startswith("expert"):
                continue
            assert await bench.bus.read(ctx, register.name) == wanted[register.name], register.name

    async def testbench(ctx: Any) -> None:
        await compare(ctx)
        names = [r.name for r in hub_register_map(params) if r.access == "rw"]
        rng.shuffle(names)
        for name in names:
            value = rng.getrandbits(32)
            await bench.bus.write(ctx, name, value)
            kind = f"object_{name.split('_', 1)[1]}" if name.startswith("object") else name
            wanted[name] = value & mask_of(kind)
        await compare(ctx)
        # What the other parts see.
        for number in range(params.objects):
            name = f"object{number}"
            item = dut.objects[number]
            base = (wanted[f"{name}_base_lo"] | wanted[f"{name}_base_hi"] << 32) >> 4
            size = (wanted[f"{name}_size_lo"] | wanted[f"{name}_size_hi"] << 32) >> 4
            memory = (wanted[f"{name}_memory_lo"] | wanted[f"{name}_memory_hi"] << 32) >> 4
            factor = wanted[f"{name}_reciprocal_lo"] | wanted[f"{name}_reciprocal_hi"] << 32
            assert ctx.get(item.base) == base
            assert ctx.get(item.limit) == base + size
            assert ctx.get(item.memory) == memory
            assert ctx.get(item.reciprocal) == factor
            assert ctx.get(item.static) == (wanted[f"{name}_mode"] == 1)
            assert ctx.get(item.dynamic) == (wanted[f"{name}_mode"] == 2)
            assert ctx.get(item.experts) == min(params.experts, wanted[f"{name}_experts"])
            for field in ("blocks", "block", "shift", "first_expert", "stages"):
                assert ctx.get(item[field]) == wanted[f"{name}_{field}"]
        assert ctx.get(dut.presum) == wanted["presum"]
        memory = wanted["memory_lo"] | wanted["memory_hi"] << 32
        assert ctx.get(dut.memory) == memory >> 4

    simulate(dut, testbench, cycles=4000)
    assert not bench.writes
    assert not bench.clears


def test_registers_bus_takes_three_cycles() -> None:
    bench = Bench(TINY)

    async def testbench(ctx: Any) -> None:
        ctx.set(bench.dut.bus.address, hub_address_of(TINY, "id"))
        await pulse(ctx, bench.dut.bus.valid)
        ctx.set(bench.dut.bus.address, 0x1234)  # one cycle is enough
        assert not ctx.get(bench.dut.bus.done)
        await ctx.tick()
        assert not ctx.get(bench.dut.bus.done)
        await ctx.tick()
        assert ctx.get(bench.dut.bus.done)
        assert ctx.get(bench.dut.bus.rdata) == HUB_ID_VALUE
        await ctx.tick()
        assert not ctx.get(bench.dut.bus.done)

    simulate(bench.dut, testbench, cycles=10)


@pytest.mark.parametrize("shape", SHAPES)
def test_registers_of_experts(shape: str) -> None:
    """Writes reach the right row with both halves; blocks in use of another epoch read as 0."""
    bench = Bench(SHAPES[shape])
    params, dut = bench.params, bench.dut
    rng = random.Random(2)

    async def testbench(ctx: Any) -> None:
        for number in range(params.objects):
            ctx.set(dut.epoch[number], 10 + number)
        for number in range(params.objects):
            for expert in range(params.experts):
                row = number * params.experts + expert
                name = f"expert{number}_{expert}"
                for place, kind in enumerate(("dispatch", "combine", "table")):
                    value = rng.getrandbits(48)
                    await bench.bus.write(ctx, f"{name}_{kind}_lo", value & 0xFFFF_FFFF)
                    assert not bench.writes
                    await bench.bus.write(ctx, f"{name}_{kind}_hi", value >> 32)
                    to = ("base0", "base1", "table")[place]
                    assert bench.writes == [(to, row, value >> (2 if place == 2 else 4))]
                    bench.writes.clear()
                await bench.bus.write(ctx, f"{name}_nactive", 1 << 24)
                assert bench.writes == [("nactive", row, 1 << 24)]
                bench.writes.clear()
                count = rng.randrange(1 << 24) + 1
                for epoch in (10 + number, 9 + number, 11 + number):
                    bench.used[row] = (count, epoch)
                    bench.wait = rng.choice([0, 1, 7])
                    used = await bench.bus.read(ctx, f"{name}_used")
                    assert used == (count if epoch == 10 + number else 0)
                assert await bench.bus.read(ctx, f"{name}_nactive") == 0

    simulate(dut, testbench, cycles=8000)


@pytest.mark.parametrize("shape", SHAPES)
def test_registers_errors(shape: str) -> None:
    """No register, or one that cannot be written: an error, and nothing changes."""
    bench = Bench(SHAPES[shape])
    params = bench.params
    known = {r.address: r for r in hub_register_map(params)}
    rng = random.Random(3)
    tries = {a + step for a in known for step in (1, 2, 3, 4, 0x20, 0x40)} & set(range(1 << 16))
    tries |= {rng.randrange(1 << 16) for _ in range(50)}
    unknown = [address for address in sorted(tries) if address not in known]
    unknown = rng.sample(unknown, 120)

    async def testbench(ctx: Any) -> None:
        for address in unknown:
            for value in (None, 0xFFFF_FFFF):
                _, error = await bench.bus.access(ctx, address, value)
                assert error, hex(address)
        for register in known.values():
            if register.access == "ro":
                _, error = await bench.bus.access(ctx, register.address, 0xFFFF_FFFF)
                assert error, register.name
        for register in known.values():
            if not register.name.startswith("expert"):
                assert await bench.bus.read(ctx, register.name) == register.reset

    simulate(bench.dut, testbench, cycles=4000)
    assert not bench.writes
    assert not bench.clears


def test_registers_clear_and_busy() -> None:
    bench = Bench(SHAPES["odd"])

    async def testbench(ctx: Any) -> None:
        for mask in (1, 5, 0xFFFF_FFFF, 0):
            await bench.bus.write(ctx, "clear", mask)
        ctx.set(bench.dut.busy, 1)
        assert await bench.bus.read(ctx, "busy") == 1
        assert await bench.bus.read(ctx, "clear") == 0

    simulate(bench.dut, testbench, cycles=60)
    assert bench.clears == [1, 5, 7]


def test_registers_counters() -> None:
    """All count by themselves, also at once."""
    bench = Bench(TINY)
    rng = random.Random(4)
    wanted = [0] * len(HUB_COUNTERS)

    async def testbench(ctx: Any) -> None:
        for _ in range(500):
            events = rng.getrandbits(len(HUB_COUNTERS))
            ctx.set(bench.dut.events, events)
            for index in range(len(HUB_COUNTERS)):
                wanted[index] += events >> index & 1
            await ctx.tick()
        ctx.set(bench.dut.events, 0)
        assert list((await bench.bus.counters(ctx)).values()) == wanted

    simulate(bench.dut, testbench, cycles=700)


def test_registers_counter_carries() -> None:
    m = Module()
    event = Signal()
    count = event_counter(m, "count", event)

    async def testbench(ctx: Any) -> None:
        ctx.set(event, 1)
        await ticks(ctx, 0x10003)
        assert ctx.get(count) == 0x10003

    simulate(m, testbench, cycles=0x10003)
