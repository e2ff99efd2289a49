# SPDX-License-Identifier: Apache-2.0
"""Queues of answers: whole packets, credits, turns."""

import random
from dataclasses import replace
from typing import Any

import pytest
from dysharp.rtl.flits import HEADER_FIELDS
from dysharp.rtl.gpu_params import GPU_PRESETS
from dysharp.rtl.hub.answer_queues import AnswerQueues
from dysharp.rtl.hub.path_layouts import LONGEST_ANSWER
from dysharp.verif.common.sim import simulate

PARAMS = replace(GPU_PRESETS["tiny"], gpus=3, response_flits=32)
_LENGTH_AT = sum(field.width for field in HEADER_FIELDS[:7])
assert HEADER_FIELDS[7].name == "length"


def header(length: int, mark: int) -> int:
    """Header flit with a length, and anything else in the address."""
    return length << _LENGTH_AT | mark


class Driver:
    """Writes parts and acknowledgements by the rules, and reads what leaves."""

    def __init__(self, ctx: Any, dut: AnswerQueues, rng: random.Random) -> None:
        self.ctx, self.dut, self.rng = ctx, dut, rng
        self.part: list[tuple[int, int, int, int, int]] = []  # offset, flit, last, commit, length
        self.part_gpu = 0
        self.ack: tuple[int, int] | None = None
        self.expected: list[list[list[int]]] = [[] for _ in range(PARAMS.gpus)]
        self.open: list[int] = []
        self.got: list[tuple[int, int, list[int]]] = []
        self.now = 0
        self.owner: dict[int, int] = {}
        self.moves: list[int] = []

    def begin(self, gpu: int, length: int, fails: bool) -> bool:
        """Begin a part, if there is room."""
        ctx, dut = self.ctx, self.dut
        if self.part or not ctx.get(dut.room) >> gpu & 1:
            return False
        ctx.set(dut.reserve, 1)
        ctx.set(dut.reserve_gpu, gpu)
        ctx.set(dut.reserve_flits, 1 + length)
        data = [self.rng.getrandbits(128) for _ in range(length)]
        first = header(0 if fails else length, self.rng.getrandbits(48))
        self.part = [(1 + n, flit, n == length - 1, 0, 0) for n, flit in enumerate(data)]
        self.part.append((0, first, fails, 1, length))
        self.part_gpu = gpu
        self.owner[first] = gpu
        self.packet = [first] if fails else [first, *data]
        self.fails = fails
        return True

    def write(self) -> None:
        """Write the next flit of the part."""
        ctx, dut = self.ctx, self.dut
        offset, flit, last, commit, length = self.part.pop(0)
        ctx.set(dut.part_en, 1)
        for name, value in (
            ("gpu", self.part_gpu),
            ("offset", offset),
            ("flit", flit),
            ("last", last),
            ("commit", commit),
            ("flits", 1 if self.fails else 1 + length),
            ("unused", length if self.fails else 0),
        ):
            ctx.set(dut.part[name], value)
        if commit:
            self.expected[self.part_gpu].append(self.packet)

    async def tick(self) -> None:
        """End the cycle."""
        ctx, dut = self.ctx, self.dut
        if self.ack and ctx.get(dut.ack.ready) and ctx.get(dut.ack.valid):
            self.expected[self.ack[0]].append([self.ack[1]])
            self.owner[self.ack[1]] = self.ack[0]
            self.ack = None
        if ctx.get(dut.answer.valid) and ctx.get(dut.answer.ready):
            self.open.append(ctx.get(dut.answer.payload.flit))
            self.moves.append(self.now)
            if ctx.get(dut.answer.payload.last):
                self.got.append((self.now, self.owner[self.open[0]], self.open))
                self.open = []
        await ctx.tick()
        self.now += 1
        ctx.set(dut.reserve, 0)
        ctx.set(dut.part_en, 0)
        ctx.set(dut.ack.valid, self.ack is not None)

    def offer(self, gpu: int) -> None:
        """Offer an acknowledgement."""
        self.ack = (gpu, header(0, self.rng.getrandbits(48)))
        self.ctx.set(self.dut.ack.valid, 1)
        self.ctx.set(self.dut.ack.payload.gpu, gpu)
        self.ctx.set(self.dut.ack.payload.flit, self.ack[1])


@pytest.mark.parametrize(
    ("seed", "ready_rate", "slots"), [(1, 1.0, 17), (2, 0.4, 40), (3, 0.9, 18)]
)
def test_hub_answers_random(seed: int, ready_rate: float, slots: int) -> None:
    """Packets stay whole and in order for each GPU, and never exceed the credits."""
    dut = AnswerQueues(PARAMS)
    rng = random.Random(seed)

    async def testbench(ctx: Any) -> None:
        drive = Driver(ctx, dut, rng)
        credits = [0] * PARAMS.gpus
        handed = [slots] * PARAMS.gpus
        sent = 0
        for cycle in range(2500):
            stops = cycle > 1800
            granted = 0
            for gpu in range(PARAMS.gpus):
                if handed[gpu] and rng.random() < (0.9 if stops else 0.5):
                    handed[gpu] -= 1
                    credits[gpu] += 1
                    granted |= 1 << gpu
            ctx.set(dut.answer_credit, granted)
            ctx.set(dut.answer.ready, rng.random() < ready_rate or stops)
            if not drive.part and not stops and rng.random() < 0.5:
                drive.begin(rng.randrange(3), rng.randint(1, 16), rng.random() < 0.2)
            elif drive.part and rng.random() < 0.8:
                drive.write()
            if drive.ack is None and not stops and rng.random() < 0.3:
                drive.offer(rng.randrange(3))
            await drive.tick()
            while sent < len(drive.got):
                _, gpu, packet = drive.got[sent]
                credits[gpu] -= len(packet)
                assert credits[gpu] >= 0
                handed[gpu] += len(packet)
                sent += 1
        for gpu in range(PARAMS.gpus):
            assert [packet for _, to, packet in drive.got if to == gpu] == drive.expected[gpu]
        assert len(drive.got) > 100

    simulate(dut, testbench, cycles=2600)


def test_hub_answers_passes_by_one_without_credits() -> None:
    dut = AnswerQueues(PARAMS)

    async def testbench(ctx: Any) -> None:
        drive = Driver(ctx, dut, random.Random(4))
        ctx.set(dut.answer.ready, 1)
        for cycle in range(200):
            # GPU 0 has one credit too few for its part; GPU 1 has enough.
            ctx.set(dut.answer_credit, (cycle < 8) | 2 | (cycle == 150))
            if cycle in (10, 30, 50):
                assert drive.begin(0 if cycle == 10 else 1, 8, False)
            elif drive.part:
                drive.write()
            await drive.tick()
        assert [to for _, to, _ in drive.got] == [1, 1, 0]
        assert drive.got[2][0] > 150

    simulate(dut, testbench, cycles=210)


def test_hub_answers_room_and_turns() -> None:
    """A full queue holds up its own GPU only; afterwards all take turns without a gap."""
    dut = AnswerQueues(PARAMS)

    async def testbench(ctx: Any) -> None:
        drive = Driver(ctx, dut, random.Random(5))
        ctx.set(dut.answer.ready, 1)
        begun = [0, 0, 0]
        for _ in range(120):
            if drive.part:
                drive.write()
            else:
                for gpu in range(3):
                    if drive.begin(gpu, 4, False):
                        begun[gpu] += 1
                        break
            await drive.tick()
        # Without credits each queue takes parts as long as the longest one would fit.
        assert begun == [(32 - LONGEST_ANSWER - 4) // 5 + 1] * 3
        assert not drive.got
        for _ in range(100):
            ctx.set(dut.answer_credit, 7)
            await drive.tick()
        assert drive.moves == list(range(drive.moves[0], drive.moves[0] + 15 * begun[0]))
        order = [to for _, to, _ in drive.got]
        assert all(len({*order[n : n + 3]}) == 3 for n in range(0, len(order) - 3, 3)), order

    simulate(dut, testbench, cycles=230)
