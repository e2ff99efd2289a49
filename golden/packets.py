# SPDX-License-Identifier: Apache-2.0
"""A batch of packets without an object for each: their flits end to end, and where they begin."""

from collections.abc import Iterator

import numpy as np

from ..rtl.flits import TARGET_BITS, Addressing, carries_data
from .arrays import (
    FlitArray,
    IntArray,
    Integers,
    Mask,
    as_integers,
    offsets,
    ragged_index,
    value_of,
)
from .flits import (
    as_flits,
    extension_flits,
    pack_targets,
    packet_flits,
    split_packets,
    unpack_field,
)

__all__ = ["Packets"]

_NO_FLITS = np.zeros((0, 2), np.uint64)
_NO_STARTS = np.zeros(0, np.int64)
_HAS_DATA = np.array([carries_data(opcode) for opcode in range(16)])


class Packets:
    """Packets in order.

    Behaves as a sequence of arrays: ``len(packets)``, ``packets[i]`` and iteration give the flits
    of single packets, without copying. Two batches are equal if all their packets are.

    Parameters
    ----------
    flits : ndarray
        Flits of all packets end to end, shape ``(n, 2)``.
    starts : ndarray, optional
        Index of the header of each packet. Found from the headers if left out.

    Raises
    ------
    ValueError
        If `flits` ends inside a packet (only when `starts` is left out).
    """

    __slots__ = ("_flits", "_starts")
    __hash__ = None  # type: ignore[assignment]  # arrays can change

    def __init__(self, flits: FlitArray = _NO_FLITS, starts: IntArray | None = None) -> None:
        self._flits = as_flits("flits", flits)
        self._starts = split_packets(self._flits) if starts is None else starts

    @classmethod
    def build(
        cls,
        headers: FlitArray,
        *,
        targets: Integers = _NO_STARTS,
        byte_enables: FlitArray = _NO_FLITS,
        data: FlitArray = _NO_FLITS,
    ) -> "Packets":
        """Put packets together from their parts.

        Parameters
        ----------
        headers : ndarray
            One header flit a packet; they say which other parts each packet has.
        targets : array_like
            Lists of all dynamic requests, end to end.
        byte_enables, data : ndarray
            Byte-enable flits and data flits of all packets that have them, end to end.

        Raises
        ------
        ValueError
            If there is more or less of a part than the headers ask for.
        """
        headers = as_flits("headers", headers)
        opcode = unpack_field(headers, "opcode")
        dynamic = opcode >> 2 == value_of(Addressing.DYNAMIC)
        counts = np.where(dynamic, unpack_field(headers, "count"), 0)
        enables = unpack_field(headers, "byte_enable")
        lengths = np.where(_HAS_DATA[opcode], unpack_field(headers, "length"), 0)
        flat = as_integers("targets", targets, 0, (1 << TARGET_BITS) - 1)
        for name, part, wanted in (
            ("targets", flat, counts),
            ("byte_enables", as_flits("byte_enables", byte_enables), enables),
            ("data", as_flits("data", data), lengths),
        ):
            if len(part) != wanted.sum():
                raise ValueError(f"`{name}` must be {int(wanted.sum())} in all, not {len(part)!r}")
        extensions = extension_flits(counts)
        sizes = packet_flits(headers)
        starts = offsets(sizes)
        flits = np.empty((int(sizes.sum()), 2), np.uint64)
        flits[starts] = headers
        flits[ragged_index(starts + 1, extensions)] = pack_targets(flat, counts)
        flits[ragged_index(starts + 1 + extensions, enables)] = byte_enables
        flits[ragged_index(starts + sizes - lengths, lengths)] = data
        return cls(flits, starts)

    @classmethod
    def concatenate(cls, *batches: "Packets") -> "Packets":
        """All packets of several batches, one batch after the other."""
        if not batches:
            return cls()
        begins = offsets(np.array([len(batch.flits) for batch in batches]))
        starts = [batch.starts + begin for batch, begin in zip(batches, begins, strict=True)]
        return cls(np.concatenate([batch.flits for batch in batches]), np.concatenate(starts))

    @property
    def flits(self) -> FlitArray:
        """Flits of all packets end to end."""
        return self._flits

    @property
    def starts(self) -> IntArray:
        """Index of each packet's header in :attr:`flits`."""
        return self._starts

    @property
    def headers(self) -> FlitArray:
        """Header flit of each packet."""
        return self._flits[self._starts]

    @property
    def sizes(self) -> IntArray:
        """Flits of each packet."""
        return np.diff(self._starts, append=len(self._flits))

    def select(self, which: Mask | IntArray) -> "Packets":
        """Packets for which a mask is true, or those at some indices, as a new batch."""
        sizes = self.sizes[which]
        return Packets(self._flits[ragged_index(self._starts[which], sizes)], offsets(sizes))

    def slice(self, first: int, last: int) -> "Packets":
        """Packets `first` to `last` - 1, without copying their flits."""
        if first >= last:
            return Packets()
        begin = self._starts[first]
        end = self._starts[last] if last < len(self._starts) else len(self._flits)
        return Packets(self._flits[begin:end], self._starts[first:last] - begin)

    def __len__(self) -> int:
        """Return the number of packets."""
        return len(self._starts)

    def __getitem__(self, index: int) -> FlitArray:
        """Return the flits of one packet."""
        index = range(len(self))[index]
        last = self._starts[index + 1] if index + 1 < len(self) else len(self._flits)
        return self._flits[self._starts[index] : last]

    def __iter__(self) -> Iterator[FlitArray]:
        """Iterate over the flits of each packet."""
        return (self[index] for index in range(len(self)))

    def __eq__(self, other: object) -> bool:
        """Whether all packets are equal, bit by bit."""
        if not isinstance(other, Packets):
            return NotImplemented
        return np.array_equal(self._starts, other._starts) and np.array_equal(
            self._flits, other._flits
        )

    def __repr__(self) -> str:
        """Show the size, not the contents."""
        return f"<{len(self)} packets, {len(self._flits)} flits>"
