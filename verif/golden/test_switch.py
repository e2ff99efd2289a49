# SPDX-License-Identifier: Apache-2.0
"""The vectorised switch model against a second one that handles a packet at a time."""

import re
from collections import Counter
from dataclasses import asdict, replace
from time import process_time
from typing import Any

import numpy as np
import pytest
from dysharp.golden.arms import Arms, Request
from dysharp.golden.flits import (
    pack_headers,
    pack_targets,
    packet_flits,
    unpack_headers,
)
from dysharp.golden.packets import Packets
from dysharp.golden.reduction import ReductionModel
from dysharp.golden.route import link_of
from dysharp.golden.switch import SwitchConfig, SwitchModel, SwitchResult
from dysharp.rtl.flits import REDUCTIONS, DType, Kind, Opcode, ReduceOp, Status, Vc
from dysharp.rtl.params import PRESETS, SwitchParams
from dysharp.rtl.register_map import COUNTERS, address_of, register_map
from dysharp.verif.golden.plain_switch import PlainSwitch, plain_replaced

TINY = PRESETS["tiny"]
ALL_STATUSES = {status.value for status in Status if 0 < status.value < 12}


def check(params: SwitchParams, config: SwitchConfig, inputs: list[Packets]) -> Counter[int]:
    """Compare the two models; returns how often each status came up."""
    result = SwitchModel(params, config).process(inputs)
    plain = PlainSwitch(params, config)
    outputs: list[dict[tuple[int, int], list]] = [{} for _ in range(params.ports)]
    refusals: list[list] = [[] for _ in range(params.ports)]
    arms: list[list] = [[] for _ in range(params.ports)]
    parts: list[dict[int, list]] = [{} for _ in range(params.ports)]
    counters = {counter.name: [0] * params.ports for counter in COUNTERS}
    seen: Counter[int] = Counter()
    for source, packets in enumerate(inputs):
        for packet in packets:
            header = unpack_headers(packet[:1])
            response = int(header["opcode"][0]) >= 12
            handled = plain.handle(source, packet)
            seen[handled.status] += 1
            counters["rx_flits"][source] += len(packet)
            counters["rx_responses" if response else "rx_requests"][source] += 1
            if handled.status == -1:
                counters["dropped"][source] += 1
            if handled.answer is not None:
                refusals[source].append([handled.answer])
                counters["refused"][source] += 1
                counters["tx_flits"][source] += 1
                counters["tx_responses"][source] += 1
            if handled.arm is not None:
                arms[source].append(handled.arm)
            if handled.part_of is not None:
                parts[handled.part_of].setdefault(source, []).append(packet.tolist())
            for port, copy in handled.copies.items():
                outputs[port].setdefault((source, int(header["vc"][0])), []).append(copy)
                counters["tx_flits"][port] += len(copy)
                counters["tx_responses" if response else "tx_requests"][port] += 1
    for port in range(params.ports):
        made = {
            pair: [packet.tolist() for packet in batch]
            for pair, batch in result.outputs[port].items()
        }
        assert made == outputs[port]
        assert [packet.tolist() for packet in result.refusals[port]] == refusals[port]
        assert [asdict(request) for request in result.arms[port]] == arms[port]
        reached = {
            source: [packet.tolist() for packet in batch]
            for source, batch in result.parts[port].items()
        }
        assert reached == parts[port]
        assert result.settled[port] == (not parts[port] or not arms[port])
        results = []
        if not parts[port]:
            results = plain_replaced(port // params.links_per_gpu, arms[port])
            counters["replaced"][port] = len(results)
            counters["tx_responses"][port] += len(results)
            counters["tx_flits"][port] += 2 * len(results)
        elif not arms[port]:
            counters["late"][port] = sum(map(len, parts[port].values()))
        assert [packet.tolist() for packet in result.results[port]] == results
    assert {name: values.tolist() for name, values in result.counters.items()} == counters
    return seen


def random_packets(
    rng: np.random.Generator,
    params: SwitchParams,
    config: SwitchConfig,
    port: int,
    number: int,
    without: tuple[int, ...] = (),
) -> Packets:
    """Packets of all kinds, most of them well-formed, the rest with something wrong.

    Opcodes of `without` do not come, nor do entries get armed if 6 (a load) is among them.
    """

    def mostly(good: Any, bad: Any, share: float = 0.06) -> np.ndarray:
        return np.where(rng.random(number) < share, bad, good)

    links = params.links_per_gpu
    address = rng.integers(0, 1 << 41, 64 * number) << 7 | rng.integers(0, 128, 64 * number)
    address = address[link_of(address, links) == port % links][:number]
    address = mostly(address, rng.integers(0, 1 << 48, number))
    known = np.array([opcode.value for opcode in Opcode if opcode.value not in without])
    every = np.array([opcode for opcode in range(16) if opcode not in without])
    opcode = mostly(rng.choice(known, number), rng.choice(every, number))
    response, dynamic = opcode >> 2 == 3, opcode >> 2 == 2
    load = opcode & 3 == 2
    count = np.select(
        [dynamic, opcode >> 2 == 1],
        [
            mostly(
                rng.integers(1, params.max_targets + 1, number),
                rng.choice([0, params.max_targets + 1, 200], number),
                0.15,
            ),
            mostly(rng.integers(0, params.groups, number), rng.integers(0, 1 << 15, number)),
        ],
        mostly(rng.integers(0, params.gpus, number), rng.integers(0, 1 << 15, number)),
    )
    enables = np.where(load | response, 0, rng.integers(0, 2, number))
    length = rng.integers(1, np.where(enables == 1, 9, 17))
    length = np.where((opcode == Opcode.RSP_ACK.value) | (opcode == 0xC), 0, length)
    dtype, op = np.array(
        [(dtype.value, op.value) for dtype, ops in REDUCTIONS.items() for op in ops]
    )[rng.integers(0, 30, number)].T
    length = np.where(load & (dtype >= 8), rng.integers(1, 9, number), length)
    headers = pack_headers(
        address=address,
        stage=rng.integers(0, 2, number),
        count=count,
        opcode=opcode,
        tag=mostly(rng.integers(0, params.entries, number) & 0x1FC, rng.integers(0, 512, number)),
        gen=rng.integers(0, 4, number),
        aux=mostly(8 * rng.integers(0, 2, number) + op, rng.integers(0, 16, number)),
        length=mostly(length, rng.integers(0, 32, number)),
        byte_enable=mostly(enables, 1 - enables),
        gpu=mostly(
            np.where(response, rng.integers(0, params.gpus, number), port // links),
            rng.integers(0, 64, number),
        ),
        vc=mostly(response, rng.integers(0, 4, number)),
        dtype=mostly(dtype, rng.integers(0, 16, number)),
        posted=1 if 6 in without else rng.integers(0, 2, number),
        more=rng.integers(0, 2, number),
        crc=rng.integers(0, 1 << 25, number),
    )
    lists = int(count[dynamic].sum())
    experts = config.experts_per_gpu * params.gpus
    targets = rng.integers(0, experts, lists)
    beyond = rng.random(lists) < 0.005
    targets[beyond] = rng.integers(min(experts, 65535), 65536, np.count_nonzero(beyond))
    fields = unpack_headers(headers)
    data = np.where(np.where(response, opcode & 2, opcode & 1) > 0, fields["length"], 0).sum()
    return Packets.build(
        headers,
        targets=targets,
        byte_enables=rng.integers(
            0, 1 << 64, (int(fields["byte_enable"].sum()), 2), dtype=np.uint64
        ),
        data=rng.integers(0, 1 << 64, (int(data), 2), dtype=np.uint64),
    )


SHAPES = {
    "tiny": TINY,
    "one-link": SwitchParams(ports=6, max_targets=24, groups=8),
    "two-links": SwitchParams(ports=8, links_per_gpu=2, max_targets=9, groups=4),
    "four-links": SwitchParams(ports=12, links_per_gpu=4, max_targets=64),
    "static-only": SwitchParams(ports=4, max_targets=16, groups=4, dynamic=False),
    "nvl32": PRESETS["nvl32"],
}


def random_config(rng: np.random.Generator, params: SwitchParams) -> SwitchConfig:
    """Most ports in one partition, so that not every packet crosses a border."""
    masks = rng.integers(0, 1 << 63, params.groups).tolist()
    masks[0] = 0
    masks[1] = 1 << params.gpus  # only GPUs that do not exist, or nothing for 64 GPUs
    masks[2] = masks[2] << 1 & (1 << 64) - 1 | 1
    partitions = np.where(rng.random(params.ports) < 0.1, 1, 0).tolist()
    return SwitchConfig(
        experts_per_gpu=int(rng.choice([1, 2, 3, 8, 100, 5000])),
        groups=tuple(masks),
        partitions=tuple(partitions),
    )


MIXES = {"all": (), "no-parts": (0xC, 0xF), "no-arms": (0x6, 0xA)}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("shape", SHAPES)
def test_switch_models_agree(shape: str, mix: str, seed: int) -> None:
    params, without = SHAPES[shape], MIXES[mix]
    rng = np.random.default_rng([seed, *shape.encode()])
    config = random_config(rng, params)
    number = 120 if params.ports < 64 else 10
    inputs = [
        random_packets(rng, params, config, port, number, without) for port in range(params.ports)
    ]
    inputs[1] = Packets()
    check(params, config, inputs)
    if mix != "all":
        assert all(SwitchModel(params, config).process(inputs).settled)


def test_random_requests_replace_each_other() -> None:
    rng = np.random.default_rng(44)
    config = random_config(rng, TINY)
    inputs = [random_packets(rng, TINY, config, port, 150, (0xC, 0xF)) for port in range(4)]
    check(TINY, config, inputs)
    result = SwitchModel(TINY, config).process(inputs)
    assert min(len(packets) for packets in result.results) > 10
    assert all(
        packets == model_results(port, arms)
        for port, (packets, arms) in enumerate(zip(result.results, result.arms, strict=True))
    )


def model_results(port: int, arms: Arms) -> Packets:
    model = ReductionModel(TINY, port)
    for request in arms:
        model.arm(request)
    return model.results


def test_random_traffic_reaches_every_status() -> None:
    seen: Counter[int] = Counter()
    for seed in range(6):
        rng = np.random.default_rng([99, seed])
        config = random_config(rng, TINY)
        inputs = [random_packets(rng, TINY, config, port, 150) for port in range(TINY.ports)]
        seen += check(TINY, config, inputs)
    assert set(seen) == ALL_STATUSES | {0, -1}
    assert min(seen.values()) >= 3


def config_of(**changes: Any) -> SwitchConfig:
    values: dict[str, Any] = {
        "experts_per_gpu": 2,
        "groups": (0, 0b1011, 0b10000, 0b0011),
        "partitions": (0, 0, 0, 1),
    }
    return SwitchConfig(**(values | changes))


def send(packet: Packets, source: int = 0, params: SwitchParams = TINY) -> SwitchResult:
    inputs = [Packets() for _ in range(params.ports)]
    inputs[source] = packet
    return SwitchModel(params, config_of()).process(inputs)


def request(targets: tuple[int, ...] = (), **fields: Any) -> Packets:
    """Well-formed in most fields, from GPU 0."""
    words: dict[str, Any] = {"length": 1, "tag": 7}
    header = pack_headers(**(words | fields))
    opcode = unpack_headers(header)["opcode"][0]
    body = int(packet_flits(header)[0]) - 1
    lists = pack_targets(targets, [len(targets)]) if opcode >> 2 == 2 else np.zeros((0, 2))
    rest = np.full((body - len(lists), 2), 0xABCD, np.uint64)
    return Packets(np.concatenate([header, lists.astype(np.uint64), rest]))


LONG_SUM: dict[str, Any] = {"opcode": Opcode.DY_LD_REDUCE, "count": 1, "length": 9}
LADDER = (
    # Each request breaks one rule, and also later ones: the first in order is the answer.
    (Status.UNKNOWN_OPCODE, {"opcode": 3, "vc": 1, "gpu": 1, "length": 0}, ()),
    (Status.UNKNOWN_OPCODE, {"opcode": 0xB, "count": 0}, ()),
    (Status.BAD_VC, {"opcode": Opcode.DY_ST, "vc": 1, "gpu": 1, "length": 0}, ()),
    (Status.BAD_VC, {"opcode": Opcode.WRITE, "vc": 2}, ()),
    (Status.BAD_SOURCE, {"opcode": Opcode.DY_ST, "gpu": 1, "length": 0}, ()),
    (Status.BAD_SOURCE, {"opcode": Opcode.WRITE, "gpu": 63}, ()),
    (Status.BAD_LENGTH, {"opcode": Opcode.DY_ST, "length": 0}, ()),
    (Status.BAD_LENGTH, {"opcode": Opcode.WRITE, "length": 17, "count": 99}, ()),
    (Status.BAD_LENGTH, {"opcode": Opcode.READ, "byte_enable": 1}, ()),
    (Status.BAD_LENGTH, {"opcode": Opcode.MM_ST, "byte_enable": 1, "length": 9}, ()),
    (Status.COUNT_ZERO, {"opcode": Opcode.DY_ST, "count": 0}, ()),
    (Status.TOO_MANY_TARGETS, {"opcode": Opcode.DY_ST, "count": 17}, (65535,) * 17),
    (Status.BAD_TARGET, {"opcode": Opcode.DY_LD_REDUCE, "count": 2}, (8, 6)),
    (Status.BAD_TARGET, {"opcode": Opcode.WRITE, "count": 4}, ()),
    (Status.NO_GROUP, {"opcode": Opcode.MM_RED, "count": 0}, ()),
    (Status.NO_GROUP, {"opcode": Opcode.MM_RED, "count": 2}, ()),
    (Status.NO_GROUP, {"opcode": Opcode.MM_RED, "count": 4}, ()),
    (Status.PARTITION, {"opcode": Opcode.DY_ST, "count": 2}, (0, 6)),
    (Status.PARTITION, {"opcode": Opcode.WRITE, "count": 3}, ()),
    (Status.PARTITION, {"opcode": Opcode.MM_ST, "count": 1}, ()),
    (Status.BAD_LENGTH, LONG_SUM | {"dtype": DType.F16_TO_F32, "count": 0}, ()),
    (Status.PARTITION, {"opcode": Opcode.MM_LD_REDUCE, "count": 1, "tag": 511, "aux": 7}, ()),
    (Status.BAD_TAG, {"opcode": Opcode.MM_ST, "count": 3, "tag": 16}, ()),
    (Status.BAD_TAG, {"opcode": Opcode.MM_RED, "count": 3, "tag": 511, "aux": 7}, ()),
    (Status.BAD_TAG, {"opcode": Opcode.DY_LD_REDUCE, "count": 1, "tag": 16, "posted": 1}, (0,)),
    (Status.BAD_TAG, LONG_SUM | {"dtype": DType.F32, "tag": 7, "aux": 7}, (0,)),
    (Status.BAD_TAG, LONG_SUM | {"dtype": DType.F16_ACC32, "tag": 6}, (0,)),
    (Status.BAD_TAG, LONG_SUM | {"dtype": DType.BF16_TO_F32, "length": 5, "tag": 7}, (0,)),
    (Status.BAD_TAG, LONG_SUM | {"dtype": 15, "tag": 7}, (0,)),
    (Status.BAD_REDUCTION, {"opcode": Opcode.DY_LD_REDUCE, "count": 1, "aux": 0}, (0,)),
    (Status.BAD_REDUCTION, LONG_SUM | {"dtype": 10, "tag": 6}, (0,)),
    (Status.BAD_REDUCTION, {"opcode": Opcode.MM_RED, "count": 3, "posted": 1, "aux": 8}, ()),
    (Status.BAD_REDUCTION, {"opcode": Opcode.MM_RED, "count": 3, "dtype": 1, "aux": 6}, ()),
)


@pytest.mark.parametrize(("status", "fields", "targets"), LADDER)
def test_switch_refuses_with_first_status(
    status: Status, fields: dict[str, Any], targets: tuple[int, ...]
) -> None:
    packet = request(targets, crc=0x123, more=1, **fields)
    result = send(packet)
    assert not any(result.outputs)
    (refusal,) = result.refusals[0]
    old, new = unpack_headers(packet.headers), unpack_headers(refusal)
    changed = {"opcode": Opcode.RSP_ACK.value, "aux": status.value, "length": 0}
    changed |= {"byte_enable": 0, "vc": Vc.RESPONSE.value}
    assert {name: int(v[0]) for name, v in new.items()} == {
        name: changed.get(name, int(v[0])) for name, v in old.items()
    }
    assert {name: int(values[0]) for name, values in result.counters.items()} == {
        "rx_flits": len(packet.flits),
        "rx_requests": 1,
        "rx_responses": 0,
        "tx_flits": 1,
        "tx_requests": 0,
        "tx_responses": 1,
        "refused": 1,
        "dropped": 0,
        "late": 0,
        "duplicates": 0,
        "wrong": 0,
        "timeouts": 0,
        "replaced": 0,
    }
    assert not any(map(len, result.arms))


def test_ladder_has_every_status() -> None:
    assert {status.value for status, _, _ in LADDER} == ALL_STATUSES


@pytest.mark.parametrize(
    ("fields", "targets"),
    [
        ({"opcode": Opcode.MM_ST, "count": 3, "tag": 511, "posted": 1, "dtype": 15, "aux": 7}, ()),
        ({"opcode": Opcode.DY_ST, "count": 1, "tag": 511, "posted": 1, "dtype": 15}, (0,)),
        ({"opcode": Opcode.MM_RED, "count": 3, "tag": 511, "posted": 1, "dtype": 1}, ()),
        ({"opcode": Opcode.WRITE, "count": 1, "tag": 511, "dtype": 15}, ()),
        ({"opcode": Opcode.READ, "count": 1, "tag": 511, "dtype": 15, "length": 16}, ()),
        ({"opcode": Opcode.READ, "count": 1, "tag": 511, "dtype": 8, "length": 16}, ()),
    ],
)
def test_switch_arms_nothing_for_who_does_not_wait(
    fields: dict[str, Any], targets: tuple[int, ...]
) -> None:
    result = send(request(targets, **fields))
    assert any(result.outputs)
    assert not any(map(len, result.arms))


def test_switch_arms_what_the_request_says() -> None:
    common: dict[str, Any] = {
        "tag": 12,
        "gen": 3,
        "aux": 0xA,
        "dtype": DType.BF16_ACC32,
        "length": 16,
    }
    load = request((1, 0, 1, 3), opcode=Opcode.DY_LD_REDUCE, count=4, **common)
    store = request(opcode=Opcode.MM_ST, count=3, **(common | {"tag": 5}))
    result = send(Packets.concatenate(load, store))
    first, second = result.arms[0]
    assert first == Request(
        tag=12,
        gen=3,
        kind=Kind.LOAD.value,
        dtype=DType.BF16_ACC32.value,
        op=ReduceOp.MAX.value,
        canonical=True,
        length=16,
        total=4,
        expected=0b11,
    )
    assert second == replace(first, tag=5, kind=Kind.STORE.value, canonical=False, total=2)


def test_switch_with_a_time_limit_is_not_settled() -> None:
    store = request((0,), opcode=Opcode.DY_ST, count=1)
    inputs = [Packets.concatenate(store, store), *[Packets()] * 3]
    for timeout, results in ((0, 1), (1, 0)):
        result = SwitchModel(TINY, config_of(timeout=timeout)).process(inputs)
        assert result.settled == (not timeout, True, True, True)
        assert [len(packets) for packets in result.results] == [results, 0, 0, 0]
        assert result.counters["replaced"].tolist() == [results, 0, 0, 0]


RESPONSE: dict[str, Any] = {"opcode": Opcode.RSP_DATA, "vc": Vc.RESPONSE}


@pytest.mark.parametrize(
    "fields",
    [
        {"opcode": Opcode.PART_ACK, "length": 1},
        {"opcode": Opcode.PART_DATA, "length": 0},
        {"opcode": Opcode.PART_DATA, "length": 17},
        {"opcode": Opcode.PART_ACK, "length": 0, "byte_enable": 1},
        {"opcode": Opcode.PART_ACK, "length": 0, "gpu": 3},
        {"opcode": Opcode.PART_ACK, "length": 0, "vc": 0},
        {"vc": Vc.REQUEST},
        {"vc": 3},
        {"gpu": 4},
        {"length": 0},
        {"length": 17},
        {"byte_enable": 1},
        {"opcode": Opcode.RSP_ACK, "length": 1},
        {"gpu": 3},  # another partition
    ],
)
def test_switch_drops_malformed_responses(fields: dict[str, Any]) -> None:
    packet = request(**(RESPONSE | fields))
    result = send(packet)
    assert not any(result.outputs)
    assert not any(len(refusals) for refusals in result.refusals)
    counted = {name: int(values[0]) for name, values in result.counters.items() if values.any()}
    assert counted == {"rx_flits": len(packet.flits), "rx_responses": 1, "dropped": 1}
    assert not any(result.parts)


def test_switch_keeps_parts() -> None:
    parts = Packets.concatenate(
        request(**(RESPONSE | {"opcode": Opcode.PART_DATA, "gpu": 1, "tag": 511, "more": 1})),
        request(**(RESPONSE | {"opcode": Opcode.PART_ACK, "gpu": 1, "length": 0})),
    )
    result = send(parts)
    assert not any(result.outputs)
    assert [dict(sources) for sources in result.parts] == [{}, {0: parts}, {}, {}]
    counted = {name: values.tolist() for name, values in result.counters.items() if values.any()}
    assert counted == {
        "rx_flits": [len(parts.flits), 0, 0, 0],
        "rx_responses": [2, 0, 0, 0],
        "late": [0, 2, 0, 0],  # counted where they get to
    }


def test_switch_without_dynamic_consumes_lists() -> None:
    static_only = SHAPES["static-only"]
    packets = Packets.concatenate(
        request((0, 1), opcode=Opcode.DY_ST, count=2), request(opcode=Opcode.WRITE, count=1)
    )
    result = send(packets, params=static_only)
    assert unpack_headers(result.refusals[0].headers)["aux"].tolist() == [1]
    assert result.packets(1, 0, Vc.REQUEST) == packets.slice(1, 2)
    assert len(result.packets(2, 0, 0)) == 0


def test_switch_keeps_order_of_a_pair() -> None:
    tags = np.arange(300)
    headers = pack_headers(
        opcode=np.where(tags % 3 == 0, Opcode.DY_ST.value, Opcode.READ.value),
        count=1,
        length=1,
        tag=tags,
        posted=1,
    )
    stores = int(np.count_nonzero(tags % 3 == 0))
    packets = Packets.build(
        headers, targets=np.full(stores, 2), data=np.zeros((stores, 2), np.uint64)
    )
    out = send(packets).packets(1, 0, Vc.REQUEST)
    assert unpack_headers(out.headers)["tag"].tolist() == tags.tolist()


def test_switch_of_nothing() -> None:
    result = send(Packets())
    assert not any(result.outputs)
    assert [counter.name for counter in COUNTERS] == list(result.counters)
    assert not any(values.any() for values in result.counters.values())


def test_reset_config_is_the_register_maps() -> None:
    for params in SHAPES.values():
        config = SwitchConfig.at_reset(params)
        reset = {register.name: register.reset for register in register_map(params)}
        assert reset.get("experts_per_gpu", 1) == config.experts_per_gpu
        assert {reset[f"partition{port}"] for port in range(params.ports)} == {0}
        assert len(config.groups) == params.groups
        assert address_of(params, f"group{params.groups - 1}_0")
        SwitchModel(params, config)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"experts_per_gpu": 0}, "`experts_per_gpu` must be 1 to 65535, not 0"),
        ({"experts_per_gpu": 65536}, "`experts_per_gpu` must be 1 to 65535, not 65536"),
        ({"groups": (-1,)}, f"`groups` must be 0 to {(1 << 64) - 1}, not -1"),
        ({"timeout": -1}, "`timeout` must be 0 to 65535, not -1"),
        ({"timeout": 1 << 16}, "`timeout` must be 0 to 65535, not 65536"),
        ({"partitions": (1 << 32,)}, f"`partitions` must be 0 to {(1 << 32) - 1}, not {1 << 32}"),
    ],
)
def test_config_wrong(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        config_of(**changes)


def test_model_wrong() -> None:
    with pytest.raises(ValueError, match=r"^`groups` must be 4 values, not 1$"):
        SwitchModel(TINY, config_of(groups=(0,)))
    with pytest.raises(ValueError, match=r"^`partitions` must be 4 values, not 3$"):
        SwitchModel(TINY, config_of(partitions=(0,) * 3))
    model = SwitchModel(TINY, config_of())
    assert model.params is TINY
    assert model.config == config_of()
    message = r"^`inputs` must be one for each of 4 ports, not 1$"
    with pytest.raises(ValueError, match=message):
        model.process([Packets()])
    cut = pack_headers(opcode=Opcode.WRITE, length=1)
    message = r"^`flits` must end with a whole packet, not inside packet 0$"
    with pytest.raises(ValueError, match=message):
        model.process([cut] * 4)


def test_switch_rate() -> None:
    params = PRESETS["default"]
    config = SwitchConfig(experts_per_gpu=32, groups=(0,) * 32, partitions=(0,) * 8)
    rng = np.random.default_rng(12)
    number = 5000
    inputs = [
        Packets.build(
            pack_headers(
                opcode=Opcode.DY_ST, count=8, length=8, gpu=port, tag=np.arange(number) % 512
            ),
            targets=rng.integers(0, 256, 8 * number),
            data=rng.integers(0, 1 << 64, (8 * number, 2), dtype=np.uint64),
        ).flits
        for port in range(params.ports)
    ]
    model = SwitchModel(params, config)
    times = []
    for _ in range(3):
        begin = process_time()
        model.process(inputs)
        times.append(process_time() - begin)
    assert params.ports * number / min(times) > 200_000
