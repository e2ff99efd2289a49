# SPDX-License-Identifier: Apache-2.0
"""How the models of GPUs answer requests: the settings of ``sv/responder.sv``, and its data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from dysharp.golden.arrays import FlitArray, IntArray, offsets
from dysharp.rtl.flits import FLIT_BYTES

__all__ = [
    "MEMORY_FLITS",
    "RESPONDER_FAULTS",
    "Responder",
    "random_memories",
    "responder_data",
    "write_responder",
]

MEMORY_FLITS = 4096
_STEP = 61
"""Flits from the data of one target of a copy to that of the next."""

RESPONDER_FAULTS = (
    "drop",
    "duplicate",
    "wrong_length",
    "wrong_dtype",
    "over_count",
    "stale_gen",
    "error_status",
)
"""Ways to answer wrongly, each on its own (see ``sv/responder.sv``)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Responder:
    """How the GPUs answer.

    Parameters
    ----------
    memories : Sequence[ndarray]
        What every port has in store, 4096 flits each.
    presum : bool
        One part for all targets of a copy, instead of one for each.
    f32 : bool
        Pre-sums of wide types are f32, where they are 16 flits at most.
    delay_min, delay_max : int
        Cycles from a request to its answer.
    reorder : bool
        Answers to one destination may overtake each other.
    unicast : bool
        Unicast requests are answered too.
    faults : Mapping[str, int]
        How many of 1000 multicast requests are answered in each of :data:`RESPONDER_FAULTS`.
    """

    memories: Sequence[FlitArray] = field(repr=False)
    presum: bool = False
    f32: bool = False
    delay_min: int = 0
    delay_max: int = 0
    reorder: bool = False
    unicast: bool = False
    faults: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.delay_min <= self.delay_max < 1 << 23:
            raise ValueError(
                f"`delay_max` must be {self.delay_min} to {(1 << 23) - 1}, not {self.delay_max!r}"
            )
        unknown = set(self.faults) - set(RESPONDER_FAULTS)
        if unknown:
            raise ValueError(f"`faults` must be of {RESPONDER_FAULTS}, not {sorted(unknown)}")
        rates = list(self.faults.values())
        if any(rate < 0 for rate in rates) or sum(rates) > 1000:
            raise ValueError(f"`faults` must add up to 1000 at most, not {sum(rates)!r}")
        for memory in self.memories:
            if memory.shape != (MEMORY_FLITS, 2):
                raise ValueError(f"`memories` must be {MEMORY_FLITS} flits, not {memory.shape!r}")


def random_memories(ports: int, rng: np.random.Generator) -> list[FlitArray]:
    """Memories of random bits."""
    return [
        rng.integers(0, 1 << 64, (MEMORY_FLITS, 2), dtype=np.uint64, endpoint=False)
        for _ in range(ports)
    ]


def responder_data(
    memory: FlitArray, address: IntArray, length: IntArray, target: IntArray
) -> FlitArray:
    """Return the data that a responder sends, as ``sv/responder.sv`` does.

    Parameters
    ----------
    memory : ndarray
        Memory of its port.
    address, length, target : ndarray
        Of each part: address of the request, flits, and number of its target among those of the
        copy (0 for a pre-sum). They are broadcast against each other.

    Returns
    -------
    ndarray
        Data flits of all parts end to end.
    """
    addresses, lengths, targets = np.broadcast_arrays(*np.atleast_1d(address, length, target))
    begins = np.repeat(addresses // FLIT_BYTES + _STEP * targets - offsets(lengths), lengths)
    data: FlitArray = memory[(begins + np.arange(len(begins))) % MEMORY_FLITS]
    return data


def write_responder(folder: Path, phase: int, responder: Responder, seed: int) -> None:
    """Write the files that switch the responders on in a phase."""
    numbers = [
        int(responder.presum),
        int(responder.f32),
        responder.delay_min,
        responder.delay_max,
        int(responder.reorder),
        int(responder.unicast),
        seed,
        *(responder.faults.get(name, 0) for name in RESPONDER_FAULTS),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"responder{phase}.cfg").write_text(" ".join(map(str, numbers)) + "\n")
    for port, memory in enumerate(responder.memories):
        # Highest byte first: the words of a flit the other way round, and each big-endian.
        memory[:, ::-1].astype(">u8").tofile(folder / f"memory{phase}_{port}.bin")
