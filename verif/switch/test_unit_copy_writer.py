# SPDX-License-Identifier: Apache-2.0
import random
from collections import Counter
from dataclasses import dataclass

import pytest
from dysharp.rtl.flits import (
    FLIT_BITS,
    Addressing,
    Kind,
    Opcode,
    Status,
    Vc,
    addressing,
    kind,
)
from dysharp.rtl.params import SwitchParams
from dysharp.rtl.switch.copy_writer import CopyWriter
from dysharp.verif.common.sim import simulate
from dysharp.verif.switch.units import field, header, with_field

PARAMS = SwitchParams(ports=4)
EVERY = (1 << PARAMS.ports) - 1
REQUESTS = [opcode for opcode in Opcode if addressing(opcode.value) is not Addressing.RESPONSE]

REFUSED = range(Status.UNKNOWN_OPCODE.value, Status.BAD_REDUCTION.value + 1)


@dataclass(frozen=True)
class Request:
    """A request as a head passes it on."""

    flits: tuple[int, ...]
    nexts: tuple[int, ...]
    ports: int
    status: int
    limit: int

    @property
    def good(self) -> bool:
        """Whether it is not refused."""
        return self.status == Status.OK.value

    @property
    def arms(self) -> bool:
        """Whether it waits for an answer that is made of several."""
        opcode = field(self.flits[0], "opcode")
        multicast = addressing(opcode) in (Addressing.STATIC, Addressing.DYNAMIC)
        return multicast and (kind(opcode) is Kind.LOAD or not field(self.flits[0], "posted"))

    @property
    def refusal(self) -> int:
        """Answer when it is refused."""
        answer = self.flits[0]
        for name, value in {
            "opcode": Opcode.RSP_ACK.value,
            "aux": self.status,
            "length": 0,
            "byte_enable": 0,
            "vc": Vc.RESPONSE.value,
        }.items():
            answer = with_field(answer, name, value)
        return answer


def request(rng: random.Random, first: int, flits: int, ports: int, status: int) -> Request:
    behind = (rng.getrandbits(FLIT_BITS) for _ in range(flits - 1))
    return Request(
        (first, *behind),
        tuple(rng.getrandbits(1) for _ in range(flits)),
        ports,
        status,
        rng.randrange(PARAMS.request_depth),
    )


def random_request(rng: random.Random, refused: float = 0.2) -> Request:
    first = with_field(rng.getrandbits(FLIT_BITS), "opcode", rng.choice(REQUESTS).value)
    status = rng.choice(REFUSED) if rng.random() < refused else Status.OK.value
    # What a refused request has for ports is anything.
    ports = rng.getrandbits(4) if status != Status.OK.value else rng.randint(1, EVERY)
    return request(rng, first, rng.choice([1, 1, 2, 3, 9]), ports, status)


class Driver:
    """Passes requests on as a head does, and checks what the writer does in every cycle."""

    def __init__(self, dut: CopyWriter, requests: list[Request]) -> None:
        self._dut = dut
        self._requests = requests
        self._next = (0, 0)  # request and flit that is offered next
        self._held: tuple[int, int] | None = None
        self._select = 0  # of the pass under way
        self._todo = 0  # copies that are not begun
        self._repeated = False  # the pass under way is not the first of its request
        self._comes_again = False  # so is the header that is offered next
        self.copies: list[list[tuple[int, int]]] = [[] for _ in range(PARAMS.ports)]
        """Per port, what was written: request and flit."""
        self.arms: list[int] = []
        self.answers: list[int] = []
        self.ended: list[int] = []
        self.passes: Counter[int] = Counter()
        self.seen: Counter[str] = Counter()

    @property
    def idle(self) -> bool:
        """Whether all requests are through."""
        return self._held is None and self._next[0] == len(self._requests)

    async def cycle(
        self, ctx, *, room: int = EVERY, can_arm: int = 1, ready: int = 1, offer: bool = True
    ) -> bool:
        """One cycle; tell whether a flit was on the row."""
        dut = self._dut
        for name, value in (("room", room), ("can_arm", can_arm)):
            ctx.set(getattr(dut, name), value)
        ctx.set(dut.answer.ready, ready)
        offer = offer and self._next[0] < len(self._requests)
        ctx.set(dut.i_valid, offer)
        # This is known before the flit is there.
        ctx.set(dut.i_first, self._next[1] == 0)
        if offer:
            number, place = self._next
            item = self._requests[number]
            ctx.set(dut.i_flit, item.flits[place])
            ctx.set(dut.i_last, place == len(item.flits) - 1)
            ctx.set(dut.i_list_next, item.nexts[place])
            ctx.set(dut.i_limit, item.limit)
            # A pass that was asked for is for the copies that are left.
            ctx.set(dut.i_ports, ctx.get(dut.waiting) if self._comes_again else item.ports)
            ctx.set(dut.i_status, item.status)
            ctx.set(dut.i_good, item.good)

        held = self._held
        valid = bool(ctx.get(dut.valid))
        done, again = bool(ctx.get(dut.done)), bool(ctx.get(dut.again))
        leaves = self._check_held(ctx, held, room, can_arm, ready) if held else False
        if not held:
            outputs = (dut.valid, dut.arm, dut.answer.valid, dut.refused, dut.done, dut.again)
            assert not any(ctx.get(output) for output in (*outputs, dut.waits))
        takes = bool(ctx.get(dut.i_take))
        assert takes == (offer and (not held or leaves))
        await ctx.tick()
        if again and held:
            # What was taken meanwhile comes again, behind this one.
            assert self._todo
            self.seen["again"] += 1
            self._next, self._held, self._comes_again = (held[0], 0), None, True
            assert ctx.get(dut.waiting) == self._todo
        elif takes:
            number, place = self._held = self._next
            ends = place == len(self._requests[number].flits) - 1
            self._next = (number + 1, 0) if ends else (number, place + 1)
            if place == 0 and not self._repeated:
                self._todo = self._requests[number].ports
            self._comes_again &= place != 0
        elif leaves:
            self._held = None
        assert not done or not again
        return valid

    def _check_held(self, ctx, held: tuple[int, int], room: int, can_arm: int, ready: int) -> bool:
        """Check all outputs; tell whether the flit that is held leaves."""
        dut = self._dut
        number, place = held
        item = self._requests[number]
        first, last = place == 0, place == len(item.flits) - 1
        valid = bool(ctx.get(dut.valid))
        assert ctx.get(dut.waits) == first
        assert ctx.get(dut.drops) == (not item.good)
        if first:
            assert ctx.get(dut.limit) == item.limit
        if not item.good:
            assert not valid
            assert not ctx.get(dut.arm)
            assert not ctx.get(dut.again)
            assert ctx.get(dut.answer.valid) == first
            answered = first and bool(ready)
            assert ctx.get(dut.refused) == answered
            if first:
                assert ctx.get(dut.answer.payload) == item.refusal
            if answered:
                self.answers.append(number)
            leaves = answered or not first
            # Each of its flits is given back at once.
            assert ctx.get(dut.done) == leaves
            if leaves and last:
                self.ended.append(number)
            return leaves

        assert not ctx.get(dut.answer.valid)
        assert not ctx.get(dut.refused)
        repeated = self._repeated
        if first:
            must_arm = item.arms and not repeated
            fitting = self._todo & room
            assert valid == (fitting != 0 and (not must_arm or bool(can_arm)))
            assert ctx.get(dut.arm) == (valid and must_arm)
            if valid and must_arm:
                assert ctx.get(dut.ports) == item.ports
                assert ctx.get(dut.flit) == item.flits[0]
                self.arms.append(number)
            self.seen["waits to arm"] += not valid and fitting != 0
            if valid:
                self._select = fitting
                self._todo &= ~fitting
                self.passes[number] += 1
        else:
            assert valid
            assert not ctx.get(dut.arm)
        if not valid:
            assert not ctx.get(dut.done)
            assert not ctx.get(dut.again)
            return False
        assert ctx.get(dut.select) == self._select
        assert ctx.get(dut.flit) == item.flits[place]
        assert ctx.get(dut.last) == last
        assert ctx.get(dut.list_next) == item.nexts[place]
        for port in range(PARAMS.ports):
            if self._select >> port & 1:
                self.copies[port].append((number, place))
        assert ctx.get(dut.again) == (last and self._todo != 0)
        assert ctx.get(dut.done) == (last and self._todo == 0)
        if last and not self._todo:
            self.ended.append(number)
        if last:
            self._repeated = self._todo != 0
        return True

    def check_all(self) -> None:
        """Check that every request was finished once: all of its copies whole and in order."""
        count = len(self._requests)
        assert self.ended == list(range(count))
        for port, copies in enumerate(self.copies):
            assert copies == [
                (number, place)
                for number, item in enumerate(self._requests)
                if item.good and item.ports >> port & 1
                for place in range(len(item.flits))
            ]
        good = [n for n, item in enumerate(self._requests) if item.good]
        assert self.arms == [n for n in good if self._requests[n].arms]
        assert self.answers == [n for n in range(count) if n not in set(good)]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("crowded", [0.0, 0.5, 0.85])
def test_copy_writer_random(crowded: float, seed: int) -> None:
    rng = random.Random(seed)
    dut = CopyWriter(PARAMS)
    requests = [random_request(rng) for _ in range(250)]
    driver = Driver(dut, requests)

    async def testbench(ctx):
        cycle = 0
        while not driver.idle:
            if cycle % 100 == 0:
                gaps, arming = rng.choice([0.0, 0.4]), rng.choice([1.0, 0.5, 0.1])
            await driver.cycle(
                ctx,
                room=sum((rng.random() >= crowded) << port for port in range(PARAMS.ports)),
                can_arm=rng.random() < arming,
                ready=rng.random() < 0.6,
                offer=rng.random() >= gaps,
            )
            cycle += 1

    simulate(dut, testbench, cycles=15000)
    driver.check_all()
    assert (driver.seen["again"] > 50) == (crowded > 0)
    assert driver.seen["waits to arm"] > 50
    assert max(driver.passes.values()) >= {0.0: 1, 0.5: 3, 0.85: 4}[crowded]
    assert len(driver.arms) > 50
    assert len(driver.answers) > 20


def test_copy_writer_loses_no_cycle() -> None:
    """Flits follow each other on the row, a cycle after they are taken."""
    rng = random.Random(4)
    dut = CopyWriter(PARAMS)
    requests = [random_request(rng, refused=0) for _ in range(60)]
    driver = Driver(dut, requests)
    flits = sum(len(item.flits) for item in requests)

    async def testbench(ctx):
        rows = [await driver.cycle(ctx) for _ in range(flits + 2)]
        assert rows == [False] + [True] * flits + [False]

    simulate(dut, testbench, cycles=flits + 3)
    driver.check_all()


def test_copy_writer_starts_again_for_outputs_without_room() -> None:
    """The outputs with room get the whole packet at once; the others get it when they have."""
    rng = random.Random(5)
    dut = CopyWriter(PARAMS)
    first = header(opcode=Opcode.MM_ST.value, posted=1, length=2)
    driver = Driver(dut, [request(rng, first, 3, 0b1111, Status.OK.value)])
    whole = [(0, 0), (0, 1), (0, 2)]

    async def testbench(ctx):
        for room, ports in ((0b0101, [0, 2]), (0b1000, [0, 2, 3]), (0b1111, [0, 1, 2, 3])):
            for _ in range(10):
                # Once a port has its copy, its room does not matter.
                await driver.cycle(ctx, room=room)
            assert [port for port in range(4) if driver.copies[port]] == ports
            assert all(driver.copies[port] == whole for port in ports)

    simulate(dut, testbench, cycles=31)
    assert driver.passes[0] == 3
    assert driver.arms == []
    driver.check_all()


@pytest.mark.parametrize("opcode", REQUESTS)
@pytest.mark.parametrize("posted", [0, 1])
def test_copy_writer_arms_once_for_what_wants_an_answer(opcode: Opcode, posted: int) -> None:
    """It waits until it can, and only before the first copies."""
    rng = random.Random(6)
    dut = CopyWriter(PARAMS)
    multicast = addressing(opcode.value) in (Addressing.STATIC, Addressing.DYNAMIC)
    arms = multicast and (kind(opcode.value) is Kind.LOAD or not posted)
    first = header(opcode=opcode.value, posted=posted, length=1, tag=5)
    item = request(rng, first, 2, 0b0110, Status.OK.value)
    assert item.arms == arms
    driver = Driver(dut, [item])

    async def testbench(ctx):
        for _ in range(10):
            await driver.cycle(ctx, room=0b0010, can_arm=0)
        assert bool(driver.copies[1]) == (not arms)
        await driver.cycle(ctx, room=0b0010, can_arm=1)
        for _ in range(10):
            await driver.cycle(ctx, room=0b0010, can_arm=0)
        assert len(driver.copies[1]) == 2
        for _ in range(5):
            await driver.cycle(ctx, room=0b0100, can_arm=0)

    simulate(dut, testbench, cycles=30)
    driver.check_all()
    assert driver.passes[0] == 2
    assert driver.arms == [0] * arms


@pytest.mark.parametrize("status", REFUSED)
def test_copy_writer_answers_a_refused_request_once(status: int) -> None:
    rng = random.Random(status)
    dut = CopyWriter(PARAMS)
    first = with_field(rng.getrandbits(FLIT_BITS), "opcode", Opcode.MM_RED.value)
    refused = request(rng, with_field(first, "posted", 0), 5, 0b1111, status)
    behind = request(rng, header(opcode=Opcode.WRITE.value, length=1), 2, 0b1000, Status.OK.value)
    driver = Driver(dut, [refused, behind])

    async def testbench(ctx):
        for _ in range(10):
            assert not await driver.cycle(ctx, ready=0)
        assert driver.answers == []
        for _ in range(5):
            assert not await driver.cycle(ctx, ready=1)
        assert driver.answers == [0]
        for _ in range(2):
            assert await driver.cycle(ctx, ready=0)

    simulate(dut, testbench, cycles=20)
    driver.check_all()
