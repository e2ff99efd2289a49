# SPDX-License-Identifier: Apache-2.0
"""The packets of a replay, and what every link has to carry for them."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from dysharp.gen.errors import UserError
from dysharp.gen.traces import Trace
from dysharp.golden.arrays import IntArray, value_of
from dysharp.golden.flits import extension_flits, pack_headers
from dysharp.golden.packets import Packets
from dysharp.golden.route import Pruned, ports_of, prune
from dysharp.rtl.flits import (
    FLIT_BYTES,
    MAX_DATA_FLITS,
    TARGET_BITS,
    TO_F32,
    DType,
    Opcode,
    Order,
    ReduceOp,
    Stage,
    Vc,
    slots,
)
from dysharp.rtl.params import SwitchParams

__all__ = [
    "PLACEMENTS",
    "Placement",
    "Plan",
    "ReplayError",
    "Sums",
    "check_int",
    "experts_of",
    "plan_replay",
]

Placement = Literal["interleaved", "blocked"]
PLACEMENTS: tuple[Placement, ...] = ("interleaved", "blocked")

_BASES = {Stage.DISPATCH: 1 << 40, Stage.COMBINE: 1 << 41}
_GENERATIONS = 4


class ReplayError(UserError):
    """A replay that was asked for cannot be made."""


@dataclass(frozen=True, kw_only=True)
class Sums:
    """How a combine adds.

    Parameters
    ----------
    dtype : DType
        Element type of the parts, and how it is accumulated.
    order : Order
        Of the parts.
    presum : bool
        A GPU answers once for all of a token's experts on it, not once for each.
    """

    dtype: Any = DType.BF16_ACC32
    order: Any = Order.CANONICAL
    presum: bool = True


@dataclass(frozen=True, eq=False)
class Plan:
    """Packets of a replay, and what every link has to carry.

    Parameters
    ----------
    inputs : tuple of Packets
        The requests that each port sends, in order.
    stages : tuple of Stage
        What the requests are for.
    flits_in, flits_out : ndarray
        Flits of each port's two directed links, into the switch and out of it, with the answers.
    copies_out : ndarray
        Copies of requests that leave by each port.
    fan_out : ndarray
        Element *n*: requests that go to *n* GPUs.
    request_flits, copy_flits, expert_flits : int
        Flits of all requests; of requests to each GPU of their lists, and to each expert, that the
        sources would have to send in their place.
    top_k, data_flits : int
        Targets and data flits of each packet.
    """

    inputs: tuple[Packets, ...]
    stages: tuple[Any, ...]
    flits_in: IntArray
    flits_out: IntArray
    copies_out: IntArray
    fan_out: IntArray
    request_flits: int
    copy_flits: int
    expert_flits: int
    top_k: int
    data_flits: int

    @property
    def packets(self) -> int:
        """Requests that the sources send."""
        return int(self.fan_out.sum())

    @property
    def copies(self) -> int:
        """Copies of requests that leave the switch."""
        return int(self.copies_out.sum())

    @property
    def ideal_cycles(self) -> int:
        """The bound: flits of the directed link that has to carry most, one a cycle."""
        return int(max(self.flits_in.max(), self.flits_out.max()))


def plan_replay(
    trace: Trace,
    params: SwitchParams,
    *,
    experts_per_gpu: int,
    payload: int,
    packets_per_token: int,
    stages: tuple[Any, ...] = (Stage.DISPATCH,),
    sums: Sums | None = None,
    acknowledge: bool = False,
    placement: Placement | str = "interleaved",
    seed: int = 0,
) -> Plan:
    """Make the packets of a replay.

    Token *t* belongs to GPU *t* mod N (``interleaved``), or each GPU has a run of neighbouring
    tokens (``blocked``). For each stage it makes M = `packets_per_token` packets with the token's
    list, ``dymultimem.st`` to dispatch and ``dymultimem.ld_reduce`` to combine; packet *m* has the
    address base + (*t* M + *m*) `payload`, where each stage has a base of its own. A GPU sends its
    packets in the order of tokens, those of two stages in turns, on the link that the address hash
    says. Requests that wait for answers use the tags of their port in turns.

    Parameters
    ----------
    trace : Trace
        Experts of each token.
    params : SwitchParams
        The switch.
    stages : tuple of Stage
        What to do with the tokens.
    experts_per_gpu, payload, packets_per_token, sums, acknowledge, placement, seed
        As in :func:`dysharp.verif.replay.replay`.

    Raises
    ------
    ReplayError
        A value is out of its range, or the trace does not fit the switch.
    """
    sums = sums or Sums()
    experts = experts_of(params.gpus, experts_per_gpu)
    check_int("packets_per_token", packets_per_token, 1)
    check_int("seed", seed, 0)
    most = MAX_DATA_FLITS * FLIT_BYTES
    if Stage.COMBINE in stages and sums.dtype in TO_F32:
        most //= 2
    is_int = isinstance(payload, int) and not isinstance(payload, bool)
    if not is_int or not 0 < payload <= most or payload % FLIT_BYTES:
        raise ReplayError(
            f"`payload` must be a multiple of {FLIT_BYTES} up to {most} bytes, not {payload!r}"
        )
    if placement not in PLACEMENTS:
        raise ReplayError(f"`placement` must be one of {', '.join(PLACEMENTS)}, not {placement!r}")
    highest = int(trace.ids.max())
    if highest >= experts:
        raise ReplayError(f"an expert of the trace must be 0 to {experts - 1}, not {highest!r}")
    if not params.dynamic or trace.top_k > params.max_targets:
        limit = params.max_targets if params.dynamic else 0
        raise ReplayError(
            f"tokens of the trace must have up to {limit} experts on this switch, "
            f"not {trace.top_k!r}"
        )
    data_flits = payload // FLIT_BYTES
    step = slots(data_flits, sums.dtype) if Stage.COMBINE in stages else 1
    if step > params.entries:
        raise ReplayError(f"`payload` must fit the {params.entries} entries of a port")

    # Requests of all stages, in the order in which a GPU sends them.
    per_stage = trace.tokens * packets_per_token
    serial = np.repeat(np.arange(per_stage), len(stages))
    is_sum = np.tile([stage is Stage.COMBINE for stage in stages], per_stage)
    base = np.tile([_BASES[stage] for stage in stages], per_stage)
    address = base + serial * payload
    token = serial // packets_per_token
    blocked = token * params.gpus // trace.tokens
    gpu = token % params.gpus if placement == "interleaved" else blocked
    port = ports_of(gpu, address, params.links_per_gpu)
    counts = np.full(len(address), trace.top_k)
    lists = trace.ids[token]

    rng = np.random.default_rng(seed)
    inputs = []
    for number in range(params.ports):
        mine = np.flatnonzero(port == number)
        sums_here, waits = is_sum[mine], is_sum[mine] | acknowledge
        use: IntArray = np.cumsum(waits) - waits  # which of the tags' uses
        tags = params.entries // step
        headers = pack_headers(
            address=address[mine],
            stage=np.where(sums_here, value_of(Stage.COMBINE), value_of(Stage.DISPATCH)),
            count=counts[mine],
            opcode=np.where(sums_here, value_of(Opcode.DY_LD_REDUCE), value_of(Opcode.DY_ST)),
            tag=np.where(waits, use % tags * step, 0),
            gen=np.where(waits, use // tags % _GENERATIONS, 0),
            aux=np.where(sums_here, value_of(ReduceOp.ADD) | value_of(sums.order) << 3, 0),
            length=data_flits,
            gpu=gpu[mine],
            vc=value_of(Vc.REQUEST),
            dtype=np.where(sums_here, value_of(sums.dtype), 0),
            posted=(~waits).astype(np.int64),
        )[: len(mine)]
        stored = int((~sums_here).sum()) * data_flits
        data = rng.integers(0, 1 << 64, (stored, 2), dtype=np.uint64)
        inputs.append(Packets.build(headers, targets=lists[mine].reshape(-1), data=data))

    pruned = prune(
        lists.reshape(-1),
        counts,
        address,
        experts_per_gpu=experts_per_gpu,
        gpus=params.gpus,
        links_per_gpu=params.links_per_gpu,
    )
    flits_in, flits_out = _link_flits(
        params, pruned, port, is_sum, acknowledge=acknowledge, data_flits=data_flits, sums=sums
    )
    flits_in += np.array([len(packets.flits) for packets in inputs])
    return Plan(
        inputs=tuple(inputs),
        stages=stages,
        flits_in=flits_in,
        flits_out=flits_out,
        copies_out=np.bincount(pruned.port, minlength=params.ports),
        fan_out=np.bincount(pruned.masks.sum(axis=1)),
        request_flits=sum(len(packets.flits) for packets in inputs),
        copy_flits=int(_copy_flits(pruned, is_sum, data_flits).sum()),
        expert_flits=trace.top_k * int((2 + np.where(is_sum, 0, data_flits)).sum()),
        top_k=trace.top_k,
        data_flits=data_flits,
    )


def _copy_flits(pruned: Pruned, is_sum: IntArray, data_flits: int) -> IntArray:
    """Flits of every copy of a request."""
    stored = np.where(is_sum[pruned.packet], 0, data_flits)
    flits: IntArray = 1 + extension_flits(pruned.count) + stored
    return flits


def _link_flits(
    params: SwitchParams,
    pruned: Pruned,
    port: IntArray,
    is_sum: IntArray,
    *,
    acknowledge: bool,
    data_flits: int,
    sums: Sums,
) -> tuple[IntArray, IntArray]:
    """Flits of answers into the switch, and of copies and results out of it, for each port."""
    of_sum = is_sum[pruned.packet]
    copies = _copy_flits(pruned, is_sum, data_flits)
    answer = np.where(of_sum, 1 + data_flits, 1 if acknowledge else 0)
    answers = answer * (1 if sums.presum else pruned.count)
    result_flits = data_flits * (2 if sums.dtype in TO_F32 else 1)
    result = np.where(is_sum, 1 + result_flits, 1 if acknowledge else 0)

    def per_port(ports: IntArray, flits: Any) -> IntArray:
        return np.bincount(ports, flits, params.ports).astype(np.int64)

    return per_port(pruned.port, answers), per_port(pruned.port, copies) + per_port(port, result)


def experts_of(gpus: int, experts_per_gpu: int) -> int:
    """Experts in all, of which 16-bit ids can name so many."""
    check_int("experts_per_gpu", experts_per_gpu, 1, (1 << TARGET_BITS) - 1)
    return min(gpus * experts_per_gpu, 1 << TARGET_BITS)


def check_int(name: str, value: int, low: int, high: int | None = None) -> None:
    """Refuse what is no integer in a range.

    Raises
    ------
    ReplayError
        With the name and the range.
    """
    is_int = isinstance(value, int) and not isinstance(value, bool)
    if not is_int or value < low or (high is not None and value > high):
        wanted = f"{low} or more" if high is None else f"{low} to {high}"
        raise ReplayError(f"`{name}` must be {wanted}, not {value!r}")
