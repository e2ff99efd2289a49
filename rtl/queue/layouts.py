# SPDX-License-Identifier: Apache-2.0
"""What the parts of the MultimemQ hand to each other, and its sizes."""

from amaranth.hdl import Value
from amaranth.lib import data

from ..flits import FLIT_BITS, HEADER, LANES, SLOT_FLITS, DType, Order, ReduceOp, Status
from ..gpu_params import GpuParams

__all__ = [
    "RESULT_FLITS",
    "entry_bits",
    "entry_layout",
    "fetch_layout",
    "is_dynamic",
    "packet_layout",
    "result_flits",
    "ticket_layout",
    "word_bits",
]

RESULT_FLITS = 512
"""Room for the data of loads, in flits, unless all tags together need less: what is under way or
waits to be given out."""


def entry_bits(params: GpuParams) -> int:
    """Width of the number of an entry of the queue."""
    return (params.queue_depth - 1).bit_length()


def word_bits(params: GpuParams) -> int:
    """Width of the number of a word of an entry's list: a list may begin anywhere in a word."""
    return (params.max_targets * 2 // (FLIT_BITS // 8) + 1).bit_length()


def result_flits(params: GpuParams) -> int:
    """Flits of load data that have room, a power of two."""
    needed = params.tags * min(params.packet_flits, SLOT_FLITS)
    return min(RESULT_FLITS, max(1 << (needed - 1).bit_length(), 2 * params.packet_flits))


def is_dynamic(opcode: Value) -> Value:
    """Whether a known opcode of an access has a target list."""
    return opcode[3]


def entry_layout(params: GpuParams) -> data.StructLayout:
    """Return the layout of a closed entry.

    ``length`` counts the data flits that it covers, ``end`` is how many bytes of the last one (0:
    all). ``words`` is not 0 if there is a list.
    """
    return data.StructLayout(
        {
            "id": entry_bits(params),
            "status": Status,
            "opcode": 4,
            "size": 2,
            "dtype": DType,
            "op": ReduceOp,
            "order": Order,
            "posted": 1,
            "rd": 16,
            "accesses": 7,
            "address": 48,
            "count": 15,
            "length": 5,
            "end": 4,
        }
    )


def fetch_layout(params: GpuParams) -> data.StructLayout:
    """Return the layout of an order to fetch a list: `words` words from word `address` on."""
    return data.StructLayout(
        {"id": entry_bits(params), "shared": 1, "address": 44, "words": word_bits(params) + 1}
    )


def packet_layout(params: GpuParams) -> data.StructLayout:
    """Return the layout of a packet to be sent.

    ``drop``: nothing is sent, its data is thrown away. ``extensions`` counts the list's flits,
    ``data`` the flits from the data queue. ``first`` and ``final`` are the bytes written in the
    first and in the last data flit.
    """
    lists = (params.max_targets + LANES - 1) // LANES
    return data.StructLayout(
        {
            "header": FLIT_BITS,
            "drop": 1,
            "extensions": lists.bit_length(),
            "byte_enable": 1,
            "data": HEADER["length"].width,
            "first": FLIT_BITS // 8,
            "final": FLIT_BITS // 8,
        }
    )


def ticket_layout() -> data.StructLayout:
    """Return the layout of how the accesses of a packet end.

    ``offset`` is the first byte's place in its flit, ``length`` the flits asked for.
    """
    return data.StructLayout(
        {
            "rd": 16,
            "accesses": 7,
            "load": 1,
            "size": 2,
            "offset": 4,
            "length": 5,
            "status": Status,
        }
    )
