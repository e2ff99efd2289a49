# SPDX-License-Identifier: Apache-2.0
import random
from collections import Counter, deque
from dataclasses import dataclass

import pytest
from dysharp.rtl.address_hash import HASH_MASKS
from dysharp.rtl.flits import FLIT_BITS, MAX_DATA_FLITS, Opcode, Vc
from dysharp.rtl.params import SwitchParams
from dysharp.rtl.switch.response_head import ResponseHead
from dysharp.verif.common.sim import simulate
from dysharp.verif.switch.units import field, framed_flits, header, with_field

SHAPES = {
    "three": SwitchParams(ports=3),
    "links": SwitchParams(ports=6, links_per_gpu=2),
}
DATA = (Opcode.RSP_DATA, Opcode.PART_DATA)
ACKS = (Opcode.RSP_ACK, Opcode.PART_ACK)
FAULTS = ("length of an ack", "no data", "too much data", "byte enable", "channel", "no gpu")


def port_of(params: SwitchParams, first: int) -> int | None:
    """Port that a response goes to, if there is one."""
    gpu, links = field(first, "gpu"), params.links_per_gpu
    if gpu >= params.gpus:
        return None
    address = field(first, "address")
    masks = HASH_MASKS[: links.bit_length() - 1]
    link = sum(((address & mask).bit_count() & 1) << bit for bit, mask in enumerate(masks))
    return gpu * links + link


def good_header(rng: random.Random, params: SwitchParams) -> int:
    """Header of a well-formed response, with all other fields random."""
    opcode = rng.choice([*DATA, *ACKS])
    length = rng.choice([1, 2, MAX_DATA_FLITS]) if opcode in DATA else 0
    first = rng.getrandbits(FLIT_BITS)
    for name, value in {
        "opcode": opcode.value,
        "length": length,
        "byte_enable": 0,
        "vc": Vc.RESPONSE.value,
        "gpu": rng.randrange(params.gpus),
    }.items():
        first = with_field(first, name, value)
    return first


def bad_header(rng: random.Random, params: SwitchParams, fault: str) -> int:
    """Header of a response that breaks one rule."""
    first = good_header(rng, params)
    if fault == "length of an ack":
        first = with_field(first, "opcode", rng.choice(ACKS).value)
        return with_field(first, "length", rng.choice([1, 16, 31]))
    if fault in ("no data", "too much data"):
        first = with_field(first, "opcode", rng.choice(DATA).value)
        length = 0 if fault == "no data" else rng.randint(MAX_DATA_FLITS + 1, 31)
        return with_field(first, "length", length)
    if fault == "byte enable":
        return with_field(first, "byte_enable", 1)
    if fault == "channel":
        return with_field(first, "vc", rng.choice([0, 2, 3]))
    return with_field(first, "gpu", rng.randint(params.gpus, 63))


@dataclass(frozen=True)
class Flit:
    """A flit of a response, and what is to become of its packet."""

    flit: int
    first: bool
    last: bool
    port: int | None
    good: bool


def response(rng: random.Random, params: SwitchParams, first: int, good: bool) -> list[Flit]:
    flits = framed_flits(first)
    port = port_of(params, first)
    return [
        Flit(rng.getrandbits(FLIT_BITS) if n else first, n == 0, n == flits - 1, port, good)
        for n in range(flits)
    ]


class Driver:
    """Sends flits as a receiver does, and checks in every cycle what becomes of the one before."""

    def __init__(self, dut: ResponseHead, params: SwitchParams) -> None:
        self._dut = dut
        self._params = params
        self._held: Flit | None = None
        self._dropping = False
        self.seen: Counter[str] = Counter()
        self.written: list[list[Flit]] = [[] for _ in range(params.ports)]
        self.credits = [0] * params.ports

    async def cycle(self, ctx, send: Flit | None, full: int, allowed: int) -> bool:
        """One cycle; tell whether the flit was taken."""
        dut, held = self._dut, self._held
        ctx.set(dut.full, full)
        ctx.set(dut.allowed, allowed)
        stuck = select = credit = dropped = 0
        if held:
            bit = 0 if held.port is None else 1 << held.port
            drop = not (held.good and bit & allowed) if held.first else self._dropping
            stuck = not drop and bit & full != 0
            select = bit if not drop and not stuck else 0
            credit = bit if drop else 0
            dropped = drop and held.first
            if not stuck:
                self._dropping = drop
        assert ctx.get(dut.stuck) == bool(stuck)
        assert ctx.get(dut.select) == select
        assert ctx.get(dut.credit) == credit
        assert ctx.get(dut.dropped) == bool(dropped)
        if select and held and held.port is not None:
            assert ctx.get(dut.flit) == held.flit
            assert ctx.get(dut.last) == held.last
            self.written[held.port].append(held)
        for port in range(self._params.ports):
            self.credits[port] += credit >> port & 1
        self.seen["stuck"] += bool(stuck)
        self.seen["dropped"] += bool(dropped)
        takes = send is not None and not stuck
        ctx.set(dut.i_en, takes)
        if send:
            ctx.set(dut.i_flit, send.flit)
            ctx.set(dut.i_last, send.last)
        await ctx.tick()
        if not stuck:
            self._held = send
        return takes


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("params", SHAPES.values(), ids=SHAPES)
def test_response_head_random(params: SwitchParams, seed: int) -> None:
    """Good and bad responses, partitions that change, queues without room, gaps."""
    rng = random.Random(seed)
    dut = ResponseHead(params)
    driver = Driver(dut, params)
    every = (1 << params.ports) - 1
    faults: Counter[str] = Counter()

    async def testbench(ctx):
        todo: deque[Flit] = deque()
        allowed = every
        for cycle in range(4000):
            if cycle % 300 == 0:
                gaps, crowded = rng.choice([(0.0, 0.0), (0.5, 0.1), (0.0, 0.5), (0.2, 0.8)])
            if not todo:
                if rng.random() < 0.3:
                    fault = rng.choice(FAULTS)
                    faults[fault] += 1
                    todo.extend(response(rng, params, bad_header(rng, params, fault), False))
                else:
                    todo.extend(response(rng, params, good_header(rng, params), True))
            if rng.random() < 0.05:
                allowed = rng.choice([every, rng.getrandbits(params.ports)])
            full = rng.getrandbits(params.ports) if rng.random() < crowded else 0
            send = None if rng.random() < gaps else todo[0]
            if await driver.cycle(ctx, send, full, allowed):
                todo.popleft()

    simulate(dut, testbench, cycles=4001)
    assert all(len(flits) > 50 for flits in driver.written)
    assert min(driver.credits) > 5
    assert min(driver.seen["stuck"], driver.seen["dropped"]) > 50, driver.seen
    assert set(faults) == set(FAULTS)


@pytest.mark.parametrize("params", SHAPES.values(), ids=SHAPES)
def test_response_head_streams_one_flit_per_cycle(params: SwitchParams) -> None:
    """A flit that is taken is written in the next cycle."""
    rng = random.Random(3)
    dut = ResponseHead(params)
    driver = Driver(dut, params)
    every = (1 << params.ports) - 1
    sent: list[Flit] = []

    async def testbench(ctx):
        for _ in range(50):
            for flit in response(rng, params, good_header(rng, params), True):
                assert await driver.cycle(ctx, flit, 0, every)
                sent.append(flit)
        await driver.cycle(ctx, None, 0, every)

    simulate(dut, testbench, cycles=1000)
    for port, written in enumerate(driver.written):
        assert written == [flit for flit in sent if flit.port == port]
    assert driver.credits == [0] * params.ports


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("params", SHAPES.values(), ids=SHAPES)
def test_response_head_drops_what_is_malformed(params: SwitchParams, fault: str) -> None:
    """Nothing of it is written; each flit's credit goes back, if there is such a queue."""
    rng = random.Random(4)
    dut = ResponseHead(params)
    driver = Driver(dut, params)
    every = (1 << params.ports) - 1
    wanted = [0] * params.ports

    async def testbench(ctx):
        for number in range(20):
            flits = response(rng, params, bad_header(rng, params, fault), False)
            for flit in flits:
                # Room does not matter.
                assert await driver.cycle(ctx, flit, rng.choice([0, every]), every)
                if flit.port is not None:
                    wanted[flit.port] += 1
            assert driver.seen["dropped"] == number + (len(flits) > 1)
            await driver.cycle(ctx, None, every, every)
            assert driver.seen["dropped"] == number + 1
        # A good one behind it comes through.
        good = response(rng, params, good_header(rng, params), True)
        for flit in [*good, None]:
            await driver.cycle(ctx, flit, 0, every)
        port = good[0].port
        assert port is not None
        assert driver.written[port] == good
        assert sum(map(len, driver.written)) == len(good)

    simulate(dut, testbench, cycles=1000)
    assert driver.credits == wanted
    assert (sum(wanted) == 0) == (fault == "no gpu")


def test_response_head_keeps_partitions_apart() -> None:
    params = SHAPES["links"]
    rng = random.Random(5)
    dut = ResponseHead(params)
    driver = Driver(dut, params)
    allowed = 0b001101  # one link of GPU 0, both of GPU 1, none of GPU 2
    wanted = [0] * params.ports

    async def testbench(ctx):
        for _ in range(100):
            for flit in response(rng, params, good_header(rng, params), True):
                assert await driver.cycle(ctx, flit, 0, allowed)
                assert flit.port is not None
                wanted[flit.port] += 1
        await driver.cycle(ctx, None, 0, allowed)

    simulate(dut, testbench, cycles=2000)
    for port in range(params.ports):
        inside = allowed >> port & 1
        assert len(driver.written[port]) == wanted[port] * inside
        assert driver.credits[port] == wanted[port] * (1 - inside)


@pytest.mark.parametrize("place", [0, 1, 4])
def test_response_head_waits_for_its_own_queue_only(place: int) -> None:
    """The queue of the flit at this place has no room: it stays until there is, unchanged."""
    params = SHAPES["three"]
    rng = random.Random(6)
    dut = ResponseHead(params)
    driver = Driver(dut, params)
    first = header(opcode=Opcode.PART_DATA.value, length=4, vc=1, gpu=1)
    flits = response(rng, params, first, True)

    async def testbench(ctx):
        for flit in flits[: place + 1]:
            assert await driver.cycle(ctx, flit, 0b101, 0b111)
        behind = flits[place + 1] if place < 4 else None
        for _ in range(10):
            assert not await driver.cycle(ctx, behind, 0b010, 0b111)
            assert len(driver.written[1]) == place
        for flit in [*flits[place + 1 :], None]:
            await driver.cycle(ctx, flit, 0b101, 0b111)

    simulate(dut, testbench, cycles=30)
    assert driver.written[1] == flits
    assert driver.seen["stuck"] == 10
