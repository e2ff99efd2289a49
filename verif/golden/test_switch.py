# SPDX-License-Identifier: Apache-2.0
"""The vectorised switch model against a second one that handles a packet at a time."""

import re
from collections import Counter
from time import process_time
from typing import Any

import numpy as np
import pytest
from dysharp.golden.flits import (
    pack_headers,
    pack_targets,
    packet_flits,
    replace_fields,
    unpack_headers,
)
from dysharp.golden.packets import Packets
from dysharp.golden.route import link_of
from dysharp.golden.switch import SwitchConfig, SwitchModel, SwitchResult
from dysharp.rtl.flits import Opcode, Status, Vc
from dysharp.rtl.params import PRESETS, SwitchParams
from dysharp.rtl.register_map import COUNTERS, address_of, register_map

TINY = PRESETS["tiny"]
ALL_STATUSES = {status.value for status in Status} - {0}


class PlainSwitch:
    """The rules again, in the words of the packet format and without any array arithmetic."""

    def __init__(self, params: SwitchParams, config: SwitchConfig) -> None:
        self.params, self.config = params, config

    def port(self, gpu: int, address: int) -> int:
        links = self.params.links_per_gpu
        return gpu * links + int(link_of(np.array([address]), links)[0])

    def crosses(self, source: int, port: int) -> bool:
        return self.config.partitions[source] != self.config.partitions[port]

    def handle(
        self, source: int, packet: np.ndarray
    ) -> tuple[int, dict[int, list[list[int]]], list[int] | None]:
        """Status (-1: dropped), the copy for each port, and the refusal."""
        params, config = self.params, self.config
        fields = {name: int(values[0]) for name, values in unpack_headers(packet[:1]).items()}
        opcode, length, count = fields["opcode"], fields["length"], fields["count"]
        flits = packet.tolist()
        if opcode >= 12:
            ok = opcode in (13, 14) and fields["vc"] == 1 and fields["gpu"] < params.gpus
            ok = ok and (length == 0 if opcode == 13 else 1 <= length <= 16)
            ok = ok and not fields["byte_enable"]
            port = self.port(fields["gpu"], fields["address"]) if ok else 0
            if not ok or self.crosses(source, port):
                return -1, {}, None
            return 0, {port: flits}, None

        status = 0
        copies: dict[int, list[Any]] = {}
        known = {1, 2, 5, 6, 7} | ({9, 10} if params.dynamic else set())
        lists = packet[1 : 1 + (count + 7) // 8].tolist() if opcode in (9, 10) else []
        targets = [word >> 16 * i & 0xFFFF for pair in lists for word in pair for i in range(4)]
        targets = targets[:count]
        enabled = fields["byte_enable"]
        if opcode not in known:
            status = 1
        elif fields["vc"]:
            status = 2
        elif self.port(fields["gpu"], fields["address"]) != source:
            status = 3
        elif not 1 <= length <= 16 or (enabled and (opcode in (2, 6, 10) or length > 8)):
            status = 4
        elif opcode in (9, 10):
            if count == 0:
                status = 5
            elif count > params.max_targets:
                status = 6
            elif any(target >= config.experts_per_gpu * params.gpus for target in targets):
                status = 7
            for target in [] if status else targets:
                port = self.port(target // config.experts_per_gpu, fields["address"])
                copies.setdefault(port, []).append(target)
            for port, left in copies.items():
                header = replace_fields(packet[:1], count=len(left))
                copies[port] = [*header.tolist(), *pack_targets([left]).tolist()]
                copies[port] += flits[1 + len(lists) :]
        elif opcode in (1, 2):
            if count >= params.gpus:
                status = 7
            else:
                copies = {self.port(count, fields["address"]): flits}
        else:
            mask = config.groups[count] if count < params.groups else 0
            gpus = [gpu for gpu in range(params.gpus) if mask >> gpu & 1]
            copies = {self.port(gpu, fields["address"]): flits for gpu in gpus}
            status = 0 if gpus else 8
        if not status and any(self.crosses(source, port) for port in copies):
            status = 9
        if not status:
            return 0, copies, None
        answer = replace_fields(
            packet[:1], opcode=13, aux=status, length=0, byte_enable=0, vc=1
        ).tolist()[0]
        return status, {}, answer


def check(params: SwitchParams, config: SwitchConfig, inputs: list[Packets]) -> Counter[int]:
    """Compare the two models; returns how often each status came up."""
    result = SwitchModel(params, config).process(inputs)
    plain = PlainSwitch(params, config)
    outputs: list[dict[tuple[int, int], list]] = [{} for _ in range(params.ports)]
    refusals: list[list] = [[] for _ in range(params.ports)]
    counters = {counter.name: [0] * params.ports for counter in COUNTERS}
    seen: Counter[int] = Counter()
    for source, packets in enumerate(inputs):
        for packet in packets:
            header = unpack_headers(packet[:1])
            response = int(header["opcode"][0]) >= 12
            status, copies, answer = plain.handle(source, packet)
            seen[status] += 1
            counters["rx_flits"][source] += len(packet)
            counters["rx_responses" if response else "rx_requests"][source] += 1
            if status == -1:
                counters["dropped"][source] += 1
            if answer is not None:
                refusals[source].append([answer])
                counters["refused"][source] += 1
                counters["tx_flits"][source] += 1
                counters["tx_responses"][source] += 1
            for port, copy in copies.items():
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
    assert {name: values.tolist() for name, values in result.counters.items()} == counters
    return seen


def random_packets(
    rng: np.random.Generator, params: SwitchParams, config: SwitchConfig, port: int, number: int
) -> Packets:
    """Packets of all kinds, most of them well-formed, the rest with something wrong."""

    def mostly(good: Any, bad: Any, share: float = 0.06) -> np.ndarray:
        return np.where(rng.random(number) < share, bad, good)

    links = params.links_per_gpu
    address = rng.integers(0, 1 << 41, 64 * number) << 7 | rng.integers(0, 128, 64 * number)
    address = address[link_of(address, links) == port % links][:number]
    address = mostly(address, rng.integers(0, 1 << 48, number))
    known = np.array([opcode.value for opcode in Opcode])
    opcode = mostly(rng.choice(known, number), rng.integers(0, 16, number))
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
    length = np.where(opcode == Opcode.RSP_ACK.value, 0, length)
    headers = pack_headers(
        address=address,
        stage=rng.integers(0, 2, number),
        count=count,
        opcode=opcode,
        tag=rng.integers(0, 512, number),
        gen=rng.integers(0, 4, number),
        aux=rng.integers(0, 16, number),
        length=mostly(length, rng.integers(0, 32, number)),
        byte_enable=mostly(enables, 1 - enables),
        gpu=mostly(
            np.where(response, rng.integers(0, params.gpus, number), port // links),
            rng.integers(0, 64, number),
        ),
        vc=mostly(response, rng.integers(0, 4, number)),
        dtype=rng.integers(0, 16, number),
        reserved=rng.integers(0, 4, number),
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


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", SHAPES)
def test_switch_models_agree(shape: str, seed: int) -> None:
    params = SHAPES[shape]
    rng = np.random.default_rng([seed, *shape.encode()])
    config = random_config(rng, params)
    number = 120 if params.ports < 64 else 10
    inputs = [random_packets(rng, params, config, port, number) for port in range(params.ports)]
    inputs[1] = Packets()
    check(params, config, inputs)


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
        "groups": (0, 0b1011, 0b10000, 0),
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
)


@pytest.mark.parametrize(("status", "fields", "targets"), LADDER)
def test_switch_refuses_with_first_status(
    status: Status, fields: dict[str, Any], targets: tuple[int, ...]
) -> None:
    packet = request(targets, crc=0x123, reserved=2, **fields)
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
    }


def test_ladder_has_every_status() -> None:
    assert {status.value for status, _, _ in LADDER} == ALL_STATUSES


RESPONSE: dict[str, Any] = {"opcode": Opcode.RSP_DATA, "vc": Vc.RESPONSE}


@pytest.mark.parametrize(
    "fields",
    [
        {"opcode": 0xC},
        {"opcode": 0xF},
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
