# SPDX-License-Identifier: Apache-2.0
import random
from dataclasses import replace

import numpy as np
import pytest
from amaranth.hdl import ResetInserter, Signal
from dysharp.golden.queue import ACCESS, make_accesses
from dysharp.rtl.flits import DType, Opcode, Status
from dysharp.rtl.queue.queue import MultimemQ
from dysharp.verif.common.sim import simulate, ticks
from dysharp.verif.queue.units import (
    ODD,
    TINY,
    Bench,
    Lists,
    Responder,
    fields_of,
    random_accesses,
    random_lists,
)


def play(accesses: np.ndarray, params=TINY, seed: int = 1, **options) -> Bench:
    """Play accesses and compare with the model; no errors of the switch."""
    rng = random.Random(seed)
    memories = random_lists(rng)
    options.setdefault("responder", Responder(rng, params.tags, errors=0.0, stale=0.0))
    bench = Bench(params, accesses, memories, rng, **options)
    bench.run()
    bench.check()
    return bench


def row(number: int, /, **fields: int) -> np.ndarray:
    """Return accesses that follow on each other."""
    numbers = np.arange(number)
    size = fields.get("size", 2)
    values = {"opcode": Opcode.DY_ST.value, "size": size, "count": 3, "shared": 1, "list": 2}
    begin = fields.pop("address", 0x1000)
    return make_accesses(
        number,
        address=begin + (4 << size) * numbers,
        rd=numbers,
        data=np.stack([numbers * 0x0123456789ABCDEF, ~numbers], axis=1).astype(np.uint64),
        **(values | fields),
    )


def joined(*parts: np.ndarray) -> np.ndarray:
    """Put accesses one after the other, with names that follow each other."""
    accesses = np.concatenate(parts)
    accesses["rd"] = np.arange(len(accesses))
    return accesses


@pytest.mark.parametrize("params", [TINY, ODD], ids=["tiny", "odd"])
@pytest.mark.parametrize("size", [0, 1, 2])
@pytest.mark.parametrize("opcode", [Opcode.DY_ST, Opcode.MM_ST, Opcode.DY_LD_REDUCE])
def test_queue_every_begin_and_length(params, size: int, opcode: Opcode) -> None:
    """Packets that begin and end anywhere in a flit, and reach over the end of a packet."""
    step = 4 << size
    parts = []
    for begin in range(0, 32, step):
        for number in (1, 3):
            run = row(number, opcode=opcode.value, size=size, address=0x2000 - 16 + begin)
            run["last"][-1] = 1
            run["dtype"] = DType.F32.value
            parts.append(run)
    parts.append(row(64, opcode=opcode.value, size=size, dtype=DType.F32.value, last=0))
    bench = play(joined(*parts), params)
    enables = [fields_of(packet[0])["byte_enable"] for packet in bench.packets]
    partial = size < 2 and opcode is not Opcode.DY_LD_REDUCE
    assert any(enables) == partial
    longest = max(fields_of(packet[0])["length"] for packet in bench.packets)
    assert longest == min(params.packet_flits, 8 if partial else 16, 16 << size)


@pytest.mark.parametrize("field", ["opcode", "size", "dtype", "op", "order", "posted", "count"])
def test_queue_does_not_merge_what_differs(field: str) -> None:
    one = row(2, opcode=Opcode.MM_ST.value, dtype=DType.U32.value)
    two = row(2, opcode=Opcode.MM_ST.value, dtype=DType.U32.value, address=0x1020)
    two[field] = {"opcode": Opcode.DY_ST.value, "size": 1}.get(field, two[field] ^ 1)
    if field == "size":
        two["address"][1] -= 8
    bench = play(joined(one, two))
    assert len(bench.packets[0]) == 3
    assert bench.counts["merged"] == 2


@pytest.mark.parametrize("field", ["address", "list", "shared", "rd"])
def test_queue_does_not_merge_what_does_not_follow(field: str) -> None:
    """A difference in any bit of the address or of the list keeps accesses apart."""
    bits = {"address": range(4, 47), "list": range(1, 10), "shared": [0], "rd": range(16)}[field]
    parts = []
    for bit in bits:
        pair = row(2)
        pair["rd"] = [8, 9]
        pair[field][1] = pair[field][1] ^ ACCESS[field].type(1 << bit)
        parts.append(pair)
    rng = random.Random(3)
    accesses = np.concatenate(parts)
    bench = Bench(
        TINY,
        accesses,
        random_lists(rng),
        rng,
        responder=Responder(rng, TINY.tags, errors=0.0, stale=0.0),
    )
    bench.run()
    # Names are not unique here, so only the numbers are compared.
    assert bench.counts["merged"] == 0
    assert len(bench.packets) == len(accesses)


@pytest.mark.parametrize("lane", range(8))
@pytest.mark.parametrize("shared", [0, 1])
def test_queue_lists_of_all_lengths_at_all_lanes(lane: int, shared: int) -> None:
    parts = [
        row(1, count=count, list=0x100 + 2 * lane, shared=shared, address=0x1000 * count)
        for count in range(1, TINY.max_targets + 1)
    ]
    bench = play(joined(*parts))
    assert len(bench.packets) == TINY.max_targets


def test_queue_list_error_of_one_word_spoils_all_accesses() -> None:
    """The memory ends in the middle of the list; what stands behind it goes on."""
    rng = random.Random(4)
    memories = random_lists(rng)
    inside, outside = 0x40, len(memories[0]) - 16
    parts = []
    for opcode in (Opcode.DY_ST.value, Opcode.DY_LD_REDUCE.value):
        for place in (inside, outside, inside):
            fields = {"opcode": opcode, "list": place, "dtype": DType.F32.value}
            parts += [row(4, count=12, posted=1, **fields)]
    bench = Bench(TINY, joined(*parts), memories, rng)
    bench.run()
    entries = bench.check()
    bad = Status.BAD_ADDRESS.value
    assert entries.status.tolist() == [0, bad, 0, 0, bad, 0]


def test_queue_list_error_stays_when_good_words_come_later() -> None:
    """Replies out of order: the word with the error comes first or last."""
    rng = random.Random(10)
    memories = random_lists(rng)
    outside = len(memories[0]) - 16
    parts = [row(1, list=outside, count=12, address=0x1000 * n) for n in range(24)]
    bench = Bench(TINY, joined(*parts), memories, rng, lists=Lists(memories, rng, latency=(1, 60)))
    bench.run()
    entries = bench.check()
    assert set(entries.status.tolist()) == {Status.BAD_ADDRESS.value}
    assert not bench.packets


def test_queue_keeps_taking_responses_when_results_are_not_taken() -> None:
    """Nothing is lost when results wait: requests stop, not responses."""
    rng = random.Random(5)
    memories = random_lists(rng)
    accesses = row(600, opcode=Opcode.MM_LD_REDUCE.value, dtype=DType.BF16.value)
    bench = Bench(
        TINY,
        accesses,
        memories,
        rng,
        responder=Responder(rng, TINY.tags, latency=(1, 3), errors=0.0, stale=0.0),
        results_stop=(0, 1200),
    )
    bench.run()
    bench.check()
    # Room for 128 flits, so 16 packets of 8.
    before = [cycle for cycle, *_ in bench.beats if cycle < 1200]
    assert len(before) == 16


@pytest.mark.parametrize("params", [TINY, ODD], ids=["tiny", "odd"])
def test_queue_waits_for_tags(params) -> None:
    """All tags are out: the next packet waits for its own tag, also if others are free."""
    rng = random.Random(6)
    parts = [row(1, opcode=Opcode.MM_ST.value, address=0x100 * n) for n in range(40)]
    responder = Responder(rng, params.tags, latency=(300, 400), errors=0.0, stale=0.0)
    bench = play(joined(*parts), params, responder=responder)
    assert sum(cycle < 250 for cycle, *_ in bench.beats) == params.tags
    tags = [fields_of(packet[0])["tag"] for packet in bench.packets]
    gens = [fields_of(packet[0])["gen"] for packet in bench.packets]
    assert tags == [n % params.tags for n in range(40)]
    assert gens == [n // params.tags % 4 for n in range(40)]


def test_queue_sums_take_aligned_tags() -> None:
    """Sums of 1, 2 and 4 entries in all orders."""
    rng = random.Random(7)
    parts = []
    for _ in range(40):
        length, dtype = rng.choice(
            [(4, DType.F32), (8, DType.F16_ACC32), (16, DType.BF16_ACC32), (16, DType.F16)]
        )
        parts.append(
            row(
                length,
                opcode=Opcode.MM_LD_REDUCE.value,
                dtype=dtype.value,
                address=rng.randrange(1 << 20) << 8,
            )
        )
    for params in (ODD, TINY):
        bench = play(joined(*parts), params)
        lengths = {fields_of(packet[0])["length"] for packet in bench.packets}
        assert max(lengths) == params.packet_flits


def test_queue_posted_means_nothing_on_loads() -> None:
    bench = play(row(3, opcode=Opcode.DY_LD_REDUCE.value, dtype=DType.F32.value, posted=1))
    assert fields_of(bench.packets[0][0])["posted"] == 0
    assert len(bench.results) == 3


def test_queue_can_have_two_entries() -> None:
    params = replace(ODD, queue_depth=2, max_targets=1, packet_flits=1)
    rng = random.Random(8)
    play(random_accesses(rng, params, 200, faults=0.05), params)


@pytest.mark.parametrize("cycles", [10, 37, 90, 200])
def test_queue_reset_in_the_middle(cycles: int) -> None:
    """After a reset the queue is as after power-up: tags and generations begin anew."""
    rng = random.Random(cycles)
    reset = Signal()
    dut = MultimemQ(TINY)
    top = ResetInserter(reset)(dut)

    async def testbench(ctx):
        memories = random_lists(rng)
        first = Bench(TINY, random_accesses(rng, TINY, 300), memories, rng, stop=cycles)
        await first.play(ctx, dut, 100)
        for signal in (
            dut.access.valid,
            dut.valid,
            dut.shared_list.reply.valid,
            dut.global_list.reply.valid,
        ):
            ctx.set(signal, 0)
        ctx.set(reset, 1)
        await ticks(ctx, 1)
        ctx.set(reset, 0)
        assert not ctx.get(dut.beats.valid)
        assert not ctx.get(dut.result.valid)
        second = Bench(TINY, random_accesses(rng, TINY, 150), memories, rng)
        await second.play(ctx, dut, 100)
        second.check()

    simulate(top, testbench, cycles=10000)


def test_queue_list_ports_take_turns() -> None:
    """Replies of both memories at once: neither starves."""
    parts = [row(1, count=16, shared=n % 2, list=0x20, address=0x100 * n) for n in range(60)]
    rng = random.Random(9)
    memories = random_lists(rng)
    bench = Bench(
        TINY,
        joined(*parts),
        memories,
        rng,
        lists=Lists(memories, rng, latency=(1, 60)),
    )
    bench.run()
    bench.check()
