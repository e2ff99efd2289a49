# SPDX-License-Identifier: Apache-2.0
"""What goes between the parts of the hub's data path."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Mux, Value
from amaranth.lib import data, enum

from ..flits import HEADER, MAX_DATA_FLITS, Opcode, Vc
from ..gpu_params import GpuParams

__all__ = [
    "ANSWER",
    "COUNT_BITS",
    "JOB",
    "LONGEST_ANSWER",
    "MAX_PLACE_BITS",
    "MAX_REDS",
    "STREAMS",
    "Segment",
    "Sum",
    "answer_header",
    "answer_of",
    "answer_opcode",
    "choose",
    "lane_bits",
    "load_record_layout",
    "rows_of",
    "segment_layout",
    "store_record_layout",
]

COUNT_BITS = 10
"""Of a number of targets, 512 at most."""

LONGEST_ANSWER = 1 + MAX_DATA_FLITS

MAX_REDS = 8
"""``MM_RED`` that are under way at once."""

MAX_PLACE_BITS = 44
"""Of an address in flits."""

STREAMS = 4
"""Reply streams: targets that are added in one pass."""

_JOB_FIELDS = (
    "address",
    "stage",
    "opcode",
    "tag",
    "gen",
    "aux",
    "length",
    "byte_enable",
    "gpu",
    "dtype",
    "posted",
)
JOB = data.StructLayout({name: HEADER[name].shape for name in _JOB_FIELDS} | {"count": COUNT_BITS})
"""A request that waits for its turn: its header without what no longer matters. ``count`` is the
number of targets, 1 if there is no list."""

_ANSWER_FIELDS = ("address", "stage", "tag", "gen", "gpu", "dtype")
ANSWER = data.StructLayout({name: HEADER[name].shape for name in _ANSWER_FIELDS} | {"unicast": 1})
"""What an answer repeats of its request, and whether that was for this GPU alone."""


class Segment(enum.Enum, shape=3):
    """What a segment does with the memory."""

    NONE = 0
    """Nothing; gives the request's data back."""
    WRITE = 1
    """Write the request's data to one place."""
    READ = 2
    """Read one place."""
    ENABLES = 3
    """Fetch the byte-enable flit, for the segments behind."""
    COPY = 4
    """Hand the request's data to the lanes, flit by flit."""
    BACK = 5
    """Write flits that come back from the lanes."""


class Sum(enum.Enum, shape=2):
    """What becomes of the data that a load record stands for."""

    NONE = 0
    """It is handed on as it is."""
    NARROW = 1
    """Added up in the type of the request."""
    WIDE = 2
    """Added up in f32."""
    RED = 3
    """Combined with the request's data, to be written back."""


_ANSWERS = (Opcode.PART_ACK, Opcode.RSP_ACK, Opcode.RSP_DATA, Opcode.PART_DATA)
if [code.value for code in _ANSWERS] != [0xC, 0xD, 0xE, 0xF]:
    raise AssertionError("`answer_opcode` makes other opcodes")


def lane_bits(params: GpuParams) -> int:
    """Bits of the number of a flit in a beat; 1 if there is one only."""
    return max(1, (params.memory_flits - 1).bit_length())


def rows_of(params: GpuParams, stream: int) -> int:
    """Beats that a reply stream holds: at least those of the longest target.

    The last stream, which every load uses, has twice as many.
    """
    rows = max(MAX_DATA_FLITS, params.hub_flits // params.memory_flits // 2)
    return rows * 2 if stream == STREAMS - 1 else rows


def segment_layout(params: GpuParams) -> data.StructLayout:
    """Work for :class:`MemoryIssue`.

    ``place``: address in flits. ``length``: flits. ``slot``: of the data's first flit. ``masked``:
    the byte-enable flit counts. ``stream``: where the replies go. ``free``: slots of data that are
    given back at the end.
    """
    return data.StructLayout(
        {
            "kind": Segment,
            "place": MAX_PLACE_BITS,
            "length": 5,
            "slot": (params.hub_flits - 1).bit_length(),
            "masked": 1,
            "stream": (STREAMS - 1).bit_length(),
            "free": 5,
        }
    )


def store_record_layout() -> data.StructLayout:
    """One target of a store whose end is to be told.

    ``writes``: of this target; 0 if it is refused. ``last``: of the request. ``silent``: nobody
    waits for an answer.
    """
    return data.StructLayout(
        {"answer": ANSWER, "count": COUNT_BITS, "writes": 5, "last": 1, "silent": 1}
    )


def load_record_layout() -> data.StructLayout:
    """One part of a load, or one ``MM_RED``.

    ``begin``: reply stream of its first target. ``targets``: how many are added up. ``count``: how
    many the answer covers. ``bad``: it is refused, nothing was read.
    """
    return data.StructLayout(
        {
            "answer": ANSWER,
            "kind": Sum,
            "length": 5,
            "begin": (STREAMS - 1).bit_length(),
            "targets": COUNT_BITS,
            "count": COUNT_BITS,
            "op": 3,
            "more": 1,
            "bad": 1,
        }
    )


def answer_of(job: data.View) -> Value:
    """Return the bits of :data:`ANSWER` of a job."""
    return Cat(*(job[name] for name in _ANSWER_FIELDS), job.opcode[2:4] == 0)


def answer_header(answer: data.View, **fields: Value) -> Value:
    """Header flit of an answer; fields that are not named are the request's, or 0."""
    values: dict[str, Value] = {name: answer[name] for name in _ANSWER_FIELDS}
    values |= {"vc": Const(Vc.RESPONSE.value, 2)} | fields
    parts = []
    for name, field in HEADER:
        value = values.get(name, Const(0, 1))
        parts.append(Cat(value, Const(0, field.width))[: field.width])
    return Cat(parts)


def answer_opcode(unicast: Value, has_data: Value) -> Value:
    """Opcode of an answer.

    The four of them are 0xC to 0xF: a part or not, with data or not.
    """
    return Cat(unicast ^ has_data, has_data, Const(3, 2))


def choose(words: Sequence[Value], index: Value) -> Value:
    """Word number `index` of a power of two of words, by a tree of multiplexers."""
    words = list(words)
    bit = 0
    while len(words) > 1:
        words = [
            Mux(index[bit], odd, even) for even, odd in zip(words[::2], words[1::2], strict=True)
        ]
        bit += 1
    return words[0]
