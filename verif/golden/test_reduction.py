# SPDX-License-Identifier: Apache-2.0
"""Stories of a reduction entry: what a part, a time-out or a second use of the tag does to it."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dysharp.golden.arms import Arms, Request, replaced_results, results, slots_of
from dysharp.golden.flits import pack_headers, unpack_headers
from dysharp.golden.packets import Packets
from dysharp.golden.reduction import Outcome, ReductionModel
from dysharp.rtl.flits import DType, Kind, Opcode, ReduceOp, Status, Vc, slots
from dysharp.rtl.params import PRESETS, SwitchParams

TINY = PRESETS["tiny"]
LOAD = Request(
    tag=4,
    gen=1,
    kind=Kind.LOAD.value,
    dtype=DType.U32.value,
    op=ReduceOp.ADD.value,
    canonical=False,
    length=1,
    total=3,
    expected=0b1011,
)
STORE = replace(LOAD, kind=Kind.STORE.value, dtype=13, tag=7, length=16)
CANONICAL = replace(LOAD, canonical=True)
F32_SUM = replace(LOAD, dtype=DType.F16_TO_F32.value, total=4)
HALVES = np.full((1, 2), 0x3800_3800_3800_3800, np.uint64)
"""Eight times 0.5 in f16."""
ONES = np.full((2, 2), 0x3F80_0000_3F80_0000, np.uint64)
"""Eight times 1.0 in f32."""


def part(request: Request, data: Any = None, **fields: Any) -> np.ndarray:
    """Make a part for one target; `data` is what every 32-bit element is, or whole flits."""
    opcode = Opcode.PART_DATA if request.kind == Kind.LOAD.value else Opcode.PART_ACK
    words = {"opcode": opcode, "count": 1, "vc": Vc.RESPONSE, "gpu": 1, "address": 0x123}
    words |= {name: getattr(request, name) for name in ("tag", "gen", "dtype", "length")} | fields
    if words["opcode"] is Opcode.PART_ACK:
        words["length"] = 0
    if data is None or isinstance(data, int):
        element = (data or 0) | (data or 0) << 32
        data = np.full((int(words["length"]), 2), element, np.uint64)
    return np.concatenate([pack_headers(**{"length": len(data)} | words), data])


def armed(*requests: Request, params: SwitchParams = TINY, port: int = 1) -> ReductionModel:
    model = ReductionModel(params, port)
    for request in requests:
        model.arm(request)
    return model


def last(model: ReductionModel) -> tuple[dict[str, int], list[list[int]]]:
    """Return header fields that are not 0 and data of the last result."""
    packet = model.results[-1]
    fields = {name: int(value[0]) for name, value in unpack_headers(packet[:1]).items()}
    return {name: value for name, value in fields.items() if value}, packet[1:].tolist()


def check_error(
    model: ReductionModel, request: Request, status: Any, *, missing: int = 0, faulty: int = 0
) -> None:
    fields, data = last(model)
    assert fields == {
        name: value
        for name, value in {
            "opcode": Opcode.RSP_DATA.value,
            "count": request.total,
            "tag": request.tag,
            "gen": request.gen,
            "aux": status.value,
            "length": 1,
            "gpu": 1,
            "vc": 1,
            "dtype": request.dtype,
        }.items()
        if value
    }
    assert data == [[missing, faulty]]


def offer(model: ReductionModel, *parts: tuple[int, np.ndarray]) -> list[Outcome]:
    return [model.part(gpu, packet) for gpu, packet in parts]


def counted(model: ReductionModel) -> dict[str, int]:
    return {name: value for name, value in model.counters.items() if value}


def test_load_of_three() -> None:
    model = armed(LOAD)
    assert (model.armed, model.armed_tags) == (1, (4,))
    parts = [(gpu, part(LOAD, 1 << gpu)) for gpu in (3, 0, 1)]
    assert offer(model, *parts) == [Outcome.TAKEN] * 3
    assert (model.armed, len(model.results), counted(model)) == (0, 1, {})
    fields, data = last(model)
    assert fields == {
        "opcode": Opcode.RSP_DATA.value,
        "count": 3,
        "tag": 4,
        "gen": 1,
        "length": 1,
        "gpu": 1,
        "vc": 1,
        "dtype": DType.U32.value,
    }
    assert data == [[0xB_0000_000B] * 2]


def test_store_of_three() -> None:
    model = armed(STORE)
    assert offer(model, *((gpu, part(STORE)) for gpu in (1, 0, 3))) == [Outcome.TAKEN] * 3
    fields, data = last(model)
    assert data == []
    assert fields == {
        "opcode": Opcode.RSP_ACK.value,
        "count": 3,
        "tag": 7,
        "gen": 1,
        "gpu": 1,
        "vc": 1,
        "dtype": 13,
    }


@pytest.mark.parametrize("request_", [LOAD, CANONICAL, STORE])
def test_one_gpu_and_one_target(request_: Request) -> None:
    single = replace(request_, total=1, expected=0b1000)
    model = armed(single)
    assert offer(model, (3, part(single, 5))) == [Outcome.TAKEN]
    assert (model.armed, counted(model)) == (0, {})
    assert "aux" not in last(model)[0]


def test_presum_of_integers_covers_several_targets() -> None:
    request = replace(LOAD, total=9)
    model = armed(request)
    offer(model, (0, part(request, 5, count=4)), (1, part(request, 6, count=4, more=1)))
    offer(model, (3, part(request, 7, count=0x0)))  # covers nothing: wrong
    assert model.armed == 1
    offer(model, (1, part(request, 8, count=1)))
    check_error(model, request, Status.BAD_RESPONSE, faulty=0b1000)
    assert counted(model) == {"wrong": 1}


def test_presum_in_f32_mixes_with_short_parts() -> None:
    for order in ((0, 1, 3), (3, 1, 0)):
        model = armed(F32_SUM)
        parts = {
            0: part(F32_SUM, HALVES),
            1: part(F32_SUM, ONES, count=2, dtype=DType.F32, length=2),
            3: part(F32_SUM, HALVES),
        }
        assert offer(model, *((gpu, parts[gpu]) for gpu in order)) == [Outcome.TAKEN] * 3
        fields, data = last(model)
        assert (fields["length"], fields["dtype"]) == (2, DType.F32.value)
        assert data == [[0x4000_0000_4000_0000] * 2] * 2
    short = replace(F32_SUM, dtype=DType.F16_ACC32.value, total=3, expected=0b11)
    model = armed(short)
    offer(
        model, (0, part(short, ONES, count=2, dtype=DType.F32, length=2)), (1, part(short, HALVES))
    )
    assert last(model)[1] == [[0x3E00_3E00_3E00_3E00] * 2]  # 1.5
    assert last(model)[0]["dtype"] == DType.F16_ACC32.value


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        (LOAD, {"count": 0}),
        (LOAD, {"count": 4}),
        (LOAD, {"dtype": DType.S32}),
        (LOAD, {"length": 2}),
        (LOAD, {"opcode": Opcode.PART_ACK}),
        (LOAD, {"dtype": DType.F32, "length": 2}),  # f32 pre-sums are for wide types
        (F32_SUM, {"dtype": DType.F32, "length": 1}),
        (F32_SUM, {"dtype": DType.F16_TO_F32, "length": 2}),
        (F32_SUM, {"dtype": DType.F16_ACC32}),
        (STORE, {"opcode": Opcode.PART_DATA, "length": 1}),
        (STORE, {"opcode": Opcode.PART_DATA, "length": 1, "aux": Status.BAD_ADDRESS}),
        (STORE, {"count": 4, "aux": Status.BAD_ADDRESS}),
        (LOAD, {"count": 0, "more": 1, "aux": Status.BAD_ADDRESS}),
    ],
)
def test_wrong_part_ends_its_gpu_and_spoils_the_result(
    request_: Request, fields: dict[str, Any]
) -> None:
    model = armed(request_)
    if request_.kind == Kind.LOAD.value and request_ is not F32_SUM:
        assert offer(model, (0, part(request_, 1))) == [Outcome.TAKEN]
    else:
        offer(model, (0, part(request_, HALVES if request_ is F32_SUM else None)))
    assert offer(model, (1, part(request_, **fields))) == [Outcome.WRONG]
    assert offer(model, (1, part(request_))) == [Outcome.DUPLICATE]
    assert offer(model, (3, part(request_))) == [Outcome.TAKEN]
    check_error(model, request_, Status.BAD_RESPONSE, faulty=0b0010)
    assert counted(model) == {"duplicates": 1, "wrong": 1}


def test_dtype_of_a_store_does_not_matter() -> None:
    model = armed(replace(STORE, total=1, expected=1))
    assert offer(model, (0, part(STORE, dtype=2))) == [Outcome.TAKEN]
    assert last(model)[0]["dtype"] == 13


@pytest.mark.parametrize("opcode", [Opcode.PART_ACK, Opcode.PART_DATA])
def test_error_of_a_target_wins_over_data_before_and_behind(opcode: Opcode) -> None:
    for error_at in range(3):
        model = armed(LOAD)
        gpus = [0, 1, 3]
        parts = [(gpu, part(LOAD, 9)) for gpu in gpus]
        parts[error_at] = (
            gpus[error_at],
            part(LOAD, 9, opcode=opcode, aux=Status.BAD_ADDRESS, dtype=15),
        )
        assert offer(model, *parts) == [Outcome.TAKEN] * 3
        check_error(model, LOAD, Status.BAD_ADDRESS, faulty=1 << gpus[error_at])
        assert counted(model) == {}


def test_greatest_status_is_told() -> None:
    model = armed(STORE)
    offer(model, (0, part(STORE, aux=3)), (1, part(STORE, aux=9)), (3, part(STORE, aux=1)))
    check_error(model, STORE, Status.PARTITION, faulty=0b1011)
    model = armed(STORE)
    offer(model, (0, part(STORE, aux=Status.BAD_ADDRESS)))
    model.time_out(STORE.tag)
    check_error(model, STORE, Status.BAD_ADDRESS, missing=0b1010, faulty=0b1)
    model = armed(STORE)
    offer(model, (0, part(STORE, count=0)))
    model.arm(STORE)
    check_error(model, STORE, Status.REPLACED, missing=0b1010, faulty=0b1)


def test_error_in_one_of_several_parts_of_a_gpu() -> None:
    request = replace(LOAD, total=2, expected=0b10)
    model = armed(request)
    bad = part(request, opcode=Opcode.PART_ACK, aux=Status.BAD_ADDRESS, more=1)
    assert offer(model, (1, bad), (1, part(request, 3))) == [Outcome.TAKEN] * 2
    check_error(model, request, Status.BAD_ADDRESS, faulty=0b10)


def test_parts_after_the_end_and_of_another_gen_are_late() -> None:
    model = armed(LOAD)
    assert offer(model, (0, part(LOAD, gen=2)), (0, part(LOAD, tag=5))) == [Outcome.LATE] * 2
    assert offer(model, (0, part(LOAD, tag=511))) == [Outcome.LATE]
    offer(model, *((gpu, part(LOAD, 1)) for gpu in (0, 1, 3)))
    assert offer(model, (0, part(LOAD, 1))) == [Outcome.LATE]
    assert counted(model) == {"late": 4}
    model.arm(replace(LOAD, gen=2))
    assert offer(model, (0, part(LOAD, 1))) == [Outcome.LATE]
    assert model.armed == 1


def test_second_answer_and_answer_of_a_stranger_are_duplicates() -> None:
    for request in (LOAD, CANONICAL, STORE):
        model = armed(request)
        assert offer(model, (0, part(request, 1))) == [Outcome.TAKEN]
        wanted = [Outcome.DUPLICATE] * 2
        assert offer(model, (0, part(request, 1)), (2, part(request, count=0))) == wanted
        offer(model, (1, part(request, 1)), (3, part(request, 1)))
        assert "aux" not in last(model)[0]
        assert counted(model) == {"duplicates": 2}


def test_more_covered_than_there_is() -> None:
    model = armed(LOAD)
    wanted = [Outcome.TAKEN, Outcome.WRONG]
    assert offer(model, (0, part(LOAD, 1, count=3)), (1, part(LOAD, 1))) == wanted
    assert offer(model, (3, part(LOAD, 1))) == [Outcome.WRONG]
    check_error(model, LOAD, Status.BAD_RESPONSE, faulty=0b1010)


def test_less_covered_than_there_is() -> None:
    request = replace(LOAD, total=4)
    for gpu in (0, 1, 3):
        model = armed(request)
        offer(model, *((other, part(request, 1)) for other in (0, 1, 3)))
        check_error(model, request, Status.BAD_RESPONSE)
        model = armed(request)
        offer(model, *((g, part(request, 1, count=2 if g == gpu else 1)) for g in (0, 1, 3)))
        assert last(model)[1] == [[0x3_0000_0003] * 2]


def test_all_covered_but_more_announced() -> None:
    request = replace(LOAD, total=1, expected=1)
    model = armed(request)
    assert offer(model, (0, part(request, 1, more=1))) == [Outcome.TAKEN]
    assert model.armed == 1
    assert offer(model, (0, part(request, 1))) == [Outcome.WRONG]
    check_error(model, request, Status.BAD_RESPONSE, faulty=1)


def test_canonical_order_lets_gpus_wait() -> None:
    request = replace(CANONICAL, total=5, dtype=DType.F32.value)
    model = armed(request)
    big, small = 0x4B80_0000, 0x3F80_0000  # 2**24, 1.0: 1 + 1 + 2**24 differs from 2**24 + 1 + 1
    first, second, third = (
        part(request, small, more=1),
        part(request, small),
        part(request, big, count=2),
    )
    waits, taken = Outcome.WAITS, Outcome.TAKEN
    assert offer(model, (3, third), (1, first), (0, first)) == [waits, waits, taken]
    assert offer(model, (3, third), (1, third), (0, second)) == [waits, waits, taken]
    assert offer(model, (3, third), (1, part(request, 0))) == [waits, taken]
    assert offer(model, (2, first)) == [Outcome.DUPLICATE]
    assert offer(model, (3, part(request, big, count=2))) == [taken]
    assert last(model)[1] == [[0x4B80_0001_4B80_0001] * 2]  # 2**24 + 2
    assert counted(model) == {"duplicates": 1}


def test_wrong_part_is_no_reason_to_wait_and_a_waiting_part_can_get_late() -> None:
    model = armed(CANONICAL)
    assert offer(model, (1, part(CANONICAL, 1))) == [Outcome.WAITS]
    assert offer(model, (0, part(CANONICAL, count=0))) == [Outcome.WRONG]
    assert offer(model, (1, part(CANONICAL, 1))) == [Outcome.TAKEN]
    model = armed(CANONICAL)
    assert offer(model, (3, part(CANONICAL, 1))) == [Outcome.WAITS]
    model.time_out(CANONICAL.tag)
    check_error(model, CANONICAL, Status.TIMEOUT, missing=0b1011)
    assert offer(model, (3, part(CANONICAL, 1))) == [Outcome.LATE]


def test_stores_never_wait() -> None:
    request = replace(STORE, canonical=True)
    model = armed(request)
    assert offer(model, *((gpu, part(request)) for gpu in (3, 1, 0))) == [Outcome.TAKEN] * 3
    assert "aux" not in last(model)[0]


def test_tag_that_is_used_again_too_early() -> None:
    model = armed(LOAD)
    offer(model, (0, part(LOAD, 1)))
    model.arm(replace(STORE, tag=4, gen=2))
    check_error(model, LOAD, Status.REPLACED, missing=0b1010)
    assert (model.armed, counted(model)) == (1, {"replaced": 1})
    assert offer(model, (1, part(LOAD, 1))) == [Outcome.LATE]
    offer(model, *((gpu, part(STORE, tag=4, gen=2)) for gpu in (0, 1, 3)))
    assert last(model)[0]["opcode"] == Opcode.RSP_ACK.value
    assert len(model.results) == 2


def test_time_out_names_who_is_missing() -> None:
    model = armed(LOAD, STORE)
    offer(model, (1, part(LOAD, 1)), (3, part(LOAD, 1, more=1)))
    model.time_out(LOAD.tag)
    check_error(model, LOAD, Status.TIMEOUT, missing=0b1001)
    assert (model.armed_tags, counted(model)) == ((STORE.tag,), {"timeouts": 1})


def test_masks_of_64_gpus() -> None:
    params = SwitchParams(ports=64)
    everyone = replace(LOAD, total=64, expected=(1 << 64) - 1)
    model = armed(everyone, params=params)
    for gpu in range(64):
        assert model.armed == 1
        assert offer(model, (gpu, part(everyone, 1))) == [Outcome.TAKEN]
    assert last(model)[1] == [[64 << 32 | 64] * 2]
    model.arm(everyone)
    offer(model, (63, part(everyone, aux=1)), (0, part(everyone, count=0)))
    model.time_out(everyone.tag)
    check_error(model, everyone, Status.BAD_RESPONSE, missing=(1 << 63) - 2, faulty=1 << 63 | 1)


def test_gpu_with_two_links_is_one_requester() -> None:
    params = SwitchParams(ports=8, links_per_gpu=2)
    for port in (2, 3):
        model = armed(LOAD, params=params, port=port)
        model.time_out(LOAD.tag)
        check_error(model, LOAD, Status.TIMEOUT, missing=0b1011)


def test_every_armed_request_ends_once() -> None:
    rng = np.random.default_rng(70)
    model = ReductionModel(TINY, 1)
    made: list[Request] = []
    outcomes: set[Outcome] = set()
    for step in range(4000):
        tag = int(rng.integers(0, 4))
        choice = rng.random()
        if choice < 0.1:
            kind = Kind.LOAD if rng.integers(2) else Kind.STORE
            expected = int(rng.integers(1, 16))
            request = replace(
                LOAD,
                tag=tag,
                gen=step % 4,
                kind=kind.value,
                canonical=bool(rng.integers(2)),
                total=expected.bit_count() + int(rng.integers(0, 3)),
                expected=expected,
            )
            model.arm(request)
            made.append(request)
        elif choice < 0.12 and tag in model.armed_tags:
            model.time_out(tag)
        elif made:
            about = made[int(rng.integers(max(0, len(made) - 6), len(made)))]
            fields = {"count": int(rng.integers(0, 4)), "more": int(rng.random() < 0.2)}
            fields["aux"] = 15 if rng.random() < 0.05 else 0
            outcomes.add(model.part(int(rng.integers(4)), part(about, 3, **fields)))
        assert len(model.results) + model.armed == len(made)
    assert outcomes == set(Outcome)
    statuses = set(unpack_headers(model.results.headers)["aux"].tolist())
    assert statuses == {0, 12, 13, 14, 15}
    ended = unpack_headers(model.results.headers)
    assert model.counters["replaced"] >= np.count_nonzero(ended["aux"] == 14)
    assert model.counters["timeouts"] >= np.count_nonzero(ended["aux"] == 12)


def test_replaced_results_are_the_models() -> None:
    rng = np.random.default_rng(71)
    requests = [
        replace(
            LOAD,
            tag=int(tag),
            gen=number % 4,
            total=number % 100 + 1,
            kind=(Kind.LOAD if number % 3 else Kind.STORE).value,
            dtype=number % 16,
            expected=int(rng.integers(1, 16)),
        )
        for number, tag in enumerate(rng.integers(0, 16, 200))
    ]
    model = armed(*requests)
    assert replaced_results(Arms.of(*requests), 1) == model.results
    assert len(model.results) + model.armed == 200
    for few in ([], requests[:1]):
        assert replaced_results(Arms.of(*few), 1) == Packets()


def test_arms_are_requests() -> None:
    arms = Arms.of(LOAD, STORE, CANONICAL)
    assert list(arms) == [LOAD, STORE, CANONICAL]
    assert list(arms.select(np.array([2, 0]))) == [CANONICAL, LOAD]
    assert len(Arms.of()) == 0
    both = results(
        arms, 1, [0, 0, 12], data=np.array([[1, 2]], np.uint64), missing=5, faulty=arms.expected
    )
    assert [packet[1:].tolist() for packet in both] == [[[1, 2]], [], [[5, 0b1011]]]


def test_slots_are_the_tables() -> None:
    for dtype in DType:
        lengths = np.arange(1, 17)
        wanted = [slots(length, dtype) for length in lengths.tolist()]
        assert slots_of(lengths, np.full(16, dtype.value)).tolist() == wanted


def raises(message: str) -> Any:
    return pytest.raises(ValueError, match=f"^{re.escape(message)}$")


def test_model_wrong() -> None:
    with raises("`port` must be 0 to 3, not 4"):
        ReductionModel(TINY, 4)
    model = armed()
    with raises("`tag` must be 0 to 15, not 16"):
        model.arm(replace(LOAD, tag=16))
    with raises("`tag` must be of an armed entry, not 3"):
        model.time_out(3)
    with raises("`gpu` must be 0 to 3, not 4"):
        model.part(4, part(LOAD))
    with raises("`packet` must be a part, not opcode 14"):
        model.part(0, part(LOAD, opcode=Opcode.RSP_DATA))
    with raises("`gen` must have the shape (1,), not (2,)"):
        replace(Arms.of(LOAD), gen=np.zeros(2, np.int64))
    assert _empty(model.results)


def _empty(packets: Iterable[np.ndarray]) -> bool:
    return not list(packets)
