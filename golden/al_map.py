# SPDX-License-Identifier: Apache-2.0
"""The map from the addresses of multicast objects to the memory of one GPU, and its TLB."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..rtl.flits import Status
from .arrays import IntArray, value_of

__all__ = [
    "DYNAMIC",
    "LOCAL",
    "LOOKUPS",
    "QUOTIENT_BITS",
    "STATIC",
    "AlMap",
    "DynamicObject",
    "Expert",
    "StaticObject",
    "lookup_array",
    "reciprocal",
    "set_of",
    "tlb_hit_rate",
    "tlb_hits",
]

LOCAL, STATIC, DYNAMIC = range(3)
"""Spaces of a lookup: how its address is to be read."""

LOOKUPS = np.dtype(
    [
        ("space", np.uint8),
        ("stage", np.uint8),
        ("allocate", np.bool_),
        ("target", np.uint16),
        ("address", np.uint64),
        ("length", np.uint8),
    ]
)
"""One lookup; the fields are those of ``rtl/hub/ports.py``."""

QUOTIENT_BITS = 36
"""Bits of a dividend: the flits of the largest object."""
_FLIT = 16
_EPOCHS = 255
_INDEX_BITS = 24
_OK = value_of(Status.OK)
_BAD = value_of(Status.BAD_ADDRESS)


def reciprocal(block: int) -> tuple[int, int]:
    """Give ``(M, shift)`` with ``n // block == n * M >> 36 + shift`` for every n < 2**36.

    `shift` is ``ceil(log2(block))`` and M is ``ceil(2**(36 + shift) / block)``, at most 37 bits.
    M * block exceeds 2**(36 + shift) by e < block <= 2**shift, so that n * M / 2**(36 + shift) is
    n / block + n * e / (block * 2**(36 + shift)); the second term is below 1 / block, and n / block
    is at least 1 / block below the next whole number.
    """
    if not 1 <= block <= 1 << 16:
        raise ValueError(f"`block` must be from 1 to 65536, not {block!r}")
    shift = (block - 1).bit_length()
    return -(-(1 << QUOTIENT_BITS + shift) // block), shift


@dataclass(frozen=True, kw_only=True)
class StaticObject:
    """An object whose memory is one block.

    Parameters
    ----------
    base, size : int
        Its multimem addresses, in bytes.
    memory : int
        Where it is in this GPU's memory.
    """

    base: int
    size: int
    memory: int


@dataclass(frozen=True, kw_only=True)
class Expert:
    """An expert's share of a dynamic object.

    Parameters
    ----------
    table : int
        Address of its AL table, 4 B a block.
    nactive : int
        Blocks that it has room for.
    dispatch, combine : int or None
        Bases of the two stages, if they have one.
    """

    table: int
    nactive: int
    dispatch: int | None = None
    combine: int | None = None


@dataclass(frozen=True, kw_only=True)
class DynamicObject:
    """An object whose blocks are laid out as they are first touched.

    Parameters
    ----------
    base : int
        First multimem address.
    blocks, block : int
        Number of blocks, and size of each in units of 16 B.
    first_expert : int
        Number of the first expert on this GPU.
    experts : sequence of Expert
        This GPU's experts. All have bases of the same stages.
    """

    base: int
    blocks: int
    block: int
    first_expert: int
    experts: tuple[Expert, ...]

    @property
    def size(self) -> int:
        """Bytes of the multimem addresses."""
        return self.blocks * self.block * _FLIT

    @property
    def stages(self) -> int:
        """Bit *s*: stage *s* has a base."""
        first = self.experts[0]
        return (first.dispatch is not None) | (first.combine is not None) << 1


@dataclass
class _State:
    """What changes of a dynamic object."""

    used: npt.NDArray[np.int64]
    epoch: int = 1
    bases: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros((2, 0), np.int64))


def lookup_array(lookups: list[tuple[int, int, bool, int, int, int]]) -> npt.NDArray[np.void]:
    """Make an array of (space, stage, allocate, target, address, length)."""
    return np.array(lookups, LOOKUPS)


class AlMap:
    """Translation of addresses for one GPU, lookup after lookup.

    Parameters
    ----------
    objects : sequence of StaticObject, DynamicObject or None
        By number. They do not overlap.
    image : ndarray of uint8
        The GPU's memory; the AL tables in it are read and written. A multiple of 4 bytes.
    memory : int, optional
        Bytes of memory that ordinary accesses may use; all of `image` by default.

    Attributes
    ----------
    counters : dict
        ``lookups`` (dynamic ones that come to the TLB), ``allocations`` and ``refusals``, as the
        hub counts them. Hits and misses depend on time.

    Notes
    -----
    A dynamic object's entry is a word of 4 B: the layout index in the low 24 bits below the epoch
    in which it was written. An entry of another epoch is not valid.
    """

    def __init__(
        self,
        objects: "list[StaticObject | DynamicObject | None]",
        image: npt.NDArray[np.uint8],
        memory: int | None = None,
    ) -> None:
        self._objects = list(objects)
        self._words = image.view("<u4")
        self._memory = len(image) if memory is None else memory
        self._states: dict[int, _State] = {}
        for number, item in enumerate(self._objects):
            if isinstance(item, DynamicObject):
                state = _State(np.zeros(len(item.experts), np.int64))
                state.bases = np.array(
                    [
                        [(e.dispatch or 0) for e in item.experts],
                        [(e.combine or 0) for e in item.experts],
                    ],
                    np.int64,
                )
                self._states[number] = state
        self.counters = {"lookups": 0, "allocations": 0, "refusals": 0}

    def used(self, number: int) -> IntArray:
        """Blocks that have a place, for each expert of the object."""
        return self._states[number].used.copy()

    def epoch(self, number: int) -> int:
        """Epoch of the object: 1 to 255."""
        return self._states[number].epoch

    def set_epoch(self, number: int, epoch: int) -> None:
        """Go on from another epoch, as after so many clears."""
        self._states[number].epoch = epoch

    def clear(self, number: int) -> None:
        """Forget which blocks of the object have a place."""
        state = self._states.get(number)
        if state is None:
            return
        state.used[:] = 0
        state.epoch += 1
        if state.epoch > _EPOCHS:
            item = self._objects[number]
            assert isinstance(item, DynamicObject)
            for expert in item.experts:
                first = expert.table // 4
                self._words[first : first + item.blocks] = 0
            state.epoch = 1

    def translate(self, lookups: npt.NDArray[np.void]) -> tuple[IntArray, IntArray]:
        """Translate in order.

        Parameters
        ----------
        lookups : ndarray of LOOKUPS
            The lookups.

        Returns
        -------
        places, status : ndarray
            Address in memory (0 where refused), and OK or BAD_ADDRESS.
        """
        address = lookups["address"].astype(np.int64)
        length = lookups["length"].astype(np.int64) * _FLIT
        end = address + length
        places = np.zeros(len(lookups), np.int64)
        good = np.zeros(len(lookups), np.bool_)

        local = (lookups["space"] == LOCAL) & (end <= self._memory)
        places[local] = address[local]
        good |= local
        for number, item in enumerate(self._objects):
            if item is None:
                continue
            inside = (address >= item.base) & (end <= item.base + item.size)
            if isinstance(item, StaticObject):
                inside &= lookups["space"] == STATIC
                places[inside] = address[inside] - item.base + item.memory
                good |= inside
            else:
                inside &= lookups["space"] == DYNAMIC
                self._dynamic(number, item, lookups, np.flatnonzero(inside), places, good)
        self.counters["refusals"] += int(np.count_nonzero(~good))
        places[~good] = 0
        return places, np.where(good, _OK, _BAD)

    def _dynamic(
        self,
        number: int,
        item: DynamicObject,
        lookups: npt.NDArray[np.void],
        inside: npt.NDArray[np.intp],
        places: npt.NDArray[np.int64],
        good: npt.NDArray[np.bool_],
    ) -> None:
        """Translate lookups inside a dynamic object."""
        state = self._states[number]
        size = item.block * _FLIT
        some = lookups[inside]
        block, rest = np.divmod(some["address"].astype(np.int64) - item.base, size)
        expert = some["target"].astype(np.int64) - item.first_expert
        stage = some["stage"].astype(np.int64)
        keep = (expert >= 0) & (expert < len(item.experts))
        keep &= rest + some["length"].astype(np.int64) * _FLIT <= size
        keep &= (item.stages >> stage & 1) != 0
        inside, some, stage = inside[keep], some[keep], stage[keep]
        block, rest, expert = block[keep], rest[keep], expert[keep]
        self.counters["lookups"] += len(inside)
        if not len(inside):
            return
        tables = np.array([e.table // 4 for e in item.experts], np.int64)
        slots, which = np.unique(
            np.stack([expert, block]), axis=1, return_inverse=True
        )  # the entries that are looked up, each once
        which = which.reshape(-1)
        at = tables[slots[0]] + slots[1]
        words = self._words[at].astype(np.int64)
        index = words & ((1 << _INDEX_BITS) - 1)
        valid = words >> _INDEX_BITS == state.epoch

        # When each entry is first touched by a lookup that may allocate.
        never = len(inside)
        since = np.full(len(at), never)
        order = np.flatnonzero(some["allocate"])
        np.minimum.at(since, which[order], order)
        touched = np.flatnonzero(~valid & (since < never))
        touched = touched[np.argsort(since[touched])]
        for local, one in enumerate(item.experts):
            mine = touched[slots[0][touched] == local]
            first = int(state.used[local])
            mine = mine[: max(0, one.nactive - first)]
            index[mine] = first + np.arange(len(mine))
            state.used[local] += len(mine)
            self._words[at[mine]] = index[mine] | state.epoch << _INDEX_BITS
            self.counters["allocations"] += len(mine)
            valid[mine] = True
            touched = touched[slots[0][touched] != local]
        # An entry that was valid before is so from the start.
        was = words >> _INDEX_BITS == state.epoch
        ready = valid[which] & (was[which] | (np.arange(len(inside)) >= since[which]))
        places[inside] = index[which] * size + rest + state.bases[stage, expert]
        good[inside] = ready


def set_of(tags: npt.ArrayLike, sets: int) -> IntArray:
    """Set of each tag in a set-associative TLB: the tag folded by XOR. `sets`: a power of two."""
    bits = sets.bit_length() - 1
    rest = np.asarray(tags, np.int64).copy()
    out = np.zeros_like(rest)
    while bits and rest.any():
        out ^= rest & (sets - 1)
        rest >>= bits
    return out


def tlb_hits(
    tags: npt.ArrayLike, entries: int | None, form: str = "cam", ways: int = 8
) -> npt.NDArray[np.bool_]:
    """Whether each lookup finds its tag; what was not found is there from the next lookup on.

    Parameters
    ----------
    tags : array_like of int
        Tags looked up, in order.
    entries : int or None
        Entries of the TLB; None: no end of them, so that only first lookups miss.
    form : {"cam", "sets"}
        Fully associative, or sets of `ways`. The oldest entry is replaced (first in, first out).
    ways : int
        Entries of a set.
    """
    wanted = np.asarray(tags, np.int64)
    hits = np.zeros(len(wanted), np.bool_)
    if entries is None:
        _, first = np.unique(wanted, return_index=True)
        hits[:] = True
        hits[first] = False
        return hits
    if form not in ("cam", "sets"):
        raise ValueError(f"`form` must be 'cam' or 'sets', not {form!r}")
    room = entries if form == "cam" else ways
    if room < 1 or entries % room:
        raise ValueError(f"`ways` must divide `entries`, not {ways!r}")
    sets = entries // room
    here: list[set[int]] = [set() for _ in range(sets)]
    ages: list[deque[int]] = [deque() for _ in range(sets)]
    groups = set_of(wanted, sets).tolist()
    for number, (tag, group) in enumerate(zip(wanted.tolist(), groups, strict=True)):
        held = here[group]
        if tag in held:
            hits[number] = True
            continue
        age = ages[group]
        if len(age) == room:
            held.discard(age.popleft())
        held.add(tag)
        age.append(tag)
    return hits


def tlb_hit_rate(
    tags: npt.ArrayLike, entries: int | None, form: str = "cam", ways: int = 8
) -> float:
    """Share of lookups that find their tag (see :func:`tlb_hits`)."""
    hits = tlb_hits(tags, entries, form, ways)
    return float(hits.mean()) if len(hits) else 0.0
