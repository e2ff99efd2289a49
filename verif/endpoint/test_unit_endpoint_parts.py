# SPDX-License-Identifier: Apache-2.0
"""Serializer, packet buffer and link sender of the endpoint, each alone."""

import random

import pytest
from dysharp.rtl.endpoint.link_sender import LinkSender
from dysharp.rtl.endpoint.packet_buffer import PacketBuffer
from dysharp.rtl.endpoint.serializer import Serializer
from dysharp.verif.common.pressure import PRESSURES, pressure
from dysharp.verif.common.sim import pulse, raises, simulate


def packets_of(rng, count, longest):
    return [[rng.getrandbits(128) for _ in range(rng.randint(1, longest))] for _ in range(count)]


def marked(packets):
    return [(flit, at == len(packet) - 1) for packet in packets for at, flit in enumerate(packet)]


@pytest.mark.parametrize("level", PRESSURES)
def test_serializer_sends_every_flit_once_in_order(trial, level):
    for seed in trial.seeds():
        rng = random.Random(seed)
        dut = Serializer()
        beats, expected = [], []
        for _ in range(150):
            flits = [rng.getrandbits(128) for _ in range(3)]
            present, last = rng.randrange(8), rng.randrange(2)
            beats.append((flits, present, last))
            chosen = [flits[place] for place in range(3) if present >> place & 1]
            expected += [
                (flit, bool(last) and at == len(chosen) - 1) for at, flit in enumerate(chosen)
            ]
        stalls = pressure(level, rng)
        gaps = pressure(level, rng)

        async def testbench(ctx, dut=dut, beats=beats, expected=expected, go=(gaps, stalls)):
            seen, at, held = [], 0, None
            while len(seen) < len(expected) or at < len(beats):
                offered = at < len(beats) and (held is not None or next(go[0]))
                held = at if offered else None
                ctx.set(dut.i.valid, offered)
                if offered:
                    flits, present, last = beats[at]
                    for place in range(3):
                        ctx.set(dut.i.payload.flits[place], flits[place])
                    ctx.set(dut.i.payload.present, present)
                    ctx.set(dut.i.payload.last, last)
                ctx.set(dut.o.ready, next(go[1]))
                if ctx.get(dut.o.valid) and ctx.get(dut.o.ready):
                    seen.append((ctx.get(dut.o.payload.flit), bool(ctx.get(dut.o.payload.last))))
                if offered and ctx.get(dut.i.ready):
                    at, held = at + 1, None
                await ctx.tick()
            assert seen == expected

        simulate(dut, testbench, cycles=6000)


def test_serializer_fills_every_cycle():
    dut = Serializer()

    async def testbench(ctx):
        ctx.set(dut.o.ready, 1)
        ctx.set(dut.i.valid, 1)
        ctx.set(dut.i.payload.present, 0b101)
        await ctx.tick()
        for _ in range(40):
            assert ctx.get(dut.o.valid)
            await ctx.tick()

    simulate(dut, testbench, cycles=50)


@pytest.mark.parametrize("level", PRESSURES)
def test_packet_buffer_lets_go_of_whole_packets(trial, level):
    for seed in trial.seeds():
        rng = random.Random(seed)
        dut = PacketBuffer(16)
        flits = marked(packets_of(rng, 60, 16))
        gaps, stalls = pressure(level, rng), pressure(level, rng)

        async def testbench(ctx, dut=dut, flits=flits, gaps=gaps, stalls=stalls):
            seen, at, held, inside, whole = [], 0, False, False, 0
            while len(seen) < len(flits):
                held = at < len(flits) and (held or next(gaps))
                ctx.set(dut.i.valid, held)
                if held:
                    ctx.set(dut.i.payload.flit, flits[at][0])
                    ctx.set(dut.i.payload.last, flits[at][1])
                ctx.set(dut.o.ready, next(stalls))
                valid = ctx.get(dut.o.valid)
                assert valid or not inside, "a gap inside a packet"
                if valid and ctx.get(dut.o.ready):
                    seen.append((ctx.get(dut.o.payload.flit), bool(ctx.get(dut.o.payload.last))))
                    inside = not seen[-1][1]
                    assert len(seen) <= whole, "a packet left before its end was there"
                if held and ctx.get(dut.i.ready):
                    at, held = at + 1, False
                    if flits[at - 1][1]:
                        whole = at
                await ctx.tick()
            assert seen == flits

        simulate(dut, testbench, cycles=8000)


def test_packet_buffer_latency_and_reset():
    """Two cycles from a packet's last flit; reset in the middle of a packet forgets it."""
    dut = PacketBuffer(8)

    async def testbench(ctx):
        for last in (0, 1):
            ctx.set(dut.i.valid, 1)
            ctx.set(dut.i.payload.last, last)
            await ctx.tick()
        ctx.set(dut.i.valid, 0)
        assert not ctx.get(dut.o.valid)
        await ctx.tick()
        assert ctx.get(dut.o.valid)

    simulate(dut, testbench, cycles=10)


@pytest.mark.parametrize("depth", [0, 1, 3, 24])
def test_packet_buffer_depth(depth):
    message = f"`depth` must be a power of two from 2, not {depth}"
    raises(lambda: PacketBuffer(depth), ValueError, message)


def drive(ctx, source, flits, at):
    ctx.set(source.valid, at < len(flits))
    if at < len(flits):
        ctx.set(source.payload.flit, flits[at][0])
        ctx.set(source.payload.last, flits[at][1])


@pytest.mark.parametrize("level", PRESSURES)
def test_link_sender_keeps_packets_whole_and_credits(trial, level):
    """Nothing is sent without credits, nothing interleaves, and every source keeps its order."""
    for seed in trial.seeds():
        rng = random.Random(seed)
        longest, depth = 9, 12
        dut = LinkSender(longest)
        sources = {
            name: marked(packets_of(rng, 40, longest))
            for name in ("answers", "requests", "ordinary")
        }
        drains = pressure(level, rng)

        async def testbench(ctx, dut=dut, sources=sources, drains=drains, depth=depth):
            at = dict.fromkeys(sources, 0)
            credits, held, line, expected = 0, 0, [], []
            while any(at[name] < len(flits) for name, flits in sources.items()):
                handed = held + credits < depth and next(drains)
                ctx.set(dut.credit, handed)
                for name, flits in sources.items():
                    drive(ctx, getattr(dut, name), flits, at[name])
                taken = [name for name in sources if ctx.get(getattr(dut, name).ready)]
                assert len(taken) <= 1
                for name in taken:
                    if at[name] < len(sources[name]):
                        expected.append((name, *sources[name][at[name]]))
                        at[name] += 1
                        if name != "answers":
                            credits -= 1
                            assert credits >= 0, "sent without a credit"
                            held += 1
                credits += bool(handed)
                if held and next(drains):
                    held -= 1
                await ctx.tick()
                if ctx.get(dut.valid):
                    line.append(ctx.get(dut.flit))
            assert line == [flit for _, flit, _ in expected]
            owner = None
            for name, _, last in expected:
                assert owner in (None, name), "packets interleave"
                owner = None if last else name
            for name, flits in sources.items():
                assert [(flit, last) for who, flit, last in expected if who == name] == flits

        simulate(dut, testbench, cycles=20000)


def test_link_sender_fills_every_cycle_and_takes_turns():
    dut = LinkSender(4)
    order = []

    async def testbench(ctx):
        ctx.set(dut.credit, 1)
        for _ in range(8):
            await ctx.tick()
        for source, flit in ((dut.answers, 1), (dut.requests, 2), (dut.ordinary, 3)):
            ctx.set(source.valid, 1)
            ctx.set(source.payload.flit, flit)
            ctx.set(source.payload.last, 1)
        for _ in range(31):
            await ctx.tick()
            assert ctx.get(dut.valid)
            order.append(ctx.get(dut.flit))

    simulate(dut, testbench, cycles=50)
    assert {flit: order[:30].count(flit) for flit in (1, 2, 3)} == {1: 10, 2: 10, 3: 10}


def test_link_sender_begins_no_request_that_it_could_not_end():
    dut = LinkSender(5)

    async def testbench(ctx):
        for _ in range(4):
            await pulse(ctx, dut.credit)
        ctx.set(dut.requests.valid, 1)
        for _ in range(5):
            assert not ctx.get(dut.requests.ready)
            await ctx.tick()
        await pulse(ctx, dut.credit)
        assert ctx.get(dut.requests.ready)

    simulate(dut, testbench, cycles=30)


@pytest.mark.parametrize("longest", [0, 4096])
def test_link_sender_longest(longest):
    message = f"`longest` must be 1 to 4095, not {longest}"
    raises(lambda: LinkSender(longest), ValueError, message)
