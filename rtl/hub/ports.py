# SPDX-License-Identifier: Apache-2.0
"""What goes between the parts of the hub, and between the hub and the memory."""

from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ..flits import FLIT_BITS, FLIT_BYTES, Stage, Status
from ..gpu_params import GpuParams

__all__ = ["Lookup", "MemorySignature", "Space", "TableSignature", "Translation"]


class Space(enum.Enum, shape=2):
    """How the address of a request is to be read."""

    LOCAL = 0
    """Of this GPU's memory, as it stands."""
    STATIC = 1
    """Of an object whose memory is one block."""
    DYNAMIC = 2
    """Of an object whose blocks are laid out by the AL map of the target's expert."""


class Lookup(data.Struct):
    """An address to be translated.

    Members
    -------
    space, stage
        How to read it; the stage chooses between the two bases of a dynamic object.
    allocate
        A block that has no place yet gets one (stores); otherwise it is an error (loads).
    target
        Expert, if dynamic.
    address
        Multimem or local address of the first byte, a multiple of 16.
    length
        Flits from there on, 1 to 16. They must lie in one block (dynamic) or in the object.
    """

    space: Space
    stage: Stage
    allocate: 1
    target: 16
    address: 48
    length: 5


class Translation(data.Struct):
    """Where it is in this GPU's memory; `status` is OK or BAD_ADDRESS."""

    address: 48
    status: Status


class MemorySignature(wiring.Signature):
    """The GPU's memory, seen from the hub. Beats lie at multiples of their size.

    Writes to one address take effect in their order. The hub itself keeps reads from passing writes
    to the same beat, and writes from passing reads.

    Parameters
    ----------
    flits : int
        Flits of a beat.

    Members
    -------
    write : Out
        Stream of ``address``, ``data`` and ``strobe`` (a bit a byte).
    written : In(1)
        One more write can be seen by every later read, or ended with ``write_error``; in order.
    write_error : In(1)
        With ``written``: there is no memory at the address.
    read : Out
        Stream of ``address``.
    reply : In(1), reply_data : In, reply_error : In(1)
        The beat of the oldest read that has none yet. It cannot be held up.
    """

    def __init__(self, flits: int) -> None:
        self._flits = flits
        bits = flits * FLIT_BITS
        write = data.StructLayout({"address": 48, "data": bits, "strobe": flits * FLIT_BYTES})
        super().__init__(
            {
                "write": Out(stream.Signature(write)),
                "written": In(1),
                "write_error": In(1),
                "read": Out(stream.Signature(data.StructLayout({"address": 48}))),
                "reply": In(1),
                "reply_data": In(bits),
                "reply_error": In(1),
            }
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemorySignature) and self._flits == other._flits

    def __repr__(self) -> str:
        return f"MemorySignature({self._flits})"


class TableSignature(wiring.Signature):
    """The AL tables in memory, seen from the walker: words of 4 B.

    Members
    -------
    read : Out
        Stream of ``address`` and ``id``.
    reply : In(1), reply_id : In, reply_data : In(32)
        The word of a read, in any order. It cannot be held up.
    write : Out
        Stream of ``address`` and ``data``.
    written : In(1)
        One more write can be seen by every later read; in order.
    """

    def __init__(self, params: GpuParams) -> None:
        self._ids = max(1, (params.misses - 1).bit_length())
        read = data.StructLayout({"address": 48, "id": self._ids})
        write = data.StructLayout({"address": 48, "data": 32})
        super().__init__(
            {
                "read": Out(stream.Signature(read)),
                "reply": In(1),
                "reply_id": In(self._ids),
                "reply_data": In(32),
                "write": Out(stream.Signature(write)),
                "written": In(1),
            }
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableSignature) and self._ids == other._ids

    def __repr__(self) -> str:
        return f"TableSignature({self._ids})"
