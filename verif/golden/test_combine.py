# SPDX-License-Identifier: Apache-2.0
"""Results of many requests at once against the entries, which take a part at a time."""

import re
from dataclasses import replace
from time import process_time
from typing import Any

import numpy as np
import pytest
from dysharp.golden.arms import REDUCES, Arms, Request, slots_of
from dysharp.golden.combine import combine, port_results
from dysharp.golden.flits import pack_headers, replace_fields, unpack_field
from dysharp.golden.packets import Packets
from dysharp.golden.reduction import Outcome, ReductionModel
from dysharp.rtl.flits import TO_F32, WIDE, DType, Kind, Opcode, ReduceOp, Status, Vc
from dysharp.rtl.params import PRESETS, SwitchParams
from dysharp.verif.fp.reference import F32, convert, element_format, step

TINY = PRESETS["tiny"]
DEFAULT = PRESETS["default"]
LOAD, STORE = Kind.LOAD.value, Kind.STORE.value
WIDE_TYPES = [dtype.value for dtype in WIDE]
DOUBLED = [dtype.value for dtype in TO_F32]
EXACT = [(0, 3), (0, 4), (0, 5), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (3, 1), (4, 2)]
"""Types and operations for which any order gives the same sum."""


def random_requests(
    rng: np.random.Generator,
    number: int,
    params: SwitchParams,
    pairs: list[tuple[int, int]] | None = None,
) -> list[Request]:
    """Make loads of every kind and some stores; every GPU covers two targets."""
    kinds = np.argwhere(REDUCES).tolist() if pairs is None else pairs
    requests = []
    for index in range(number):
        dtype, op = kinds[int(rng.integers(len(kinds)))]
        length = int(rng.integers(1, 9 if dtype in DOUBLED else 17))
        kind = STORE if rng.random() < 0.2 else LOAD
        entries = int(slots_of(np.array([length]), np.array([dtype]))[0])
        expected = int(rng.integers(1, 1 << params.gpus))
        tag = int(rng.integers(0, params.entries // entries)) * entries
        requests.append(
            Request(
                tag=tag,
                gen=index % 4,
                kind=kind,
                dtype=dtype,
                op=op,
                canonical=bool(kind == LOAD and rng.integers(2)),
                length=length,
                total=2 * expected.bit_count(),
                expected=expected,
            )
        )
    return requests


def gpus_of(request: Request) -> list[int]:
    return [gpu for gpu in range(64) if request.expected >> gpu & 1]


def part(request: Request, data: np.ndarray, **fields: Any) -> np.ndarray:
    """Make a part from enough data; with dtype F32 of a wide load, a pre-sum."""
    words: dict[str, Any] = {"opcode": Opcode.PART_DATA, "count": 2, "vc": Vc.RESPONSE, "gpu": 1}
    words |= {name: getattr(request, name) for name in ("tag", "gen", "dtype", "length")}
    if request.kind == STORE:
        words |= {"opcode": Opcode.PART_ACK, "length": 0}
    words |= fields
    return np.concatenate([pack_headers(**words), data[: words["length"]]])


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Random bits, but many equal bytes, so that sums meet ties, subnormals, infinities and NaN."""
    values = rng.integers(0, 1 << 64, (*shape, 2), dtype=np.uint64)
    values[rng.random(shape) < 0.3] &= np.uint64(0x8001_FC00_8001_7C00)
    values[rng.random(shape) < 0.1] |= np.uint64(0x7F80_0000_7C00_7C00)
    return values


@pytest.mark.parametrize("canonical", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_combine_is_the_entries(seed: int, canonical: bool) -> None:
    rng = np.random.default_rng([50, seed])
    requests = [
        replace(request, canonical=canonical and request.kind == LOAD)
        for request in random_requests(rng, 150, DEFAULT)
    ]
    most = DEFAULT.gpus
    data = floats(rng, len(requests), most, 16)
    answers = np.array([len(gpus_of(request)) for request in requests])
    wide = np.array([request.dtype in WIDE_TYPES and request.length <= 8 for request in requests])
    loads = np.array([request.kind == LOAD for request in requests])
    presum = (rng.random((len(requests), most)) < 0.3) & (wide & loads)[:, None]
    arrival = np.tile(np.arange(most), (len(requests), 1))
    model = ReductionModel(DEFAULT, 1)
    for index, request in enumerate(requests):
        arrival[index, : answers[index]] = rng.permutation(answers[index])
        model.arm(request)
        gpus = gpus_of(request)
        for place in range(len(gpus)) if canonical else arrival[index, : len(gpus)].tolist():
            fields = {}
            if presum[index, place]:
                fields = {"dtype": DType.F32, "length": 2 * request.length}
            packet = part(request, data[index, place], **fields)
            assert model.part(gpus[place], packet) is Outcome.TAKEN
    made = combine(Arms.of(*requests), 1, data, answers=answers, presum=presum, arrival=arrival)
    assert made == model.results
    assert not unpack_field(made.headers, "aux").any()
    if canonical:
        assert made == combine(Arms.of(*requests), 1, data, answers=answers, presum=presum)
    elif seed == 0:
        assert made != combine(Arms.of(*requests), 1, data, answers=answers, presum=presum)


def lanes(flits: np.ndarray, width: int) -> list[int]:
    return np.ascontiguousarray(flits).view(f"<u{width // 8}").reshape(-1).tolist()


@pytest.mark.parametrize("seed", range(4))
def test_combine_is_exact_arithmetic(seed: int) -> None:
    """Against sums of integers as long as they have to be, an element at a time."""
    rng = np.random.default_rng([51, seed])
    for request in random_requests(rng, 60, TINY):
        dtype, op = DType(request.dtype), ReduceOp(request.op)
        load = replace(request, kind=LOAD, length=min(request.length, 2))
        wide = dtype in WIDE
        form: Any = element_format(dtype)
        parts = len(gpus_of(load))
        data = floats(rng, 1, parts, 4)
        presum = rng.random((1, parts)) < (0.4 if wide else 0.0)
        order = rng.permutation(parts)
        sums: list[Any] = [None] * (8 * load.length)
        for place in range(parts) if load.canonical else order.tolist():
            flits = data[0, place, : load.length * (2 if presum[0, place] else 1)]
            items = lanes(flits, 32 if presum[0, place] else form.bits if form else 32)
            if wide and not presum[0, place]:
                items = [convert(form, F32, item) for item in items]
            kept = F32 if wide else form
            sums = [step(dtype, op, kept, a, b) for a, b in zip(sums, items, strict=False)]
        if wide and dtype not in TO_F32:
            sums = [convert(F32, form, item) for item in sums]
        (made,) = combine(Arms.of(load), 1, data, presum=presum, arrival=order.reshape(1, parts))
        width = 32 if form is None or dtype in TO_F32 else form.bits
        assert lanes(made[1:], width) == sums, load


def test_combine_of_nothing_and_of_stores() -> None:
    assert combine(Arms.of(), 1, np.zeros((0, 3, 1, 2), np.uint64)) == Packets()
    rng = np.random.default_rng(1)
    stores = [replace(r, kind=STORE, canonical=False) for r in random_requests(rng, 5, TINY)]
    made = combine(Arms.of(*stores), 2, np.zeros((5, 4, 0, 2), np.uint64))
    assert unpack_field(made.headers, "opcode").tolist() == [Opcode.RSP_ACK.value] * 5
    assert len(made.flits) == 5


def raises(message: str) -> Any:
    return pytest.raises(ValueError, match=f"^{re.escape(message)}$")


def test_combine_wrong() -> None:
    rng = np.random.default_rng(2)
    (request,) = random_requests(rng, 1, TINY, [(1, 0)])
    arms = Arms.of(replace(request, kind=LOAD, length=4))
    data = np.zeros((1, 3, 4, 2), np.uint64)
    with raises("`parts` must have the shape (1, p, f, 2), not (3, 4, 2)"):
        combine(arms, 1, data[0])
    with raises("`parts` must have the shape (1, p, f, 2), not (0, 3, 4, 2)"):
        combine(arms, 1, data[:0])
    with raises("`presum` must have the shape (1, 3), not (3,)"):
        combine(arms, 1, data, presum=np.zeros(3, bool))
    with raises("`arrival` must have the shape (1, 3), not (1, 4)"):
        combine(arms, 1, data, arrival=np.zeros((1, 4), np.int64))
    with raises("`answers` must be 1 to 3, not 4"):
        combine(arms, 1, data, answers=np.array([4]))
    with raises("`presum` must be false for loads that are not wide"):
        combine(arms, 1, data, presum=np.ones((1, 3), bool))
    with raises("`parts` must have 4 flits a part, not 3"):
        combine(arms, 1, data[:, :, :3])


def played(
    rng: np.random.Generator, params: SwitchParams, port: int, requests: list[Request]
) -> tuple[dict[int, list[np.ndarray]], dict[tuple[int, int], np.ndarray]]:
    """Let GPUs answer in random order; returns parts by source, and results as entries end."""
    model = ReductionModel(params, port)
    links = params.links_per_gpu
    sent: dict[int, list[np.ndarray]] = {}
    ended: dict[tuple[int, int], np.ndarray] = {}
    uses: dict[int, int] = {}
    waiting = list(requests)
    pending: list[list[tuple[int, list[np.ndarray]]]] = []
    while waiting or pending:
        armed = model.armed_tags
        if waiting and waiting[0].tag not in armed and (len(pending) < 5 or rng.random() < 0.1):
            request = waiting.pop(0)
            model.arm(request)
            data = floats(rng, len(gpus_of(request)), 2, 16)
            answers = []
            for row, gpu in enumerate(gpus_of(request)):
                parts = [part(request, data[row, 0])]
                if request.kind == STORE and rng.random() < 0.3:
                    parts = [replace_headers(parts[0], aux=Status.BAD_ADDRESS)]
                elif rng.random() < 0.3:
                    first = replace_headers(parts[0], count=1, more=1)
                    parts = [first, part(request, data[row, 1], count=1)]
                answers.append((gpu, parts))
            pending.append(answers)
            continue
        answers = pending[int(rng.integers(len(pending)))]
        gpu, parts = answers[int(rng.integers(len(answers)))]
        outcome = model.part(gpu, parts[0])
        if outcome is Outcome.WAITS:
            continue
        assert outcome is Outcome.TAKEN
        sent.setdefault(gpu * links + port % links, []).append(parts.pop(0))
        if not parts:
            answers.remove((gpu, parts))
        if not answers:
            pending.remove(answers)
            result = model.results[-1]
            tag = int(unpack_field(result[:1], "tag")[0])
            ended[tag, uses.get(tag, 0)] = result
            uses[tag] = uses.get(tag, 0) + 1
    return sent, ended


def replace_headers(packet: np.ndarray, **fields: Any) -> np.ndarray:
    return np.concatenate([replace_fields(packet[:1], **fields), packet[1:]])


SHAPES = {
    "tiny": TINY,
    "default": DEFAULT,
    "two-links": SwitchParams(ports=8, links_per_gpu=2, max_targets=9, groups=4, entries=8),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", SHAPES)
def test_port_results_are_those_of_any_order(shape: str, seed: int) -> None:
    params = SHAPES[shape]
    rng = np.random.default_rng([60, seed, *shape.encode()])
    port = 2 + seed % 2
    requests = random_requests(rng, 80, params, EXACT)
    sent, ended = played(rng, params, port, requests)
    parts = {source: Packets(np.concatenate(packets)) for source, packets in sent.items()}
    made = port_results(params, port, Arms.of(*requests), parts)
    assert made.keys() == ended.keys()
    assert len(made) == 80
    assert max(use for _, use in made) >= 1
    for key, packet in made.items():
        assert packet.tolist() == ended[key].tolist()
    statuses = {int(packet[0, 1]) >> 15 & 15 for packet in made.values()}
    assert statuses == {0, 15}


def test_port_results_of_canonical_sums() -> None:
    rng = np.random.default_rng(61)
    requests = [
        replace(request, kind=LOAD, canonical=True) for request in random_requests(rng, 60, TINY)
    ]
    sent, ended = played(rng, TINY, 1, requests)
    parts = {source: Packets(np.concatenate(packets)) for source, packets in sent.items()}
    made = port_results(TINY, 1, Arms.of(*requests), parts)
    assert {key: packet.tolist() for key, packet in made.items()} == {
        key: packet.tolist() for key, packet in ended.items()
    }


def test_port_results_of_nothing() -> None:
    assert port_results(TINY, 0, Arms.of(), {}) == {}


def test_port_results_wrong() -> None:
    rng = np.random.default_rng(62)
    (base,) = random_requests(rng, 1, TINY, [(1, 0)])
    load = replace(base, tag=3, kind=LOAD, length=1, expected=0b101, total=4, gen=0)
    again = replace(load, gen=1)
    data = floats(rng, 2)

    def results(*parts: tuple[int, np.ndarray]) -> dict[tuple[int, int], np.ndarray]:
        by_source: dict[int, list[np.ndarray]] = {}
        for source, packet in parts:
            by_source.setdefault(source, []).append(packet)
        streams = {source: Packets(np.concatenate(some)) for source, some in by_source.items()}
        return port_results(TINY, 1, Arms.of(load, again), streams)

    good = [(gpu, part(request, data)) for request in (load, again) for gpu in (0, 2)]
    assert set(results(*good)) == {(3, 0), (3, 1)}
    every = "`parts` must answer every request completely and correctly, not use {} of tag 3"
    stray = "`parts` must be answers to requests, not to tag {}"
    for missing in range(4):
        with raises(every.format(1)):
            results(*good[:missing], *good[missing + 1 :]) if missing > 1 else results(*good[:2])
    for extra, tag in (((1, part(load, data)), 3), ((0, part(replace(load, tag=9), data)), 9)):
        with raises(stray.format(tag)):
            results(*good, extra)
    with raises(stray.format(3)):
        results(*good, good[0])
    with raises(stray.format(511)):
        results(*good, (0, part(replace(load, tag=511), data)))
    for fields in (
        {"gen": 1},
        {"count": 1},
        {"count": 3},
        {"dtype": DType.S32},
        {"dtype": DType.F32, "length": 2},
        {"opcode": Opcode.PART_ACK, "length": 0},
    ):
        with raises(every.format(0)):
            results((0, part(load, data, **fields)), *good[1:])


def test_combine_rate() -> None:
    number, parts = 20_000, 4
    rng = np.random.default_rng(63)
    (base,) = random_requests(rng, 1, TINY, [(DType.BF16_ACC32.value, 0)])
    arms = Arms.of(replace(base, kind=LOAD, canonical=True, length=8)).select(
        np.zeros(number, np.int64)
    )
    data = rng.integers(0, 1 << 64, (number, parts, 8, 2), dtype=np.uint64)
    begin = process_time()
    assert len(combine(arms, 1, data)) == number
    assert number / (process_time() - begin) > 10_000
