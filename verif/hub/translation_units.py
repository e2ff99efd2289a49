# SPDX-License-Identifier: Apache-2.0
"""AL tables in memory, register accesses and random objects, for tests of the translation."""

import random
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from dysharp.golden.al_map import (
    DYNAMIC,
    LOCAL,
    STATIC,
    DynamicObject,
    Expert,
    StaticObject,
    reciprocal,
)
from dysharp.rtl.gpu_params import GpuParams
from dysharp.rtl.hub_register_map import HUB_COUNTERS, OBJECT_MODES, hub_address_of

__all__ = ["Bus", "TableMemory", "random_lookups", "random_objects", "settings"]

Objects = list[StaticObject | DynamicObject | None]


class TableMemory:
    """Answers a :class:`TableSignature` out of an image; one call a cycle, before the clock edge.

    Parameters
    ----------
    table : interface
        The port.
    image : ndarray of uint8
        The memory.
    rng : random.Random
        Draws latencies and pauses.
    latency : tuple of int
        Smallest and largest latency of reads, and of writes until they are visible.
    ready : float
        Share of the cycles in which it takes something.
    """

    def __init__(
        self,
        table: Any,
        image: npt.NDArray[np.uint8],
        rng: random.Random,
        latency: tuple[int, int] = (2, 40),
        ready: float = 1.0,
    ) -> None:
        self._table = table
        self._words = image.view("<u4")
        self._rng = rng
        self._latency = latency
        self._ready = ready
        self._reads: list[tuple[int, int, int]] = []  # (when, id, address)
        self._writes: deque[tuple[int, int, int]] = deque()
        self._time = 0
        self._addresses: set[int] = set()
        self.reads = self.writes = 0

    @property
    def pending(self) -> bool:
        """Whether a read is not answered, or a write not visible."""
        return bool(self._reads or self._writes)

    def _due(self) -> int:
        return self._time + self._rng.randint(*self._latency)

    async def cycle(self, ctx: Any) -> None:
        """Take and answer, then wait for the clock edge."""
        table, rng = self._table, self._rng
        due = [read for read in self._reads if read[0] <= self._time]
        ctx.set(table.reply, bool(due))
        if due:
            one = rng.choice(due)
            self._reads.remove(one)
            ctx.set(table.reply_id, one[1])
            ctx.set(table.reply_data, int(self._words[one[2] // 4]))
        else:
            # Whatever stands there must not matter.
            ctx.set(table.reply_data, rng.getrandbits(32))
            ctx.set(table.reply_id, rng.getrandbits(len(table.reply_id)))
        seen = bool(self._writes) and self._writes[0][0] <= self._time
        ctx.set(table.written, seen)
        if seen:
            _, address, word = self._writes.popleft()
            self._addresses.discard(address)
            self._words[address // 4] = word
        takes_read, takes_write = rng.random() < self._ready, rng.random() < self._ready
        ctx.set(table.read.ready, takes_read)
        ctx.set(table.write.ready, takes_write)
        if takes_read and ctx.get(table.read.valid):
            address = ctx.get(table.read.payload.address)
            # The old word may be read only while no new one is under way.
            assert address % 4 == 0
            assert address not in self._addresses, "read of a word that is being written"
            number = ctx.get(table.read.payload.id)
            assert number not in {read[1] for read in self._reads}, "two reads of one id"
            self._reads.append((self._due(), number, address))
            self.reads += 1
        if takes_write and ctx.get(table.write.valid):
            address = ctx.get(table.write.payload.address)
            assert address % 4 == 0
            at = max(self._due(), self._writes[-1][0] + 1 if self._writes else 0)
            self._writes.append((at, address, ctx.get(table.write.payload.data)))
            self._addresses.add(address)
            self.writes += 1
        self._time += 1
        await ctx.tick()


class Bus:
    """Register accesses by name; `cycle` runs the rest of the bench for one cycle."""

    def __init__(self, bus: Any, params: GpuParams, cycle: Any) -> None:
        self._bus = bus
        self._params = params
        self._cycle = cycle

    async def access(
        self, ctx: Any, address: int, value: int | None = None, within: int = 2000
    ) -> tuple[int, bool]:
        """Read, or write `value`; give the data read and the error."""
        bus = self._bus
        ctx.set(bus.valid, 1)
        ctx.set(bus.write, value is not None)
        ctx.set(bus.address, address)
        ctx.set(bus.wdata, value or 0)
        await self._cycle(ctx)
        ctx.set(bus.valid, 0)
        for _ in range(within):
            if ctx.get(bus.done):
                return ctx.get(bus.rdata), bool(ctx.get(bus.error))
            await self._cycle(ctx)
        raise AssertionError(f"the access to {address:#x} has not ended")

    async def write(self, ctx: Any, name: str, value: int) -> None:
        """Write a register."""
        _, error = await self.access(ctx, hub_address_of(self._params, name), value)
        assert not error, name

    async def read(self, ctx: Any, name: str) -> int:
        """Read a register."""
        value, error = await self.access(ctx, hub_address_of(self._params, name))
        assert not error, name
        return value

    async def counters(self, ctx: Any) -> dict[str, int]:
        """Read all counters."""
        return {counter.name: await self.read(ctx, counter.name) for counter in HUB_COUNTERS}


def settings(objects: Objects, memory: int) -> Iterator[tuple[str, int]]:
    """Give the registers of a hub with these objects, as (name, value)."""

    def wide(name: str, value: int) -> Iterator[tuple[str, int]]:
        yield f"{name}_lo", value & 0xFFFF_FFFF
        yield f"{name}_hi", value >> 32

    yield from wide("memory", memory)
    for number, item in enumerate(objects):
        name = f"object{number}"
        if item is None:
            yield f"{name}_mode", OBJECT_MODES["none"]
            continue
        yield from wide(f"{name}_base", item.base)
        yield from wide(f"{name}_size", item.size)
        if isinstance(item, StaticObject):
            yield from wide(f"{name}_memory", item.memory)
            yield f"{name}_mode", OBJECT_MODES["static"]
            continue
        multiplier, shift = reciprocal(item.block)
        yield f"{name}_blocks", item.blocks
        yield f"{name}_block", item.block
        yield from wide(f"{name}_reciprocal", multiplier)
        yield f"{name}_shift", shift
        yield f"{name}_first_expert", item.first_expert
        yield f"{name}_experts", len(item.experts)
        yield f"{name}_stages", item.stages
        for local, expert in enumerate(item.experts):
            row = f"expert{number}_{local}"
            yield from wide(f"{row}_dispatch", expert.dispatch or 0)
            yield from wide(f"{row}_combine", expert.combine or 0)
            yield from wide(f"{row}_table", expert.table)
            yield f"{row}_nactive", expert.nactive
        yield f"{name}_mode", OBJECT_MODES["dynamic"]


def random_objects(
    rng: random.Random, params: GpuParams, blocks: int = 12, size: int = 1 << 16
) -> Objects:
    """Draw dynamic objects, and a static one as the last of several; tables within `size` bytes."""
    out: Objects = []
    base = rng.randrange(1 << 40) * 16
    table = 4 * rng.randrange(16)
    for number in range(params.objects):
        base += rng.randrange(1 << 12) * 16
        if number and number == params.objects - 1:
            length = rng.randrange(40, 4000) * 16
            out.append(StaticObject(base=base, size=length, memory=rng.randrange(1 << 40) * 16))
            base += length
            continue
        block = rng.choice([1, 2, 7, 16, 64, 180, 448, 896, 65536, rng.randint(1, 65536)])
        stages = rng.choice([1, 2, 3, 3, 3])
        experts = []
        for _ in range(rng.randint(1, params.experts)):
            experts.append(
                Expert(
                    table=table,
                    nactive=rng.choice([0, 1, blocks // 2, blocks, 1 << 24]),
                    dispatch=rng.randrange(1 << 40) * 16 if stages & 1 else None,
                    combine=rng.randrange(1 << 40) * 16 if stages & 2 else None,
                )
            )
            table += 4 * (blocks + rng.randrange(3))
        item = DynamicObject(
            base=base,
            blocks=blocks,
            block=block,
            first_expert=rng.randrange(60000),
            experts=tuple(experts),
        )
        out.append(item)
        base += item.size
    assert table <= size
    return out


def random_lookups(
    rng: random.Random, objects: Objects, count: int, memory: int, wrong: float = 0.15
) -> list[tuple[int, int, bool, int, int, int]]:
    """Draw lookups, most of them right, as tuples in the order of ``LOOKUPS``."""
    out = []
    present = [item for item in objects if item is not None]
    for _ in range(count):
        item = rng.choice(present)
        length = rng.choice([1, 1, 2, 8, 16])
        stage = rng.randrange(2)
        allocate = rng.random() < 0.6
        target = rng.getrandbits(16)
        if rng.random() < 0.1:
            space = LOCAL
            address = rng.choice([0, memory - 16 * length, rng.randrange(memory // 16) * 16])
        elif isinstance(item, StaticObject):
            space = STATIC
            address = item.base + rng.randrange(max(1, item.size // 16 - length)) * 16
        else:
            space = DYNAMIC
            target = item.first_expert + rng.randrange(len(item.experts))
            length = min(length, item.block)
            rest = rng.choice([0, item.block - length, rng.randint(0, item.block - length)])
            address = item.base + (rng.randrange(item.blocks) * item.block + rest) * 16
        if rng.random() < wrong:
            wrongs: Iterable[int] = range(6)
            what = rng.choice(list(wrongs))
            if what == 0:
                space = rng.randrange(3)
            elif what == 1:
                target = (target + rng.choice([-40, -1, 1, 40])) % (1 << 16)
            elif what == 2:
                address = rng.choice([item.base, item.base + item.size]) + 16 * rng.randint(-17, 2)
            elif what == 3:
                address = rng.randrange(1 << 44) * 16
            elif what == 4:
                length = 16
            else:
                stage ^= 1
        out.append((space, stage, allocate, target, max(0, address) % (1 << 48), length))
    return out
