# SPDX-License-Identifier: Apache-2.0
"""Throughput and latency of the hub's data path, measured."""

import random
from dataclasses import replace
from typing import Any

import pytest
from dysharp.golden.packets import Packets
from dysharp.rtl.flits import DType, Opcode
from dysharp.rtl.gpu_params import GPU_PRESETS
from dysharp.verif.hub.path_bench import PathBench, Timing, make_request, run_all

PARAMS = replace(GPU_PRESETS["tiny"], memory_flits=4, hub_flits=256, lookups=64, response_flits=64)
FAR = Timing(read_latency=(60, 60), write_latency=(60, 60), response_slots=64)
ALIGNED, MISALIGNED = 128, 80


def stream(count: int, step: int, **fields: Any) -> Packets:
    """Make requests of one kind from one GPU."""
    packets = [make_request(n, address=step * n % 960, **fields) for n in range(count)]
    return Packets.concatenate(*packets)


def test_hub_path_stores_at_line_rate() -> None:
    """A packet of *n* flits every *n* cycles, with one or two targets."""
    benches = []
    for targets, length, count in (
        ((1,), 8, 24),
        ((1, 2), 8, 24),
        ((1, 2), 1, 60),
        ((), 8, 24),
        ((), 1, 60),
        ((2, 3), 3, 40),
    ):
        opcode = Opcode.DY_ST if targets else Opcode.WRITE
        benches += [
            PathBench(
                PARAMS, stream(count, step, opcode=opcode, targets=targets, length=length), FAR
            )
            for step in (ALIGNED, MISALIGNED)
        ]
    run_all(benches)
    for bench in benches:
        bench.check()
        count = len(bench.packets)
        flits = len(bench.packets.flits) // count
        ends = [cycle for cycle, _ in bench.answers]
        assert len(ends) == count
        begin = count // 3
        # Ends may come a cycle sooner or later: a packet's writes are as many as its places need.
        assert abs(ends[-1] - ends[begin] - flits * (count - 1 - begin)) <= 2, bench.packets


def test_hub_path_loads_at_line_rate() -> None:
    """Answers back to back, from one target and from two or three that are added."""
    benches = []
    for targets, length, dtype, op in (
        ((1,), 8, DType.F32, 0),
        ((1, 2), 8, DType.F16, 0),
        ((1, 2), 8, DType.F32, 2),
        ((1, 2), 2, DType.S32, 1),
        ((1, 2, 3), 8, DType.F32, 0),
        ((1, 2, 3), 8, DType.BF16, 0),
        ((1, 2, 3), 8, DType.F16_ACC32, 0),
        ((), 8, DType.B32, 3),
        ((), 1, DType.B32, 3),
    ):
        opcode = Opcode.DY_LD_REDUCE if targets else Opcode.READ
        fields = {"targets": targets, "length": length, "dtype": dtype, "aux": op}
        steps = (ALIGNED, MISALIGNED) if length == 8 and len(targets) < 3 else (MISALIGNED,)
        count = 12 if length == 8 else 30
        benches += [
            PathBench(PARAMS, stream(count, step, opcode=opcode, **fields), FAR) for step in steps
        ]
    run_all(benches)
    for bench in benches:
        bench.check()
        cycles = bench.flit_cycles
        begin = len(cycles) // 3
        assert cycles[-1] - cycles[begin] == len(cycles) - 1 - begin, bench.packets


def test_hub_path_loads_at_line_rate_mixed() -> None:
    """... also if one to three targets, types and requesters follow each other at random."""
    rng = random.Random(3)
    benches = []
    for most in (2, 3):
        packets = [
            make_request(
                n,
                opcode=Opcode.DY_LD_REDUCE,
                gpu=rng.randrange(PARAMS.gpus),
                targets=rng.sample(range(1, 8), rng.randint(1, most)),
                length=8,
                dtype=rng.choice((DType.F32, DType.F16, DType.BF16)),
                address=16 * rng.randrange(40),
            )
            for n in range(24)
        ]
        benches.append(PathBench(PARAMS, Packets.concatenate(*packets), FAR))
    run_all(benches)
    for bench in benches:
        bench.check()
        cycles = bench.flit_cycles
        begin = len(cycles) // 4
        assert cycles[-1] - cycles[begin] == len(cycles) - 1 - begin


@pytest.mark.regress
def test_hub_path_loads_of_many_targets() -> None:
    """Cycles for each part: as many as beats are read, and 18 for each further pass."""
    fields = {"opcode": Opcode.DY_LD_REDUCE, "length": 8}
    cases = [
        ((4, 8, 4, 8), DType.F32, 9),  # places are beat aligned
        (range(1, 5), DType.F32, 12),
        (range(1, 8), DType.F16, 27),
        (range(1, 9), DType.BF16, 45),
        (range(1, 5), DType.F16_ACC32, 35),
    ]
    benches = [
        PathBench(
            PARAMS,
            stream(7, ALIGNED, targets=targets, dtype=dtype, **fields),
            FAR,
        )
        for targets, dtype, _ in cases
    ]
    run_all(benches)
    for bench, (_, _, most) in zip(benches, cases, strict=True):
        bench.check()
        ends = [cycle for cycle, _ in bench.answers]
        assert (ends[-1] - ends[2]) / 4 <= most


@pytest.mark.regress
def test_hub_path_reds_overlap() -> None:
    """``MM_RED`` to other places go on while earlier ones wait for the memory."""
    fields = {"opcode": Opcode.MM_RED, "length": 8, "dtype": DType.F32, "aux": 0}
    apart = [make_request(n, address=512 * n, **fields) for n in range(20)]
    same = [make_request(n, address=0, **fields) for n in range(6)]
    benches = [PathBench(PARAMS, Packets.concatenate(*packets), FAR) for packets in (apart, same)]
    run_all(benches)
    for bench in benches:
        bench.check()
    ends = [[cycle for cycle, _ in bench.answers] for bench in benches]
    # Apart: 8 at a time, and 21 cycles each of the memory's issue.
    assert (ends[0][-1] - ends[0][4]) / 15 < 25
    # To one place each waits for the read and the write of the one before.
    assert (ends[1][-1] - ends[1][0]) / 5 == 120 + 36


def test_hub_path_latency() -> None:
    """Cycles from a request's last flit, with memory and translation of one cycle each."""
    timing = Timing(read_latency=(1, 1), write_latency=(1, 1), lookup_latency=(1, 1))
    write = PathBench(PARAMS, make_request(0, opcode=Opcode.WRITE, length=8, address=64), timing)
    read = PathBench(PARAMS, make_request(0, opcode=Opcode.READ, length=8, address=64), timing)
    run_all([write, read])
    assert [cycle - write.sent_cycles[-1] for cycle in write.write_cycles] == [9, 10]
    # A data flit is on the link eight cycles before the last of the packet, which is whole then.
    assert write.flit_cycles[0] - write.write_cycles[-1] == 9
    assert [cycle - read.sent_cycles[0] for cycle in read.flit_cycles] == list(range(47, 56))
