# SPDX-License-Identifier: Apache-2.0
"""Known-answer packets. Every flit below was worked out by hand, none by the code under test.

All are of one system: a switch with the preset ``tiny`` (4 ports, 4 GPUs with a link each) and two
experts on each GPU, so experts 0 and 1 are on GPU 0 and experts 6 and 7 on GPU 3. Group 1 is the
GPUs 0, 1 and 3.

The first two are the running example: GPU 0 sends token A to GPUs 0, 1 and 2 and token B to GPUs 2
and 3. All acknowledge token A; of token B, GPU 2 tells an error and GPU 3 nothing.
"""

from dataclasses import dataclass, field
from typing import Any

from ..rtl.flits import DType, Opcode, Stage, Status, Vc

__all__ = [
    "EXPERTS_PER_GPU",
    "GATHERS",
    "GROUPS",
    "PRESET",
    "TRANSFERS",
    "VECTORS",
    "Gather",
    "Transfer",
    "Vector",
]

PRESET = "tiny"
EXPERTS_PER_GPU = 2
GROUPS = (0, 0b1011, 0, 0)
"""GPU masks of the groups."""


@dataclass(frozen=True)
class Vector:
    """One packet, in words and in hexadecimal."""

    name: str
    description: str
    fields: dict[str, Any]
    """Header fields that are not 0."""
    flits: tuple[str, ...]
    """Bit 127 first; ``_`` between the two words."""
    targets: tuple[int, ...] = ()


@dataclass(frozen=True)
class Transfer:
    """What the switch makes of one packet."""

    packet: str
    source: int
    """Port that the packet comes in by."""
    copies: dict[int, str] = field(default_factory=dict)
    """Packet that leaves by each port."""
    refusal: str = ""
    """Packet that goes back to the source, if the switch refuses."""


@dataclass(frozen=True)
class Gather:
    """What the requester's port makes of the answers to a request."""

    request: str
    source: int
    """Port that the request comes in by, and the result leaves by."""
    parts: tuple[tuple[int, str], ...]
    """The GPU that sends each part, in the order in which they are taken."""
    result: str
    times_out: bool = False
    """Whether the result comes from a time-out after these parts."""


_A = {
    "opcode": Opcode.DY_ST,
    "address": 0x1000,
    "stage": Stage.DISPATCH,
    "tag": 5,
    "gen": 1,
    "length": 2,
    "gpu": 0,
}
_A_DATA = (
    "0f0e0d0c0b0a0908_0706050403020100",
    "1f1e1d1c1b1a1918_1716151413121110",
)
_B = _A | {"address": 0x1080, "tag": 6}
_B_DATA = (
    "2f2e2d2c2b2a2928_2726252423222120",
    "3f3e3d3c3b3a3938_3736353433323130",
)
_NINE = {
    "opcode": Opcode.DY_LD_REDUCE,
    "address": 0x1100,
    "stage": Stage.COMBINE,
    "tag": 11,
    "gen": 2,
    "aux": 0b1000,
    "length": 4,
    "gpu": 3,
    "dtype": DType.BF16_ACC32,
}
_ANSWER = {"vc": Vc.RESPONSE, "gen": 1, "gpu": 0}
_SUM = {
    "address": 0x3000,
    "stage": Stage.COMBINE,
    "tag": 4,
    "gen": 3,
    "length": 1,
    "gpu": 1,
    "dtype": DType.F16_TO_F32,
}
_SUM_REQUEST = _SUM | {"opcode": Opcode.DY_LD_REDUCE}
_SUM_PART = _SUM | {"opcode": Opcode.PART_DATA, "count": 1, "vc": Vc.RESPONSE}
_BEYOND = {"address": 0x2000, "tag": 9, "count": 2, "gpu": 1}

VECTORS = (
    Vector(
        "token-a",
        "Dispatch of token A: 4 targets on 3 GPUs",
        _A | {"count": 4},
        (
            "0000000000102059_0008000000001000",
            "0000000000000000_0005000400030000",
            *_A_DATA,
        ),
        (0, 3, 4, 5),
    ),
    Vector(
        "token-a-gpu0",
        "Copy of token A for GPU 0, pruned to expert 0",
        _A | {"count": 1},
        (
            "0000000000102059_0002000000001000",
            "0000000000000000_0000000000000000",
            *_A_DATA,
        ),
        (0,),
    ),
    Vector(
        "token-a-gpu1",
        "Copy of token A for GPU 1, pruned to expert 3",
        _A | {"count": 1},
        (
            "0000000000102059_0002000000001000",
            "0000000000000000_0000000000000003",
            *_A_DATA,
        ),
        (3,),
    ),
    Vector(
        "token-a-gpu2",
        "Copy of token A for GPU 2, pruned to experts 4 and 5",
        _A | {"count": 2},
        (
            "0000000000102059_0004000000001000",
            "0000000000000000_0000000000050004",
            *_A_DATA,
        ),
        (4, 5),
    ),
    Vector(
        "token-b",
        "Dispatch of token B: 2 targets on 2 GPUs",
        _B | {"count": 2},
        (
            "0000000000102069_0004000000001080",
            "0000000000000000_0000000000060005",
            *_B_DATA,
        ),
        (5, 6),
    ),
    Vector(
        "token-b-gpu2",
        "Copy of token B for GPU 2",
        _B | {"count": 1},
        (
            "0000000000102069_0002000000001080",
            "0000000000000000_0000000000000005",
            *_B_DATA,
        ),
        (5,),
    ),
    Vector(
        "token-b-gpu3",
        "Copy of token B for GPU 3",
        _B | {"count": 1},
        (
            "0000000000102069_0002000000001080",
            "0000000000000000_0000000000000006",
            *_B_DATA,
        ),
        (6,),
    ),
    Vector(
        "token-a-ack",
        "A GPU acknowledges token A for one target, and has no more to say",
        _ANSWER | {"opcode": Opcode.PART_ACK, "address": 0x1000, "count": 1, "tag": 5},
        ("000000008000205c_0002000000001000",),
    ),
    Vector(
        "token-a-ack-more",
        "GPU 2 acknowledges token A for the first of its two targets",
        _ANSWER | {"opcode": Opcode.PART_ACK, "address": 0x1000, "count": 1, "tag": 5, "more": 1},
        ("000000408000205c_0002000000001000",),
    ),
    Vector(
        "token-a-result",
        "Token A is stored at all 4 targets",
        _ANSWER | {"opcode": Opcode.RSP_ACK, "count": 4, "tag": 5},
        ("000000008000205d_0008000000000000",),
    ),
    Vector(
        "token-b-fault",
        "GPU 2 has nothing at token B's address",
        _ANSWER
        | {
            "opcode": Opcode.PART_ACK,
            "address": 0x1080,
            "count": 1,
            "tag": 6,
            "aux": Status.BAD_ADDRESS,
        },
        ("000000008007a06c_0002000000001080",),
    ),
    Vector(
        "token-b-result",
        "Time is up for token B: GPU 3 (bit 3 of the low word) is missing and GPU 2 (bit 2 of the "
        "high word) told an error. BAD_ADDRESS is greater than TIMEOUT",
        _ANSWER
        | {
            "opcode": Opcode.RSP_DATA,
            "count": 2,
            "tag": 6,
            "aux": Status.BAD_ADDRESS,
            "length": 1,
        },
        ("00000000800fa06e_0004000000000000", "0000000000000004_0000000000000008"),
    ),
    Vector(
        "sum",
        "Combine request from GPU 1 for 16 B of f16 as f32, 2 targets on 2 GPUs",
        _SUM_REQUEST | {"count": 2},
        ("000000100208604a_0005000000003000", "0000000000000000_0000000000040001"),
        (1, 4),
    ),
    Vector(
        "sum-gpu0",
        "Its copy for GPU 0",
        _SUM_REQUEST | {"count": 1},
        ("000000100208604a_0003000000003000", "0000000000000000_0000000000000001"),
        (1,),
    ),
    Vector(
        "sum-gpu2",
        "Its copy for GPU 2",
        _SUM_REQUEST | {"count": 1},
        ("000000100208604a_0003000000003000", "0000000000000000_0000000000000004"),
        (4,),
    ),
    Vector(
        "sum-part-gpu0",
        "GPU 0's part of the sum: 1.0 to 8.0 in f16",
        _SUM_PART,
        ("000000108208604f_0003000000003000", "4800470046004500_4400420040003c00"),
    ),
    Vector(
        "sum-part-gpu2",
        "GPU 2's part of the sum: eight times 0.5 in f16",
        _SUM_PART,
        ("000000108208604f_0003000000003000", "3800380038003800_3800380038003800"),
    ),
    Vector(
        "sum-result",
        "The sum: 1.5 to 8.5 in f32, twice as long as a part",
        {
            "opcode": Opcode.RSP_DATA,
            "count": 2,
            "tag": 4,
            "gen": 3,
            "length": 2,
            "gpu": 1,
            "vc": Vc.RESPONSE,
            "dtype": DType.F32,
        },
        (
            "000000068210604e_0004000000000000",
            "4090000040600000_402000003fc00000",
            "4108000040f00000_40d0000040b00000",
        ),
    ),
    Vector(
        "ack",
        "GPU 3 acknowledges the unicast write below",
        {
            "opcode": Opcode.RSP_ACK,
            "address": 0x1234_5678_9A80,
            "count": 1,
            "tag": 0x010,
            "gen": 2,
            "aux": Status.OK,
            "gpu": 2,
            "vc": Vc.RESPONSE,
        },
        ("000000008400410d_0002123456789a80",),
    ),
    Vector(
        "data-response",
        "16 B that GPU 3 loads from one GPU; every field is passed, also those without a meaning",
        {
            "opcode": Opcode.RSP_DATA,
            "address": 0x1080,
            "stage": Stage.COMBINE,
            "count": 1,
            "tag": 511,
            "gen": 3,
            "length": 1,
            "gpu": 3,
            "vc": Vc.RESPONSE,
            "dtype": DType.F16_ACC32,
        },
        (
            "0000000c86087ffe_0003000000001080",
            "4800470046004500_4400420040003c00",
        ),
    ),
    Vector(
        "beyond",
        "Request from GPU 1 with a target (8) that no GPU has",
        _BEYOND | {"opcode": Opcode.DY_ST, "length": 1},
        (
            "0000000002080099_0004000000002000",
            "0000000000000000_0000000000080007",
            "aaaaaaaaaaaaaaaa_aaaaaaaaaaaaaaaa",
        ),
        (7, 8),
    ),
    Vector(
        "beyond-refusal",
        "The switch's answer to it",
        _BEYOND | {"opcode": Opcode.RSP_ACK, "aux": Status.BAD_TARGET, "vc": Vc.RESPONSE},
        ("000000008203809d_0004000000002000",),
    ),
    Vector(
        "unicast-write",
        "GPU 2 writes bytes 4 to 27 of 32 on GPU 3",
        {
            "opcode": Opcode.WRITE,
            "address": 0x1234_5678_9A80,
            "count": 3,
            "tag": 0x010,
            "gen": 2,
            "length": 2,
            "byte_enable": 1,
            "gpu": 2,
        },
        (
            "0000000005104101_0006123456789a80",
            "0000000000000000_000000000ffffff0",
            "ffeeddccbbaa9988_7766554433221100",
            "0011223344556677_8899aabbccddeeff",
        ),
    ),
    Vector(
        "static-store",
        "multimem.st from GPU 1 to group 1, posted: nobody answers",
        {"opcode": Opcode.MM_ST, "address": 0x4000, "count": 1, "length": 1, "gpu": 1, "posted": 1},
        (
            "0000002002080005_0002000000004000",
            "0123456789abcdef_fedcba9876543210",
        ),
    ),
    Vector(
        "nine-targets",
        "Combine request from GPU 3 for 64 B in canonical order, 9 targets, expert 7 twice",
        _NINE | {"count": 9},
        (
            "0000000e062440ba_0013000000001100",
            "0000000100020003_0004000500060007",
            "0000000000000000_0000000000000007",
        ),
        (7, 6, 5, 4, 3, 2, 1, 0, 7),
    ),
    Vector(
        "nine-targets-gpu0",
        "Its copy for GPU 0",
        _NINE | {"count": 2},
        ("0000000e062440ba_0005000000001100", "0000000000000000_0000000000000001"),
        (1, 0),
    ),
    Vector(
        "nine-targets-gpu1",
        "Its copy for GPU 1",
        _NINE | {"count": 2},
        ("0000000e062440ba_0005000000001100", "0000000000000000_0000000000020003"),
        (3, 2),
    ),
    Vector(
        "nine-targets-gpu2",
        "Its copy for GPU 2",
        _NINE | {"count": 2},
        ("0000000e062440ba_0005000000001100", "0000000000000000_0000000000040005"),
        (5, 4),
    ),
    Vector(
        "nine-targets-gpu3",
        "Its copy for GPU 3: original order, and the duplicate stays",
        _NINE | {"count": 3},
        ("0000000e062440ba_0007000000001100", "0000000000000000_0000000700060007"),
        (7, 6, 7),
    ),
)

TRANSFERS = (
    Transfer("token-a", 0, {0: "token-a-gpu0", 1: "token-a-gpu1", 2: "token-a-gpu2"}),
    Transfer("token-b", 0, {2: "token-b-gpu2", 3: "token-b-gpu3"}),
    Transfer("sum", 1, {0: "sum-gpu0", 2: "sum-gpu2"}),
    Transfer("ack", 3, {2: "ack"}),
    Transfer("data-response", 1, {3: "data-response"}),
    Transfer("beyond", 1, refusal="beyond-refusal"),
    Transfer("unicast-write", 2, {3: "unicast-write"}),
    Transfer("static-store", 1, {0: "static-store", 1: "static-store", 3: "static-store"}),
    Transfer(
        "nine-targets",
        3,
        {port: f"nine-targets-gpu{port}" for port in range(4)},
    ),
)

GATHERS = (
    Gather(
        "token-a",
        0,
        (
            (2, "token-a-ack-more"),
            (0, "token-a-ack"),
            (2, "token-a-ack"),
            (1, "token-a-ack"),
        ),
        "token-a-result",
    ),
    Gather("token-b", 0, ((2, "token-b-fault"),), "token-b-result", times_out=True),
    Gather("sum", 1, ((2, "sum-part-gpu2"), (0, "sum-part-gpu0")), "sum-result"),
)
