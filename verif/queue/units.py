# SPDX-License-Identifier: Apache-2.0
"""What the unit tests of the MultimemQ share: accesses, memories of lists, a whole bench."""

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from dysharp.golden.flits import pack_headers
from dysharp.golden.packets import Packets
from dysharp.golden.queue import ACCESS, RESULT, Entries, QueueModel, list_reader
from dysharp.rtl.flits import FLIT_BYTES, HEADER_FIELDS, REDUCTIONS, TO_F32, Opcode, Status, Vc
from dysharp.rtl.gpu_params import GPU_PRESETS, GpuParams
from dysharp.rtl.queue.ports import Access, Result
from dysharp.rtl.queue.queue import COUNTERS, MultimemQ
from dysharp.verif.common.pressure import pressure
from dysharp.verif.common.sim import simulate

__all__ = [
    "ODD",
    "TINY",
    "Bench",
    "Lists",
    "Responder",
    "fields_of",
    "flits_of",
    "random_accesses",
    "random_lists",
]

TINY = GPU_PRESETS["tiny"]
ODD = GpuParams(
    gpus=3,
    entries=8,
    ordinary_tags=4,
    queue_depth=4,
    max_targets=21,
    packet_flits=16,
    flush_cycles=5,
    hub_flits=64,
)
"""One row of tags, long packets, lists of three flits that are not full."""

_SHIFTS = {}
_bit = 0
for _field in HEADER_FIELDS:
    _SHIFTS[_field.name] = (_bit, (1 << _field.width) - 1)
    _bit += _field.width
_LATENCY = 3  # from an access to its event `merged`, and to the first cycle that counts
_FAULT = 24  # an entry in error is done with so many cycles after its result, or earlier


def fields_of(flit: int) -> dict[str, int]:
    """Fields of a header flit."""
    return {name: flit >> shift & mask for name, (shift, mask) in _SHIFTS.items()}


def number_of(flit: Sequence[Any]) -> int:
    """Flit of two words as a number."""
    return int(flit[0]) | int(flit[1]) << 64


def flits_of(numbers: Sequence[int]) -> Any:
    """Flits as golden has them."""
    words = [[number & (1 << 64) - 1, number >> 64] for number in numbers]
    return np.array(words, np.uint64).reshape(-1, 2)


def access_bits(accesses: Any) -> list[int]:
    """Return accesses as the queue's input has them."""
    places = dict(Access.as_shape())
    out = []
    for access in accesses:
        bits = 0
        for name, place in places.items():
            value = number_of(access["data"]) if name == "data" else int(access[name])
            bits |= value << place.offset
        out.append(bits)
    return out


def result_records(values: Sequence[int]) -> Any:
    """Results as golden has them."""
    records = np.zeros(len(values), RESULT)
    for record, value in zip(records, values, strict=True):
        for name, place in Result.as_shape():
            part = value >> place.offset & (1 << place.width) - 1
            if name == "data":
                record["data"] = [part & (1 << 64) - 1, part >> 64]
            else:
                record[name] = part
    return records


def random_lists(rng: random.Random, size: int = 1 << 12) -> tuple[bytes, bytes]:
    """Contents of the two memories of lists, of different sizes."""
    return rng.randbytes(size), rng.randbytes(size // 2)


def random_accesses(
    rng: random.Random, params: GpuParams, count: int, *, faults: float = 0.1, memory: int = 1 << 11
) -> Any:
    """Make runs of accesses that mostly follow on each other, with faults of all kinds."""
    rows: list[dict[str, int]] = []
    reductions = [
        (dtype.value, op.value)
        for dtype, ops in REDUCTIONS.items()
        if dtype not in TO_F32
        for op in ops
    ]
    while len(rows) < count:
        dynamic = rng.random() < 0.7
        kind = rng.choice([1, 1, 2]) if dynamic else rng.choice([1, 2, 3])
        size = rng.choice([0, 1, 2, 2]) if kind != 3 else 2
        targets = rng.choice([1, 2, 8, params.max_targets, rng.randint(1, params.max_targets)])
        dtype, op = rng.choice(reductions)
        row = {
            "opcode": (8 if dynamic else 4) | kind,
            "size": size,
            "dtype": dtype,
            "op": op,
            "order": rng.getrandbits(1),
            "posted": rng.random() < 0.3,
            "address": (rng.getrandbits(44) << 4) + rng.choice([0, 0, 16, 4 << size, 96])
            & (1 << 48) - 32
            | rng.choice([0, 8 if size < 2 else 0, 4 if size < 1 else 0]),
            "count": min(targets, params.max_targets) if dynamic else rng.getrandbits(15),
            "shared": rng.getrandbits(1),
            "list": 2 * rng.randrange((memory - 2 * params.max_targets) // 2),
        }
        if rng.random() < faults:
            name, value = rng.choice(
                [
                    ("opcode", rng.choice([0, 1, 2, 3, 4, 8, 11, 12, 13, 14, 15])),
                    ("size", 3),
                    ("count", 0),
                    ("count", params.max_targets + 1),
                    ("list", row["list"] | 1),
                    ("list", 1 << 20),
                    ("dtype", rng.randrange(8, 16)),
                    ("op", rng.randrange(8)),
                    ("address", row["address"] | rng.randrange(1, 4)),
                ]
            )
            row[name] = value
        length = rng.choice([1, 1, 2, 4, 8, 16, 33])
        step = 4 << row["size"]
        for index in range(length):
            if rng.random() < 0.02:
                # Breaks the run in one way or another.
                name = rng.choice([*row])
                row[name] = row[name] ^ 1 if name != "list" else row[name] ^ 2
                step = 4 << row["size"]
            if rng.random() < 0.01:
                row["address"] = (row["address"] + 64) & (1 << 48) - 1
            rows.append(row | {"last": index == length - 1 and rng.random() < 0.7})
            row = row | {"address": (row["address"] + step) & (1 << 48) - 1}
    accesses = np.zeros(count, ACCESS)
    start = rng.getrandbits(16)
    for index, row in enumerate(rows[:count]):
        for name, value in row.items():
            accesses[index][name] = value
        # Names follow each other, but for a gap now and then.
        start += rng.random() < 0.01
        accesses[index]["rd"] = start + index & 0xFFFF
        accesses[index]["data"] = [rng.getrandbits(64), rng.getrandbits(64)]
    return accesses


class Lists:
    """Both memories of target lists, with latencies and replies out of order."""

    def __init__(
        self,
        memories: tuple[bytes, bytes],
        rng: random.Random,
        *,
        latency: tuple[int, int] = (1, 30),
        busy: float = 0.0,
    ) -> None:
        self._memories = memories
        self._rng = rng
        self._latency = latency
        self._busy = busy
        self.requests: list[tuple[int, int]] = []
        self._due: list[list[tuple[int, tuple[int, int]]]] = [[], []]
        self._offered: list[tuple[int, int] | None] = [None, None]

    def before(self, ctx: Any, dut: MultimemQ) -> None:
        """Set the inputs of a cycle."""
        for which, port in enumerate((dut.shared_list, dut.global_list)):
            ctx.set(port.request.ready, self._rng.random() >= self._busy)
            if self._offered[which] is None:
                due = [item for item in self._due[which] if item[0] <= 0]
                if due:
                    item = self._rng.choice(due)
                    self._due[which].remove(item)
                    self._offered[which] = item[1]
            ctx.set(port.reply.valid, self._offered[which] is not None)
            offered = self._offered[which]
            if offered is not None:
                ident, address = offered
                word = self._memories[which][address : address + FLIT_BYTES]
                bad = len(word) < FLIT_BYTES
                ctx.set(port.reply.payload.id, ident)
                ctx.set(
                    port.reply.payload.data,
                    self._rng.getrandbits(128) if bad else int.from_bytes(word, "little"),
                )
                ctx.set(port.reply.payload.error, bad)

    def after(self, ctx: Any, dut: MultimemQ) -> None:
        """Look at the handshakes of a cycle."""
        for which, port in enumerate((dut.shared_list, dut.global_list)):
            self._due[which] = [(left - 1, item) for left, item in self._due[which]]
            if ctx.get(port.request.valid) and ctx.get(port.request.ready):
                ident, address = (
                    ctx.get(port.request.payload.id),
                    ctx.get(port.request.payload.address),
                )
                assert address % FLIT_BYTES == 0
                self.requests.append((which, address))
                self._due[which].append((self._rng.randint(*self._latency), (ident, address)))
            if self._offered[which] is not None and ctx.get(port.reply.ready):
                self._offered[which] = None


@dataclass
class Response:
    """A response that is to be sent, and what it says."""

    due: int
    flits: list[int]
    packet: int = -1
    status: int = 0
    data: list[int] = field(default_factory=list)


class Responder:
    """Answers packets like the switch, some of them with errors, and sends ones nobody wants."""

    def __init__(
        self,
        rng: random.Random,
        tags: int,
        *,
        latency: tuple[int, int] = (2, 60),
        errors: float = 0.1,
        stale: float = 0.05,
    ) -> None:
        self._rng = rng
        self._latency = latency
        self._errors = errors
        self._stale = stale
        self._waiting: list[Response] = []
        self._sending: deque[int] = deque()
        self.sent: list[Response] = []
        self.stale = 0
        self.quiet = False
        """Nothing unwanted is sent any more."""
        self._tags = tags
        self._in_use: dict[int, int] = {}
        self._gens: dict[int, int] = {}
        self._packets = 0

    def answer(self, cycle: int, flits: list[int]) -> None:
        """Take a packet of the queue."""
        rng = self._rng
        number = self._packets
        self._packets += 1
        header = fields_of(flits[0])
        if header["posted"]:
            return
        assert header["tag"] not in self._in_use, "the tag is in use"
        load = header["opcode"] & 3 == 2
        wide = header["dtype"] in (6, 7)
        words = header["length"] * (2 if wide else 1)
        slots = (1 if words <= 8 else 2 if words <= 16 else 4) if load else 1
        assert header["tag"] % slots == 0
        for tag in range(header["tag"], header["tag"] + slots):
            assert tag not in self._in_use, "an entry is in use"
            self._in_use[tag] = header["tag"]
        self._gens[header["tag"]] = header["gen"]
        response = Response(cycle + rng.randint(*self._latency), [], number)
        fields = {
            "tag": header["tag"],
            "gen": header["gen"],
            "gpu": header["gpu"],
            "count": header["count"],
            "dtype": header["dtype"],
            "vc": Vc.RESPONSE.value,
        }
        opcode = Opcode.RSP_DATA if load else Opcode.RSP_ACK
        length = header["length"] if load else 0
        told = 0
        if rng.random() < self._errors:
            told = rng.randint(1, 15)
            kind = rng.choice(["report", "refusal", "misfit"])
            if kind == "report":
                opcode, length = Opcode.RSP_DATA, 1
            elif kind == "refusal":
                opcode, length = Opcode.RSP_ACK, 0
            else:
                told = 0
                if load and header["length"] > 1:
                    length -= 1
                else:
                    opcode = Opcode.RSP_ACK if load else Opcode.RSP_DATA
                    length = 0 if load else 2
            response.status = told or Status.BAD_RESPONSE.value
        first = pack_headers(opcode=opcode.value, aux=told, length=length, **fields)
        response.data = [rng.getrandbits(128) for _ in range(length)]
        response.flits = [number_of(first[0]), *response.data]
        self._waiting.append(response)

    def flit(self, cycle: int) -> int | None:
        """Return the flit of a cycle, if there is one."""
        rng = self._rng
        if not self._sending:
            due = [response for response in self._waiting if response.due <= cycle]
            if rng.random() < self._stale and not self.quiet:
                unwanted = self._unwanted()
                self._sending.extend(unwanted)
                self.stale += bool(unwanted)
            elif due:
                response = rng.choice(due)
                self._waiting.remove(response)
                self.sent.append(response)
                self._sending.extend(response.flits)
                tag = fields_of(response.flits[0])["tag"]
                self._in_use = {k: v for k, v in self._in_use.items() if v != tag}
                if rng.random() < self._stale:
                    # The same again, at once.
                    self._sending.extend(response.flits)
                    self.stale += 1
        return self._sending.popleft() if self._sending else None

    def _unwanted(self) -> list[int]:
        """Return a response that is to be dropped."""
        rng = self._rng
        choice = rng.choice(["gen", "opcode", "free"])
        if self._waiting and choice != "free":
            # Another generation; or RSP_DATA becomes PART_ACK, and RSP_ACK PART_DATA without data.
            first, *rest = rng.choice(self._waiting).flits
            place = _SHIFTS["gen" if choice == "gen" else "opcode"][0]
            return [first ^ 1 << place, *rest] if choice == "gen" else [first ^ 2 << place]
        # A tag that is not in use, or an entry behind one: as it was used last, or never yet.
        free = [tag for tag in range(self._tags) if self._in_use.get(tag) != tag]
        if not free:
            return []
        tag = rng.choice(free)
        length = rng.choice([0, 2])
        opcode = Opcode.RSP_DATA if length else Opcode.RSP_ACK
        gen = self._gens.get(tag, 3)
        header = pack_headers(opcode=opcode.value, tag=tag, length=length, vc=1, gen=gen)
        return [number_of(header[0]), *(rng.getrandbits(128) for _ in range(length))]

    @property
    def idle(self) -> bool:
        """Whether everything was sent."""
        return not self._waiting and not self._sending


@dataclass
class Bench:
    """One run of a queue, and everything that was seen."""

    params: GpuParams
    accesses: Any
    memories: tuple[bytes, bytes]
    rng: random.Random
    gaps: Iterator[bool] | None = None
    link: str = "none"
    results_level: str = "none"
    lists: Lists | None = None
    responder: Responder | None = None
    gpu: int = 2
    stop: int = 0
    """End after so many cycles, whatever is still to come."""
    results_stop: tuple[int, int] = (0, 0)
    """From the first to before the second of these cycles no result is taken."""
    accepted: list[int] = field(default_factory=list)
    merged: list[bool] = field(default_factory=list)
    beats: list[tuple[int, int, list[int]]] = field(default_factory=list)
    results: list[tuple[int, int]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    packets: list[list[int]] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    """When the last beat of each packet was taken."""
    still: list[bool] = field(default_factory=list)
    """Whether neither an access nor a beat was offered, for each cycle."""
    link_stop: tuple[int, int] = (0, 0)
    """From the first to before the second of these cycles no beat is taken."""
    queue: Callable[[GpuParams], Any] = MultimemQ
    """What is tested."""

    def __post_init__(self) -> None:
        self.lists = self.lists or Lists(self.memories, self.rng)
        self.responder = self.responder or Responder(self.rng, self.params.tags)
        self.counts = dict.fromkeys(COUNTERS, 0)

    def run(self, *, cycles: int = 20000, quiet: int = 120) -> None:
        """Send all accesses and wait until nothing happens any more."""
        dut = self.queue(self.params)

        async def testbench(ctx: Any) -> None:
            await self.play(ctx, dut, quiet)

        simulate(dut, testbench, cycles=cycles)

    async def play(self, ctx: Any, dut: MultimemQ, quiet: int) -> None:
        """Play all accesses on a queue."""
        assert self.lists
        assert self.responder
        words = access_bits(self.accesses)
        go = self.gaps or pressure("none", self.rng)
        link = pressure(self.link, self.rng)
        results = pressure(self.results_level, self.rng)
        payload = dut.access.payload.as_value()
        result = dut.result.payload.as_value()
        beat = dut.beats.payload
        ctx.set(dut.gpu, self.gpu)
        merges: dict[int, int] = {}
        offered = False
        cycle = still = sent = 0
        packet: list[int] = []
        while still < quiet:
            if not offered and sent < len(words) and next(go):
                offered = True
                ctx.set(payload, words[sent])
            elif not offered:
                ctx.set(payload, self.rng.getrandbits(200))
            ctx.set(dut.access.valid, offered)
            cut = self.link_stop[0] <= cycle < self.link_stop[1]
            ctx.set(dut.beats.ready, next(link) and not cut)
            held = self.results_stop[0] <= cycle < self.results_stop[1]
            ctx.set(dut.result.ready, next(results) and not held)
            self.responder.quiet = still > 10
            flit = self.responder.flit(cycle)
            ctx.set(dut.valid, flit is not None)
            ctx.set(dut.flit, self.rng.getrandbits(128) if flit is None else flit)
            self.lists.before(ctx, dut)
            still += 1
            self.still.append(not offered and not ctx.get(dut.beats.valid))
            if offered and ctx.get(dut.access.ready):
                merges[cycle + _LATENCY] = sent
                self.accepted.append(cycle)
                sent += 1
                offered = False
            if offered or held or cut or sent < len(words) or not self.responder.idle:
                still = 0
            if ctx.get(dut.beats.valid) and ctx.get(dut.beats.ready):
                still = 0
                present = ctx.get(beat.present)
                flits = [ctx.get(beat.flits[n]) for n in range(3) if present >> n & 1]
                packet += flits
                self.beats.append((cycle, present, flits))
                if ctx.get(beat.last):
                    self.packets.append(packet)
                    self.sent.append(cycle)
                    self.responder.answer(cycle, packet)
                    packet = []
            if ctx.get(dut.result.valid) and ctx.get(dut.result.ready):
                still = 0
                self.results.append((cycle, ctx.get(result)))
            events = ctx.get(dut.events)
            for bit, name in enumerate(COUNTERS):
                self.counts[name] += events >> bit & 1
            if cycle in merges:
                self.merged.append(bool(events >> 1 & 1))
            self.lists.after(ctx, dut)
            await ctx.tick()
            cycle += 1
            if cycle == self.stop:
                return
        assert not packet

    def check(self) -> Entries:
        """Compare everything with the model."""
        assert self.responder
        params, accesses = self.params, self.accesses
        model = QueueModel(params, self.gpu)
        merged = np.array(self.merged, np.bool_)
        sizes = np.diff(np.flatnonzero(~merged), append=len(accesses))
        entries = model.entries(accesses, sizes, list_reader(*self.memories))
        least, most = self._counted(entries)
        # Exactly those merge that may, within the time.
        model.check_partition(accesses, sizes, most >= params.flush_cycles)
        assert not (merged & (least >= params.flush_cycles)).any()
        seen = Packets(flits_of([flit for packet in self.packets for flit in packet]))
        assert len(seen) == len(entries.packets)
        for number, (mine, wanted) in enumerate(zip(seen, entries.packets, strict=True)):
            assert np.array_equal(mine, wanted), f"packet {number}"
        assert seen == entries.packets

        # Results of packets as the responses came; those of errors in the order of the entries.
        entry_of = {int(packet): n for n, packet in enumerate(entries.packet) if packet >= 0}
        answered = [
            model.results(
                accesses,
                entries,
                entry_of[response.packet],
                response.status,
                flits_of(response.data) if not response.status else None,
            )
            for response in self.responder.sent
        ]
        faults = [
            model.results(accesses, entries, n) for n in np.flatnonzero(entries.packet < 0).tolist()
        ]
        seen_results = result_records([value for _, value in self.results])
        fault_names = {int(rd) for records in faults for rd in records["rd"]}
        is_fault = np.array([int(rd) in fault_names for rd in seen_results["rd"]], np.bool_)
        empty = [np.zeros(0, RESULT)]
        assert np.array_equal(seen_results[~is_fault], np.concatenate(empty + answered))
        assert np.array_equal(seen_results[is_fault], np.concatenate(empty + faults))

        assert self.counts == {
            "accesses": len(accesses),
            "merged": int(np.sum(self.merged)),
            "packets": len(entries.packets),
            "results": len(seen_results),
            "errors": int((seen_results["status"] != 0).sum()),
            "stale": self.responder.stale,
        }
        return entries

    def _counted(self, entries: Entries) -> tuple[Any, Any]:
        """Return cycles before each access in which the entry before it was alone.

        Neither an access nor a beat was offered, and all older entries were done with. For those in
        error the end is known to some cycles only, so there are a lower and an upper bound.
        """
        gone = np.zeros((2, len(entries.packet)), np.int64)
        is_sent = entries.packet >= 0
        gone[:, is_sent] = np.array(self.sent, np.int64)[entries.packet[is_sent]] + 1
        told = {int(result_records([value])["rd"][0]): cycle for cycle, value in self.results}
        for number in np.flatnonzero(~is_sent).tolist():
            name = int(self.accesses["rd"][entries.first[number]])
            gone[0, number] = told[name] + _FAULT
        # When all older ones are gone; as of the entry that each access finds open.
        older = np.maximum.accumulate(np.pad(gone, ((0, 0), (1, 0))), axis=1)[:, :-1]
        before = older[:, np.repeat(np.arange(len(entries.packet)), entries.accesses)]
        arrival = np.array(self.accepted)
        counted = np.concatenate([[0], np.cumsum(self.still)])
        bounds = np.zeros((2, len(arrival)), np.int64)
        begin = np.maximum(before[:, :-1], arrival[:-1] + _LATENCY)
        bounds[:, 1:] = counted[arrival[1:]] - counted[np.minimum(begin, arrival[1:])]
        return bounds[0], bounds[1]
