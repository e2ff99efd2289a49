# SPDX-License-Identifier: Apache-2.0
"""Stimulus files and logs of the players and sinks in ``sv/``."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from dysharp.golden.arrays import IntArray, value_of
from dysharp.golden.flits import FlitArray, unpack_field
from dysharp.golden.packets import Packets
from dysharp.rtl.flits import Addressing

__all__ = ["FlitLog", "read_log", "write_stimulus"]

_LINE = 8 + 1 + 32 + 1
_FORCED = 1 << 30
_TAGGED = 1 << 29
MAX_GAP = 0xFFFF


@dataclass(frozen=True)
class FlitLog:
    """What passed on a link.

    Parameters
    ----------
    cycles : ndarray
        Cycle of every flit.
    flits : ndarray
        The flits, shape (n, 2).
    """

    cycles: IntArray
    flits: FlitArray

    @property
    def packets(self) -> Packets:
        """The flits as packets."""
        return Packets(self.flits)


def write_stimulus(
    path: Path,
    packets: Packets,
    gaps: IntArray | None = None,
    *,
    inner_gaps: IntArray | None = None,
    forced: bool = False,
    tags: bool = False,
    flits: int | None = None,
) -> None:
    """Write what a player sends.

    Parameters
    ----------
    path : Path
        The file.
    packets : Packets
        In order.
    gaps : ndarray, optional
        Idle cycles before each packet, at least.
    inner_gaps : ndarray, optional
        Idle cycles before each flit; added to `gaps`.
    forced : bool
        Send without regard to credits, as no sender should.
    tags : bool
        Hold back a multicast request that arms a reduction entry while its tag is in use.
    flits : int, optional
        Stop after so many flits, perhaps inside a packet.
    """
    every = packets.flits
    words = np.zeros(len(every), dtype=np.int64)
    if gaps is not None:
        words[packets.starts] += gaps
    if inner_gaps is not None:
        words += inner_gaps
    if len(words) and (words.min() < 0 or words.max() > MAX_GAP):
        raise ValueError(f"`gaps` must be 0 to {MAX_GAP}")
    is_response = unpack_field(packets.headers, "opcode") >> 2 == value_of(Addressing.RESPONSE)
    channels = np.repeat(is_response.astype(np.int64), packets.sizes)
    words |= channels << 31
    if forced:
        words |= _FORCED
    if tags:
        words |= _TAGGED
    record = np.empty(
        len(every), dtype=np.dtype([("word", ">u4"), ("high", ">u8"), ("low", ">u8")])
    )
    record["word"] = words
    record["high"] = every[:, 1]
    record["low"] = every[:, 0]
    path.parent.mkdir(parents=True, exist_ok=True)
    record[:flits].tofile(path)


_DIGIT = np.full(256, 255, dtype=np.uint8)
_DIGIT[np.frombuffer(b"0123456789abcdef", dtype=np.uint8)] = np.arange(16)


def read_log(path: Path) -> FlitLog:
    """Read a log.

    Raises
    ------
    ValueError
        A line is not whole, or a bit is unknown (X).
    """
    raw = np.fromfile(path, dtype=np.uint8) if path.exists() else np.zeros(0, dtype=np.uint8)
    if len(raw) % _LINE:
        raise ValueError(f"{path}: not a whole number of lines")
    lines = raw.reshape(-1, _LINE)
    digits = np.concatenate([_DIGIT[lines[:, :8]], _DIGIT[lines[:, 9:41]]], axis=1)
    if digits.size and digits.max() > 15:
        line = int(np.argmax((digits > 15).any(axis=1)))
        raise ValueError(f"{path}:{line + 1}: an unknown bit in a flit")
    octets = (digits[:, ::2] << 4 | digits[:, 1::2]).astype(np.uint8)
    cycles = np.ascontiguousarray(octets[:, :4]).view(">u4").astype(np.int64).reshape(-1)
    words = np.ascontiguousarray(octets[:, 4:]).view(">u8").astype(np.uint64).reshape(-1, 2)
    return FlitLog(cycles, np.ascontiguousarray(words[:, ::-1]))
