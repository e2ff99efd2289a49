# SPDX-License-Identifier: Apache-2.0
"""Random requests of a port, and what GPUs answer: mostly what they should."""

import itertools
import random
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dysharp.golden.arms import IS_WIDE, Request
from dysharp.golden.arrays import value_of
from dysharp.rtl.flits import (
    REDUCTIONS,
    TO_F32,
    DType,
    Kind,
    Opcode,
    Status,
    Vc,
    slots,
)
from dysharp.rtl.params import SwitchParams
from dysharp.verif.switch import units

from .column import Bench, Packet, part_of, random_data

__all__ = ["FAULTS", "KINDS", "Traffic", "random_request"]

_LOAD = value_of(Kind.LOAD)

FAULTS = (
    "none",
    "never",
    "shape",
    "count",
    "less",
    "error",
    "twice",
    "stranger",
    "late",
    "no entry",
    "replaced",
)
"""What may be wrong about a request's answers:

never: a GPU does not answer to the end; shape: wrong kind, type or length; count: 0 or too many
targets; less: too few; error: a target told one; twice: a part after the GPU's last; stranger: of a
GPU that was not asked; late: of another generation; no entry: a tag without an entry, or with one
that is not in use; replaced: the tag is used again.
"""

Choice = tuple[Any, Any]
"""A type and its operation."""
KINDS: tuple[Choice, ...] = tuple((dtype, op) for dtype, ops in REDUCTIONS.items() for op in ops)


def random_request(
    rng: random.Random,
    params: SwitchParams,
    kind: Choice,
    *,
    longest: int = 16,
    loads: float = 0.75,
    canonical: bool | None = None,
) -> Request:
    """Request for tag and generation 0 with everything else random."""
    dtype, op = kind
    top = min(longest, 8) if dtype in TO_F32 else longest
    expected = rng.choice([(1 << params.gpus) - 1, rng.randrange(1, 1 << params.gpus)])
    gpus = expected.bit_count()
    load = rng.random() < loads
    # The type of a store means nothing.
    return Request(
        tag=0,
        gen=0,
        kind=_LOAD if load else value_of(Kind.STORE),
        dtype=value_of(dtype) if load else rng.randrange(16),
        op=value_of(op),
        canonical=rng.random() < 0.5 if canonical is None else canonical,
        length=rng.choice([1, 2, top, rng.randint(1, top)]),
        total=rng.choice([gpus, rng.randint(gpus, max(gpus, params.max_targets))]),
        expected=expected,
    )


@dataclass
class _Job:
    """Parts that one GPU sends for one request, one after the other."""

    source: int
    parts: deque[Packet]


class Traffic:
    """Feeds a bench with requests and their answers.

    Parameters
    ----------
    bench : Bench
        The bench.
    rng : random.Random
        Everything random.
    requests : int
        So many are made.
    faults : float
        How many of them are answered wrongly, in the ways of `kinds_of_fault` in turn.
    kinds_of_fault : iterable of str
        Of :data:`FAULTS`.
    passed : float
        Packets that are passed on, for each request.
    most : int
        Requests under way at a time.
    kinds : sequence, optional
        Types and operations, in turn; without, random ones.
    lengths : sequence of int, optional
        Lengths, in turn; without, random ones.
    **request
        For :func:`random_request`.
    """

    def __init__(
        self,
        bench: Bench,
        rng: random.Random,
        *,
        requests: int,
        faults: float = 0.0,
        kinds_of_fault: Iterable[str] = FAULTS[2:],
        passed: float = 0.5,
        most: int = 8,
        kinds: Sequence[Choice] | None = None,
        lengths: Sequence[int] | None = None,
        **request: Any,
    ) -> None:
        self.bench = bench
        self.params = bench.params
        self.rng = rng
        self.faults = faults
        self._fault = itertools.cycle(kinds_of_fault)
        self.passed = passed
        self.most = most
        self.seen: Counter[str] = Counter()
        self._kinds = kinds
        self._lengths = lengths
        self._requests = requests
        self._made = 0
        self._request = request
        self._gens: Counter[int] = Counter()
        self._open: dict[int, list[Request]] = {}
        self._jobs: list[_Job] = []

    @property
    def through(self) -> bool:
        """Whether everything was given to the bench, and ended."""
        return self._made == self._requests and not (self._jobs or self._open or self.bench.arms)

    async def run(self, ctx: Any, *, cycles: int) -> None:
        """Until everything is through."""
        for _ in range(cycles):
            if self.through and self.bench.idle:
                break
            self.step()
            await self.bench.cycle(ctx)
        else:
            raise AssertionError(f"not through after {cycles} cycles: {self._open}")

    def step(self) -> None:
        """Make requests, answer those whose entries were armed, and append parts to queues."""
        bench, rng = self.bench, self.rng
        while bench.ended:
            ended = bench.ended.popleft()
            self._open[ended].pop(0)
            if not self._open[ended]:
                del self._open[ended]
        while bench.accepted:
            self._answer(bench.accepted.popleft())
        if self._made < self._requests and len(self._open) < self.most and len(bench.arms) < 4:
            request = self._next()
            tag = self._free_tag(request)
            if tag is not None:  # else another time
                self._arm(replace(request, tag=tag))
                self._made += 1
        # Jobs are mixed, those of one source too.
        for job in rng.sample(self._jobs, min(2, len(self._jobs))):
            if bench.sources[job.source].total < 24:
                bench.put(job.source, job.parts.popleft())
                if not job.parts:
                    self._jobs.remove(job)

    def _next(self) -> Request:
        kinds, lengths = self._kinds, self._lengths
        kind = kinds[self._made % len(kinds)] if kinds else self.rng.choice(KINDS)
        request = random_request(self.rng, self.params, kind, **self._request)
        if lengths:
            request = replace(request, length=lengths[self._made % len(lengths)])
        return request

    def _free_tag(self, request: Request) -> int | None:
        size = _slots(request)
        used = {
            entry
            for tag, requests in self._open.items()
            for other in requests
            for entry in range(tag, tag + _slots(other))
        }
        tags = [
            tag
            for tag in range(0, self.params.entries - size + 1, size)
            if not used & set(range(tag, tag + size))
        ]
        return self.rng.choice(tags) if tags else None

    def _arm(self, request: Request) -> None:
        gen = self._gens[request.tag]
        self._gens[request.tag] += 1
        request = replace(request, gen=gen & 3)
        self._open.setdefault(request.tag, []).append(request)
        self.bench.arms.append(request)
        kind = "load" if request.kind == _LOAD else "store"
        self.seen[f"{kind} of {request.length}"] += 1
        if request.kind == _LOAD:
            self.seen[f"{request.dtype} {request.op} {request.canonical}"] += 1

    def _source(self, gpu: int) -> int:
        links = self.params.links_per_gpu
        return gpu * links + self.rng.randrange(links)

    def _answer(self, request: Request) -> None:
        rng = self.rng
        fault = next(self._fault) if rng.random() < self.faults else "none"
        self.seen[fault] += 1
        if fault == "replaced":
            # The new one takes the same entries.
            again = replace(request, total=rng.randint(1, self.params.max_targets))
            self._arm(again)
        gpus = [gpu for gpu in range(self.params.gpus) if request.expected >> gpu & 1]
        counts = _shares(rng, request.total - (fault == "less"), len(gpus))
        for gpu, count in zip(gpus, counts, strict=True):
            self._job(gpu, self._parts(request, count))
        if fault == "stranger":
            gpu = rng.randrange(self.params.gpus)
            self._job(gpu, self._parts(request, 1))
        elif fault in ("late", "no entry"):
            if fault == "late":
                wrong = replace(request, gen=(request.gen + rng.randint(1, 3)) & 3)
            else:
                tags = [rng.randrange(512), (request.tag | self.params.entries) & 511]
                wrong = replace(request, tag=rng.choice(tags))
            self._job(rng.choice(gpus), self._parts(wrong, 1))
        elif fault not in ("none", "less", "replaced"):
            self._spoil(request, rng.choice(self._jobs[-len(gpus) :]), fault)
        for _ in range(int(rng.random() < self.passed) + int(rng.random() < self.passed)):
            self._pass()

    def _job(self, gpu: int, parts: list[Packet]) -> None:
        if parts:
            self._jobs.append(_Job(self._source(gpu), deque(parts)))

    def _parts(self, request: Request, targets: int) -> list[Packet]:
        """Good parts of one GPU that cover so many targets."""
        rng = self.rng
        gpu = self.bench.port // self.params.links_per_gpu
        number = rng.choice([1, 1, min(2, targets), rng.randint(1, max(1, min(4, targets)))])
        parts = []
        counts = _shares(rng, targets, max(1, number))
        for index, count in enumerate(counts):
            more = int(index < len(counts) - 1)
            data: Packet = ()
            fields = {"count": count, "more": more}
            if request.kind == _LOAD:
                presum = bool(IS_WIDE[request.dtype]) and request.length <= 8 and rng.random() < 0.4
                length = request.length * (2 if presum else 1)
                data = random_data(rng, request.dtype, length, presum=presum)
                fields["dtype"] = value_of(DType.F32) if presum else request.dtype
                self.seen["presum"] += presum
            self.seen["more"] += more
            parts.append(part_of(request, gpu, data, **fields))
        return parts

    def _spoil(self, request: Request, job: _Job, fault: str) -> None:
        rng = self.rng
        at = rng.randrange(len(job.parts))
        first = job.parts[at][0]
        if fault == "never":
            while len(job.parts) > at:
                job.parts.pop()
            if not job.parts:
                self._jobs.remove(job)
        elif fault == "twice":
            job.parts.append(job.parts[-1])
        elif fault == "count":
            wrong = rng.choice([0, request.total + 1, 1 << 14, request.total | 1 << 14])
            job.parts[at] = (units.with_field(first, "count", wrong), *job.parts[at][1:])
        elif fault == "shape":
            job.parts[at] = self._other(first, rng.choice([0, 1, 2, rng.randint(1, 16)]))
        else:
            worst = rng.choice([Status.TIMEOUT, Status.BAD_VC])
            status = rng.choice([value_of(Status.BAD_ADDRESS), value_of(worst), rng.randint(1, 15)])
            other = self._other(first, rng.choice([0, 0, rng.randint(1, 16)]))
            job.parts[at] = (units.with_field(other[0], "aux", status), *other[1:])

    def _other(self, first: int, length: int) -> Packet:
        """Part with another length, 0 for an acknowledgement, or another type."""
        rng = self.rng
        opcode = value_of(Opcode.PART_DATA if length else Opcode.PART_ACK)
        if length == 0 and units.field(first, "opcode") == opcode:
            length, opcode = 1, value_of(Opcode.PART_DATA)
        first = units.with_field(units.with_field(first, "opcode", opcode), "length", length)
        if rng.random() < 0.5:
            first = units.with_field(first, "dtype", rng.randrange(16))
        return (first, *random_data(rng, value_of(DType.U32), length))

    def _pass(self) -> None:
        """Send an answer to a unicast request, or a refusal, with all of its fields random."""
        rng = self.rng
        source = rng.randrange(self.params.ports + 1)
        has_data = source < self.params.ports and rng.random() < 0.6
        length = rng.choice([1, 16, rng.randint(1, 16)]) if has_data else 0
        first = rng.getrandbits(128)
        for name, value in (
            ("opcode", value_of(Opcode.RSP_DATA if has_data else Opcode.RSP_ACK)),
            ("vc", value_of(Vc.RESPONSE)),
            ("byte_enable", 0),
            ("length", length),
        ):
            first = units.with_field(first, name, value)
        data = tuple(rng.getrandbits(128) for _ in range(length))
        self._jobs.append(_Job(source, deque([(first, *data)])))


def _shares(rng: random.Random, total: int, number: int) -> list[int]:
    """Split into so many shares, as far as there is enough of it each at least 1."""
    shares = [int(index < total) for index in range(number)]
    for _ in range(total - number):
        shares[rng.randrange(number)] += 1
    return shares


def _slots(request: Request) -> int:
    if request.kind != _LOAD:
        return 1
    return slots(request.length, DType(request.dtype))
