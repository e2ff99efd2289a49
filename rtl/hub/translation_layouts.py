# SPDX-License-Identifier: Apache-2.0
"""Widths and layouts that the parts of the address translation share."""

from amaranth.lib import data

from ..gpu_params import GpuParams

__all__ = [
    "BLOCK_BITS",
    "EPOCH_BITS",
    "INDEX_BITS",
    "OBJECT_CONFIG",
    "OFFSET_BITS",
    "PLACE_BITS",
    "REST_BITS",
    "USED_BITS",
    "WORD_BITS",
    "found_layout",
    "object_bits",
    "outcome_layout",
    "ring_size",
    "row_bits",
    "tag_bits",
]

PLACE_BITS = 44
"""An address in units of flits (16 B)."""
WORD_BITS = 46
"""An address in units of 4 B."""
OFFSET_BITS = 36
"""A place in an object, in flits."""
INDEX_BITS = 24
"""Number of a block, and of its place."""
REST_BITS = 16
"""A flit of a block."""
BLOCK_BITS = 17
"""Flits of a block."""
USED_BITS = 25
"""A count of blocks."""
EPOCH_BITS = 8

OBJECT_CONFIG = data.StructLayout(
    {
        "static": 1,
        "dynamic": 1,
        "base": PLACE_BITS,
        "limit": PLACE_BITS + 1,
        "blocks": USED_BITS,
        "block": BLOCK_BITS,
        "reciprocal": OFFSET_BITS + 1,
        "shift": 5,
        "first_expert": 16,
        "experts": 10,
        "memory": PLACE_BITS,
        "stages": 2,
    }
)
"""An object's registers. ``limit`` is the end, ``base`` plus the size; ``experts`` is no more than
were generated; addresses and sizes are in flits."""


def ring_size(entries: int) -> int:
    """Words of a ring: a RAM has two at least. How many may be in use is counted beside it."""
    return max(2, entries)


def object_bits(params: GpuParams) -> int:
    """Bits of the number of an object."""
    return max(1, (params.objects - 1).bit_length())


def row_bits(params: GpuParams) -> int:
    """Bits of a row: a pair of object and local expert."""
    return max(1, (params.objects * params.experts - 1).bit_length())


def tag_bits(params: GpuParams) -> int:
    """Bits of an entry of the AL map: the number of the block below the row."""
    return INDEX_BITS + row_bits(params)


def found_layout(params: GpuParams) -> data.StructLayout:
    """Lay out what is known of a lookup before the division.

    ``good``: all is right but for what the division and the AL map may tell. ``offset``: of the
    object, or the address of a local lookup.
    """
    return data.StructLayout(
        {
            "good": 1,
            "dynamic": 1,
            "static": 1,
            "allocate": 1,
            "stage": 1,
            "object": object_bits(params),
            "row": row_bits(params),
            "offset": PLACE_BITS,
        }
    )


def outcome_layout(params: GpuParams) -> data.StructLayout:
    """Lay out what is known of a lookup behind the TLB.

    ``missed``: the low bits of ``index`` are the number of the miss that it waits for. ``rest``: in
    the block; of lookups that are not dynamic, in the object.
    """
    return data.StructLayout(
        {
            "good": 1,
            "dynamic": 1,
            "static": 1,
            "missed": 1,
            "stage": 1,
            "object": object_bits(params),
            "row": row_bits(params),
            "index": INDEX_BITS,
            "rest": PLACE_BITS,
        }
    )
