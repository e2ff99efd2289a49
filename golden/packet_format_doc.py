# SPDX-License-Identifier: Apache-2.0
"""Writer of ``docs/packet-format.md``.

``python -m dysharp.golden.packet_format_doc > docs/packet-format.md``
"""

import json
import sys
from collections.abc import Iterable, Sequence
from enum import Enum
from math import ceil
from typing import Any

from ..rtl import flits as tables
from ..rtl.flits import (
    FLIT_BYTES,
    HEADER_FIELDS,
    LANES,
    MAX_BYTE_ENABLE_FLITS,
    MAX_DATA_FLITS,
    TARGET_BITS,
    DType,
    Field,
    Opcode,
    Order,
    ReduceOp,
    Stage,
    Status,
    Vc,
)
from .arrays import value_of
from .flits import pack_headers, packet_flits
from .vectors import EXPERTS_PER_GPU, GATHERS, GROUPS, PRESET, TRANSFERS, VECTORS

__all__ = ["packet_format"]

_WORD_BITS = 64
_PAYLOADS = (16, 32, 64, 128, 256)
_TARGETS = (1, 8, 9, 16, 32, 64)

_ENUMS: tuple[tuple[Any, str], ...] = (
    (Stage, "`stage`"),
    (Vc, "`vc`; 2 and 3 are not used"),
    (Status, "`aux` of a response"),
    (ReduceOp, "`aux` bits 2:0 of a request"),
    (Order, "`aux` bit 3 of a request"),
    (DType, "`dtype`"),
)

_STATUS_RULES = {
    "UNKNOWN_OPCODE": "the opcode is none of the table above, or needs lists and the switch was "
    "generated without them",
    "BAD_VC": "`vc` of a request is not 0",
    "BAD_SOURCE": "`gpu` and the address hash name another port than the one it came in by",
    "BAD_LENGTH": f"`length` is not 1 to {MAX_DATA_FLITS}; or `byte_enable` is set on a load, or "
    f"with `length` over {MAX_BYTE_ENABLE_FLITS}; or a multicast load has a `dtype` `*_TO_F32` and "
    f"`length` over {MAX_DATA_FLITS // 2}",
    "COUNT_ZERO": "dynamic: the list is empty",
    "TOO_MANY_TARGETS": "dynamic: the list is longer than the switch was generated for",
    "BAD_TARGET": "dynamic: a target is on no GPU; unicast: there is no such GPU",
    "NO_GROUP": "static: there is no such group, or no existing GPU in its mask",
    "PARTITION": "a destination port is in another partition than the port it came in by",
    "BAD_TAG": "multicast, not posted: the switch has no entry `tag`; or the tag of a multicast "
    "load is not a multiple of the number of entries that its sum takes",
    "BAD_REDUCTION": "multicast load or `MM_RED`: no such `dtype`, or it does not have the "
    "operation (see Reductions)",
}
_RESULT_RULES = {
    "OK": "every target is covered by a good part",
    "TIMEOUT": "not all GPUs answered before the time-out",
    "BAD_RESPONSE": "a part did not fit the request, or not all targets were covered",
    "REPLACED": "the requester used the tag again before it had the result",
    "BAD_ADDRESS": "a GPU says so of a target",
}


def _places() -> list[tuple[Field, int]]:
    places, bit = [], 0
    for field in HEADER_FIELDS:
        places.append((field, bit))
        bit += field.width
    return places


def _bits(low: int, width: int) -> str:
    return f"{low + width - 1}:{low}" if width > 1 else f"{low}"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _picture(low: int) -> str:
    """Draw one word of the header, bit 63 on the left; boxes are not to scale."""
    fields = [place for place in reversed(_places()) if low <= place[1] < low + _WORD_BITS]
    labels = [_bits(bit, field.width) for field, bit in fields]
    widths = [max(len(f.name), len(b)) + 2 for (f, _), b in zip(fields, labels, strict=True)]
    rule = "+" + "+".join("-" * width for width in widths) + "+"
    numbers = " " + " ".join(b.center(w) for b, w in zip(labels, widths, strict=True))
    names = "|" + "|".join(f.name.center(w) for (f, _), w in zip(fields, widths, strict=True)) + "|"
    return "\n".join([numbers.rstrip(), rule, names, rule])


def _framing(opcode: int) -> str:
    parts = ["header"]
    answers = tables.addressing(opcode) is tables.Addressing.RESPONSE
    if tables.addressing(opcode) is tables.Addressing.DYNAMIC:
        parts.append(f"ceil(`count`/{LANES}) list")
    if tables.carries_data(opcode):
        if not answers:
            parts.append("byte enables if set")
        parts.append("`length` data")
    return " + ".join(parts)


def _opcode_rows() -> Iterable[Sequence[object]]:
    names = {value_of(member): member for member in _members(Opcode)}
    for opcode in range(16):
        how, kind = tables.addressing(opcode), tables.kind(opcode)
        if opcode in names:
            yield (
                f"0x{opcode:X}",
                f"`{names[opcode].name}`",
                how.name.lower(),
                "part" if names[opcode].name.startswith("PART") else kind.name.lower(),
                _framing(opcode),
            )


def _members(enum: Any) -> list[Any]:
    return list(enum)


def _word(value: object) -> str:
    if isinstance(value, Enum):
        return f"{value.name} ({value_of(value)})"
    return f"0x{value:x}" if isinstance(value, int) and value > 9 else f"{value}"


def _vectors() -> str:
    texts = []
    for vector in VECTORS:
        words = [f"`{name}` {_word(value)}" for name, value in vector.fields.items()]
        if vector.targets:
            words.append("targets " + ", ".join(map(str, vector.targets)))
        lines = "\n".join(vector.flits)
        texts.append(
            f"### {vector.name}\n\n{vector.description}.\n\n{'; '.join(words)}\n\n```\n{lines}\n```"
        )
    return "\n\n".join(texts)


def _transfer_rows() -> Iterable[Sequence[object]]:
    for transfer in TRANSFERS:
        leaves = [f"port {port}: `{name}`" for port, name in transfer.copies.items()]
        if transfer.refusal:
            leaves.append(f"refused, port {transfer.source}: `{transfer.refusal}`")
        yield f"`{transfer.packet}`", transfer.source, ", ".join(leaves)


def _gather_rows() -> Iterable[Sequence[object]]:
    for gather in GATHERS:
        parts = [f"`{name}` of GPU {gpu}" for gpu, name in gather.parts]
        if gather.times_out:
            parts.append("time-out")
        yield f"`{gather.request}`", ", ".join(parts), f"`{gather.result}`"


def _reduction_rows() -> Iterable[Sequence[object]]:
    for dtype in _members(DType):
        wide, doubled = dtype in tables.WIDE, dtype in tables.TO_F32
        yield (
            f"`{dtype.name}`",
            ", ".join(f"`{op.name}`" for op in tables.REDUCTIONS[dtype]),
            "f32" if wide else "the type itself",
            "f32, twice as long" if doubled else "the type itself",
        )


def _slot_rows() -> Iterable[Sequence[object]]:
    kinds: tuple[tuple[str, Any], ...] = (("", DType.F32), (", wide", DType.F16_ACC32))
    for wide, dtype in kinds:
        for number in (1, 2, 4):
            fits = [n for n in range(1, MAX_DATA_FLITS + 1) if tables.slots(n, dtype) == number]
            if fits:
                yield f"{fits[0]} to {fits[-1]}{wide}", number


def _efficiency_rows() -> Iterable[Sequence[object]]:
    for payload in _PAYLOADS:
        length = ceil(payload / FLIT_BYTES)
        plain = pack_headers(opcode=Opcode.MM_ST, length=length)
        lists = pack_headers(opcode=Opcode.DY_ST, length=length, count=list(_TARGETS))
        sizes = [*packet_flits(plain).tolist(), *packet_flits(lists).tolist()]
        yield (f"{payload} B", *(f"{size} ({100 * length / size:.0f} %)" for size in sizes))


def _wavedrom() -> str:
    fields = [json.dumps({"bits": f.width, "name": f.name}) for f in HEADER_FIELDS]
    return '{"reg": [\n  ' + ",\n  ".join(fields) + '\n], "config": {"lanes": 4, "hspace": 1200}}'


def _hand_arithmetic() -> str:
    (vector,) = (v for v in VECTORS if v.name == "nine-targets")
    high, low = vector.flits[0].split("_")
    return f"""
`{vector.name}`, header flit. Low word, bits 63:0:

```
address 0x1100                                   0x0000000000001100
stage   1 at bit 48 and count 9 at bit 49:
        9 * 2 + 1 = 19 = 0x13 in bits 63:48      0x0013000000000000
                                            sum  0x{low}
```

High word, bits 127:64; bit numbers here count from 64:

```
opcode  0xA                                      0x000000000000000a
tag     11 at bit 4                              0x00000000000000b0
gen     2 at bit 13                              0x0000000000004000
aux     8 (canonical order, add) at bit 15       0x0000000000040000
length  4 at bit 19                              0x0000000000200000
gpu     3 at bit 25                              0x0000000006000000
dtype   7 at bit 33                              0x0000000e00000000
                                            sum  0x{high}
```

First list flit: target 7 in bits 15:0, 6 in bits 31:16 and so on to 0 in bits 127:112. The ninth
target begins a second flit, whose other seven lanes are zero. On the way to GPU 0 (experts 0 and 1)
the list becomes 1, 0: `count` is 2, so bits 63:48 become 2 * 2 + 1 = 5, and one list flit is left.
""".strip()


def packet_format() -> str:
    """Return the text of ``docs/packet-format.md``, made from the tables in ``rtl/flits.py``."""
    fields = _table(
        ("Bits", "Field", "Width", "Part", "Used by", "Meaning"),
        (
            (_bits(bit, f.width), f"`{f.name}`", f.width, f.part, f.used_by, f.meaning)
            for f, bit in _places()
        ),
    )
    values = "\n".join(
        f"- {where}: " + ", ".join(f"{value_of(m)} `{m.name}`" for m in _members(enum))
        for enum, where in _ENUMS
    )
    statuses = _table(
        ("`aux`", "Status", "When"),
        (
            (value_of(m), f"`{m.name}`", _STATUS_RULES[m.name])
            for m in _members(Status)
            if m.name in _STATUS_RULES
        ),
    )
    endings = _table(
        ("`aux`", "Status", "When"),
        (
            (value_of(m), f"`{m.name}`", _RESULT_RULES[m.name])
            for m in _members(Status)
            if m.name in _RESULT_RULES
        ),
    )
    reductions = _table(("`dtype`", "Operations", "Sum in", "Result in"), _reduction_rows())
    taken = _table(("Flits of a part", "Entries"), _slot_rows())
    efficiency = _table(
        ("Payload", "static", *(f"{n} target{'s' if n > 1 else ''}" for n in _TARGETS)),
        _efficiency_rows(),
    )
    transfers = _table(("Packet", "Comes in by port", "Leaves"), _transfer_rows())
    gathers = _table(("Request", "Parts in order", "Result"), _gather_rows())
    groups = "; ".join(
        f"group {n} is GPU mask {mask:#06b}" for n, mask in enumerate(GROUPS) if mask
    )
    return f"""
<!-- SPDX-License-Identifier: Apache-2.0 -->
# Packet format

*Made from `rtl/flits.py` by `python -m dysharp.golden.packet_format_doc`; do not edit.*

A flit is {FLIT_BYTES} bytes, little-endian: byte 0 is bits 7:0. A packet is, in this order:

1. one header flit;
2. ceil(`count` / {LANES}) list flits of {LANES} targets with {TARGET_BITS} bits each, if bits 3:2
   of the opcode are 2 (dynamic). Target *i* stands in lane *i* mod {LANES}; unused lanes are zero;
3. one byte-enable flit, if `byte_enable` is set. Bit *b* enables byte *b* of the data, so it
   reaches over {MAX_BYTE_ENABLE_FLITS} data flits at most;
4. `length` data flits, if the opcode carries data: bit 0 of the opcode on requests, bit 1 on
   responses.

These rules hold for every header, unknown opcodes and wrong lengths included. Everyone finds the
end of a packet by them, so a malformed packet can be consumed whole.

## Header flit

```
{_picture(_WORD_BITS)}

{_picture(0)}
```

{fields}

*Part* is the part of NVLink's published header that the bits are taken from: 64 address bits, 19
more transaction bits, 20 link bits, 25 CRC bits.

The same as a WaveDrom bit field:

```wavedrom
{_wavedrom()}
```

## Opcodes

Bits 3:2 say how destinations are named, bits 1:0 what is asked for (on a response, what it
answers).

{_table(("Opcode", "Name", "Addressing", "Kind", "Flits"), _opcode_rows())}

Other values are unknown opcodes. `length` of a load is the number of flits that are asked for.

## Values of fields

{values}

## Refusals

The switch tests a request in this order and answers with the first that applies. A refusal is one
flit: the request's header with opcode `RSP_ACK`, the status in `aux`, `length` and `byte_enable` 0
and `vc` 1. It leaves by the port that the request came in by.

{statuses}

A malformed response is dropped and counted, never answered: `vc` not 1, no such `gpu`, a `length`
other than 0 for `RSP_ACK` and `PART_ACK` or 1 to {MAX_DATA_FLITS} for `RSP_DATA` and `PART_DATA`, a
byte-enable flit, or a requester outside the sender's partition.

## Answers

Answers to unicast requests, `RSP_ACK` and `RSP_DATA`, pass the switch unchanged.

A multicast request (static or dynamic) gets one answer, its *result*, however many GPUs it goes to.
A store with `posted` 1 gets none, and `posted` means nothing on other requests. A request that gets
a result arms the reduction entry `tag` at its own port until the result is sent. Using the tag
before that ends the first request with `REPLACED`.

Each GPU that got a copy answers with *parts*: `PART_ACK` for a store, `PART_DATA` for a load, and
either of them for an error. A part repeats `address`, `stage`, `tag`, `gen`, `gpu` and `dtype` of
the request. `count` is how many of the GPU's targets it covers, `aux` the status, and `more` is 1
on all but the last part of the GPU. Parts end at the requester's port, which looks at each in this
order:

1. No such entry, not armed, or another `gen`: dropped and counted, `late`.
2. The GPU got no copy, or has sent its last part: dropped and counted, `duplicates`.
3. A load in canonical order, and a GPU with a lower number has not sent its last part: it waits.
4. It fits if it covers at least one target, and not more than are left, and
   - on a store, it is a `PART_ACK`;
   - on a load, its status is not `OK`, and it is either; or it is a `PART_DATA` with `dtype` and
     `length` of the request; or, if the type is wide, with `dtype` `F32` and twice that `length`: a
     sum that the GPU has begun in f32.

   If it does not fit, it is counted, `wrong`, and taken for the GPU's last.
5. If it fits, its targets are covered. Data is added as long as nothing went wrong before.
6. After the last part of the last GPU the result is sent.

The result is an `RSP_ACK` for a store and an `RSP_DATA` for a load that ended well. `count` is the
number of targets (static: of GPUs), `aux` is the status, `tag`, `gen` and `gpu` are the request's,
`dtype` too (`F32` if the type is `*_TO_F32`), and everything else is 0. If it did not end well,
the result is an `RSP_DATA` with one data flit. Bit *g* of its bits 63:0 says that GPU *g* did not
send its last part, bit 64 + *g* that a part of it did not fit or told an error.

Of several statuses the greatest is told; a GPU may use those from 1 to 15.

{endings}

## Reductions

{reductions}

A sum has an order: as parts arrive or, if bit 3 of `aux` is 1, by ascending GPU (canonical); parts
of one GPU as it sent them. The first part begins the sum. Each further one is added, or whatever
the operation is, and rounded to the type in which the sum is kept: to nearest, ties to even;
subnormal numbers are kept. The four types whose sums are in f32 are *wide*; where the result is not
in f32, it is rounded once, at the end. Minimum and maximum of floats are IEEE 754-2019's
minimumNumber and maximumNumber. A NaN in a result is 0x7FC00000 (f32), 0x7E00 (f16) or 0x7FC0
(bf16).

An entry holds {tables.SLOT_FLITS} flits of sums. Longer sums take the entries behind it too, and
their tag is a multiple of their number:

{taken}

## Design notes

- **The 64 address bits** are the paper's: 48-bit address, stage, 15-bit count. A static request has
  no list, so `count` holds its group; a unicast request has one destination, so it holds the GPU.
  On a response it is the number of targets that the response covers: a GPU with several experts of
  a token may answer once.
- **The other 19 transaction bits** are opcode {_width("opcode")}, tag {_width("tag")}, generation
  {_width("gen")} and aux {_width("aux")}. The tag is the requester's reduction entry (512 entries
  of 128 B are 64 KiB), so nothing has to be looked up; the generation tells a late response from
  one to the tag's next use.
- **The 20 link bits** are length {_width("length")}, byte-enable {_width("byte_enable")}, GPU
  {_width("gpu")}, channel {_width("vc")}, dtype {_width("dtype")}, posted {_width("posted")} and
  more {_width("more")}. Every opcode fits one header flit; there is no address-extension flit.
- **The {_width("crc")} CRC bits** belong to the link layer. It makes and checks them outside the
  switch, since a copy with a pruned list needs a new CRC anyway. Inside they are zero and carried
  unchanged.
- **Pruning** keeps the order of the list and keeps duplicates. A copy for *n* targets has
  ceil(*n* / {LANES}) list flits, so a list never takes more flits downstream than it took upstream.

Flits of a store by payload, and the share of data among them; *static* also stands for a unicast
write. This is one packet on one link, without a byte-enable flit or the acknowledgement:

{efficiency}

## Known-answer vectors

Worked out by hand, kept in `golden/vectors.py`. The switch has the preset `{PRESET}` with
{EXPERTS_PER_GPU} experts on each GPU; {groups}. Each line is a flit, bit 127
first. Fields that are not named are 0.

{transfers}

The entries make results of parts:

{gathers}

### One by hand

{_hand_arithmetic()}

{_vectors()}
""".lstrip()


def _width(name: str) -> int:
    return next(field.width for field in HEADER_FIELDS if field.name == name)


if __name__ == "__main__":
    sys.stdout.write(packet_format())
