# SPDX-License-Identifier: Apache-2.0
"""A reducer in the simulator: its sources, its requester, and the model beside it."""

import random
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from amaranth.hdl import Cat, ClockDomain, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from dysharp.golden import reduction
from dysharp.golden.arms import IS_TO_F32, IS_WIDE, Request
from dysharp.golden.arrays import FlitArray, Mask, value_of
from dysharp.golden.reduction import Outcome, ReductionModel
from dysharp.rtl.flits import FLIT_BITS, LANES, DType, Kind, Opcode, ReduceOp, Vc
from dysharp.rtl.fp.vector import DEFAULT_STAGES
from dysharp.rtl.params import SwitchParams
from dysharp.rtl.reduce import accumulator
from dysharp.rtl.reduce.admission import Admission
from dysharp.rtl.reduce.entry_table import EntryTable
from dysharp.rtl.reduce.reducer import Reducer
from dysharp.rtl.reduce.result_queue import ResultQueue
from dysharp.verif.common.sim import Testbench, simulate
from dysharp.verif.fp.numbers import random_number
from dysharp.verif.fp.reference import F32, element_format
from dysharp.verif.switch import units

__all__ = [
    "POPS",
    "Bench",
    "Packet",
    "Top",
    "as_array",
    "order_of",
    "part_of",
    "plain_sums",
    "random_data",
    "simulate_plain",
]

_MASK = (1 << FLIT_BITS) - 1
Packet = tuple[int, ...]
"""Flits of a response."""


class PlainLanes(wiring.Component):
    """Stands in for the lanes, for tests of everything around them: integers, and fast.

    Every element is three times the sum so far plus the part, so that the order of the parts shows.
    The type tells only which words belong together; a sum of a wide type is rounded by leaving its
    upper half out.
    """

    latency = DEFAULT_STAGES + 2

    def __init__(self) -> None:
        super().__init__(
            {
                "dtype": In(DType),
                "op": In(ReduceOp),
                "first": In(1),
                "from_f32": In(1),
                "half": In(1),
                "flit": In(FLIT_BITS),
                "acc": In(2 * FLIT_BITS),
                "sum": Out(2 * FLIT_BITS),
                "result": Out(FLIT_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        dtype = self.dtype.as_value()
        wide = dtype[3] | dtype[1:3].all()
        word = self.acc.word_select(self.half, FLIT_BITS)
        one_word = ~wide | self.from_f32
        acc = Mux(one_word, Cat(word, word), self.acc)
        extended = Cat(Cat(self.flit.word_select(n, 16), Const(0, 16)) for n in range(LANES))
        part = Mux(one_word, Cat(self.flit, self.flit), extended)
        news = Cat(
            (Mux(self.first, 0, 3 * acc.word_select(n, 32)) + part.word_select(n, 32))[:32]
            for n in range(LANES)
        )
        rounded = Cat(news.word_select(n, 32)[:16] for n in range(LANES))
        quarters = Cat(rounded[: FLIT_BITS // 2], rounded[: FLIT_BITS // 2])
        results = Mux(wide, Mux(self.from_f32, quarters, rounded), news[:FLIT_BITS])
        stages = [Signal(3 * FLIT_BITS, name=f"stage{n}") for n in range(self.latency)]
        m.d.sync += stages[0].eq(Cat(news, results))
        m.d.sync += [later.eq(earlier) for earlier, later in pairwise(stages)]
        m.d.comb += Cat(self.sum, self.result).eq(stages[-1])
        return m


def plain_sums(op: int, dtype: int, parts: FlitArray, presum: Mask) -> FlitArray:
    """Add the parts of one load as :class:`PlainLanes` do; in place of ``golden.combine.sums``."""
    total: npt.NDArray[np.uint32] | None = None
    length = parts.shape[2] // (2 if presum.any() else 1)
    for part, is_presum in zip(parts[0], presum[0], strict=True):
        halves = IS_WIDE[dtype] and not is_presum
        flits = np.ascontiguousarray(part[:length] if halves else part)
        words = flits.view(np.uint16 if halves else np.uint32).reshape(-1).astype(np.uint32)
        total = words if total is None else total * np.uint32(3) + words
    assert total is not None
    rounded = total.astype(np.uint16) if IS_WIDE[dtype] and not IS_TO_F32[dtype] else total
    return rounded.view(np.uint64).reshape(1, -1, 2)


@contextmanager
def _plain_lanes() -> Iterator[None]:
    with (
        patch.object(accumulator, "ReduceVector", PlainLanes),
        patch.object(reduction, "sums", plain_sums),
    ):
        yield


class _Watched(Reducer):
    """A reducer whose parts can be looked into."""

    table: EntryTable
    admission: Admission
    results: ResultQueue

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = super().elaborate(platform)
        for name in ("table", "admission", "results"):
            setattr(self, name, getattr(m.submodules, name))
        return m


class Top(wiring.Component):
    """A reducer, and its clock domain with a reset."""

    def __init__(self, params: SwitchParams) -> None:
        super().__init__({})
        self.domain = ClockDomain("sync")
        self.reducer = _Watched(params)

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        m.domains.sync = self.domain
        m.submodules.reducer = self.reducer
        return m


def simulate_plain(params: SwitchParams, build: Any, *, cycles: int) -> None:
    """Simulate with :class:`PlainLanes`; `build` makes a testbench of a :class:`Top`."""
    with _plain_lanes():
        top = Top(params)
        testbench: Testbench = build(top)
        simulate(top, testbench, cycles=cycles)


def as_array(flits: Sequence[int]) -> FlitArray:
    """Flits as the models want them."""
    words = [(flit & (1 << 64) - 1, flit >> 64) for flit in flits]
    return np.array(words, np.uint64).reshape(-1, 2)


def random_data(rng: random.Random, dtype: int, length: int, *, presum: bool = False) -> Packet:
    """Make data flits whose numbers are random by class."""
    known = dtype < len(DType)
    form = F32 if presum or not known else element_format(DType(dtype)) or F32
    return tuple(
        sum(random_number(rng, form) << at for at in range(0, FLIT_BITS, form.bits))
        for _ in range(length)
    )


def order_of(request: Request) -> dict[str, int]:
    """Order that arms the entry of a request."""
    return {
        "tag": request.tag,
        "gen": request.gen,
        "aux": request.op | int(request.canonical) << 3,
        "length": request.length,
        "dtype": request.dtype,
        "load": int(request.kind == value_of(Kind.LOAD)),
        "total": request.total,
        "expected": request.expected,
    }


def part_of(request: Request, gpu: int, data: Packet, **fields: int) -> Packet:
    """Part for a request of `gpu`; without data an acknowledgement."""
    plain = {
        "tag": request.tag,
        "gen": request.gen,
        "gpu": gpu,
        "dtype": request.dtype,
        "count": 1,
        "length": len(data),
        "opcode": value_of(Opcode.PART_DATA if data else Opcode.PART_ACK),
        "vc": value_of(Vc.RESPONSE),
    }
    return (units.header(**plain | fields), *data)


POPS = {"none": (1.0, 1.0), "light": (0.8, 0.8), "heavy": (0.25, 0.25), "bursty": (1.0, 0.0)}
"""How often the link takes a flit, in the one and the other half of every 128 cycles."""


@dataclass
class _Source:
    packets: deque[Packet] = field(default_factory=deque)
    taken: int = 0
    """Flits of the first packet that are gone."""
    there: int = 0
    """Flits that have come and are not gone."""
    total: int = 0
    """Flits of all packets that are not gone."""
    holds: bool = False
    """Nothing comes, for as long as the user says."""


class Bench:
    """Drives and checks a reducer, one cycle at a time.

    The model is told every decision of the entry table in the cycle in which it is made, and so
    gives all that leaves, in order.

    Parameters
    ----------
    top : Top
        The circuit.
    params : SwitchParams
        Its parameters.
    port : int
        The port that it stands at.
    rng : random.Random
        Gaps, and when the link takes flits.
    arrives : float
        How often a flit of a packet comes.
    pops : tuple of float
        Of :data:`POPS`.
    tick : int
        Cycles of a tick (64 in the switch; fewer spare time).
    """

    def __init__(
        self,
        top: Top,
        params: SwitchParams,
        *,
        port: int = 0,
        rng: random.Random | None = None,
        arrives: float = 1.0,
        pops: tuple[float, float] = POPS["none"],
        tick: int = 16,
    ) -> None:
        self.dut = top.reducer
        self.top = top
        self.params = params
        self.port = port
        self.rng = rng or random.Random(0)
        self.arrives = arrives
        self.pops = pops
        self.tick = tick
        self.timeout = 0
        self.now = 0
        """Cycles so far."""
        self.seen: Counter[str] = Counter()
        self.took: list[tuple[int, int, bool]] = []
        """Of every flit that was taken: cycle, source, whether it is a header."""
        self.came: list[tuple[int, int]] = []
        """Flits that left, and the cycle in which each was on ``o_flit``."""
        self.accepted: deque[Request] = deque()
        """Requests whose entry was armed, for the user to take."""
        self.ended: deque[int] = deque()
        """Tags of the results that have left, for the user to take."""
        self.clear()

    def clear(self) -> None:
        """Forget everything, as after a reset."""
        self.model = ReductionModel(self.params, self.port)
        self.sources = [_Source() for _ in range(self.params.ports + 1)]
        self.arms: deque[Request] = deque()
        self.accepted.clear()
        self.ended.clear()
        self._order: deque[int] = deque()  # sources of packets that were decided
        self._told = 0  # results of the model that are among those expected
        self._expected: deque[tuple[int, bool, int | None]] = deque()
        self._since: dict[int, int] = {}
        self._popped = False
        self._ticks = 0
        self._counts: Counter[str] = Counter()

    def put(self, source: int, packet: Packet) -> None:
        """Append a packet to a response queue."""
        assert len(packet) == units.framed_flits(packet[0])
        self.sources[source].packets.append(packet)
        self.sources[source].total += len(packet)

    @property
    def idle(self) -> bool:
        """Whether all sources are empty and all that is expected has left."""
        return not (self.arms or self._expected or any(source.packets for source in self.sources))

    async def reset(self, ctx: Any) -> None:
        """Reset for a few cycles."""
        ctx.set(self.top.domain.rst, 1)
        self.clear()
        for _ in range(2):
            self._drive(ctx, pop=False)
            await ctx.tick()
            self.now += 1
        ctx.set(self.top.domain.rst, 0)

    async def cycle(self, ctx: Any) -> None:
        """One clock cycle."""
        dut, rng = self.dut, self.rng
        self._output(ctx)
        assert ctx.get(dut.armed) == self.model.armed
        for name in ("late", "duplicate", "wrong", "timed_out", "replaced"):
            self._counts[name] += ctx.get(getattr(dut, name))
        pop = bool(ctx.get(dut.nonempty)) and rng.random() < self.pops[self.now >> 6 & 1]
        self._drive(ctx, pop=pop)
        take = ctx.get(dut.take)
        ready = bool(self.arms) and bool(ctx.get(dut.arm.ready))
        if ctx.get(dut.table.ends):
            self._decision(ctx, ready)
        else:
            assert not ready
        self._takes(take)
        await ctx.tick()
        if ready:
            self.accepted.append(self.arms.popleft())
        self._popped = pop
        self.now += 1

    async def run(self, ctx: Any, *, cycles: int) -> None:
        """Go on until everything is through."""
        for _ in range(cycles):
            if self.idle and not self._popped:
                return
            await self.cycle(ctx)
        raise AssertionError(f"not through after {cycles} cycles: {self._state()}")

    async def finish(self, ctx: Any, *, cycles: int) -> None:
        """Go on until everything is through; then all must be as after a reset."""
        await self.run(ctx, cycles=cycles)
        # Room is counted late, and an entry may just be looked at.
        self.timeout = 0
        for _ in range(32):
            await self.cycle(ctx)
        dut = self.dut
        assert self.model.armed == 0
        assert ctx.get(dut.results.room) == self.params.result_depth
        names = ("late", "duplicate", "wrong", "timed_out", "replaced")
        counted = dict(zip(self.model.counters, (self._counts[n] for n in names), strict=True))
        assert counted == self.model.counters
        assert not self._order

    def _state(self) -> str:
        heads = [bool(source.packets) for source in self.sources]
        return f"arms {len(self.arms)}, sources {heads}, results {len(self._expected)}"

    def _drive(self, ctx: Any, *, pop: bool) -> None:
        dut = self.dut
        valid = last = 0
        for number, source in enumerate(self.sources):
            comes = source.there < source.total and not source.holds
            if comes and self.rng.random() < self.arrives:
                source.there += 1
            if source.there:
                packet = source.packets[0]
                valid |= 1 << number
                last |= (source.taken == len(packet) - 1) << number
                ctx.set(dut.flit[number], packet[source.taken])
        ctx.set(dut.valid, valid)
        ctx.set(dut.last, last)
        ctx.set(dut.gpu, self.port // self.params.links_per_gpu)
        ctx.set(dut.arm.valid, bool(self.arms))
        if self.arms:
            ctx.set(dut.arm.payload, order_of(self.arms[0]))
        ctx.set(dut.pop, pop)
        self._ticks = self.now // self.tick & 0xFFFF
        ctx.set(dut.time, self._ticks)
        ctx.set(dut.timeout, self.timeout)

    def _output(self, ctx: Any) -> None:
        if not self._popped:
            return
        flit = ctx.get(self.dut.o_flit)
        self.came.append((self.now, flit))
        assert self._expected, f"a flit that nothing was expected for: {flit:#034x}"
        wanted, last, tag = self._expected.popleft()
        assert flit == wanted, f"in cycle {self.now} {flit:#034x} came, not {wanted:#034x}"
        assert ctx.get(self.dut.o_last) == last
        if last and tag is not None:
            self.ended.append(tag)

    def _decision(self, ctx: Any, ready: bool) -> None:
        """Tell the model what the entry table decides in this cycle."""
        dut, table = self.dut, self.dut.table
        accepted, waits = ctx.get(table.accepted), ctx.get(table.waits)
        whose = ctx.get(dut.admission.end_source)
        self.seen["accepted" if accepted else "waits" if waits else "no room"] += 1
        if not whose:
            if ready:
                request = self.arms[0]
                self.model.arm(request)
                self._since[request.tag] = self._ticks
            elif ctx.get(table.timed_out):
                assert accepted
                tag = ctx.get(table.report.tag)
                # The comparison was a cycle before.
                age = (self.now - 1) // self.tick - self._since[tag] & 0xFFFF
                assert 0 < self.timeout <= age
                self.model.time_out(tag)
        else:
            assert not ready
            number = whose.bit_length() - 1
            assert whose == 1 << number
            source = self.sources[number]
            assert source.there
            assert source.taken == 0
            self._response(ctx, number, source.packets[0], accepted=accepted, waits=waits)
        self._expect()

    def _response(
        self, ctx: Any, number: int, packet: Packet, *, accepted: bool, waits: bool
    ) -> None:
        opcode = units.field(packet[0], "opcode")
        if opcode in (value_of(Opcode.RSP_ACK), value_of(Opcode.RSP_DATA)):
            assert not waits
            if accepted:
                self._order.append(number)
                self._append(packet, None)
                self.seen["passed"] += 1
        elif accepted or waits:
            gpu = number // self.params.links_per_gpu
            outcome = self.model.part(gpu, as_array(packet))
            assert (outcome is Outcome.WAITS) == waits, (outcome, packet[0])
            self.seen[outcome.name] += 1
            if accepted:
                self._order.append(number)

    def _expect(self) -> None:
        results = self.model.results
        for index in range(self._told, len(results)):
            flits = [low | high << 64 for low, high in results[index].tolist()]
            self._append(flits, units.field(flits[0], "tag"))
            self.seen[f"status {units.field(flits[0], 'aux')}"] += 1
        self._told = len(results)

    def _append(self, flits: Sequence[int], tag: int | None) -> None:
        for index, flit in enumerate(flits):
            self._expected.append((flit & _MASK, index == len(flits) - 1, tag))

    def _takes(self, take: int) -> None:
        if not take:
            return
        number = take.bit_length() - 1
        assert take == 1 << number
        source = self.sources[number]
        assert source.there
        is_header = source.taken == 0
        if is_header:
            assert self._order
            assert self._order.popleft() == number
        self.took.append((self.now, number, is_header))
        source.taken += 1
        source.there -= 1
        source.total -= 1
        if source.taken == len(source.packets[0]):
            source.packets.popleft()
            source.taken = 0
