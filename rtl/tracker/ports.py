# SPDX-License-Identifier: Apache-2.0
"""What goes between the token tracker and the hub, the cores, the links and the memory."""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..flits import FLIT_BITS, FLIT_BYTES
from ..gpu_params import GpuParams
from ..hub.translation_layouts import INDEX_BITS, row_bits

__all__ = [
    "EPOCH_BITS",
    "NEED_BITS",
    "NOTICE_WORD",
    "RECORD_BYTES",
    "TILE_BITS",
    "TOKEN_BITS",
    "Expect",
    "TrackMemorySignature",
    "block_done_layout",
    "poll_layout",
    "polled_layout",
    "row_layout",
    "write_event_layout",
]

TOKEN_BITS = INDEX_BITS
"""Number of a token: of its block in the object, the same on all GPUs."""
TILE_BITS = INDEX_BITS
"""Number of a tile of an expert: place of a token there, divided by the tokens of a tile."""
NEED_BITS = 10
"""Number of a token's experts."""
EPOCH_BITS = 32
RECORD_BYTES = 16
"""Of a tile or a token in the tables in memory."""

NOTICE_WORD = data.StructLayout({"token": TOKEN_BITS, "count": 8})
"""A quarter of a data flit of a ``NOTICE``: so many more outputs of the token can be read. With
the count 0 it says nothing."""


def row_layout(params: GpuParams) -> data.StructLayout:
    """Lay out the name of a tile: local expert and number."""
    return data.StructLayout(
        {"expert": max(1, (params.experts - 1).bit_length()), "tile": TILE_BITS}
    )


def block_done_layout(params: GpuParams) -> data.StructLayout:
    """Lay out the end of a thread block: of GEMM-1 or GEMM-2 (``gemm`` 0 or 1), for a tile."""
    return data.StructLayout({"gemm": 1, "row": row_layout(params)})


def write_event_layout(params: GpuParams) -> data.StructLayout:
    """Lay out what the hub tells of a target of a store whose data can be seen.

    ``row``: object and local expert. ``index``: place of the token there. ``token``: its number.
    ``first``: the store began with the token's first byte. ``gpu``: the source. ``bytes``: written.
    """
    return data.StructLayout(
        {
            "row": row_bits(params),
            "index": INDEX_BITS,
            "token": TOKEN_BITS,
            "first": 1,
            "gpu": 6,
            "bytes": 9,
        }
    )


def poll_layout(params: GpuParams) -> data.StructLayout:
    """Lay out a question: of a tile, or of a token of this source if ``is_token``."""
    return data.StructLayout({"is_token": 1, "row": row_layout(params), "token": TOKEN_BITS})


def polled_layout() -> data.StructLayout:
    """Lay out the answer. Without ``known`` the table is being read: ask again.

    Of a tile: ``ready1``, ``ready2``: GEMM-1, GEMM-2 may begin. ``done``: all blocks have ended. Of
    a token: ``done``: its combine may begin.
    """
    return data.StructLayout({"known": 1, "ready1": 1, "ready2": 1, "done": 1})


class Expect(data.Struct):
    """A source's cores tell that a token was sent to ``need`` experts, 1 or more."""

    token: TOKEN_BITS
    need: NEED_BITS


class TrackMemorySignature(wiring.Signature):
    """Tables of the tracker in this GPU's memory: words of 16 B, by addresses in units of 16 B.

    Parameters
    ----------
    ids : int
        Reads under way at once at most.

    Members
    -------
    read : Out
        Stream of ``address`` (44 bits) and ``id``.
    reply : In(1), reply_id : In, reply_data : In(128)
        The word of a read, in any order. It cannot be held up.
    write : Out
        Stream of ``address``, ``data`` and ``strobe`` (a bit a byte).
    written : In(1)
        One more write can be seen by every later read; in order.
    """

    def __init__(self, ids: int) -> None:
        self._ids = ids
        bits = max(1, (ids - 1).bit_length())
        read = data.StructLayout({"address": 44, "id": bits})
        write = data.StructLayout({"address": 44, "data": FLIT_BITS, "strobe": FLIT_BYTES})
        super().__init__(
            {
                "read": Out(stream.Signature(read)),
                "reply": In(1),
                "reply_id": In(bits),
                "reply_data": In(FLIT_BITS),
                "write": Out(stream.Signature(write)),
                "written": In(1),
            }
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TrackMemorySignature) and self._ids == other._ids

    def __repr__(self) -> str:
        return f"TrackMemorySignature({self._ids})"
