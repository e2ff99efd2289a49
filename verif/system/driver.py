# SPDX-License-Identifier: Apache-2.0
"""Files of the players and memories in ``verif/lib/sv``: what they play, and what they log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from dysharp.golden import queue
from dysharp.golden.arrays import IntArray
from dysharp.golden.moe import Segment
from dysharp.golden.packets import Packets
from dysharp.rtl.queue.ports import Access, Result

__all__ = [
    "ACCESS",
    "RESULT",
    "BusAccess",
    "Region",
    "read_bus_log",
    "read_cycles",
    "read_dump",
    "read_results",
    "write_accesses",
    "write_bus",
    "write_dump_list",
    "write_ordinary",
    "write_segments",
]

ACCESS = np.dtype([*queue.ACCESS.descr, ("gap", np.uint32), ("barrier", np.bool_)])
"""One access of :data:`dysharp.golden.queue.ACCESS`, and when it may go: ``gap`` is the least
number of idle cycles before it, and with ``barrier`` it waits for all results so far."""

RESULT = np.dtype([("cycle", np.int64), *queue.RESULT.descr])
"""One result: when it came, and :data:`dysharp.golden.queue.RESULT`."""

Region: TypeAlias = tuple[int, int]
"""Address and bytes."""

_PIECE = np.dtype([("address", ">u8"), ("size", ">u8")])


@dataclass(frozen=True)
class BusAccess:
    """One register access.

    Parameters
    ----------
    bus : int
        GPU whose hub it is, or the number of GPUs for the switch.
    address : int
        Of the register.
    data : int or None
        What is written, or None to read.
    until_zero : bool
        Read again until it reads 0.
    """

    bus: int
    address: int
    data: int | None = None
    until_zero: bool = False


def _words(layout: Any, values: Mapping[str, Any], count: int) -> npt.NDArray[np.uint64]:
    """Pack fields of up to 64 bits, shape ``(count, 64-bit words)``."""
    words = np.zeros((count, -(-layout.size // 64)), np.uint64)
    for name, field in layout:
        value = values[name]
        columns = [value] if value.ndim == 1 else [value[:, 0], value[:, 1]]
        for number, column in enumerate(columns):
            width = min(64, field.width - 64 * number)
            plain = column.astype(np.uint64)
            if width < 64 and (plain >> np.uint64(width)).any():
                raise ValueError(f"`{name}` must have {width} bits")
            word, shift = divmod(field.offset + 64 * number, 64)
            words[:, word] |= plain << np.uint64(shift)
            if shift + width > 64:
                words[:, word + 1] |= plain >> np.uint64(64 - shift)
    return words


def _fields(layout: Any, words: npt.NDArray[np.uint64], into: npt.NDArray[Any]) -> None:
    """Take fields out of words."""
    for name, field in layout:
        for number in range(-(-field.width // 64)):
            width = min(64, field.width - 64 * number)
            word, shift = divmod(field.offset + 64 * number, 64)
            plain = words[:, word] >> np.uint64(shift)
            if shift + width > 64:
                plain = plain | words[:, word + 1] << np.uint64(64 - shift)
            if width < 64:
                plain = plain & np.uint64((1 << width) - 1)
            if field.width > 64:
                into[name][:, number] = plain
            else:
                into[name] = plain


def write_accesses(path: Path, accesses: npt.NDArray[Any]) -> None:
    """Write what ``sm_player`` plays: an array of :data:`ACCESS`, or without gaps and barriers."""
    if accesses.dtype not in (ACCESS, queue.ACCESS):
        raise TypeError(f"`accesses` must be an array of ACCESS, not of {accesses.dtype}")
    layout = Access.as_shape()
    size = layout.size // 8
    record = np.zeros((len(accesses), 6 + size), np.uint8)
    words = _words(layout, {name: accesses[name] for name, _ in layout}, len(accesses))
    record[:, 6:] = words.astype("<u8").view(np.uint8)[:, size - 1 :: -1]
    if accesses.dtype == ACCESS:
        record[:, 2:6] = accesses["gap"].astype(">u4").view(np.uint8).reshape(-1, 4)
        record[:, 0] = accesses["barrier"].astype(np.uint8) << 7
    record.tofile(path)


_DIGIT = np.full(256, 255, np.uint8)
_DIGIT[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)


def _lines(path: Path, columns: Sequence[int]) -> list[npt.NDArray[np.uint8]]:
    """Return the hexadecimal columns of a log, as digits; `columns` are their widths."""
    length = sum(columns) + len(columns)
    raw = np.fromfile(path, np.uint8) if path.exists() else np.zeros(0, np.uint8)
    if len(raw) % length:
        raise ValueError(f"{path}: not a whole number of lines")
    lines = raw.reshape(-1, length)
    found, begin = [], 0
    for width in columns:
        digits = _DIGIT[lines[:, begin : begin + width]]
        if digits.size and digits.max() > 15:
            line = int(np.argmax((digits > 15).any(axis=1)))
            raise ValueError(f"{path}:{line + 1}: an unknown bit")
        found.append(digits)
        begin += width + 1
    return found


def _numbers(digits: npt.NDArray[np.uint8]) -> IntArray:
    weights = 16 ** np.arange(digits.shape[1], dtype=np.int64)[::-1]
    numbers: IntArray = digits.astype(np.int64) @ weights
    return numbers


def read_results(path: Path) -> npt.NDArray[Any]:
    """Read a log of results as an array of :data:`RESULT`.

    Raises
    ------
    ValueError
        A line is not whole, or a bit is unknown (X).
    """
    layout = Result.as_shape()
    width = layout.size // 4
    cycles, digits = _lines(path, (8, width))
    padded = np.zeros((len(digits), -(-width // 16) * 16), np.uint8)
    padded[:, -width:] = digits
    octets = (padded[:, ::2] << 4 | padded[:, 1::2])[:, ::-1]
    words = np.ascontiguousarray(octets).view("<u8").astype(np.uint64)
    results = np.zeros(len(digits), RESULT)
    results["cycle"] = _numbers(cycles)
    _fields(layout, words, results)
    return results


def read_cycles(path: Path) -> IntArray:
    """Read a log of cycles."""
    return _numbers(_lines(path, (8,))[0])


def write_ordinary(
    path: Path, packets: Packets, gaps: IntArray | None = None, waits: Any = None
) -> None:
    """Write what ``packet_player`` plays.

    Parameters
    ----------
    path : Path
        The file.
    packets : Packets
        Ordinary requests in order.
    gaps : ndarray, optional
        Idle cycles before each packet, at least.
    waits : ndarray of bool, optional
        Packets that wait until all before them are answered.
    """
    words = np.zeros(len(packets.flits), np.int64)
    if gaps is not None:
        words[packets.starts] |= gaps
    if waits is not None:
        words[packets.starts] |= np.asarray(waits, np.int64) << 31
    record = np.empty(len(words), np.dtype([("word", ">u4"), ("high", ">u8"), ("low", ">u8")]))
    record["word"] = words
    record["high"] = packets.flits[:, 1]
    record["low"] = packets.flits[:, 0]
    record.tofile(path)


def _check_piece(address: int, size: int) -> None:
    if address % 16 or size % 16 or address < 0:
        raise ValueError(
            f"a segment must begin and end at a multiple of 16, not at {address:#x} with {size} B"
        )


def write_segments(path: Path, segments: Sequence[Segment]) -> None:
    """Write what is to be loaded into a memory; later segments go over earlier ones."""
    with path.open("wb") as file:
        for address, content in segments:
            _check_piece(address, len(content))
            file.write(np.array([(address, len(content))], _PIECE).tobytes())
            file.write(np.ascontiguousarray(content, np.uint8).tobytes())


def write_dump_list(path: Path, regions: Sequence[Region]) -> None:
    """Write which parts of a memory are to be dumped."""
    for address, size in regions:
        _check_piece(address, size)
    np.array(list(regions), _PIECE).tofile(path)


def read_dump(path: Path, regions: Sequence[Region]) -> list[Segment]:
    """Read what a memory has dumped."""
    content = np.fromfile(path, np.uint8).reshape(-1, 16)[:, ::-1].reshape(-1)
    if len(content) != sum(size for _, size in regions):
        raise ValueError(f"{path}: not as long as what was to be dumped")
    segments, begin = [], 0
    for address, size in regions:
        segments.append((address, content[begin : begin + size].copy()))
        begin += size
    return segments


def write_bus(path: Path, accesses: Sequence[BusAccess]) -> None:
    """Write what ``bus_player`` plays."""
    record = np.zeros(
        len(accesses),
        np.dtype([("operation", "u1"), ("bus", "u1"), ("address", ">u2"), ("data", ">u4")]),
    )
    for number, access in enumerate(accesses):
        operation = 2 if access.until_zero else 1 if access.data is None else 0
        record[number] = (operation, access.bus, access.address, access.data or 0)
    record.tofile(path)


def read_bus_log(path: Path) -> list[tuple[int, bool]]:
    """Read the ends of register accesses: value and error flag of each."""
    errors, values = _lines(path, (1, 8))
    return list(zip(_numbers(values).tolist(), _numbers(errors).astype(bool).tolist(), strict=True))
