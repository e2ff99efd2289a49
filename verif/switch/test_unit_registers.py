# SPDX-License-Identifier: Apache-2.0
import random

import pytest
from dysharp.golden.route import thresholds
from dysharp.rtl.params import PRESETS, SwitchParams
from dysharp.rtl.reduce.layouts import TICK_CYCLES
from dysharp.rtl.register_map import COUNTERS, Register, address_of, register_map
from dysharp.rtl.switch.registers import Registers
from dysharp.verif.common.sim import simulate, ticks

SHAPES = {
    "tiny": PRESETS["tiny"],
    "default": PRESETS["default"],
    "two-words": SwitchParams(ports=40, groups=3),
    "links": SwitchParams(ports=6, links_per_gpu=2, groups=5),
    "no-lists": SwitchParams(ports=5, groups=2, dynamic=False),
}
LATENCY = 3


async def access(ctx, dut: Registers, address: int, wdata: int | None = None) -> tuple[int, int]:
    """Read, or write `wdata`; return the data and the error flag."""
    for name, value in (
        ("valid", 1),
        ("write", wdata is not None),
        ("address", address),
        ("wdata", wdata or 0),
    ):
        ctx.set(getattr(dut.bus, name), value)
    await ctx.tick()
    # All else may change from here on.
    for name, value in (("valid", 0), ("write", 1), ("address", 0xFFFF), ("wdata", 0x5A5A5A5A)):
        ctx.set(getattr(dut.bus, name), value)
    for _ in range(LATENCY - 1):
        assert ctx.get(dut.bus.done) == 0
        await ctx.tick()
    assert ctx.get(dut.bus.done) == 1
    result = ctx.get(dut.bus.rdata), ctx.get(dut.bus.error)
    await ctx.tick()
    assert ctx.get(dut.bus.done) == 0
    return result


def kept(params: SwitchParams, register: Register, value: int) -> int:
    """Tell what a register reads as after this value was written to it."""
    if register.name.startswith("partition"):
        return value % (1 << (params.ports - 1).bit_length())
    if register.name.startswith("group"):
        word = int(register.name.rpartition("_")[2])
        return value & ((1 << params.gpus) - 1 >> 32 * word)
    if register.name == "timeout":
        return value & 0xFFFF
    return value if 1 <= value < 1 << 16 else register.reset


@pytest.mark.parametrize("params", SHAPES.values(), ids=SHAPES)
def test_registers_reset_values_and_writes(params: SwitchParams) -> None:
    rng = random.Random(1)
    dut = Registers(params)
    registers = register_map(params)

    async def testbench(ctx):
        for register in registers:
            assert await access(ctx, dut, register.address) == (register.reset, 0), register
        values = {}
        for register in registers:
            value = rng.randint(1, 65535) if "experts" in register.name else rng.getrandbits(32)
            _, error = await access(ctx, dut, register.address, value)
            assert error == (register.access == "ro"), register
            writable = register.access == "rw"
            values[register] = kept(params, register, value) if writable else register.reset
        await ticks(ctx, params.gpus)
        for register, value in values.items():
            assert await access(ctx, dut, register.address) == (value, 0), register

    simulate(dut, testbench, cycles=13 * len(registers) + 100)


@pytest.mark.parametrize("params", SHAPES.values(), ids=SHAPES)
def test_registers_errors_where_there_is_nothing(params: SwitchParams) -> None:
    rng = random.Random(2)
    dut = Registers(params)
    taken = {register.address for register in register_map(params)}
    near = {address + step for address in taken for step in (4, -4, 0x40)}
    free = sorted(
        address
        for address in near | {rng.randrange(0, 1 << 16, 4) for _ in range(50)}
        if 0 <= address < 1 << 16 and address not in taken
    )

    async def testbench(ctx):
        for address in free:
            assert (await access(ctx, dut, address))[1] == 1, hex(address)
            assert (await access(ctx, dut, address, 0xFFFFFFFF))[1] == 1, hex(address)
        for register in register_map(params):
            assert await access(ctx, dut, register.address) == (register.reset, 0), register

    simulate(dut, testbench, cycles=8 * len(free) + 4 * len(taken) + 10)


@pytest.mark.parametrize("name", ["experts_per_gpu", "partition1", "rx_flits0", "refused3"])
def test_registers_unaligned_addresses_are_no_registers(name: str) -> None:
    params = PRESETS["tiny"]
    dut = Registers(params)

    async def testbench(ctx):
        for step in (1, 2, 3):
            assert (await access(ctx, dut, address_of(params, name) + step))[1] == 1

    simulate(dut, testbench, cycles=20)


@pytest.mark.parametrize("params", [PRESETS["tiny"], SwitchParams(ports=40)], ids=["tiny", "40"])
def test_registers_multiples_of_experts_per_gpu(params: SwitchParams) -> None:
    rng = random.Random(3)
    dut = Registers(params)
    address = address_of(params, "experts_per_gpu")
    busy = address_of(params, "busy")

    async def testbench(ctx):
        experts = 1
        for value in (2, 0, 3, 1 << 16, 65535, 0xFFFFFFFF, 32768, 1 << 31, rng.randint(2, 65534)):
            assert (await access(ctx, dut, address, value))[1] == 0
            experts = value if 1 <= value < 1 << 16 else experts
            # Multiples come one a cycle; `busy` is 0 when all are there.
            for _ in range(params.gpus):
                if (await access(ctx, dut, busy))[0] == 0:
                    break
            wanted = [min(int(n), 1 << 16) for n in thresholds(experts, params.gpus)]
            assert [ctx.get(multiple) for multiple in dut.multiples] == wanted
            assert await access(ctx, dut, address) == (experts, 0)

    simulate(dut, testbench, cycles=1000)


def test_registers_second_write_while_busy() -> None:
    params = SwitchParams(ports=40)
    dut = Registers(params)
    address = address_of(params, "experts_per_gpu")

    async def testbench(ctx):
        await access(ctx, dut, address, 1000)
        assert (await access(ctx, dut, address_of(params, "busy")))[0] == 1
        await access(ctx, dut, address, 7)
        await ticks(ctx, params.gpus)
        assert (await access(ctx, dut, address_of(params, "busy")))[0] == 0
        assert [ctx.get(m) for m in dut.multiples] == [7 * (g + 1) for g in range(params.gpus)]

    simulate(dut, testbench, cycles=100)


def test_registers_partitions_and_groups_reach_the_ports() -> None:
    params = SHAPES["two-words"]
    rng = random.Random(4)
    dut = Registers(params)

    async def testbench(ctx):
        partitions = [rng.randrange(4) for _ in range(params.ports)]
        for port, partition in enumerate(partitions):
            await access(ctx, dut, address_of(params, f"partition{port}"), partition)
        masks = [rng.getrandbits(params.gpus) for _ in range(params.groups)]
        for group, mask in enumerate(masks):
            for word in range(2):
                name = f"group{group}_{word}"
                await access(ctx, dut, address_of(params, name), mask >> 32 * word & 0xFFFFFFFF)
        for port in range(params.ports):
            same = sum(1 << o for o, p in enumerate(partitions) if p == partitions[port])
            assert ctx.get(dut.allowed[port]) == same
        assert [ctx.get(group) for group in dut.groups] == masks

    simulate(dut, testbench, cycles=300)


@pytest.mark.parametrize("seed", [1])
def test_registers_count_events_and_show_faults(seed: int) -> None:
    params = PRESETS["tiny"]
    rng = random.Random(seed)
    dut = Registers(params)

    async def testbench(ctx):
        counts = [[0] * len(COUNTERS) for _ in range(params.ports)]
        for _ in range(300):
            for port in range(params.ports):
                events = rng.getrandbits(len(COUNTERS))
                ctx.set(dut.events[port], events)
                for index in range(len(COUNTERS)):
                    counts[port][index] += events >> index & 1
            await ctx.tick()
        for port in range(params.ports):
            ctx.set(dut.events[port], 0)
        for port in range(params.ports):
            for index, counter in enumerate(COUNTERS):
                address = address_of(params, f"{counter.name}{port}")
                assert await access(ctx, dut, address) == (counts[port][index], 0)
        ctx.set(dut.faults, 0b1010)
        assert await access(ctx, dut, address_of(params, "fault0")) == (0b1010, 0)

    simulate(dut, testbench, cycles=600)


def test_registers_show_armed_entries() -> None:
    params = PRESETS["tiny"]
    rng = random.Random(5)
    dut = Registers(params)

    async def testbench(ctx):
        for _ in range(3):
            armed = [rng.randint(0, params.entries) for _ in range(params.ports)]
            armed[rng.randrange(params.ports)] = params.entries
            for port, entries in enumerate(armed):
                ctx.set(dut.armed[port], entries)
            for port, entries in enumerate(armed):
                address = address_of(params, f"armed{port}")
                assert await access(ctx, dut, address) == (entries, 0)
                assert (await access(ctx, dut, address, 0))[1] == 1

    simulate(dut, testbench, cycles=150)


def test_registers_time_and_timeout() -> None:
    params = PRESETS["tiny"]
    dut = Registers(params)
    address = address_of(params, "timeout")

    async def testbench(ctx):
        for cycle in range(5 * TICK_CYCLES):
            assert ctx.get(dut.time) == cycle // TICK_CYCLES
            assert ctx.get(dut.timeout) == 0
            await ctx.tick()
        for value in (1, 65535, 1234, 0):
            await access(ctx, dut, address, value)
            assert ctx.get(dut.timeout) == value

    simulate(dut, testbench, cycles=5 * TICK_CYCLES + 20)
