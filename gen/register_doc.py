# SPDX-License-Identifier: Apache-2.0
"""Writer of ``docs/registers.md``.

``python -m dysharp.gen.register_doc > docs/registers.md``
"""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..rtl.params import PRESETS
from ..rtl.register_map import COUNTERS, ID_VALUE, Register, address_of, register_map

__all__ = ["register_page", "table"]

_PRESET = "default"
_READ_AT, _WRITE_AT, _BAD_AT = 1, 6, 11
_LATENCY = 3
_CYCLES = 16


@dataclass(frozen=True)
class _Row:
    """A register, or registers whose names differ in a number."""

    name: str
    address: int
    count: int
    stride: int
    access: str
    reset: int
    meaning: str


def _numbered(text: str, other: str) -> str | None:
    """Text with *n* in place of the words that differ in `other`; None if they are not alike."""
    words, others = re.split(r"(\d+)", text), re.split(r"(\d+)", other)
    if len(words) != len(others):
        return None
    pairs = list(zip(words, others, strict=True))
    if any(a != b and not a.isdigit() for a, b in pairs):
        return None
    return "".join(a if a == b else "*n*" for a, b in pairs)


def _rows(registers: Sequence[Register]) -> Iterable[_Row]:
    """Fold registers whose names count up, and whose addresses do so evenly, to one row."""
    left = list(registers)
    while left:
        first, *rest = left
        family = [first, *(r for r in rest if _numbered(first.name, r.name) is not None)]
        second = family[1] if len(family) > 1 else None
        name = _numbered(first.name, second.name) if second else None
        if second is None or name is None:
            family, stride, name, meaning = [first], 0, first.name, first.meaning
        else:
            stride = second.address - first.address
            meaning = _numbered(first.meaning, second.meaning) or first.meaning
            addresses = [first.address + stride * n for n in range(len(family))]
            if [register.address for register in family] != addresses:
                raise ValueError(f"`{first.name}` and its like must stand at even distances")
            name = name.replace("*n*", "{n}")
        yield _Row(name, first.address, len(family), stride, first.access, first.reset, meaning)
        left = [register for register in left if register not in family]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _row_cells(row: _Row) -> Sequence[object]:
    address = f"0x{row.address:04x}"
    if row.count > 1:
        address += f" + 0x{row.stride:x} \\* n"
    numbers = f"0 to {row.count - 1}" if row.count > 1 else ""
    return address, f"`{row.name}`", numbers, row.access, f"0x{row.reset:08x}", row.meaning


def _wave(high: Iterable[int]) -> str:
    """One-bit wave that is 1 in these cycles."""
    levels = ["1" if cycle in set(high) else "0" for cycle in range(_CYCLES)]
    pairs = zip([None, *levels], levels, strict=False)
    return "".join(level if level != before else "." for before, level in pairs)


def _bus_wave(held: Iterable[int]) -> str:
    """Wave of a bus that has a value in these cycles and none of interest in the others."""
    cycles = set(held)
    wave = ""
    for cycle in range(_CYCLES):
        wave += "=" if cycle in cycles else "." if cycle and cycle - 1 not in cycles else "x"
    return wave


def _wavedrom() -> str:
    params = PRESETS[_PRESET]
    experts = address_of(params, "experts_per_gpu")
    starts = [_READ_AT, _WRITE_AT, _BAD_AT]
    done = [start + _LATENCY for start in starts]
    signals: list[dict[str, object]] = [
        {"name": "clk", "wave": "p" + "." * (_CYCLES - 1)},
        {"name": "valid", "wave": _wave(starts)},
        {"name": "write", "wave": _wave([_WRITE_AT])},
        {
            "name": "address",
            "wave": _bus_wave(starts),
            "data": ["id", "experts_per_gpu", "none"],
        },
        {"name": "wdata", "wave": _bus_wave([_WRITE_AT]), "data": ["4"]},
        {"name": "done", "wave": _wave(done)},
        {"name": "rdata", "wave": _bus_wave(done[:1]), "data": [f"0x{ID_VALUE:08x}"]},
        {"name": "error", "wave": _wave(done[2:])},
    ]
    lines = ",\n  ".join(json.dumps(signal) for signal in signals)
    head = json.dumps(
        {"text": f"read id; write 4 to experts_per_gpu (0x{experts:04x}); read no register"}
    )
    return '{"signal": [\n  ' + lines + '\n], "head": ' + head + "}"


def _example(writes: Sequence[tuple[str, int, str]]) -> str:
    params = PRESETS[_PRESET]
    return "\n".join(
        f"write 0x{address_of(params, name):04x} 0x{value:08x}  {name}: {why}"
        for name, value, why in writes
    )


def register_page() -> str:
    """Return the text of ``docs/registers.md``, made from ``rtl/register_map.py``."""
    params = PRESETS[_PRESET]
    registers = register_map(params)
    registers_table = table(
        ("Address", "Name", "n", "Access", "Reset", "Meaning"),
        map(_row_cells, _rows(registers)),
    )
    example = _example(
        (
            ("partition0", 1, "ports 0 to 3 are partition 1"),
            ("partition1", 1, ""),
            ("partition2", 1, ""),
            ("partition3", 1, "the others stay in partition 0"),
            ("group0_0", 0b1110, "from GPU 0 to its partition"),
            ("group1_0", 0b11110000, "all of partition 0"),
            ("experts_per_gpu", 4, "experts 0 to 3 on GPU 0, 4 to 7 on GPU 1, ..."),
        )
    ).replace(": \n", "\n")
    busy, experts = address_of(params, "busy"), address_of(params, "experts_per_gpu")
    return f"""
<!-- SPDX-License-Identifier: Apache-2.0 -->
# Registers

*Made from `rtl/register_map.py` by `python -m dysharp.gen.register_doc`; do not edit.*

The registers of the switch, all of 32 bits at byte addresses, for the preset `{_PRESET}`. Other
parameters change how many there are, never where they are: `register_map(params)` lists those
of any switch, and `address_of(params, name)` finds one.

{registers_table}

Unused bits read 0 and are ignored in writes. Of a partition number, only as many bits are kept
as a port number has ({(params.ports - 1).bit_length()} here). A group's mask has a second word
for GPUs 32 and up where there are so many, 4 bytes behind the first, and `fault1` stands behind
`fault0`.

`shape` is 0x{next(r.reset for r in registers if r.name == "shape"):08x} here: {params.ports}
ports, {params.links_per_gpu} link a GPU, {params.lanes} lanes, {params.groups} groups. A switch
that was generated without lists has no `max_targets`, `experts_per_gpu` and `busy`.

## Bus

An access starts with `valid` for one cycle, along with `write`, `address` and `wdata`, and ends
{_LATENCY} cycles later with `done` for one cycle. `rdata` and `error` belong to `done`. The
next access may start in the cycle after `done`; there is nothing to wait for and nothing to
hold.

```wavedrom
{_wavedrom()}
```

## Errors

`error` comes with `done` when there is no register at the address, and on a write to a register
with access `ro`. Such an access changes nothing, and what it reads means nothing. A value that
a register does not take is not an error; see `experts_per_gpu`.

## experts_per_gpu

Expert *e* lives on GPU *e* // `experts_per_gpu`, rounded down. A request with a target of
`experts_per_gpu` times {params.gpus} GPUs or more is refused with `BAD_TARGET`.

- Values from 1 to 65535 are taken. 0 and values over 65535 are ignored, without `error`;
  reading the register back tells.
- The switch compares with the multiples of the value, one for each GPU, which it computes after
  the write, one a cycle. `busy` reads 1 meanwhile, for {params.gpus} cycles here.
- Requests with lists that arrive meanwhile may go to wrong GPUs. Write it while none is under
  way, then wait until `busy` reads 0.

## timeout

A multicast request that is not posted takes a reduction entry of its port until its result is
sent; `armed` tells how many are taken now. Answers that never come would keep an entry armed for
ever, so `timeout` sets a limit, in ticks of 64 cycles. Bits 15:0 are kept; 0, the reset value, is
no limit. An entry that is armed for longer ends with the status `TIMEOUT`, in an error result that
names the GPUs that are missing. The limit counts from when the request was checked to its result,
in which the requests and answers also wait in queues, so choose it well above the longest time
that a target may take. A change takes effect on entries that are armed already.

## Order of programming

After reset all ports are in partition 0, no group exists and `experts_per_gpu` is 1; unicast
requests work at once.

1. Read `id` and `shape`: is this the switch and the map that the driver knows?
2. Write the partitions, before traffic that they are to keep apart.
3. Write the groups. A group of two words changes in two steps, so nobody should use it meanwhile.
4. Write `experts_per_gpu`, and read `busy` until it is 0.
5. Write `timeout`, if requests are to end without all answers.
6. Start traffic.

Each write takes effect on requests that are checked after its `done`. To change partitions or
groups while traffic runs, stop the traffic that they are about first: a request that is checked
already keeps its destinations.

## Example

Eight GPUs as two partitions of four, a group in each, four experts on each GPU:

```
{example}
read  0x{busy:04x}             busy: again, until it reads 0
read  0x{experts:04x}             experts_per_gpu: reads 4
```

## Counters

Each port has {len(COUNTERS)} counters of 32 bits that go around at 2\\*\\*32 and are cleared by
reset only. Counters are read one by one, while they count. So the difference of two readings is
exact only while the port is silent. An event is in its counter a few cycles after it happened;
the upper half of a counter follows its lower half by a cycle, so a reading in just that cycle
is 65536 too low.

When all is quiet:

- on every port, `rx_requests` is the number of requests that came in, and `refused` of them
  were answered with a status;
- over all ports, the sum of `tx_responses` is the number of answers to unicast requests that came
  in and were not `dropped`, plus `refused`, plus one result for each multicast request that was
  neither refused nor posted. Parts are in `rx_responses` of the port that they came in by; what
  became of them is counted at the requester's port: `late`, `duplicates` and `wrong` are those
  that did not get into a result, and nothing else than a fault makes them count;
- a request that is not refused adds as many to `tx_requests`, over all ports, as it has copies.

A bit in `fault0` is never cleared but by reset: that port's sender broke the link protocol, and
nothing it sends is looked at.
""".lstrip()


if __name__ == "__main__":
    sys.stdout.write(register_page())
