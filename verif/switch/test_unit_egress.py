# SPDX-License-Identifier: Apache-2.0
import random
from collections import Counter, deque
from itertools import pairwise
from typing import Any

import pytest
from dysharp.rtl.flits import LANES
from dysharp.rtl.params import SwitchParams
from dysharp.rtl.switch.egress import CREDIT_MARGIN
from dysharp.verif.common.sim import simulate
from dysharp.verif.switch.units import (
    Entry,
    Packet,
    Side,
    field,
    list_packet,
    plain_packet,
    with_field,
)

TINY: dict[str, Any] = {"ports": 3, "max_targets": 24, "groups": 4}
PARAMS = SwitchParams(**TINY)
NO_LISTS = SwitchParams(**TINY, dynamic=False)


def slots(params: SwitchParams) -> tuple[int, int]:
    """Flits that a receiver must have room for, per channel."""
    return (params.max_request_flits + CREDIT_MARGIN, params.max_response_flits + CREDIT_MARGIN)


def numbered(packet: Packet, number: int) -> Packet:
    """Return the packet with its number in the address."""
    first, *rest = packet.entries
    first = Entry(
        with_field(first.flit, "address", number), first.last, first.lanes, first.list_next
    )
    out = (with_field(packet.flits[0], "address", number), *packet.flits[1:])
    return Packet((first, *rest), out, packet.vc)


def random_packet(rng: random.Random, params: SwitchParams, number: int) -> Packet:
    if not params.dynamic or rng.random() < 0.5:
        return numbered(plain_packet(rng, rng.getrandbits(1), 17), number)
    targets = rng.randint(1, params.max_targets)
    share = rng.choice([0.1, 0.5, 1.0])
    chosen = [rng.random() < share for _ in range(targets)]
    chosen[rng.randrange(targets)] = True
    return numbered(list_packet(rng, targets, chosen, rng.randrange(17)), number)


class Receiver:
    """The other end of the link: checks credits and finds packets that are whole."""

    def __init__(self, params: SwitchParams, rng: random.Random) -> None:
        self._rng = rng
        self._free = list(slots(params))  # slots to hand out
        self._held = [0, 0]  # flits that are not taken out of the buffer yet
        self._credits = [0, 0]  # what the sender has
        self._open: deque[int] = deque()
        self.packets: dict[int, Packet] = {}
        self.done: list[int] = []
        self.cycles: list[int] = []

    def expect(self, packet: Packet) -> None:
        """Tell a packet that may come, by its number."""
        self.packets[field(packet.flits[0], "address")] = packet

    def credit(self, rate: float) -> int:
        """Credits of this cycle."""
        bits = 0
        for vc in range(2):
            if self._held[vc] and self._rng.random() < rate:
                self._held[vc] -= 1
                self._free[vc] += 1
            if self._free[vc] and self._rng.random() < rate:
                self._free[vc] -= 1
                self._credits[vc] += 1
                bits |= 1 << vc
        return bits

    def take(self, flit: int, cycle: int) -> bool:
        """Take a flit from the link; tell whether it is a header."""
        is_header = not self._open
        if is_header:
            number = field(flit, "address")
            assert number not in self.done
            self._packet = self.packets[number]
            self._open.extend(self._packet.flits)
            self._number = number
        assert flit == self._open.popleft(), f"packet {self._number}"
        vc = self._packet.vc
        assert self._credits[vc] > 0, "a flit without a credit"
        self._credits[vc] -= 1
        self._held[vc] += 1
        self.cycles.append(cycle)
        if not self._open:
            self.done.append(self._number)
        return is_header


def source_of(params: SwitchParams, port: int, packet: Packet) -> int:
    """Source of a packet from an input: responses all come from the queue of results."""
    return params.ports if packet.vc else port


def has_room(ctx, dut: Side, params: SwitchParams, source: int, packet: Packet) -> bool:
    """Ask a source whether a whole packet fits, as an input or a reducer does."""
    flits = len(packet.entries)
    if packet.vc:
        return ctx.get(dut.result_room) >= flits
    ctx.set(dut.limit, params.request_depth - params.queue_margin - flits)
    return bool(ctx.get(dut.room) >> source & 1)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("rate", [1.0, 0.4])
@pytest.mark.parametrize("params", [PARAMS, NO_LISTS], ids=["lists", "no-lists"])
def test_egress_random_traffic(params: SwitchParams, rate: float, seed: int) -> None:
    """Whole packets, in order per source, never without a credit, none forgotten."""
    rng = random.Random(seed)
    dut = Side(params)
    receiver = Receiver(params, rng)
    count = 150
    plan: list[deque[Packet]] = [deque() for _ in range(params.ports + 1)]
    order: list[list[int]] = [[] for _ in plan]
    for number in range(count):
        packet = random_packet(rng, params, number)
        source = source_of(params, rng.randrange(params.ports), packet)
        plan[source].append(packet)
        order[source].append(number)
        receiver.expect(packet)
    assert all(order)
    events: Counter[str] = Counter()

    async def testbench(ctx):
        open_: list[deque[Entry]] = [deque() for _ in plan]
        cycle = 0
        writing = 1.0
        while len(receiver.done) < count:
            if cycle % 200 == 0:
                writing = rng.choice([1.0, 0.6, 0.2])
            ctx.set(dut.reserve, 0)
            for source, packets in enumerate(plan):
                if open_[source] or not packets:
                    continue
                packet = packets[0]
                if has_room(ctx, dut, params, source, packet):
                    open_[source].extend(packet.entries)
                    packets.popleft()
                    if packet.vc:
                        ctx.set(dut.reserve, len(packet.entries))
            # Inputs write in any order, so their packets come in with holes.
            ready = [source for source, entries in enumerate(open_) if entries]
            ctx.set(dut.w_en, 0)
            if ready and rng.random() < writing:
                source = rng.choice(ready)
                ctx.set(dut.w_en, 1 << source)
                ctx.set(dut.w_entry, open_[source].popleft().fields(params))

            valid = ctx.get(dut.tx.valid)
            first = valid and receiver.take(ctx.get(dut.tx.flit), cycle)
            vc = receiver._packet.vc if valid else 0
            assert ctx.get(dut.sent_flit) == valid
            assert ctx.get(dut.sent_request) == (first and vc == 0)
            assert ctx.get(dut.sent_response) == (first and vc == 1)
            events["first"] += first
            ctx.set(dut.tx.credit, receiver.credit(rate))
            await ctx.tick()
            cycle += 1

    simulate(dut, testbench, cycles=30000)
    assert events["first"] == count
    place = {number: n for n, number in enumerate(receiver.done)}
    for numbers in order:
        assert sorted(numbers, key=place.__getitem__) == numbers


async def fill(ctx, dut: Side, params: SwitchParams, packets: list[tuple[int, Packet]]) -> None:
    """Write packets of the given inputs into their sources, one entry per cycle."""
    for port, packet in packets:
        for n, entry in enumerate(packet.entries):
            ctx.set(dut.reserve, len(packet.entries) if packet.vc and n == 0 else 0)
            ctx.set(dut.w_en, 1 << source_of(params, port, packet))
            ctx.set(dut.w_entry, entry.fields(params))
            await ctx.tick()
    ctx.set(dut.reserve, 0)
    ctx.set(dut.w_en, 0)


async def hand_out(ctx, dut: Side, credits: tuple[int, int]) -> None:
    """Hand out credits, one per cycle and channel."""
    for n in range(max(credits)):
        ctx.set(dut.tx.credit, sum(1 << vc for vc in range(2) if n < credits[vc]))
        await ctx.tick()
    ctx.set(dut.tx.credit, 0)


@pytest.mark.parametrize("vc", [0, 1])
def test_egress_latency(vc: int) -> None:
    dut = Side(PARAMS)
    packet = plain_packet(random.Random(1), vc, 1)

    async def testbench(ctx):
        await hand_out(ctx, dut, slots(PARAMS))
        await ctx.tick()
        await ctx.tick()
        await fill(ctx, dut, PARAMS, [(1, packet)])  # in its queue from this cycle on
        for _ in range(3):
            assert ctx.get(dut.tx.valid) == 0
            await ctx.tick()
        assert ctx.get(dut.tx.valid) == 1
        assert ctx.get(dut.tx.flit) == packet.flits[0]

    simulate(dut, testbench, cycles=100)


@pytest.mark.parametrize("vc", [0, 1])
def test_egress_waits_for_room_for_the_longest_packet(vc: int) -> None:
    dut = Side(PARAMS)
    enough = slots(PARAMS)[vc]
    packet = plain_packet(random.Random(2), vc, 1)

    async def testbench(ctx):
        await fill(ctx, dut, PARAMS, [(0, packet)])
        await hand_out(ctx, dut, (enough - 1, 0) if vc == 0 else (0, enough - 1))
        for _ in range(20):
            assert ctx.get(dut.tx.valid) == 0
            await ctx.tick()
        await hand_out(ctx, dut, (1, 0) if vc == 0 else (0, 1))
        for _ in range(10):
            if ctx.get(dut.tx.valid):
                return
            await ctx.tick()
        raise AssertionError("nothing was sent")

    simulate(dut, testbench, cycles=150)


@pytest.mark.parametrize("vc", [0, 1])
def test_egress_round_robin_at_full_rate(vc: int) -> None:
    """All inputs wait, behind a receiver that gave no credits yet; then they take turns.

    Responses are in one queue, in order.
    """
    params = PARAMS
    rng = random.Random(3)
    dut = Side(params)
    packets = []
    for number in range(9):
        packet = plain_packet(rng, vc, 1)
        while len(packet.entries) < 2:
            packet = plain_packet(rng, vc, 4)
        packets.append((2 - number // 3, numbered(packet, number)))
    order: list[int] = []
    cycles: list[int] = []

    async def testbench(ctx):
        await fill(ctx, dut, params, packets)
        wanted = sum(len(packet.flits) for _, packet in packets)
        credits = 0
        for cycle in range(400):
            ctx.set(dut.tx.credit, (1 << vc) if credits < 200 else 0)
            credits += 1
            if ctx.get(dut.tx.valid):
                cycles.append(cycle)
            if ctx.get(dut.sent_request) | ctx.get(dut.sent_response):
                order.append(field(ctx.get(dut.tx.flit), "address"))
            if len(cycles) == wanted:
                return
            await ctx.tick()

    simulate(dut, testbench, cycles=600)
    # Packets 6-8 are of input 0, 3-5 of input 1, 0-2 of input 2.
    assert order == ([6, 3, 0, 7, 4, 1, 8, 5, 2] if vc == 0 else list(range(9)))
    assert cycles == list(range(cycles[0], cycles[0] + len(cycles)))


def test_egress_channels_take_turns() -> None:
    rng = random.Random(4)
    dut = Side(PARAMS)
    packets = [(n % 3, numbered(plain_packet(rng, n // 6, 1), n)) for n in range(12)]
    channels: list[int] = []

    async def testbench(ctx):
        await fill(ctx, dut, PARAMS, packets)
        for _ in range(200):
            ctx.set(dut.tx.credit, 3)
            if ctx.get(dut.tx.valid):
                channels.append(ctx.get(dut.sent_response))
            await ctx.tick()

    simulate(dut, testbench, cycles=300)
    assert len(channels) == 12
    # The response channel needs fewer credits, so it may be ahead by the first ones.
    both = channels[channels.index(0) :]
    both = both[: 2 * min(both.count(0), both.count(1))]
    assert all(a != b for a, b in pairwise(both))


def test_egress_response_passes_a_request_that_waits_for_credits() -> None:
    rng = random.Random(5)
    dut = Side(PARAMS)
    request, response = plain_packet(rng, 0, 4), plain_packet(rng, 1, 4)

    async def testbench(ctx):
        await fill(ctx, dut, PARAMS, [(0, request), (0, response)])
        await hand_out(ctx, dut, (0, slots(PARAMS)[1]))
        out = []
        for _ in range(20):
            if ctx.get(dut.tx.valid):
                out.append(ctx.get(dut.tx.flit))
            await ctx.tick()
        assert out == list(response.flits)

    simulate(dut, testbench, cycles=100)


def test_egress_steps_back_in_a_queue_that_fills_up() -> None:
    """A list is read twice while the writer goes on up to its limit; nothing is written over."""
    params = PARAMS
    rng = random.Random(6)
    dut = Side(params)
    receiver = Receiver(params, rng)
    targets = params.max_targets
    packets = [numbered(list_packet(rng, targets, [True] * targets, 5), n) for n in range(30)]
    for packet in packets:
        receiver.expect(packet)
    blocked = 0

    async def testbench(ctx):
        nonlocal blocked
        waiting: deque[Entry] = deque()
        plan = deque(packets)
        cycle = 0
        while len(receiver.done) < len(packets):
            if not waiting and plan:
                if has_room(ctx, dut, params, 0, plan[0]):
                    waiting.extend(plan.popleft().entries)
                else:
                    blocked += 1
            ctx.set(dut.w_en, bool(waiting))
            if waiting:
                ctx.set(dut.w_entry, waiting.popleft().fields(params))
            if ctx.get(dut.tx.valid):
                receiver.take(ctx.get(dut.tx.flit), cycle)
            ctx.set(dut.tx.credit, receiver.credit(1.0))
            await ctx.tick()
            cycle += 1

    simulate(dut, testbench, cycles=4000)
    assert receiver.done == list(range(len(packets)))
    assert blocked > 10
    assert targets > LANES  # or nothing is read twice
