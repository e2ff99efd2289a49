# SPDX-License-Identifier: Apache-2.0
"""Random multicast requests that wait for answers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from dysharp.golden.arrays import value_of
from dysharp.golden.flits import pack_headers
from dysharp.golden.packets import Packets
from dysharp.golden.route import link_of
from dysharp.golden.switch import SwitchConfig
from dysharp.rtl.flits import (
    MAX_DATA_FLITS,
    REDUCTIONS,
    TO_F32,
    DType,
    Kind,
    Opcode,
    Order,
    ReduceOp,
    Vc,
    slots,
)
from dysharp.rtl.params import SwitchParams

__all__ = ["EVERY_SUM", "LOADS", "STORES", "random_requests"]

EVERY_SUM = tuple((dtype, op) for dtype, ops in REDUCTIONS.items() for op in ops)
"""Every type with each of its operations."""
LOADS = (Opcode.DY_LD_REDUCE, Opcode.MM_LD_REDUCE)
STORES = (Opcode.DY_ST, Opcode.MM_ST, Opcode.MM_RED)


def random_requests(
    params: SwitchParams,
    config: SwitchConfig,
    port: int,
    count: int,
    rng: np.random.Generator,
    *,
    opcodes: Sequence[Any] = LOADS + STORES,
    sums: Sequence[tuple[Any, Any]] = EVERY_SUM,
    longest: int = MAX_DATA_FLITS,
) -> Packets:
    """Make `count` good requests of a port, one after the other for each tag.

    Sums of floats are in canonical order, others in either: their bits do not depend on it.
    """
    headers, lists, data = [], [], []
    step = max(slots(longest, dtype) for dtype, _ in sums)
    tags = params.entries // step
    groups = [number for number, mask in enumerate(config.groups) if mask]
    gpu, link = divmod(port, params.links_per_gpu)
    for use in range(count):
        opcode = opcodes[int(rng.integers(len(opcodes)))]
        dtype, op = sums[int(rng.integers(len(sums)))]
        is_load = value_of(opcode) & 3 == value_of(Kind.LOAD)
        most = min(longest, MAX_DATA_FLITS // 2) if is_load and dtype in TO_F32 else longest
        length = int(rng.integers(1, most + 1))
        is_list = opcode in (Opcode.DY_LD_REDUCE, Opcode.DY_ST)
        size = int(rng.integers(1, params.max_targets + 1)) if is_list else 0
        if is_list and rng.random() < 0.7:
            size = min(size, 8)
        any_order = op is not ReduceOp.ADD or dtype in (DType.U32, DType.S32)
        order = Order(int(rng.integers(2))) if any_order else Order.CANONICAL
        while True:
            address = rng.integers(0, 1 << 44, 1) << 4
            if link_of(address, params.links_per_gpu)[0] == link:
                break
        headers.append(
            pack_headers(
                address=address,
                count=size if is_list else int(rng.choice(groups)),
                opcode=value_of(opcode),
                tag=use % tags * step,
                gen=use // tags % 4,
                aux=value_of(op) | value_of(order) << 3,
                length=length,
                gpu=gpu,
                vc=value_of(Vc.REQUEST),
                dtype=value_of(dtype),
            )
        )
        if is_list:
            experts = min(config.experts_per_gpu * params.gpus, 1 << 16)
            lists.append(rng.integers(0, experts, size))
        if not is_load:
            data.append(rng.integers(0, 1 << 64, (length, 2), dtype=np.uint64))
    return Packets.build(
        np.concatenate(headers),
        targets=np.concatenate(lists) if lists else np.zeros(0, np.int64),
        data=np.concatenate(data) if data else np.zeros((0, 2), np.uint64),
    )
