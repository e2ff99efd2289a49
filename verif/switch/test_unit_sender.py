# SPDX-License-Identifier: Apache-2.0
import random
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from math import ceil

import pytest
from dysharp.rtl.flits import LANES
from dysharp.rtl.params import SwitchParams
from dysharp.rtl.switch.sender import Sender
from dysharp.verif.common.sim import simulate
from dysharp.verif.switch.units import Packet, field, list_packet, plain_packet

PARAMS = SwitchParams(ports=4, max_targets=64)


class Queue:
    """A queue and its column reader, as their docstrings say: one entry per cycle.

    ``gap`` is the probability that the queue has nothing to give in a cycle.
    """

    def __init__(self, packets: Sequence[Packet], rng: random.Random, gap: float) -> None:
        self.entries = [(entry, packet.vc) for packet in packets for entry in packet.entries]
        self._start_of = [
            start
            for start, packet in zip(
                accumulate((len(packet.entries) for packet in packets), initial=0),
                packets,
                strict=False,
            )
            for _ in packet.entries
        ]
        self._rng, self._gap = rng, gap
        self._next = 0
        self._inside = False
        self.valid = False
        self.first = False
        self.read = 0
        """Index of the entry that is shown while ``valid``."""

    def step(self, *, take: bool, stop: bool, reopen: bool, back: bool) -> None:
        """One clock edge, with what the sender says in this cycle."""
        assert not take or self.valid, "took an entry that is not there"
        goes_on = not self.entries[self.read][0].last if self.valid else self._inside
        ready = (not self.valid or take) and not stop
        pops = ready and self._next < len(self.entries) and self._rng.random() >= self._gap
        if take:
            self.valid = False
            self._inside = not self.entries[self.read][0].last
        if reopen:
            self._inside = True
        if back:
            assert not pops, "stepped back while the reader may pop"
            self._next -= 1
            assert self._next >= self._start_of[self.read], "stepped back too far"
        if pops:
            self.valid = True
            self.first = not goes_on
            self.read = self._next
            self._next += 1


def run(params: SwitchParams, packets: Sequence[Packet], rng: random.Random, gap: float):
    """Send the packets.

    Returns
    -------
    out : list of tuple
        Cycle, flit, first and channel of every flit on the link.
    taken : list of int
        Cycle in which each entry was taken first.
    """
    dut = Sender(params)
    queue = Queue(packets, rng, gap)
    flits = sum(len(packet.flits) for packet in packets)
    out: list[tuple[int, int, int, int]] = []
    taken: dict[int, int] = {}
    cycles = int((5 * len(queue.entries) + 60) / (1 - gap) * 1.5) + 100

    async def testbench(ctx):
        cycle = 0
        idle = 0
        while idle < 10:
            ctx.set(dut.i_valid, queue.valid)
            if queue.valid:
                entry, vc = queue.entries[queue.read]
                ctx.set(dut.i_entry, entry.fields(params))
                ctx.set(dut.i_first, queue.first)
                ctx.set(dut.i_vc, vc)
            else:
                ctx.set(dut.i_first, rng.getrandbits(1))
            if ctx.get(dut.valid):
                out.append((cycle, ctx.get(dut.flit), ctx.get(dut.first), ctx.get(dut.vc)))
            take = bool(ctx.get(dut.i_take))
            if take:
                taken.setdefault(queue.read, cycle)
            protocol = {
                name: bool(ctx.get(getattr(dut, name))) if params.dynamic else False
                for name in ("stop", "reopen", "back")
            }
            await ctx.tick()
            queue.step(take=take, **protocol)
            cycle += 1
            idle = idle + 1 if len(out) >= flits else 0

    simulate(dut, testbench, cycles=cycles)
    return out, [taken[n] for n in range(len(queue.entries))]


def check_flits(packets: Sequence[Packet], out) -> None:
    wanted = [
        (flit, n == 0, packet.vc) for packet in packets for n, flit in enumerate(packet.flits)
    ]
    assert [(flit, bool(first), vc) for _, flit, first, vc in out] == wanted


def random_list(rng: random.Random, most: int) -> Packet:
    """Make a list; few, some, whole flits or all of its targets belong to the port."""
    targets = rng.choice([rng.randint(1, most), rng.randint(1, 9), most])
    style = rng.randrange(4)
    if style == 0:
        chosen = [rng.random() < 0.1 for _ in range(targets)]
    elif style == 1:
        chosen = [rng.random() < 0.5 for _ in range(targets)]
    elif style == 2:
        flits = [rng.random() < 0.5 for _ in range(ceil(targets / LANES))]
        chosen = [flits[n // LANES] for n in range(targets)]
    else:
        chosen = [True] * targets
    if not any(chosen):
        chosen[rng.randrange(targets)] = True
    return list_packet(rng, targets, chosen, rng.choice([0, 0, 1, 2, 8, 16]))


def kind_of(packet: Packet) -> str:
    """Name the way of a packet through the sender."""
    entries = packet.entries
    if not entries[0].list_next:
        return "none"
    if not entries[1].list_next:
        return "one flit"
    return "gathered" if field(packet.flits[0], "count") <= LANES else "read twice"


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("gap", [0.0, 0.2, 0.6])
def test_sender_prunes_lists(gap: float, seed: int) -> None:
    rng = random.Random(seed)
    packets = [
        random_list(rng, PARAMS.max_targets)
        if rng.random() < 0.75
        else plain_packet(rng, rng.getrandbits(1), 17)
        for _ in range(120)
    ]
    out, _ = run(PARAMS, packets, rng, gap)
    check_flits(packets, out)
    kinds = Counter(kind_of(packet) for packet in packets)
    assert min(kinds[kind] for kind in ("none", "one flit", "gathered", "read twice")) > 5, kinds


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("gap", [0.0, 0.3])
def test_sender_every_length_of_list_and_of_copy(gap: float, seed: int) -> None:
    rng = random.Random(seed)
    packets = []
    for targets in range(1, PARAMS.max_targets + 1):
        for kept in {1, min(8, targets), min(9, targets), rng.randint(1, targets), targets}:
            places = set(rng.sample(range(targets), kept))
            chosen = [n in places for n in range(targets)]
            packets.append(list_packet(rng, targets, chosen, rng.randrange(3)))
    out, _ = run(PARAMS, packets, rng, gap)
    check_flits(packets, out)


@pytest.mark.parametrize("max_targets", [1, 8, 9, 24, 512])
def test_sender_of_other_sizes(max_targets: int) -> None:
    params = SwitchParams(ports=4, max_targets=max_targets, ingress_depth=256, request_depth=256)
    rng = random.Random(max_targets)
    packets = [random_list(rng, max_targets) for _ in range(25)]
    out, _ = run(params, packets, rng, 0.1)
    check_flits(packets, out)


@pytest.mark.parametrize("gap", [0.0, 0.4])
def test_sender_without_lists(gap: float) -> None:
    params = SwitchParams(ports=4, dynamic=False)
    rng = random.Random(5)
    packets = [plain_packet(rng, rng.getrandbits(1), 17) for _ in range(60)]
    out, taken = run(params, packets, rng, gap)
    check_flits(packets, out)
    assert [cycle for cycle, *_ in out] == [cycle + 2 for cycle in taken]


def test_sender_latency_and_rate_of_plain_packets() -> None:
    rng = random.Random(6)
    packets = [plain_packet(rng, rng.getrandbits(1), 17) for _ in range(60)]
    out, taken = run(PARAMS, packets, rng, 0.0)
    check_flits(packets, out)
    assert taken == list(range(taken[0], taken[0] + len(taken)))
    assert [cycle for cycle, *_ in out] == [cycle + 2 for cycle in taken]


def test_sender_loses_no_cycle_on_short_lists() -> None:
    rng = random.Random(7)
    packets = [
        list_packet(rng, n % 8 + 1, [lane == n % (n % 8 + 1) for lane in range(n % 8 + 1)], 2)
        for n in range(40)
    ]
    out, _ = run(PARAMS, packets, rng, 0.0)
    check_flits(packets, out)
    cycles = [cycle for cycle, *_ in out]
    assert cycles == list(range(cycles[0], cycles[0] + len(cycles)))


@pytest.mark.parametrize("kept", [1, 8, 9, 24])
@pytest.mark.parametrize("flits", [1, 2, 3, 8])
def test_sender_delay_of_the_header(flits: int, kept: int) -> None:
    targets = flits * LANES
    if kept > targets:
        return
    rng = random.Random(flits * 100 + kept)
    places = set(rng.sample(range(targets), kept))
    packet = list_packet(rng, targets, [n in places for n in range(targets)], 4)
    out, taken = run(PARAMS, [packet], rng, 0.0)
    check_flits([packet], out)
    delay = out[0][0] - (taken[0] + 2)
    if kept <= LANES:
        assert delay == flits - 1
    else:
        assert delay <= 4 * flits
        # The rest of the packet waits as well; the list comes by twice.
        assert out[-1][0] - (taken[0] + 2 + len(packet.flits) - 1) <= 5 * flits
