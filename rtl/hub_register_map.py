# SPDX-License-Identifier: Apache-2.0
"""Register map of a GPU's hub: names, addresses, access and reset values in one table."""

from collections.abc import Iterator

from .gpu_params import GpuParams
from .register_map import Counter, Register

__all__ = ["HUB_COUNTERS", "HUB_ID_VALUE", "OBJECT_MODES", "hub_address_of", "hub_register_map"]

HUB_ID_VALUE = 0xD5A5_0001
"""Reads as the product (upper half) and the version of this map (lower half)."""

_COUNTERS = 0x0040
_OBJECTS = 0x0100
_OBJECT_STRIDE = 0x40
_EXPERTS = 0x8000
_EXPERT_STRIDE = 0x20

OBJECT_MODES = {"none": 0, "static": 1, "dynamic": 2}
"""Values of the register ``mode`` of an object."""

HUB_COUNTERS = (
    Counter("requests", "requests taken from the switch"),
    Counter("refused", "requests, whole or in part, answered with an error or dropped for one"),
    Counter("lookups", "dynamic translations"),
    Counter("hits", "lookups that the TLB had"),
    Counter("misses", "lookups that read the AL table"),
    Counter("merged", "lookups that waited for a read that was under way"),
    Counter("allocations", "blocks that got a place at their first touch"),
    Counter("refusals", "translations that ended with an error"),
)

_OBJECT = (
    ("mode", "0 no object, 1 static, 2 dynamic. Write it last"),
    ("base_lo", "first address, bits 31:0; a multiple of 16"),
    ("base_hi", "bits 47:32"),
    ("blocks", "blocks (tokens) of a dynamic object, 1 to 2**24"),
    ("block", "block size in units of 16 B, 1 to 65536; of a static object: unused"),
    ("reciprocal_lo", "ceil(2**(36 + shift) / block), bits 31:0"),
    ("reciprocal_hi", "bits 36:32"),
    ("shift", "ceil(log2(block)), 0 to 16"),
    ("size_lo", "bytes of the object, bits 31:0; a multiple of 16, at most 2**40"),
    ("size_hi", "bits 40:32"),
    ("first_expert", "dynamic: number of the first expert on this GPU"),
    ("experts", "dynamic: experts on this GPU, 1 up to the generated maximum"),
    ("memory_lo", "static: address of the object in this GPU's memory, bits 31:0"),
    ("memory_hi", "bits 47:32"),
    ("stages", "dynamic: bit s: stage s (0 dispatch, 1 combine) has a base"),
)
_EXPERT = (
    ("dispatch_lo", "base of the dispatch stage's blocks, bits 31:0; a multiple of 16"),
    ("dispatch_hi", "bits 47:32; the write takes both halves over"),
    ("combine_lo", "base of the combine stage's blocks, bits 31:0; a multiple of 16"),
    ("combine_hi", "bits 47:32; the write takes both halves over"),
    ("table_lo", "address of the expert's AL table, bits 31:0; a multiple of 4"),
    ("table_hi", "bits 47:32; the write takes both halves over"),
    ("nactive", "blocks that the expert has room for, 0 to 2**24"),
)


def _registers(params: GpuParams) -> Iterator[Register]:
    yield Register("id", 0x0000, "ro", HUB_ID_VALUE, "product and version of this map")
    yield Register(
        "shape",
        0x0004,
        "ro",
        params.objects | params.experts << 8 | params.tlb_entries << 18,
        "objects 7:0, experts 17:8, TLB entries 31:18",
    )
    yield Register(
        "presum",
        0x0008,
        "rw",
        1,
        "1: a load gets one part with the sum over this GPU's targets; 0: one part a target",
    )
    yield Register(
        "clear",
        0x000C,
        "wo",
        0,
        "bit o: forget the AL map of object o, when the translations under way have ended",
    )
    yield Register("busy", 0x0010, "ro", 0, "bit 0: a clear is not through yet")
    yield Register("memory_lo", 0x0018, "rw", 0, "bytes of this GPU's memory, bits 31:0")
    yield Register(
        "memory_hi", 0x001C, "rw", 0, "bits 47:32; ordinary accesses beyond it are refused"
    )
    for index, counter in enumerate(HUB_COUNTERS):
        yield Register(counter.name, _COUNTERS + 4 * index, "ro", 0, counter.meaning)
    for number in range(params.objects):
        base = _OBJECTS + _OBJECT_STRIDE * number
        for index, (name, meaning) in enumerate(_OBJECT):
            yield Register(f"object{number}_{name}", base + 4 * index, "rw", 0, meaning)
    for number in range(params.objects):
        for expert in range(params.experts):
            base = _EXPERTS + _EXPERT_STRIDE * (number * params.experts + expert)
            for index, (name, meaning) in enumerate(_EXPERT):
                yield Register(
                    f"expert{number}_{expert}_{name}", base + 4 * index, "wo", 0, meaning
                )
            yield Register(
                f"expert{number}_{expert}_used",
                base + 4 * len(_EXPERT),
                "ro",
                0,
                "blocks that have a place",
            )


def hub_register_map(params: GpuParams) -> tuple[Register, ...]:
    """All registers of a hub, in address order."""
    return tuple(sorted(_registers(params), key=lambda r: r.address))


def hub_address_of(params: GpuParams, name: str) -> int:
    """Byte address of the register `name`."""
    for register in _registers(params):
        if register.name == name:
            return register.address
    raise ValueError(f"`name` must be a register of this hub, not {name!r}")
