# SPDX-License-Identifier: Apache-2.0
"""First-fit allocation of address ranges."""

from bisect import bisect_left, insort

__all__ = ["Allocator"]


class Allocator:
    """Gives out ranges of an address space and takes them back.

    Parameters
    ----------
    first, end : int
        The space is ``[first, end)``.
    granularity : int
        Ranges begin at its multiples and are rounded up to them. A power of two.
    """

    def __init__(self, first: int, end: int, granularity: int) -> None:
        self._first = -(-first // granularity) * granularity
        self._end = end
        self._granularity = granularity
        self._ranges: list[tuple[int, int]] = []  # begin and end, in order

    def allocate(self, size: int) -> int | None:
        """Return the address of a new range of `size` bytes, 1 or more; None if there is none."""
        size = -(-size // self._granularity) * self._granularity
        begin = self._first
        for taken, end in self._ranges:
            if begin + size <= taken:
                break
            begin = end
        if begin + size > self._end:
            return None
        insort(self._ranges, (begin, begin + size))
        return begin

    def free(self, begin: int) -> bool:
        """Take back the range that begins at `begin`; False if there is none."""
        index = bisect_left(self._ranges, (begin, 0))
        if index == len(self._ranges) or self._ranges[index][0] != begin:
            return False
        del self._ranges[index]
        return True

    def range_of(self, address: int) -> tuple[int, int] | None:
        """Return begin and end of the range that was given out and holds `address`."""
        index = bisect_left(self._ranges, (address + 1, 0)) - 1
        if index < 0 or address >= self._ranges[index][1]:
            return None
        return self._ranges[index]
