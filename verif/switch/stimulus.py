# SPDX-License-Identifier: Apache-2.0
"""Constrained random packets for the switch, from one seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from dysharp.golden.arms import slots_of
from dysharp.golden.arrays import IntArray, value_of
from dysharp.golden.flits import extension_flits, pack_headers, packet_flits
from dysharp.golden.packets import Packets
from dysharp.golden.route import link_of
from dysharp.golden.switch import SwitchConfig
from dysharp.rtl.flits import (
    LANES,
    MAX_BYTE_ENABLE_FLITS,
    MAX_DATA_FLITS,
    REDUCTIONS,
    TO_F32,
    Addressing,
    DType,
    Kind,
    Opcode,
    Status,
    Vc,
    carries_data,
)
from dysharp.rtl.params import SwitchParams

__all__ = ["FAULTS", "FAULT_STATUSES", "Mix", "make_packets", "random_config", "random_packets"]

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
    "bad_tag",
    "bad_reduction",
    "bad_response",
)
"""Ways to break a packet, each on its own."""

FAULT_STATUSES = {
    "unknown_opcode": Status.UNKNOWN_OPCODE,
    "bad_vc": Status.BAD_VC,
    "bad_source": Status.BAD_SOURCE,
    "length_zero": Status.BAD_LENGTH,
    "length_over": Status.BAD_LENGTH,
    "byte_enable_load": Status.BAD_LENGTH,
    "byte_enable_long": Status.BAD_LENGTH,
    "count_zero": Status.COUNT_ZERO,
    "too_many": Status.TOO_MANY_TARGETS,
    "far_too_many": Status.TOO_MANY_TARGETS,
    "bad_target": Status.BAD_TARGET,
    "bad_gpu": Status.BAD_TARGET,
    "no_group": Status.NO_GROUP,
    "empty_group": Status.NO_GROUP,
    "bad_tag": Status.BAD_TAG,
    "bad_reduction": Status.BAD_REDUCTION,
}
"""What a request that is broken in such a way is answered with."""

_UNKNOWN = tuple(code for code in range(16) if code not in {member.value for member in Opcode})
_REDUCTIONS = np.array(
    [(value_of(dtype), value_of(op)) for dtype, ops in REDUCTIONS.items() for op in ops]
)
"""All pairs of a type and an operation of it."""
_FEW_TAGS = 16
"""Half of the requests use so many tags, so that they use them again."""


@dataclass(frozen=True, kw_only=True)
class Mix:
    """What a stream of packets is made of.

    Parameters
    ----------
    unicast, static, dynamic, response, part : float
        Weights of the kinds. Parts are strays: nobody asked for them. What the switch does with
        them depends on time unless nothing is armed (`load` and `waiting` 0).
    load : float
        Share of requests that are loads, and so have no data.
    waiting : float
        Share of multicast stores that are not posted.
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
    part: float = 0.0
    load: float = 0.2
    waiting: float = 0.0
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
    """`count` packets that `port` may send, or must not, as `mix` says.

    Loads are reductions that exist, with tags that fit, and no one answers them: a request ends
    when its tag is used again.
    """
    kinds = (Addressing.UNICAST, Addressing.STATIC, Addressing.DYNAMIC, Addressing.RESPONSE)
    weights = np.array([mix.unicast, mix.static, mix.dynamic, mix.response, mix.part], dtype=float)
    choice = rng.choice(5, count, p=weights / weights.sum())
    addressing = np.array([value_of(kind) for kind in (*kinds, Addressing.RESPONSE)])[choice]
    part = choice == 4
    response = addressing == Addressing.RESPONSE.value
    static = addressing == Addressing.STATIC.value
    dynamic = addressing == Addressing.DYNAMIC.value
    unicast = addressing == Addressing.UNICAST.value
    is_load = (rng.random(count) < mix.load) & ~response
    is_red = static & ~is_load & (rng.random(count) < 0.3)
    ack = response & (rng.random(count) < 0.4)
    opcode: IntArray = addressing << 2 | np.select(
        [response, is_load, is_red],
        [np.where(ack, value_of(Kind.STORE), value_of(Kind.LOAD)), Kind.LOAD.value, Kind.RED.value],
        value_of(Kind.STORE),
    )
    answer = np.where(ack, value_of(Opcode.PART_ACK), value_of(Opcode.PART_DATA))
    opcode = np.where(part, answer, opcode)

    summed = is_load & ~unicast
    dtype, op = _REDUCTIONS[rng.integers(0, len(_REDUCTIONS), count)].T
    free = ~summed & ~is_red
    dtype = np.where(free, rng.integers(0, 16, count), dtype)
    aux = np.where(free, rng.integers(0, 16, count), 8 * rng.integers(0, 2, count) + op)
    aux = np.where(response, rng.integers(0, 2, count), aux)

    length: IntArray = rng.integers(1, mix.max_data + 1, count)
    length[ack] = 0
    enabled = ~response & ~is_load & (rng.random(count) < mix.byte_enable)
    length = np.where(enabled, np.minimum(length, MAX_BYTE_ENABLE_FLITS), length)
    doubled = summed & np.isin(dtype, [value_of(member) for member in TO_F32])
    length = np.where(doubled, np.minimum(length, MAX_DATA_FLITS // 2), length)

    posted = np.where(unicast | summed | response, rng.integers(0, 2, count), 1)
    waits = (static | dynamic) & ~is_load & (rng.random(count) < mix.waiting)
    posted[waits] = 0
    number_of_tags = np.where(rng.random(count) < 0.5, _FEW_TAGS, params.entries)
    tag = rng.integers(0, np.minimum(number_of_tags, params.entries))
    tag = np.where(summed, tag - tag % slots_of(length, dtype), tag)
    tag = np.where(summed | waits, tag, rng.integers(0, 512, count))

    longest = min(mix.max_targets or params.max_targets, params.max_targets)
    targets = np.minimum(rng.geometric(1 / min(8, longest), count), longest)
    targets = np.where(rng.random(count) < 0.1, rng.integers(1, longest + 1, count), targets)
    ends = rng.choice([1, min(LANES, longest), longest], count)
    targets = np.where(rng.random(count) < 0.1, ends, targets)
    group = rng.integers(0, max(1, params.groups - 1), count)
    gpu_number = rng.integers(0, params.gpus, count)
    number = np.select([dynamic, static, unicast], [targets, group, gpu_number], targets)

    gpu = np.where(response, rng.integers(0, params.gpus, count), port // params.links_per_gpu)
    columns = {
        "address": _addresses(params, port, response, rng, count),
        "stage": rng.integers(0, 2, count),
        "count": number,
        "opcode": opcode,
        "tag": tag,
        "gen": rng.integers(0, 4, count),
        "aux": aux,
        "length": length,
        "byte_enable": enabled.astype(np.int64),
        "gpu": gpu,
        "vc": np.where(response, value_of(Vc.RESPONSE), value_of(Vc.REQUEST)),
        "dtype": dtype,
        "posted": posted,
        "more": rng.integers(0, 2, count),
    }
    bad_lane = np.full(count, -1)
    for index in np.flatnonzero(rng.random(count) < mix.faults):
        packet = {name: int(column[index]) for name, column in columns.items()}
        fault = str(rng.choice(list(mix.fault_kinds)))
        bad_lane[index] = _break(fault, packet, params, port, mix, rng)
        for name, value in packet.items():
            columns[name][index] = value
    return _assemble(params, config, columns, bad_lane, mix, rng)


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
    packet: dict[str, int],
    params: SwitchParams,
    port: int,
    mix: Mix,
    rng: np.random.Generator,
) -> int:
    """Break one packet; returns the lane of its list that is to be bad, or -1."""

    def become(opcode: Enum | int, **fields: int) -> None:
        packet["opcode"] = opcode if isinstance(opcode, int) else value_of(opcode)
        gpu = port // params.links_per_gpu
        same = {"vc": 0, "posted": 1, "gpu": gpu, "length": max(1, packet["length"])}
        packet.update(same | fields)

    store, load = (Opcode.DY_ST, Opcode.DY_LD_REDUCE)
    if not params.dynamic and fault in ("bad_tag", "bad_reduction"):
        store, load = (Opcode.MM_ST, Opcode.MM_LD_REDUCE)
    longest = mix.max_targets or params.max_targets
    listed = max(1, min(packet["count"], longest)) if params.dynamic else 0
    lane = -1
    if fault == "unknown_opcode":
        become(int(rng.choice(_UNKNOWN)), count=min(packet["count"], params.max_targets))
    elif fault == "bad_vc":
        packet["vc"] ^= int(rng.choice([1, 2, 3]))
    elif fault == "bad_source":
        packet["gpu"] = (packet["gpu"] + int(rng.integers(1, 64))) % 64
    elif fault == "length_zero":
        become(Opcode.WRITE, length=0, byte_enable=0)
    elif fault == "length_over":
        packet["length"] = int(rng.integers(MAX_DATA_FLITS + 1, 32))
    elif fault == "byte_enable_load":
        become(Opcode.READ, byte_enable=1)
    elif fault == "byte_enable_long":
        become(Opcode.WRITE, byte_enable=1, length=MAX_BYTE_ENABLE_FLITS + 1)
    elif fault in ("count_zero", "too_many", "far_too_many", "bad_target"):
        if mix.load and rng.integers(2):
            become(load, byte_enable=0)
            packet["length"] = min(packet["length"], MAX_DATA_FLITS // 2)
        else:
            become(store)
        packet["count"] = {
            "count_zero": 0,
            "too_many": params.max_targets + int(rng.integers(1, 2 * LANES)),
            "far_too_many": int(rng.choice([1000, 4095])),
            "bad_target": max(1, min(packet["count"], params.max_targets)),
        }[fault]
        if fault == "bad_target":
            lane = int(rng.integers(0, packet["count"]))
    elif fault == "bad_gpu":
        become(Opcode.WRITE, count=int(rng.integers(params.gpus, 1 << 15)))
    elif fault == "no_group":
        become(Opcode.MM_ST, count=int(rng.integers(params.groups, 1 << 15)))
    elif fault == "empty_group":
        become(Opcode.MM_ST, count=params.groups - 1)
    elif fault == "bad_tag":
        if params.entries < 512 and rng.integers(2):
            become(store, count=listed, posted=0, tag=int(rng.integers(params.entries, 512)))
        else:
            tag = 2 * int(rng.integers(0, params.entries // 2)) + 1
            dtype = int(rng.choice([0, 5, 6, 7]))  # 2 or 4 entries
            become(load, count=listed, tag=tag, dtype=dtype, length=int(rng.integers(9, 17)))
        packet["byte_enable"] = 0
    elif fault == "bad_reduction":
        dtype = int(rng.integers(0, 16))
        wrong = [op for op in range(8) if [dtype, op] not in _REDUCTIONS.tolist()]
        become(load, count=listed, tag=0, dtype=dtype, aux=int(rng.choice(wrong)), byte_enable=0)
        packet["length"] = min(packet["length"], MAX_DATA_FLITS // 2)
        if rng.integers(2):
            become(Opcode.MM_RED, count=0)
    elif fault == "bad_response":
        become(Opcode.PART_DATA if rng.integers(2) else Opcode.RSP_DATA, vc=Vc.RESPONSE.value)
        packet["length"] = int(rng.choice([0, 17, 31]))
        packet["byte_enable"] = int(rng.integers(0, 2))
    else:
        raise ValueError(f"`fault` must be one of {FAULTS}, not {fault!r}")
    return lane


def _assemble(
    params: SwitchParams,
    config: SwitchConfig,
    columns: dict[str, IntArray],
    bad_lane: IntArray,
    mix: Mix,
    rng: np.random.Generator,
) -> Packets:
    """Add lists, byte enables and data, as the framing of each header demands."""
    headers = pack_headers(**columns)
    opcode, number, length = columns["opcode"], columns["count"], columns["length"]
    enable = columns["byte_enable"]
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

    Unless `fields` say otherwise, stores are posted, and sums are of 32-bit integers.

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
    if code in (value_of(Opcode.MM_ST), value_of(Opcode.MM_RED), value_of(Opcode.DY_ST)):
        fields = {"posted": 1} | fields
    if code not in (value_of(Opcode.MM_ST), value_of(Opcode.DY_ST)) and 4 <= code < 12:
        fields = {"dtype": value_of(DType.U32)} | fields
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
