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
    """The sources of a column: per request queue and, last, for responses, the entries held."""

    def __init__(self, params: SwitchParams) -> None:
        self.params = params
        self.queues = [deque[Entry]() for _ in range(params.ports + 1)]

    def show(self, ctx, dut: ColumnReader) -> None:
        """Set what the reader sees of the sources."""
        for source, queue in enumerate(self.queues):
            ctx.set(dut.nonempty[source], bool(queue))

    async def tick(self, ctx, dut: ColumnReader) -> tuple[int, Entry] | None:
        """End the cycle; return what the reader popped in it, which ``r_entry`` shows now."""
        pops = ctx.get(dut.pop)
        if not pops:
            await ctx.tick()
            return None
        assert pops.bit_count() == 1
        source = pops.bit_length() - 1
        entry = self.queues[source].popleft()
        await ctx.tick()
        ctx.set(dut.r_entry[source], entry.fields(self.params))
        return source, entry


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
        unwritten = [deque[Entry]() for _ in range(ports + 1)]
        shown: tuple[int, Entry, bool] | None = None
        inside: int | None = None  # the source whose packet is under way
        waits = [0] * ports  # requests of other inputs that went before
        last_vc = 0
        number = 0
        for cycle in range(4000):
            eager = (0.9, 0.3, 0.05)[cycle // 100 % 3]
            for source, todo in enumerate(unwritten):
                share = 2 if source == ports else 4
                if not todo and rng.random() < eager / share:
                    todo.extend(packet(number, rng.choice([1, 1, 2, 5])))
                    number += 1
                if todo and rng.random() < 0.5:
                    column.queues[source].append(todo.popleft())
            column.show(ctx, dut)
            credits = rng.choice([3, 3, 3, 2, 1, 0])
            ctx.set(dut.has_credits, credits)
            assert ctx.get(dut.valid) == (shown is not None)
            take = False
            if shown:
                source, entry, first = shown
                assert ctx.get(dut.entry).flit == entry.flit
                assert ctx.get(dut.entry).last == entry.last
                assert ctx.get(dut.first) == first
                assert ctx.get(dut.vc) == (source == ports)
                assert ctx.get(dut.source) == 1 << source
                take = rng.random() < 0.8
            stop = rng.random() < 0.1
            ctx.set(dut.take, take)
            ctx.set(dut.stop, stop)
            free = (shown is None or take) and not stop
            able = [
                source
                for source in range(ports + 1)
                if column.queues[source]
                and (inside is not None or credits >> (source == ports) & 1)
            ]
            popped = await column.tick(ctx, dut)
            if inside is None:
                assert (popped is not None) == (free and bool(able))
            else:
                assert (popped is not None) == (free and inside in able)
            if take:
                shown = None
            if popped:
                source, entry = popped
                first = inside is None
                vc = int(source == ports)
                if first:
                    assert source in able
                    if ports in able and able != [ports]:  # both channels wait
                        assert vc != last_vc
                        seen["turns"] += 1
                    last_vc = vc
                    for other in range(ports) if vc == 0 else ():
                        late = other != source and other in able
                        waits[other] = waits[other] + 1 if late else 0
                        assert waits[other] <= ports - 1
                        seen["waited"] = max(seen["waited"], waits[other])
                else:
                    assert source == inside
                shown = (source, entry, first)
                inside = None if entry.last else source
                seen["entries"] += 1
                seen[f"vc{vc}"] += 1
                seen["whole"] += entry.last

    simulate(dut, testbench, cycles=4001)
    assert seen["waited"] == params.ports - 1
    assert min(seen["vc0"], seen["vc1"], seen["whole"], seen["turns"]) > 200, seen


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
def test_column_reader_takes_turns_at_full_rate(params: SwitchParams) -> None:
    dut = ColumnReader(params)
    column = Column(params)
    ports = params.ports
    order = []

    async def testbench(ctx):
        for n in range(4):
            for port in range(ports):
                column.queues[port].extend(packet(n, 3))
                column.queues[ports].extend(packet(n, 3))
        ctx.set(dut.has_credits, 3)
        ctx.set(dut.take, 0)
        for cycle in range(ports * 2 * 4 * 3):
            column.show(ctx, dut)
            ctx.set(dut.take, cycle > 0)
            popped = await column.tick(ctx, dut)
            assert popped is not None
            source, entry = popped
            if entry.flit & 0xFF == 0:
                order.append(source)

    simulate(dut, testbench, cycles=ports * 24 + 1)
    channels = [int(source == ports) for source in order]
    assert channels == [n & 1 ^ channels[0] for n in range(8 * ports)]
    assert [source for source in order if source != ports] == list(range(ports)) * 4


def test_column_reader_goes_on_with_a_packet_that_was_reopened() -> None:
    """After stepping back, the rest of the packet comes again before any other packet."""
    params = PARAMS["lists"]
    dut = ColumnReader(params)
    column = Column(params)

    async def testbench(ctx):
        entries = packet(1, 2)
        responses = params.ports
        column.queues[1].extend(entries)
        column.queues[responses].extend(packet(2, 1))
        ctx.set(dut.has_credits, 1)
        popped = []
        for cycle in range(3):
            column.show(ctx, dut)
            ctx.set(dut.take, cycle > 0)
            ctx.set(dut.stop, cycle == 2)
            popped.append(await column.tick(ctx, dut))
        assert popped == [(1, entries[0]), (1, entries[1]), None]
        ctx.set(dut.take, 0)
        ctx.set(dut.has_credits, 3)
        for n in range(2):  # both entries are stepped back over
            ctx.set(dut.stop, 1)
            ctx.set(dut.reopen, 1)
            column.show(ctx, dut)
            assert ctx.get(dut.pop) == 0
            await ctx.tick()
            column.queues[1].appendleft(entries[1 - n])
        ctx.set(dut.stop, 0)
        ctx.set(dut.reopen, 0)
        again = []
        for cycle in range(3):
            column.show(ctx, dut)
            ctx.set(dut.take, cycle > 0)
            popped_again = await column.tick(ctx, dut)
            assert popped_again is not None
            again.append(popped_again[0])
        assert again == [1, 1, responses]

    simulate(dut, testbench, cycles=10)
