# SPDX-License-Identifier: Apache-2.0
import random
from dataclasses import dataclass

import pytest
from dysharp.rtl.switch.receiver import Receiver
from dysharp.verif.common.sim import simulate
from dysharp.verif.switch.units import field, framed_flits, header, with_field

TIMEOUT = 32


@dataclass
class Wanted:
    """Outputs of one cycle."""

    w_en: int = 0
    w_flit: int = 0
    w_last: bool = False


async def step(ctx, dut: Receiver, valid: bool, flit: int, full: int, wanted: Wanted) -> None:
    """One cycle of inputs, compared with what must be written in the same cycle."""
    ctx.set(dut.valid, valid)
    ctx.set(dut.flit, flit)
    ctx.set(dut.full, full)
    assert ctx.get(dut.w_en) == wanted.w_en
    if wanted.w_en:
        assert ctx.get(dut.w_flit) == wanted.w_flit
        assert ctx.get(dut.w_last) == wanted.w_last
    ends = wanted.w_en if wanted.w_last else 0
    assert ctx.get(dut.got_request) | ctx.get(dut.got_response) << 1 == ends
    await ctx.tick()


def random_header(rng: random.Random) -> int:
    """Any opcode and any length; lists are mostly short."""
    flit = rng.getrandbits(128)
    count = rng.choice([0, 1, 7, 8, 9, 63, 64, 65, rng.randrange(200)])
    return with_field(flit, "count", count)


def channel(flit: int) -> int:
    """Bit of the channel that a header's opcode belongs to, whatever its `vc` says."""
    return 2 if field(flit, "opcode") >> 2 == 3 else 1


async def send(ctx, dut: Receiver, rng: random.Random, first: int, gaps: float = 0.0) -> None:
    """Send a whole packet, the flits behind its header random."""
    flits = framed_flits(first)
    other = channel(first) ^ 3
    for n in range(flits):
        while rng.random() < gaps:
            noise = rng.getrandbits(128)
            await step(ctx, dut, False, noise, rng.randrange(4), Wanted())
        flit = rng.getrandbits(128) if n else first
        full = rng.choice([0, other])  # the other channel's buffer does not matter
        await step(ctx, dut, True, flit, full, Wanted(channel(first), flit, n == flits - 1))
        assert ctx.get(dut.fault) == 0


@pytest.mark.parametrize("gaps", [0.0, 0.2, 0.6])
@pytest.mark.parametrize("seed", [1, 2])
def test_receiver_frames_random_packets(seed: int, gaps: float) -> None:
    rng = random.Random(seed)
    dut = Receiver(TIMEOUT)
    opcodes = set()

    async def testbench(ctx):
        for _ in range(120):
            first = random_header(rng)
            opcodes.add(field(first, "opcode"))
            await send(ctx, dut, rng, first, gaps)

    simulate(dut, testbench, cycles=12000)
    assert opcodes == set(range(16))


@pytest.mark.parametrize("opcode", range(16))
def test_receiver_frames_every_opcode(opcode: int) -> None:
    rng = random.Random(opcode)
    dut = Receiver(TIMEOUT)

    async def testbench(ctx):
        for length in (0, 1, 16, 31):
            for byte_enable in (0, 1):
                for count in (0, 1, 8, 9, 512):
                    first = header(
                        opcode=opcode, length=length, byte_enable=byte_enable, count=count
                    )
                    await send(ctx, dut, rng, first)

    simulate(dut, testbench, cycles=6000)


@pytest.mark.parametrize("opcode", [0x8, 0x9, 0xB])
def test_receiver_frames_the_longest_list(opcode: int) -> None:
    rng = random.Random(opcode)
    dut = Receiver(TIMEOUT)
    first = header(opcode=opcode, count=32767, length=31, byte_enable=1)
    assert framed_flits(first) == 1 + 4096 + 1 + (31 if opcode & 1 else 0)

    async def testbench(ctx):
        await send(ctx, dut, rng, first)
        await send(ctx, dut, rng, header(opcode=1, length=1))

    simulate(dut, testbench, cycles=4200)


async def watch_padding(ctx, dut: Receiver, rng: random.Random, vc: int, left: int) -> None:
    """Check that the open packet is filled up with zero flits, whatever comes in."""
    for _ in range(20 * left + 20):
        full = rng.randrange(4)
        ctx.set(dut.valid, rng.getrandbits(1))
        ctx.set(dut.flit, rng.getrandbits(128))
        ctx.set(dut.full, full)
        w_en = ctx.get(dut.w_en)
        assert w_en in ((0,) if full & vc or not left else (0, vc))
        if w_en:
            left -= 1
            assert ctx.get(dut.w_flit) == 0
            assert ctx.get(dut.w_last) == (left == 0)
        await ctx.tick()
        assert ctx.get(dut.fault) == 1
    assert left == 0


@pytest.mark.parametrize("seed", range(6))
def test_receiver_cuts_off_who_sends_without_a_credit(seed: int) -> None:
    rng = random.Random(seed)
    dut = Receiver(TIMEOUT)

    async def testbench(ctx):
        for _ in range(5):
            await send(ctx, dut, rng, random_header(rng), 0.1)
        first = random_header(rng)
        while framed_flits(first) < 3:
            first = random_header(rng)
        vc, flits = channel(first), framed_flits(first)
        sent = rng.randint(1, flits - 1)
        for n in range(sent):
            flit = rng.getrandbits(128) if n else first
            await step(ctx, dut, True, flit, vc ^ 3, Wanted(vc, flit, False))
        await step(ctx, dut, True, rng.getrandbits(128), vc, Wanted())
        assert ctx.get(dut.fault) == 1
        await watch_padding(ctx, dut, rng, vc, flits - sent)

    simulate(dut, testbench, cycles=4000)


@pytest.mark.parametrize("opcode", [0x1, 0x2, 0xD, 0xE])
def test_receiver_header_without_a_credit_opens_nothing(opcode: int) -> None:
    rng = random.Random(opcode)
    dut = Receiver(TIMEOUT)
    first = header(opcode=opcode, length=4)

    async def testbench(ctx):
        await send(ctx, dut, rng, first)
        await step(ctx, dut, True, first, channel(first), Wanted())
        await watch_padding(ctx, dut, rng, channel(first), 0)

    simulate(dut, testbench, cycles=60)


@pytest.mark.parametrize("timeout", [16, 32, 256])
def test_receiver_timeout(timeout: int) -> None:
    rng = random.Random(timeout)
    dut = Receiver(timeout)
    first = header(opcode=0x9, count=9, length=2)

    async def testbench(ctx):
        for _ in range(3 * timeout):  # silence between packets is allowed
            await step(ctx, dut, False, rng.getrandbits(128), 3, Wanted())
        await step(ctx, dut, True, first, 0, Wanted(1, first, False))
        for _ in range(timeout - 1):
            await step(ctx, dut, False, 0, 0, Wanted())
        await step(ctx, dut, True, 7, 0, Wanted(1, 7, False))  # just in time
        for _ in range(timeout - 1):
            await step(ctx, dut, False, 0, 0, Wanted())
            assert ctx.get(dut.fault) == 0
        for _ in range(4):
            await step(ctx, dut, False, 0, 1, Wanted())
        assert ctx.get(dut.fault) == 1
        await watch_padding(ctx, dut, rng, 1, 3)

    simulate(dut, testbench, cycles=6 * timeout + 200)


def test_receiver_waits_for_a_sender_that_waits_for_credits() -> None:
    """A full buffer does not make a sender faulty: it only has to stay silent."""
    dut = Receiver(TIMEOUT)
    first = header(opcode=0x1, length=1)

    async def testbench(ctx):
        await step(ctx, dut, True, first, 0, Wanted(1, first, False))
        for _ in range(TIMEOUT - 2):
            await step(ctx, dut, False, 0, 3, Wanted())
        await step(ctx, dut, True, 9, 0, Wanted(1, 9, True))
        assert ctx.get(dut.fault) == 0

    simulate(dut, testbench, cycles=TIMEOUT + 2)


def test_receiver_patience_is_for_requests_that_wait_for_credits() -> None:
    """A sender without credits may stop inside a request for any time, and no longer than that."""
    dut = Receiver(TIMEOUT)
    first = header(opcode=0x1, length=2)

    async def testbench(ctx):
        await step(ctx, dut, True, first, 0, Wanted(1, first, False))
        for _ in range(3 * TIMEOUT):
            ctx.set(dut.spent, 1)
            await step(ctx, dut, False, 0, 0, Wanted())
            assert ctx.get(dut.fault) == 0
        ctx.set(dut.spent, 0)
        await step(ctx, dut, True, 9, 0, Wanted(1, 9, False))
        for cycle in range(TIMEOUT + 1):
            assert ctx.get(dut.fault) == 0, cycle
            await step(ctx, dut, False, 0, 0, Wanted())
        assert ctx.get(dut.fault) == 1

    simulate(dut, testbench, cycles=5 * TIMEOUT)


@pytest.mark.parametrize("spent", [0, 1])
def test_receiver_response_may_not_stop_for_credits(spent: int) -> None:
    """It is begun with credits for all of it, so credits for requests are no excuse."""
    rng = random.Random(spent)
    dut = Receiver(TIMEOUT)
    first = header(opcode=0xE, length=2)

    async def testbench(ctx):
        ctx.set(dut.spent, spent)
        for _ in range(3 * TIMEOUT):  # silence between packets is allowed
            await step(ctx, dut, False, 0, 0, Wanted())
        await step(ctx, dut, True, first, 0, Wanted(2, first, False))
        for cycle in range(TIMEOUT + 1):
            assert ctx.get(dut.fault) == 0, cycle
            await step(ctx, dut, False, 0, 2, Wanted())
        assert ctx.get(dut.fault) == 1
        await watch_padding(ctx, dut, rng, 2, 2)

    simulate(dut, testbench, cycles=5 * TIMEOUT + 100)
