# SPDX-License-Identifier: Apache-2.0
"""Many multicast requests whose answers go wrong in every way at once: none may be forgotten."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from dysharp.golden.arrays import FlitArray, IntArray, value_of
from dysharp.golden.flits import pack_headers, unpack_headers
from dysharp.golden.packets import Packets
from dysharp.golden.switch import SwitchConfig
from dysharp.rtl.flits import DType, Opcode, ReduceOp, Status
from dysharp.rtl.params import PRESETS, SwitchParams
from dysharp.verif.lib.responder import (
    RESPONDER_FAULTS,
    Responder,
    random_memories,
    responder_data,
)
from dysharp.verif.lib.run import SimulationError
from dysharp.verif.switch.environment import Phase, PhaseResult, SwitchEnvironment

__all__ = ["FaultSoak", "fault_soak"]

_PER_MILLE = 10
_TIMEOUT_TICKS = 6
_DELAYS = (0, 100)
_PER_RUN = 100_000
"""Requests of one run: logs are read as a whole."""
_ERRORS = (Status.TIMEOUT, Status.BAD_RESPONSE, Status.BAD_ADDRESS)


@dataclass(frozen=True)
class FaultSoak:
    """What a soak showed.

    Parameters
    ----------
    requests : int
        Multicast requests that wanted an answer.
    unanswered : int
        Requests that got none, or results that nobody asked for.
    leaked : int
        Entries that were in use at the end of the runs.
    errors : int
        Requests that ended with an error, as those must whose answers went wrong.
    wrong : int
        Results with status OK and another sum than the right one, or another status than an answer
        that goes wrong can lead to.
    """

    requests: int
    unanswered: int
    leaked: int
    errors: int
    wrong: int


def fault_soak(folder: Path, *, seed: int, requests: int) -> FaultSoak:
    """Send loads and stores to a `tiny` switch, 1 % of whose answers are of each faulty kind.

    Sums are whole numbers, so they do not depend on order: every result that is no error is
    compared.

    Parameters
    ----------
    folder : Path
        For generated files and runs.
    seed : int
        Seed of all stimulus.
    requests : int
        Requests in all.

    Raises
    ------
    SimulationError
        A run hangs, or a result is wrong.
    """
    params = PRESETS["tiny"]
    environment = SwitchEnvironment(params, folder)
    total = FaultSoak(0, 0, 0, 0, 0)
    for number, first in enumerate(range(0, requests, _PER_RUN)):
        each = -(-min(_PER_RUN, requests - first) // params.ports)
        found = _run(environment, seed + number, each)
        total = FaultSoak(
            *(
                getattr(total, name) + getattr(found, name)
                for name in FaultSoak.__dataclass_fields__
            )
        )
    if total.wrong:
        raise SimulationError(f"fault soak: {total.wrong} results are wrong, seed {seed}")
    return total


def _run(environment: SwitchEnvironment, seed: int, each: int) -> FaultSoak:
    params = environment.params
    rng = np.random.default_rng(seed)
    inputs = [_requests(params, port, each, rng) for port in range(params.ports)]
    memories = random_memories(params.ports, rng)
    phase = Phase(
        inputs=inputs,
        config=replace(SwitchConfig.at_reset(params), experts_per_gpu=4, timeout=_TIMEOUT_TICKS),
        responder=Responder(
            memories=memories,
            presum=True,
            delay_min=_DELAYS[0],
            delay_max=_DELAYS[1],
            reorder=True,
            faults=dict.fromkeys(RESPONDER_FAULTS, _PER_MILLE),
        ),
        tags=True,
        checker=lambda result: [],
        cycles=400 * each + 100_000,
    )
    name = f"fault_soak_{seed}"
    (result,) = environment.run([phase], name=name, seed=seed)
    if result.end != "done":
        raise SimulationError(
            f"fault soak ended with {result.end}, seed {seed}, see {environment.where(name)}"
        )
    return _check(result, inputs, memories)


def _requests(params: SwitchParams, port: int, each: int, rng: np.random.Generator) -> Packets:
    """Make loads and stores of 1 or 2 flits with 1 to 8 targets; their addresses number them."""
    is_load = rng.random(each) < 0.7
    counts = rng.integers(1, 9, each)
    use = np.arange(each)
    length = rng.integers(1, 3, each)
    headers = pack_headers(
        address=use * 64,
        count=counts,
        opcode=np.where(is_load, value_of(Opcode.DY_LD_REDUCE), value_of(Opcode.DY_ST)),
        tag=use % params.entries,
        gen=use // params.entries % 4,
        aux=np.where(is_load, value_of(ReduceOp.ADD) | rng.integers(0, 2, each) << 3, 0),
        length=length,
        gpu=port,
        dtype=np.where(is_load, value_of(DType.U32), 0),
    )
    stored = int(length[~is_load].sum())
    return Packets.build(
        headers,
        targets=rng.integers(0, 4 * params.gpus, int(counts.sum())),
        data=rng.integers(0, 1 << 64, (stored, 2), dtype=np.uint64),
    )


def _check(result: PhaseResult, inputs: list[Packets], memories: list[FlitArray]) -> FaultSoak:
    params = result.params
    unanswered = errors = wrong = 0
    for port, sent in enumerate(inputs):
        packets = result.outputs[port].packets
        fields = unpack_headers(packets.headers)
        is_result = fields["opcode"] >> 2 == 3
        got = packets.select(is_result)
        answers = {name: column[is_result] for name, column in fields.items()}
        requests = unpack_headers(sent.headers)
        # Every tag's results come in the order of its uses: the sender waits for each.
        order = np.lexsort((np.arange(len(got)), answers["tag"]))
        wanted = np.lexsort((np.arange(len(sent)), requests["tag"]))
        used = np.bincount(requests["tag"], minlength=params.entries)
        came = np.bincount(answers["tag"], minlength=params.entries)
        unanswered += int(np.abs(used - came).sum())
        if not np.array_equal(used, came):
            continue
        got = got.select(order)
        status = answers["aux"][order]
        is_load = requests["opcode"][wanted] == value_of(Opcode.DY_LD_REDUCE)
        good = status == value_of(Status.OK)
        known = good | np.isin(status, [value_of(one) for one in _ERRORS])
        errors += int((~good).sum())
        wrong += int((~known).sum())
        wrong += int((answers["gen"][order] != requests["gen"][wanted]).sum())
        sizes = np.where(good, np.where(is_load, 1 + requests["length"][wanted], 1), 2)
        wrong += int((got.sizes != sizes).sum())
        compared = good & is_load & (got.sizes == sizes)
        sums = _sums(params, sent.select(wanted), memories)
        for index in np.flatnonzero(compared).tolist():
            wrong += not np.array_equal(got[index][1:], sums[index])
    leaked = sum(result.registers[f"armed{port}"] for port in range(params.ports))
    return FaultSoak(sum(map(len, inputs)), unanswered, leaked, errors, wrong)


def _sums(params: SwitchParams, requests: Packets, memories: list[FlitArray]) -> list[FlitArray]:
    """Right sums of loads, each over the GPUs of its list."""
    fields = unpack_headers(requests.headers)
    address, length = fields["address"], fields["length"]
    lists = requests.flits[requests.starts + 1].view(np.uint16).reshape(len(requests), 8)
    asked = np.zeros((len(requests), params.gpus), bool)
    for lane in range(8):
        rows = np.flatnonzero(fields["count"] > lane)
        asked[rows, lists[rows, lane] // 4] = True
    words = np.zeros((int(length.sum()), 4), np.uint32)
    ask: IntArray = np.repeat(asked, length, axis=0)
    zero = np.zeros(1, np.int64)
    for gpu in range(params.gpus):
        data = responder_data(memories[gpu], address, length, zero)
        words += data.view(np.uint32).reshape(-1, 4) * ask[:, gpu, None]
    flits = words.view(np.uint64).reshape(-1, 2)
    ends = np.cumsum(length)
    return [
        flits[end - size : end] for end, size in zip(ends.tolist(), length.tolist(), strict=True)
    ]
