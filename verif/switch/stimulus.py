# SPDX-License-Identifier: Apache-2.0
"""Constrained random packets for the switch, from one seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from dysharp.golden.arrays import IntArray, value_of
from dysharp.golden.flits import extension_flits, pack_headers, packet_flits
from dysharp.golden.packets import Packets
from dysharp.golden.route import link_of
from dysharp.golden.switch import SwitchConfig
from dysharp.rtl.flits import (
    LANES,
    MAX_BYTE_ENABLE_FLITS,
    MAX_DATA_FLITS,
    Addressing,
    Kind,
    Opcode,
    Vc,
    carries_data,
)
from dysharp.rtl.params import SwitchParams

__all__ = ["FAULTS", "Mix", "make_packets", "random_config", "random_packets"]

FAULTS = (
    "unknown_opcode",
    "bad_vc",
    "bad_source",
    "length_zero",
    "length_over",
    "byte_enable_load",
    "byte_enable_long",
    "count_zero",
    "too_many",
    "far_too_many",
    "bad_target",
    "bad_gpu",
    "no_group",
    "empty_group",
    "bad_response",
)
"""Ways to break a packet, each on its own."""

_UNKNOWN = tuple(code for code in range(16) if code not in {member.value for member in Opcode})


@dataclass(frozen=True, kw_only=True)
class Mix:
    """What a stream of packets is made of.

    Parameters
    ----------
    unicast, static, dynamic, response : float
        Weights of the kinds.
    load : float
        Share of requests that are loads, and so have no data.
    max_data : int
        Longest data, in flits.
    max_targets : int, optional
        Longest list; the switch's limit by default.
    byte_enable : float
        Share of stores under byte enables.
    faults : float
        Share of packets that are broken.
    fault_kinds : Sequence[str]
        The ways in which they are.
    cluster : float
        Share of lists whose targets all live on one or two GPUs.
    spread : float
        Share of lists whose targets live on as many GPUs as they can.
    """

    unicast: float = 1.0
    static: float = 1.0
    dynamic: float = 2.0
    response: float = 1.0
    load: float = 0.2
    max_data: int = MAX_DATA_FLITS
    max_targets: int | None = None
    byte_enable: float = 0.1
    faults: float = 0.0
    fault_kinds: Sequence[str] = FAULTS
    cluster: float = 0.2
    spread: float = 0.1
    opcodes: Mapping[str, int] = field(default_factory=dict)


def random_config(
    params: SwitchParams, rng: np.random.Generator, *, partitions: int = 1
) -> SwitchConfig:
    """Make registers with random groups: the first of all GPUs, the next of one, the last none."""
    groups = rng.integers(1, 1 << min(params.gpus, 62), params.groups)
    groups[:2] = [(1 << min(params.gpus, 62)) - 1, 1 << int(rng.integers(params.gpus))][
        : params.groups
    ]
    if params.groups > 1:
        groups[-1] = 0
    return SwitchConfig(
        experts_per_gpu=int(rng.choice([1, 2, 3, 7, 8, 32, 1000, 65535 // params.gpus])),
        groups=tuple(int(mask) for mask in groups),
        partitions=tuple(int(part) for part in rng.integers(0, partitions, params.ports)),
    )


def random_packets(
    params: SwitchParams,
    config: SwitchConfig,
    port: int,
    count: int,
    mix: Mix,
    rng: np.random.Generator,
) -> Packets:
    """`count` packets that `port` may send, or must not, as `mix` says."""
    kinds = (Addressing.UNICAST, Addressing.STATIC, Addressing.DYNAMIC, Addressing.RESPONSE)
    weights = np.array([mix.unicast, mix.static, mix.dynamic, mix.response], dtype=float)
    addressing = np.array([kind.value for kind in kinds])[
        rng.choice(4, count, p=weights / weights.sum())
    ]
    response = addressing == Addressing.RESPONSE.value
    static = addressing == Addressing.STATIC.value
    dynamic = addressing == Addressing.DYNAMIC.value
    unicast = addressing == Addressing.UNICAST.value
    is_load = (rng.random(count) < mix.load) & ~response
    kind: IntArray = np.where(is_load, value_of(Kind.LOAD), value_of(Kind.STORE))
    kind = np.where(static & ~is_load & (rng.random(count) < 0.3), Kind.RED.value, kind)
    ack = response & (rng.random(count) < 0.4)
    kind = np.where(response, np.where(ack, Kind.STORE.value, Kind.LOAD.value), kind)
    opcode: IntArray = addressing << 2 | kind

    length: IntArray = rng.integers(1, mix.max_data + 1, count)
    length[ack] = 0
    enabled = ~response & ~is_load & (rng.random(count) < mix.byte_enable)
    length = np.where(enabled, np.minimum(length, MAX_BYTE_ENABLE_FLITS), length)

    longest = min(mix.max_targets or params.max_targets, params.max_targets)
    targets = np.minimum(rng.geometric(1 / min(8, longest), count), longest)
    targets = np.where(rng.random(count) < 0.1, rng.integers(1, longest + 1, count), targets)
    ends = rng.choice([1, min(LANES, longest), longest], count)
    targets = np.where(rng.random(count) < 0.1, ends, targets)
    group = rng.integers(0, max(1, params.groups - 1), count)
    gpu_number = rng.integers(0, params.gpus, count)
    number = np.select([dynamic, static, unicast], [targets, group, gpu_number], targets)

    address = _addresses(params, port, response, rng, count)
    gpu = np.where(response, rng.integers(0, params.gpus, count), port // params.links_per_gpu)
    vc: IntArray = np.where(response, value_of(Vc.RESPONSE), value_of(Vc.REQUEST))
    enable = enabled.astype(np.int64)
    bad_lane = np.full(count, -1)

    broken = np.flatnonzero(rng.random(count) < mix.faults)
    for index in broken:
        _break(
            str(rng.choice(list(mix.fault_kinds))),
            int(index),
            params,
            rng,
            opcode=opcode,
            vc=vc,
            gpu=gpu,
            length=length,
            enable=enable,
            number=number,
            bad_lane=bad_lane,
        )
    headers = pack_headers(
        address=address,
        stage=rng.integers(0, 2, count),
        count=number,
        opcode=opcode,
        tag=rng.integers(0, 512, count),
        gen=rng.integers(0, 4, count),
        aux=np.where(response, rng.integers(0, 2, count), rng.integers(0, 16, count)),
        length=length,
        byte_enable=enable,
        gpu=gpu,
        vc=vc,
        dtype=rng.integers(0, 8, count),
        reserved=rng.integers(0, 4, count),
    )
    return _assemble(params, config, headers, opcode, number, length, enable, bad_lane, mix, rng)


def _addresses(
    params: SwitchParams, port: int, response: IntArray, rng: np.random.Generator, count: int
) -> IntArray:
    """Addresses whose hash fits the port, for requests."""
    address = rng.integers(0, 1 << 48, count)
    if params.links_per_gpu > 1:
        while True:
            wrong = ~response & (
                link_of(address, params.links_per_gpu) != port % params.links_per_gpu
            )
            if not wrong.any():
                break
            address[wrong] = rng.integers(0, 1 << 48, int(wrong.sum()))
    return address


def _break(
    fault: str,
    index: int,
    params: SwitchParams,
    rng: np.random.Generator,
    *,
    opcode: IntArray,
    vc: IntArray,
    gpu: IntArray,
    length: IntArray,
    enable: IntArray,
    number: IntArray,
    bad_lane: IntArray,
) -> None:
    """Break one packet."""
    request = Opcode.WRITE.value
    if fault == "unknown_opcode":
        opcode[index] = rng.choice(_UNKNOWN)
        if opcode[index] >> 2 == Addressing.RESPONSE.value:
            vc[index] = Vc.RESPONSE.value
        else:
            vc[index] = Vc.REQUEST.value
        number[index] = min(number[index], params.max_targets)
    elif fault == "bad_vc":
        vc[index] ^= int(rng.choice([1, 2, 3]))
    elif fault == "bad_source":
        gpu[index] = (gpu[index] + int(rng.integers(1, 64))) % 64
    elif fault == "length_zero":
        opcode[index], length[index], enable[index] = request, 0, 0
        vc[index] = 0
    elif fault == "length_over":
        length[index] = rng.integers(MAX_DATA_FLITS + 1, 32)
    elif fault == "byte_enable_load":
        enable[index] = 1
        opcode[index] = Opcode.READ.value
        vc[index] = 0
    elif fault == "byte_enable_long":
        opcode[index] = request
        enable[index], length[index] = 1, MAX_BYTE_ENABLE_FLITS + 1
        vc[index] = 0
    elif fault in ("count_zero", "too_many", "far_too_many", "bad_target"):
        opcode[index] = rng.choice([Opcode.DY_ST.value, Opcode.DY_LD_REDUCE.value])
        vc[index] = 0
        length[index] = max(1, length[index])
        number[index] = {
            "count_zero": 0,
            "too_many": params.max_targets + int(rng.integers(1, 2 * LANES)),
            "far_too_many": int(rng.choice([1000, 4095])),
            "bad_target": max(1, min(int(number[index]), params.max_targets)),
        }[fault]
        if fault == "bad_target":
            bad_lane[index] = rng.integers(0, number[index])
    elif fault == "bad_gpu":
        opcode[index], vc[index], length[index] = request, 0, max(1, length[index])
        number[index] = rng.integers(params.gpus, 1 << 15)
    elif fault in ("no_group", "empty_group"):
        opcode[index], vc[index], length[index] = Opcode.MM_ST.value, 0, max(1, length[index])
        number[index] = (
            params.groups - 1 if fault == "empty_group" else rng.integers(params.groups, 1 << 15)
        )
    elif fault == "bad_response":
        opcode[index], vc[index] = Opcode.RSP_DATA.value, Vc.RESPONSE.value
        length[index] = rng.choice([0, 17, 31])
        enable[index] = rng.integers(0, 2)
    else:
        raise ValueError(f"`fault` must be one of {FAULTS}, not {fault!r}")


def _assemble(
    params: SwitchParams,
    config: SwitchConfig,
    headers: np.ndarray,
    opcode: IntArray,
    number: IntArray,
    length: IntArray,
    enable: IntArray,
    bad_lane: IntArray,
    mix: Mix,
    rng: np.random.Generator,
) -> Packets:
    """Add lists, byte enables and data, as the framing of each header demands."""
    count = len(headers)
    listed = opcode >> 2 == Addressing.DYNAMIC.value
    experts = min(config.experts_per_gpu * params.gpus, 1 << 16)
    lists = []
    for index in np.flatnonzero(listed):
        size = int(number[index])
        choice = rng.random()
        if choice < mix.cluster:
            homes = rng.integers(0, params.gpus, rng.integers(1, 3)) * config.experts_per_gpu
            targets = rng.choice(homes, size) + rng.integers(0, config.experts_per_gpu, size)
            targets = np.minimum(targets, experts - 1)
        elif choice < mix.cluster + mix.spread:
            homes = np.resize(rng.permutation(params.gpus), size) * config.experts_per_gpu
            targets = homes + rng.integers(0, config.experts_per_gpu, size)
            targets = np.minimum(targets, experts - 1)
        else:
            targets = rng.integers(0, experts, size)
        if bad_lane[index] >= 0 and experts < 1 << 16:
            targets[bad_lane[index]] = rng.integers(experts, 1 << 16)
        lists.append(targets)
    sizes = packet_flits(headers)
    carried = np.array([carries_data(int(code)) for code in opcode]) * length
    extensions = np.where(listed, extension_flits(number), 0)
    if not np.array_equal(sizes, 1 + extensions + enable + carried):
        raise AssertionError("the framing rule and the assembly differ")
    return (
        Packets.build(
            headers,
            targets=np.concatenate(lists) if lists else np.zeros(0, dtype=np.int64),
            byte_enables=_random_flits(rng, int(enable.sum())),
            data=_random_flits(rng, int(carried.sum())),
        )
        if count
        else Packets()
    )


def _random_flits(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.integers(0, 1 << 64, (count, 2), dtype=np.uint64)


def make_packets(
    opcode: Enum | int,
    *,
    gpu: int,
    address: IntArray | Sequence[int],
    count: IntArray | Sequence[int] | int = 0,
    length: IntArray | Sequence[int] | int = 1,
    targets: Sequence[Sequence[int]] | None = None,
    **fields: int,
) -> Packets:
    """Packets of one kind, one for each address; their data follows from the addresses.

    Parameters
    ----------
    opcode : Opcode or int
        What they are.
    gpu : int
        The requester.
    address, count, length : array_like
        Header fields; `count` is set from `targets` when these are given.
    targets : sequence of sequences, optional
        A list for each packet.
    **fields : int
        More header fields, equal for all.
    """
    number = len(address)
    code = opcode if isinstance(opcode, int) else value_of(opcode)
    is_response = code >> 2 == value_of(Addressing.RESPONSE)
    sizes = [len(one) for one in targets] if targets is not None else count
    lengths = np.broadcast_to(np.asarray(length), number)
    headers = pack_headers(
        address=np.asarray(address),
        count=np.broadcast_to(np.asarray(sizes), number),
        opcode=code,
        length=lengths,
        gpu=gpu,
        vc=value_of(Vc.RESPONSE if is_response else Vc.REQUEST),
        **fields,
    )
    flits = int(lengths.sum()) if carries_data(code) else 0
    seed = [gpu, code, *(int(one) for one in address[:1])]
    return Packets.build(
        headers,
        targets=np.concatenate([np.asarray(one) for one in targets or [[]]]).astype(np.int64),
        data=_random_flits(np.random.default_rng(seed), flits),
    )
