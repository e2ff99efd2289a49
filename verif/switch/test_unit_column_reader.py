# SPDX-License-Identifier: Apache-2.0
import random
from collections import Counter, deque

import pytest
from dysharp.rtl.params import SwitchParams
from dysharp.rtl.switch.column_reader import ColumnReader
from dysharp.verif.common.sim import simulate
from dysharp.verif.switch.units import Entry

PARAMS = {
    "lists": SwitchParams(ports=3),
    "no-lists": SwitchParams(ports=3, dynamic=False),
    "five": SwitchParams(ports=5),
}


class Column:
    """The pair queues of a column: per input and channel, the entries that were written."""

    def __init__(self, params: SwitchParams) -> None:
        self.params = params
        self.queues = [[deque[Entry]() for _ in range(2)] for _ in range(params.ports)]

    def show(self, ctx, dut: ColumnReader) -> None:
        """Set what the reader sees of the pairs."""
        for port, pair in enumerate(self.queues):
            ctx.set(dut.nonempty[port], bool(pair[0]) | bool(pair[1]) << 1)

    async def tick(self, ctx, dut: ColumnReader) -> tuple[int, int, Entry] | None:
        """End the cycle; return what the reader popped in it, which ``r_entry`` shows now."""
        pops = ctx.get(dut.pop)
        if not pops:
            await ctx.tick()
            return None
        assert pops.bit_count() == 1
        port = pops.bit_length() - 1
        vc = ctx.get(dut.pop_vc) >> port & 1
        entry = self.queues[port][vc].popleft()
        await ctx.tick()
        ctx.set(dut.r_entry[port], entry.fields(self.params))
        return port, vc, entry


def packet(number: int, length: int) -> list[Entry]:
    return [Entry(number << 8 | n, n == length - 1) for n in range(length)]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
def test_column_reader_random(params: SwitchParams, seed: int) -> None:
    rng = random.Random(seed)
    dut = ColumnReader(params)
    column = Column(params)
    ports = params.ports
    seen: Counter[str] = Counter()

    async def testbench(ctx):
        unwritten = [[deque[Entry]() for _ in range(2)] for _ in range(ports)]
        shown: tuple[int, int, Entry, bool] | None = None
        inside: tuple[int, int] | None = None  # the pair whose packet is under way
        waits = [[0, 0] for _ in range(ports)]
        number = 0
        for cycle in range(2500):
            eager = (0.9, 0.3, 0.05)[cycle // 100 % 3]
            for port in range(ports):
                for vc in range(2):
                    todo = unwritten[port][vc]
                    if not todo and rng.random() < eager / 4:
                        todo.extend(packet(number, rng.choice([1, 1, 2, 5])))
                        number += 1
                    if todo and rng.random() < 0.5:
                        column.queues[port][vc].append(todo.popleft())
            column.show(ctx, dut)
            credits = rng.choice([3, 3, 3, 2, 1, 0])
            ctx.set(dut.has_credits, credits)
            assert ctx.get(dut.valid) == (shown is not None)
            take = False
            if shown:
                port, vc, entry, first = shown
                assert ctx.get(dut.entry).flit == entry.flit
                assert ctx.get(dut.entry).last == entry.last
                assert ctx.get(dut.first) == first
                assert ctx.get(dut.vc) == vc
                assert ctx.get(dut.source) == 1 << port
                take = rng.random() < 0.8
            stop = rng.random() < 0.1
            ctx.set(dut.take, take)
            ctx.set(dut.stop, stop)
            free = (shown is None or take) and not stop
            able = [
                (p, v)
                for p in range(ports)
                for v in range(2)
                if column.queues[p][v] and (credits >> v & 1 if inside is None else True)
            ]
            popped = await column.tick(ctx, dut)
            if inside is None:
                assert (popped is not None) == (free and bool(able))
            else:
                assert (popped is not None) == (free and inside in able)
            if take:
                shown = None
            if popped:
                port, vc, entry = popped
                first = inside is None
                if first:
                    assert (port, vc) in able
                    for other in range(ports):
                        late = other != port and (other, vc) in able
                        waits[other][vc] = waits[other][vc] + 1 if late else 0
                        assert waits[other][vc] <= ports - 1
                        seen["waited"] = max(seen["waited"], waits[other][vc])
                else:
                    assert (port, vc) == inside
                shown = (port, vc, entry, first)
                inside = None if entry.last else (port, vc)
                seen["entries"] += 1
                seen[f"vc{vc}"] += 1
                seen["whole"] += entry.last

    simulate(dut, testbench, cycles=2501)
    assert seen["waited"] == params.ports - 1
    assert min(seen["vc0"], seen["vc1"], seen["whole"]) > 200, seen


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
def test_column_reader_takes_turns_at_full_rate(params: SwitchParams) -> None:
    dut = ColumnReader(params)
    column = Column(params)
    ports = params.ports
    order = []

    async def testbench(ctx):
        for port in range(ports):
            for vc in range(2):
                for n in range(4):
                    column.queues[port][vc].extend(packet(n, 3))
        ctx.set(dut.has_credits, 3)
        ctx.set(dut.take, 0)
        for cycle in range(ports * 2 * 4 * 3):
            column.show(ctx, dut)
            ctx.set(dut.take, cycle > 0)
            popped = await column.tick(ctx, dut)
            assert popped is not None
            port, vc, entry = popped
            if entry.flit & 0xFF == 0:
                order.append((port, vc))

    simulate(dut, testbench, cycles=ports * 24 + 1)
    first = order[0][1]
    assert [vc for _, vc in order] == [n & 1 ^ first for n in range(8 * ports)]
    for vc in range(2):
        assert [port for port, v in order if v == vc] == list(range(ports)) * 4


def test_column_reader_goes_on_with_a_packet_that_was_reopened() -> None:
    """After stepping back, the rest of the packet comes again before any other packet."""
    params = PARAMS["lists"]
    dut = ColumnReader(params)
    column = Column(params)

    async def testbench(ctx):
        entries = packet(1, 2)
        column.queues[1][0].extend(entries)
        column.queues[0][1].extend(packet(2, 1))
        ctx.set(dut.has_credits, 1)
        popped = []
        for cycle in range(3):
            column.show(ctx, dut)
            ctx.set(dut.take, cycle > 0)
            ctx.set(dut.stop, cycle == 2)
            popped.append(await column.tick(ctx, dut))
        assert popped == [(1, 0, entries[0]), (1, 0, entries[1]), None]
        ctx.set(dut.take, 0)
        ctx.set(dut.has_credits, 3)
        for n in range(2):  # both entries are stepped back over
            ctx.set(dut.stop, 1)
            ctx.set(dut.reopen, 1)
            column.show(ctx, dut)
            assert ctx.get(dut.pop) == 0
            await ctx.tick()
            column.queues[1][0].appendleft(entries[1 - n])
        ctx.set(dut.stop, 0)
        ctx.set(dut.reopen, 0)
        again = []
        for cycle in range(3):
            column.show(ctx, dut)
            ctx.set(dut.take, cycle > 0)
            again.append(await column.tick(ctx, dut))
        assert [(port, vc) for port, vc, _ in again] == [(1, 0), (1, 0), (0, 1)]

    simulate(dut, testbench, cycles=10)
