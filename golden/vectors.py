# SPDX-License-Identifier: Apache-2.0
"""Known-answer packets. Every flit below was worked out by hand, none by the code under test.

All are of one system: a switch with the preset ``tiny`` (4 ports, 4 GPUs with a link each) and two
experts on each GPU, so experts 0 and 1 are on GPU 0 and experts 6 and 7 on GPU 3. Group 1 is the
GPUs 0, 1 and 3.

The first two are the running example: GPU 0 sends token A to GPUs 0, 1 and 2 and token B to GPUs 2
and 3.
"""

from dataclasses import dataclass, field
from typing import Any

from ..rtl.flits import DType, Opcode, Stage, Status, Vc

__all__ = ["EXPERTS_PER_GPU", "GROUPS", "PRESET", "TRANSFERS", "VECTORS", "Transfer", "Vector"]

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
    "tag": 0x0A3,
    "gen": 2,
    "aux": 0b1000,
    "length": 4,
    "gpu": 3,
    "dtype": DType.BF16_ACC32,
}
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
        "ack",
        "GPU 2 acknowledges token A for both of its targets",
        {
            "opcode": Opcode.RSP_ACK,
            "address": 0x1000,
            "count": 2,
            "tag": 5,
            "gen": 1,
            "aux": Status.OK,
            "gpu": 0,
            "vc": Vc.RESPONSE,
        },
        ("000000008000205d_0004000000001000",),
    ),
    Vector(
        "data-response",
        "One f16 partial result (1.0 to 8.0) that covers one target, to GPU 3",
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
        "multimem.st from GPU 1 to group 1",
        {"opcode": Opcode.MM_ST, "address": 0x4000, "count": 1, "length": 1, "gpu": 1},
        (
            "0000000002080005_0002000000004000",
            "0123456789abcdef_fedcba9876543210",
        ),
    ),
    Vector(
        "nine-targets",
        "Combine request from GPU 3 for 64 B in canonical order, 9 targets, expert 7 twice",
        _NINE | {"count": 9},
        (
            "0000000e06244a3a_0013000000001100",
            "0000000100020003_0004000500060007",
            "0000000000000000_0000000000000007",
        ),
        (7, 6, 5, 4, 3, 2, 1, 0, 7),
    ),
    Vector(
        "nine-targets-gpu0",
        "Its copy for GPU 0",
        _NINE | {"count": 2},
        ("0000000e06244a3a_0005000000001100", "0000000000000000_0000000000000001"),
        (1, 0),
    ),
    Vector(
        "nine-targets-gpu1",
        "Its copy for GPU 1",
        _NINE | {"count": 2},
        ("0000000e06244a3a_0005000000001100", "0000000000000000_0000000000020003"),
        (3, 2),
    ),
    Vector(
        "nine-targets-gpu2",
        "Its copy for GPU 2",
        _NINE | {"count": 2},
        ("0000000e06244a3a_0005000000001100", "0000000000000000_0000000000040005"),
        (5, 4),
    ),
    Vector(
        "nine-targets-gpu3",
        "Its copy for GPU 3: original order, and the duplicate stays",
        _NINE | {"count": 3},
        ("0000000e06244a3a_0007000000001100", "0000000000000000_0000000700060007"),
        (7, 6, 7),
    ),
)

TRANSFERS = (
    Transfer("token-a", 0, {0: "token-a-gpu0", 1: "token-a-gpu1", 2: "token-a-gpu2"}),
    Transfer("token-b", 0, {2: "token-b-gpu2", 3: "token-b-gpu3"}),
    Transfer("ack", 2, {0: "ack"}),
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
