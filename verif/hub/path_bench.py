# SPDX-License-Identifier: Apache-2.0
"""Bench of the hub's data path: a switch, a translator and a memory in Python around it."""

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from amaranth.hdl import ResetInserter, Signal
from dysharp.golden.al_map import DYNAMIC, LOCAL, LOOKUPS
from dysharp.golden.flits import pack_headers
from dysharp.golden.hub import HubModel
from dysharp.golden.packets import Packets
from dysharp.rtl.flits import REDUCTIONS, Addressing, Kind, Opcode, Status, carries_data
from dysharp.rtl.gpu_params import GpuParams
from dysharp.rtl.hub.hub_path import HubPath
from dysharp.verif.common.sim import simulate

__all__ = [
    "MEMORY",
    "STATIC_BASE",
    "PathBench",
    "Timing",
    "make_request",
    "pattern",
    "random_requests",
    "run_all",
    "translate",
]

MEMORY = 1 << 14
"""Bytes of the memory. What lies beyond is an error."""
STATIC_BASE = 0x1230
_BLOCK = 0x510  # of a target; targets' places have all alignments
_REQUESTS = (
    Opcode.WRITE,
    Opcode.READ,
    Opcode.MM_ST,
    Opcode.MM_LD_REDUCE,
    Opcode.MM_RED,
    Opcode.DY_ST,
    Opcode.DY_LD_REDUCE,
)
_TARGETS = 12  # as many as there are; more are refused


def pattern(kind: str, rng: random.Random) -> Callable[[int], bool]:
    """Back-pressure: whether a stream moves in a cycle."""
    rate = {"none": 1.0, "light": 0.85, "heavy": 0.3, "bursty": 1.0}[kind]
    if kind == "bursty":
        length = rng.randrange(10, 40)
        return lambda cycle: cycle // length % 2 == 0
    return lambda cycle: rng.random() < rate


def translate(lookups: Any) -> Any:
    """Places by a fixed rule; some are refused."""
    address = lookups["address"].astype(np.int64)
    target = lookups["target"].astype(np.int64)
    places = np.where(
        lookups["space"] == LOCAL,
        address,
        np.where(lookups["space"] == DYNAMIC, address + target * _BLOCK, address + STATIC_BASE),
    )
    bad = (target >= _TARGETS) | (address >= 1 << 20)
    return np.where(bad, 0, places), np.where(bad, Status.BAD_ADDRESS.value, Status.OK.value)


@dataclass
class Timing:
    """How fast everything around the data path is."""

    input: str = "none"
    memory: str = "none"
    answer: str = "none"
    credits: str = "none"
    read_latency: tuple[int, int] = (3, 3)
    write_latency: tuple[int, int] = (3, 3)
    lookup_latency: tuple[int, int] = (4, 4)
    response_slots: int = 32
    reset_at: int = -1


@dataclass
class PathBench:
    """Runs requests through a :class:`HubPath`.

    After :meth:`run`: ``answers`` (cycle of the last flit, flits), ``memory``, ``requests`` and
    ``refused`` (counted events), ``cycles``.
    """

    params: GpuParams
    packets: Packets
    timing: Timing = field(default_factory=Timing)
    seed: int = 0
    presum: bool = True
    answers: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    requests: int = 0
    refused: int = 0
    idle_bound: int = 150
    given: int = 0
    """Slots that were handed out before."""
    cycles: int = 0
    free_slots: int = 0
    flit_cycles: list[int] = field(default_factory=list)
    """Cycle in which each flit of an answer left."""
    write_cycles: list[int] = field(default_factory=list)
    sent_cycles: list[int] = field(default_factory=list)
    """Cycle in which each flit of a request came."""

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.image = rng.integers(0, 256, MEMORY, np.uint8)
        self.memory = self.image.copy()

    def run(self) -> "PathBench":
        """Simulate until nothing has happened for ``idle_bound`` cycles."""
        run_all([self])
        return self

    def _begin_again(self) -> None:
        self.memory = self.image.copy()
        for log in (self.answers, self.flit_cycles, self.write_cycles, self.sent_cycles):
            log.clear()
        self.requests = self.refused = 0

    def _quiet(self, ctx: Any, dut: Any) -> None:
        for signal in (dut.valid, dut.translation.valid, dut.memory.written, dut.memory.reply):
            ctx.set(signal, 0)
        ctx.set(dut.answer_credit, 0)
        ctx.set(dut.answer.ready, 0)

    async def _drive(self, ctx: Any, dut: Any, cycles: int) -> None:
        timing, params = self.timing, self.params
        rng = random.Random(self.seed)
        comes = pattern(timing.input, rng)
        moves = [pattern(timing.memory, rng) for _ in range(4)]
        leaves = pattern(timing.answer, rng)
        credited = pattern(timing.credits, rng)
        beat = params.memory_flits * 16
        flits = [low | high << 64 for low, high in self.packets.flits.tolist()]
        sent, given = 0, self.given
        lookups: deque[tuple[int, int, int]] = deque()
        writes: deque[tuple[int, int, int, int, bool]] = deque()
        reads: deque[tuple[int, int, bytes | None]] = deque()
        owed = [timing.response_slots] * params.gpus
        packet: list[int] = []
        last_event = 0
        memory = dut.memory
        translates = hasattr(dut, "lookup")  # the data path alone
        if translates:
            ctx.set(dut.presum, self.presum)
        is_set = dict.fromkeys(("valid", "translation", "written", "reply", "credit"), 0)

        def put(name: str, signal: Any, value: int) -> bool:
            if is_set[name] != value:
                ctx.set(signal, value)
                is_set[name] = value
            return bool(value)

        def later(queue: Any, cycle: int, latency: tuple[int, int]) -> int:
            due = cycle + rng.randint(*latency)
            return max(due, queue[-1][0] + 1) if queue else due

        for cycle in range(cycles):
            if put("valid", dut.valid, sent < len(flits) and sent < given and comes(cycle)):
                ctx.set(dut.flit, flits[sent])
            due = bool(lookups) and lookups[0][0] <= cycle
            if translates and put("translation", dut.translation.valid, due):
                ctx.set(dut.translation.payload.address, lookups[0][1])
                ctx.set(dut.translation.payload.status, Status(lookups[0][2]))
            ready = [move(cycle) for move in moves]
            if translates:
                ctx.set(dut.lookup.ready, ready[0])
            ctx.set(memory.write.ready, ready[1])
            ctx.set(memory.read.ready, ready[2])
            can_leave = leaves(cycle)
            ctx.set(dut.answer.ready, can_leave)
            credits = 0
            for gpu in range(params.gpus):
                if owed[gpu] and credited(cycle):
                    owed[gpu] -= 1
                    credits |= 1 << gpu
            put("credit", dut.answer_credit, credits)
            if put("written", memory.written, bool(writes) and writes[0][0] <= cycle):
                _, address, data, strobe, applied = writes.popleft()
                ctx.set(memory.write_error, address >= MEMORY)
                if not applied:
                    self._apply(address, data, strobe)
                last_event = cycle
            if put("reply", memory.reply, bool(reads) and reads[0][0] <= cycle and ready[3]):
                _, address, sample = reads.popleft()
                raw = self.memory[address : address + beat].tobytes() if sample is None else sample
                ctx.set(memory.reply_data, int.from_bytes(raw, "little"))
                ctx.set(memory.reply_error, address >= MEMORY)
                last_event = cycle

            given += ctx.get(dut.credit)
            if translates:
                self.requests += ctx.get(dut.request_event)
                self.refused += ctx.get(dut.refused_event)
            if is_set["valid"]:
                sent += 1
                self.sent_cycles.append(cycle)
                last_event = cycle
            if due and ctx.get(dut.translation.ready):
                lookups.popleft()
                last_event = cycle
            if translates and ready[0] and ctx.get(dut.lookup.valid):
                asked = ctx.get(dut.lookup.payload)
                row = np.array(
                    [
                        (
                            int(asked.space.value),
                            int(asked.stage.value),
                            asked.allocate,
                            asked.target,
                            asked.address,
                            asked.length,
                        )
                    ],
                    LOOKUPS,
                )
                place, status = translate(row)
                when = later(lookups, cycle, timing.lookup_latency)
                lookups.append((when, int(place[0]), int(status[0])))
            if ready[1] and ctx.get(memory.write.valid):
                what = ctx.get(memory.write.payload)
                # At once or when it is told, but writes take effect in their order.
                early = rng.random() < 0.5 and all(write[4] for write in writes)
                if early:
                    self._apply(what.address, what.data, what.strobe)
                when = later(writes, cycle, timing.write_latency)
                writes.append((when, what.address, what.data, what.strobe, early))
                self.write_cycles.append(cycle)
                last_event = cycle
            if ready[2] and ctx.get(memory.read.valid):
                address = ctx.get(memory.read.payload.address)
                raw = self.memory[address : address + beat].tobytes()
                when = later(reads, cycle, timing.read_latency)
                reads.append((when, address, raw if rng.random() < 0.5 else None))
                last_event = cycle
            if can_leave and ctx.get(dut.answer.valid):
                packet.append(ctx.get(dut.answer.payload.flit))
                self.flit_cycles.append(cycle)
                owed[packet[0] >> 89 & 63] += 1
                if ctx.get(dut.answer.payload.last):
                    self.answers.append((cycle, tuple(packet)))
                    packet = []
                last_event = cycle
            self.cycles = cycle
            await self._tick(ctx)
            if cycle - last_event > self.idle_bound:
                self.free_slots = given - sent
                return

    async def _tick(self, ctx: Any) -> None:
        """End a cycle; whoever drives more than the data path does it here."""
        await ctx.tick()

    def _apply(self, address: int, data: int, strobe: int) -> None:
        size = self.params.memory_flits * 16
        if address + size > MEMORY:
            return
        raw = np.frombuffer(data.to_bytes(size, "little"), np.uint8)
        bits = np.frombuffer(strobe.to_bytes(size // 8, "little"), np.uint8)
        mask = np.unpackbits(bits, bitorder="little").astype(bool)
        self.memory[address : address + size][mask] = raw[mask]

    def _model(self) -> HubModel:
        return HubModel(self.params, self.image.copy(), translate, presum=self.presum)

    def check(self) -> None:
        """Compare with the golden model."""
        model = self._model()
        expected: dict[tuple[int, str], list[tuple[int, ...]]] = {}
        kinds: dict[tuple[int, int], str] = {}
        for answer in model.run(self.packets):
            expected.setdefault((answer.gpu, answer.kind), []).append(answer.words)
            kinds[answer.gpu, answer.words[0] >> 68 & 0x7FF] = answer.kind
        got: dict[tuple[int, str], list[tuple[int, ...]]] = {}
        for _, words in self.answers:
            gpu = words[0] >> 89 & 63
            kind = kinds.get((gpu, words[0] >> 68 & 0x7FF), "unknown")
            got.setdefault((gpu, kind), []).append(words)
        assert got == expected
        assert np.array_equal(self.memory, model.memory)
        assert (self.requests, self.refused) == (model.requests, model.refused)


def run_all(benches: Sequence[PathBench], cycles: int = 20000) -> None:
    """Run benches of the same parameters one after the other on one circuit, with a reset between.

    Those with ``reset_at`` are begun, reset in their middle, and begun again.
    """
    reset = Signal()
    dut = HubPath(benches[0].params)
    whole = ResetInserter(reset)(dut)

    async def testbench(ctx: Any) -> None:
        for bench in benches:
            assert bench.params == benches[0].params
            for bound in (bench.timing.reset_at, cycles):
                if bound >= 0:
                    bench._begin_again()
                    await bench._drive(ctx, dut, bound)
                    ctx.set(reset, 1)
                    bench._quiet(ctx, dut)
                    await ctx.tick()
                    ctx.set(reset, 0)

    simulate(whole, testbench, cycles=cycles * len(benches))


def make_request(index: int, *, targets: Any = (), enables: int = -1, **fields: Any) -> Packets:
    """One request with random data; its number is its tag and generation."""
    rng = np.random.default_rng(index)
    fields = {name: getattr(value, "value", value) for name, value in fields.items()}
    targets = list(targets)
    if targets:
        fields["count"] = len(targets)
    fields = {"length": 1, "tag": index % 512, "gen": index // 512} | fields
    header = pack_headers(byte_enable=int(enables >= 0), **fields)
    length = fields["length"] if carries_data(fields["opcode"]) else 0
    # Small floats of both signs in 16 bits and in 32, and whatever else.
    words = rng.integers(0, 1 << 32, 4 * length, np.uint32)
    data = words.view("<u8").reshape(-1, 2).astype(np.uint64)
    enable_flits = np.zeros((0, 2), np.uint64)
    if enables >= 0:
        enable_flits = np.array([[enables & (1 << 64) - 1, enables >> 64]], np.uint64)
    return Packets.build(header, targets=targets, byte_enables=enable_flits, data=data)


_DTYPES = tuple(REDUCTIONS)


def random_requests(
    rng: random.Random, params: GpuParams, count: int, *, errors: float = 0.05, most: int = 4
) -> Packets:
    """Make requests of all kinds, to few addresses so that they meet."""
    packets = []
    for index in range(count):
        opcode = rng.choice(_REQUESTS)
        how = opcode.value >> 2
        loads = opcode.value & 3 == Kind.LOAD.value
        length = rng.choice((1, 2, 3, 4, 8, rng.randint(1, 16)))
        dtype = rng.choice(_DTYPES)
        fields: dict[str, Any] = {
            "opcode": opcode,
            "gpu": rng.randrange(params.gpus),
            "length": length,
            "address": 16 * rng.randrange(24),
            "stage": rng.randrange(2),
            "posted": int(not loads and rng.random() < 0.2),
            "count": rng.randrange(4),
            "dtype": dtype,
            "aux": rng.choice(REDUCTIONS[dtype]).value | rng.randrange(2) << 3,
        }
        if rng.random() < errors:
            fields["address"] = rng.choice((MEMORY - 32, MEMORY, 1 << 20))
        if how == Addressing.DYNAMIC.value:
            targets = rng.randint(1, most if rng.random() < 0.9 else params.max_targets)
            fields["targets"] = [rng.randrange(_TARGETS) for _ in range(targets)]
            if rng.random() < errors:
                fields["targets"][rng.randrange(targets)] = _TARGETS
        if not loads and length <= 8 and rng.random() < 0.3:
            fields["enables"] = rng.getrandbits(128)
        packets.append(make_request(index, **fields))
    return Packets.concatenate(*packets)
