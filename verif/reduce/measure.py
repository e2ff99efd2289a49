# SPDX-License-Identifier: Apache-2.0
"""Cycles and rates of a reducer, measured with its real lanes or with plain ones."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dysharp.golden.arms import Request
from dysharp.golden.arrays import value_of
from dysharp.rtl.flits import DType, Kind, Opcode, ReduceOp, slots
from dysharp.rtl.params import SwitchParams
from dysharp.verif.common.sim import Testbench, simulate, ticks
from dysharp.verif.switch import units

from .column import Bench, Top, part_of, simulate_plain

__all__ = ["arms_period", "flit_rate", "header_latency", "request_for", "result_latency"]


def request_for(params: SwitchParams, tag: int, length: int = 1, **fields: Any) -> Request:
    """Sum of u32 of one target a GPU, in the order of arrival."""
    request = Request(
        tag=tag,
        gen=0,
        kind=value_of(Kind.LOAD),
        dtype=value_of(DType.U32),
        op=value_of(ReduceOp.ADD),
        canonical=False,
        length=length,
        total=params.gpus,
        expected=(1 << params.gpus) - 1,
    )
    return replace(request, **fields)


async def _arm(ctx: Any, bench: Bench, *requests: Request) -> None:
    bench.arms.extend(requests)
    while len(bench.accepted) < len(requests):
        await bench.cycle(ctx)


def result_latency(params: SwitchParams) -> tuple[int, int]:
    """Measure the end of a sum of one data flit a part, with the real lanes.

    Returns
    -------
    tuple of int
        Cycles from the last flit of the last part, in the cycle in which it is taken, to the data
        flit of the result on ``o_flit``; and the latency of the lanes, which is part of it.
    """
    top = Top(params)
    bench = Bench(top, params)

    async def testbench(ctx: Any) -> None:
        await ticks(ctx, params.entries)
        request = request_for(params, 0)
        await _arm(ctx, bench, request)
        for gpu in range(params.gpus):
            bench.put(gpu * params.links_per_gpu, part_of(request, 0, (gpu + 1,)))
        await bench.finish(ctx, cycles=100 + 30 * params.gpus)

    simulate(top, testbench, cycles=400 + params.entries + 30 * params.gpus)
    taken, result = bench.took[-1][0], bench.came[-1]
    if result[1] != params.gpus * (params.gpus + 1) // 2:
        raise AssertionError(f"the sum is wrong: {result[1]:#x}")
    # From taking a flit to its result in the queue is one cycle more than the lanes take.
    return result[0] - taken, top.reducer.latency - 1


def _plain(params: SwitchParams, run: Callable[[Any, Bench], Any], *, cycles: int) -> Bench:
    benches = []

    def build(top: Top) -> Testbench:
        async def testbench(ctx: Any) -> None:
            bench = Bench(top, params)
            benches.append(bench)
            await ticks(ctx, params.entries)
            await run(ctx, bench)

        return testbench

    simulate_plain(params, build, cycles=cycles + params.entries)
    return benches[0]


def header_latency(params: SwitchParams, *, part: bool = True) -> int:
    """Measure from a header in sight to its being taken; of a part, or a passed response."""
    begin = []

    async def run(ctx: Any, bench: Bench) -> None:
        request = request_for(params, 0)
        await _arm(ctx, bench, request)
        await bench.run(ctx, cycles=1)
        for gpu in range(params.gpus):
            packet = part_of(request, 0, (gpu,))
            if not part:
                passed = value_of(Opcode.RSP_DATA)
                packet = (units.with_field(packet[0], "opcode", passed), *packet[1:])
            begin.append(bench.now)
            bench.put(gpu * params.links_per_gpu, packet)
            await bench.run(ctx, cycles=100)

    bench = _plain(params, run, cycles=100 * params.gpus + 100)
    headers = [cycle for cycle, _, is_header in bench.took if is_header]
    # Each finds the column idle.
    waits = {taken - shown for taken, shown in zip(headers, begin, strict=True)}
    if len(waits) != 1:
        raise AssertionError(f"not always the same latency: {sorted(waits)}")
    return waits.pop()


def flit_rate(params: SwitchParams, length: int, *, requests: int = 24, part: bool = True) -> float:
    """Measure flits taken a cycle while all sources have packets of `length` data flits.

    They are parts of several requests, the same ones in every source; or passed responses.
    """
    source_count = params.ports

    async def run(ctx: Any, bench: Bench) -> None:
        links = params.links_per_gpu
        step = slots(length, DType(DType.U32))
        armed = [request_for(params, tag * step, length) for tag in range(requests)]
        if part:
            await _arm(ctx, bench, *armed)
            await bench.run(ctx, cycles=1)
        for request in armed:
            for source in range(0, source_count, links if part else 1):
                data = tuple(range(source, source + length))
                packet = part_of(request, 0, data)
                if not part:
                    passed = value_of(Opcode.RSP_DATA)
                    packet = (units.with_field(packet[0], "opcode", passed), *data)
                bench.put(source, packet)
        for queue in bench.sources:
            queue.there = queue.total
        await bench.run(ctx, cycles=20 * requests * source_count * (length + 1))

    bench = _plain(params, run, cycles=30 * requests * source_count * (length + 1))
    # Until the first source runs dry, and from when the column has filled.
    last = {source: cycle for cycle, source, _ in bench.took}
    begin = bench.took[0][0] + 8 * (length + 1)
    end = min(last.values())
    return sum(begin <= cycle < end for cycle, _, _ in bench.took) / (end - begin)


def arms_period(params: SwitchParams, *, orders: int = 8) -> float:
    """Measure cycles from order to order while requests wait to be armed."""
    cycles = []

    async def run(ctx: Any, bench: Bench) -> None:
        requests = [request_for(params, tag % params.entries) for tag in range(orders)]
        bench.arms.extend(requests)
        while bench.arms:
            before = len(bench.arms)
            await bench.cycle(ctx)
            if len(bench.arms) < before:
                cycles.append(bench.now)

    _plain(params, run, cycles=20 * orders)
    return (cycles[-1] - cycles[0]) / (orders - 1)
