# SPDX-License-Identifier: Apache-2.0
"""Every field of every flit, the opcodes and the statuses: the one definition that all parts read.

A flit is 128 bits, little-endian (byte 0 is bits 7:0). A packet is, in this order:

1. one header flit (:data:`HEADER`);
2. ``ceil(count / 8)`` target extension flits (:data:`EXTENSION`), on dynamic requests only;
3. one byte-enable flit, if ``byte_enable`` is set (bit *b* enables byte *b* of the data);
4. ``length`` data flits, if the opcode carries data (:func:`carries_data`).

The tables below are data: components build their layouts from them, ``golden`` its vectorised
packing, and ``docs/packet-format.md`` is written from them.
"""

from dataclasses import dataclass

from amaranth.lib import data, enum

__all__ = [
    "EXTENSION",
    "FLIT_BITS",
    "FLIT_BYTES",
    "HEADER",
    "HEADER_FIELDS",
    "LANES",
    "MAX_BYTE_ENABLE_FLITS",
    "MAX_DATA_FLITS",
    "MAX_PRESUM_FLITS",
    "MIN_PRESUM_TARGETS",
    "REDUCTIONS",
    "REPORT",
    "SLOT_FLITS",
    "TARGET_BITS",
    "TO_F32",
    "WIDE",
    "Addressing",
    "DType",
    "Field",
    "Kind",
    "Opcode",
    "Order",
    "ReduceOp",
    "Stage",
    "Status",
    "Vc",
    "addressing",
    "carries_data",
    "kind",
    "slots",
]

FLIT_BITS = 128
FLIT_BYTES = FLIT_BITS // 8
TARGET_BITS = 16
LANES = FLIT_BITS // TARGET_BITS
"""Targets in one extension flit."""
MAX_DATA_FLITS = 16
MAX_BYTE_ENABLE_FLITS = FLIT_BITS // FLIT_BYTES
"""A byte-enable flit has one bit a byte, so it reaches over 8 data flits (128 B) at most."""


class Stage(enum.Enum, shape=1):
    """Which of the two stages of an MoE layer a packet belongs to."""

    DISPATCH = 0
    COMBINE = 1


class Addressing(enum.Enum, shape=2):
    """Opcode bits 3:2: how the destinations of a packet are named."""

    UNICAST = 0
    """``count`` is the number of one GPU."""
    STATIC = 1
    """``count`` is the number of a group whose GPU mask stands in the switch's registers."""
    DYNAMIC = 2
    """``count`` expert ids follow in extension flits."""
    RESPONSE = 3
    """``gpu`` is the requester that the packet goes back to."""


class Kind(enum.Enum, shape=2):
    """Opcode bits 1:0: what a request asks for; on a response, what it answers."""

    NONE = 0
    STORE = 1
    LOAD = 2
    RED = 3


class Opcode(enum.Enum, shape=4):
    """``{addressing, kind}``; the values that are missing here are unknown opcodes."""

    WRITE = 0x1
    """Store to one GPU."""
    READ = 0x2
    """Load from one GPU."""
    MM_ST = 0x5
    """``multimem.st``: store to a static group."""
    MM_LD_REDUCE = 0x6
    """``multimem.ld_reduce``: load from a static group and reduce."""
    MM_RED = 0x7
    """``multimem.red``: reduce into the memory of a static group."""
    DY_ST = 0x9
    """``dymultimem.st``: store to a list of targets (dispatch)."""
    DY_LD_REDUCE = 0xA
    """``dymultimem.ld_reduce``: load from a list of targets and reduce (combine)."""
    PART_ACK = 0xC
    """One GPU's acknowledgement of a multicast request, to be gathered at the requester's port."""
    RSP_ACK = 0xD
    """Acknowledgement or refusal; no data; ``aux`` is the status."""
    RSP_DATA = 0xE
    """Data that a load asked for; ``aux`` is the status. With another status than OK on a multicast
    request: one flit of :data:`REPORT`."""
    PART_DATA = 0xF
    """One GPU's part of a sum, to be added at the requester's port."""


class Status(enum.Enum, shape=4):
    """``aux`` of a response.

    The switch tests a request in the order of the numbers from 1 to 11 and answers with the first
    that applies. From 12 on: how a multicast request that was sent ended. Of several, the greatest
    is told.
    """

    OK = 0
    UNKNOWN_OPCODE = 1
    BAD_VC = 2
    """The channel does not fit the opcode."""
    BAD_SOURCE = 3
    """``gpu`` or the address hash do not fit the port that the request came in by."""
    BAD_LENGTH = 4
    """``length`` 0 or over 16 (over 8 for a sum whose result is twice as long), or a byte-enable
    flit where none may be."""
    COUNT_ZERO = 5
    TOO_MANY_TARGETS = 6
    BAD_TARGET = 7
    """A target, or the GPU of a unicast request, beyond the configured ones."""
    NO_GROUP = 8
    PARTITION = 9
    """A destination outside the sender's partition."""
    BAD_TAG = 10
    """A multicast request whose tag is no entry, or not the first of its entries."""
    BAD_REDUCTION = 11
    """A reduction whose type does not have its operation."""
    TIMEOUT = 12
    """Not all answers came in time."""
    BAD_RESPONSE = 13
    """An answer did not fit its request."""
    REPLACED = 14
    """The requester used the tag again before it had the result."""
    BAD_ADDRESS = 15
    """A target has nothing at the address."""


class DType(enum.Enum, shape=4):
    """Element type of a reduction.

    ``*_ACC32``: 16-bit elements, summed in f32 and rounded once, at the end. ``*_TO_F32``: the
    same, and the result is f32. These four are *wide*: an element takes 32 bits of the entry.
    """

    B32 = 0
    U32 = 1
    S32 = 2
    F32 = 3
    F16 = 4
    BF16 = 5
    F16_ACC32 = 6
    BF16_ACC32 = 7
    F16_TO_F32 = 8
    BF16_TO_F32 = 9


class ReduceOp(enum.Enum, shape=3):
    """``aux`` bits 2:0 of a request."""

    ADD = 0
    MIN = 1
    MAX = 2
    AND = 3
    OR = 4
    XOR = 5


class Order(enum.Enum, shape=1):
    """``aux`` bit 3 of a request: the order in which a reduction adds."""

    ARRIVAL = 0
    CANONICAL = 1


class Vc(enum.Enum, shape=2):
    """Virtual channels; 2 and 3 are not used yet."""

    REQUEST = 0
    RESPONSE = 1


@dataclass(frozen=True)
class Field:
    """One field of the header flit."""

    name: str
    width: int
    part: str
    """``address``, ``transaction``, ``link`` or ``crc``: the parts of NVLink's published header."""
    used_by: str
    meaning: str
    enum: type | None = None


HEADER_FIELDS = (
    Field("address", 48, "address", "all", "multimem address in bytes"),
    Field("stage", 1, "address", "dynamic", "0 dispatch, 1 combine", Stage),
    Field(
        "count",
        15,
        "address",
        "all",
        "dynamic: number of targets in the list; static: group number; unicast: destination GPU; "
        "response: number of targets that it covers",
    ),
    Field("opcode", 4, "transaction", "all", "what the packet is", Opcode),
    Field("tag", 9, "transaction", "all", "the requester's reduction entry"),
    Field("gen", 2, "transaction", "all", "generation of the tag, tells late responses"),
    Field(
        "aux", 4, "transaction", "all", "request: {order, reduction operation}; response: status"
    ),
    Field(
        "length",
        5,
        "link",
        "all",
        "data flits (16 B each) carried, or asked for by a load; 1 to 16, 0 on an acknowledgement",
    ),
    Field("byte_enable", 1, "link", "stores", "a byte-enable flit stands before the data"),
    Field("gpu", 6, "link", "all", "the requesting GPU, on its requests and on their responses"),
    Field("vc", 2, "link", "all", "virtual channel: 0 request, 1 response", Vc),
    Field("dtype", 4, "link", "reductions", "element type and accumulation", DType),
    Field(
        "posted",
        1,
        "link",
        "multicast requests",
        "nobody waits for an answer: no entry is used and the GPUs send none; stores only",
    ),
    Field(
        "more",
        1,
        "link",
        "parts",
        "the GPU sends a further part for this request; 0 on its last or only one",
    ),
    Field(
        "crc",
        25,
        "crc",
        "link layer",
        "made and checked by the link layer outside the switch; zero inside",
    ),
)
"""From bit 0 upwards, without gaps."""

HEADER = data.StructLayout({f.name: f.width for f in HEADER_FIELDS})
EXTENSION = data.ArrayLayout(TARGET_BITS, LANES)
REPORT = data.StructLayout({"missing": 64, "faulty": 64})
"""Data flit of an error result: bit *g* of ``missing``: GPU *g* has not answered to the end; of
``faulty``: an answer of it was wrong or told an error."""

if HEADER.size != FLIT_BITS or EXTENSION.size != FLIT_BITS:
    raise AssertionError("a flit has 128 bits")


_INTEGER = (ReduceOp.ADD, ReduceOp.MIN, ReduceOp.MAX)
REDUCTIONS: dict[DType, tuple[ReduceOp, ...]] = {
    dtype: (ReduceOp.AND, ReduceOp.OR, ReduceOp.XOR) if dtype is DType.B32 else _INTEGER
    for dtype in DType
}
"""The operations of each element type."""
WIDE = (DType.F16_ACC32, DType.BF16_ACC32, DType.F16_TO_F32, DType.BF16_TO_F32)
"""16-bit types whose sums take 32 bits."""
TO_F32 = (DType.F16_TO_F32, DType.BF16_TO_F32)
"""16-bit types whose result is f32, twice as long as a part."""
MAX_PRESUM_FLITS = MAX_DATA_FLITS // 2
"""A GPU's pre-sum of a wide type is f32 and twice as long as the request."""
MIN_PRESUM_TARGETS = 3
"""From so many targets of a GPU on, a pre-sum of a wide type is shorter than their parts."""
SLOT_FLITS = 8
"""Words of 128 bits (of sums) that one entry holds. Longer sums take the entries behind it too."""


def slots(length: int, dtype: DType) -> int:
    """Entries that a sum of `length` data flits a part takes: 1, 2 or 4. Its tag is a multiple."""
    words = length * (2 if dtype in WIDE else 1)
    return 1 if words <= SLOT_FLITS else 2 if words <= 2 * SLOT_FLITS else 4


def addressing(opcode: int) -> Addressing:
    """Addressing of any 4-bit opcode, known or not."""
    return Addressing(opcode >> 2)


def kind(opcode: int) -> Kind:
    """Kind of any 4-bit opcode, known or not."""
    return Kind(opcode & 3)


def carries_data(opcode: int) -> bool:
    """Whether ``length`` data flits follow, for any 4-bit opcode, known or not.

    Requests carry data when bit 0 is set (stores, reductions), responses when bit 1 is set.
    """
    return bool(opcode >> 1 & 1 if addressing(opcode) is Addressing.RESPONSE else opcode & 1)
