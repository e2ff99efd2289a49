# SPDX-License-Identifier: Apache-2.0
"""Packing and unpacking of flits, many at a time.

Flits are arrays of shape ``(n, 2)`` and type uint64, column 0 with bits 63:0 and column 1 with bits
127:64. Names, places and widths come from :data:`dysharp.rtl.flits.HEADER_FIELDS`, nothing of them
is repeated here. Unpacked fields are int64, which holds every field and mixes with indices.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from time import process_time

import numpy as np
import numpy.typing as npt

from ..rtl.flits import (
    FLIT_BITS,
    HEADER_FIELDS,
    LANES,
    TARGET_BITS,
    Addressing,
    addressing,
    carries_data,
)
from .arrays import FlitArray, IntArray, Integers, as_integers, offsets, ragged_index

__all__ = [
    "as_flits",
    "extension_flits",
    "from_hex",
    "lanes_of",
    "pack_headers",
    "pack_targets",
    "packet_flits",
    "packing_rates",
    "replace_fields",
    "split_packets",
    "to_hex",
    "unpack_field",
    "unpack_headers",
    "unpack_targets",
]

_WORD_BITS = 64
_HEX_DIGITS = FLIT_BITS // 4
_HEX_FLIT = re.compile(f"[0-9a-fA-F]{{{_HEX_DIGITS}}}")


@dataclass(frozen=True)
class _Slot:
    """Where a field stands: 64-bit word, shift in it, and the mask of its largest value."""

    word: int
    shift: np.uint64
    mask: np.uint64


def _slots() -> dict[str, _Slot]:
    slots, bit = {}, 0
    for field in HEADER_FIELDS:
        word, shift = divmod(bit, _WORD_BITS)
        if shift + field.width > _WORD_BITS:
            raise AssertionError(f"{field.name} crosses a word")
        slots[field.name] = _Slot(word, np.uint64(shift), np.uint64((1 << field.width) - 1))
        bit += field.width
    return slots


_SLOTS = _slots()
_OPCODES = range(16)
_IS_DYNAMIC = np.array([addressing(opcode) is Addressing.DYNAMIC for opcode in _OPCODES])
_HAS_DATA = np.array([carries_data(opcode) for opcode in _OPCODES])


def as_flits(name: str, flits: npt.NDArray[np.uint64]) -> FlitArray:
    """`flits`, checked to be an array of flits and without gaps in memory.

    Raises
    ------
    TypeError
        If it is not an array of uint64.
    ValueError
        If its shape is not ``(n, 2)``.
    """
    if not isinstance(flits, np.ndarray) or flits.dtype != np.uint64:
        kind = flits.dtype.name if isinstance(flits, np.ndarray) else type(flits).__name__
        raise TypeError(f"`{name}` must be an array of uint64, not {kind!r}")
    if flits.ndim != 2 or flits.shape[1] != 2:
        raise ValueError(f"`{name}` must have the shape (n, 2), not {flits.shape!r}")
    return np.ascontiguousarray(flits)


def _slot(name: str) -> _Slot:
    try:
        return _SLOTS[name]
    except KeyError:
        raise ValueError(f"`name` must be a field of the header, not {name!r}") from None


def _column(name: str, value: Integers) -> npt.NDArray[np.uint64]:
    slot = _slot(name)
    plain = as_integers(name, value, 0, int(slot.mask)).view(np.uint64)
    return np.left_shift(plain, slot.shift)


def pack_headers(**fields: Integers) -> FlitArray:
    """Header flits from their fields.

    Parameters
    ----------
    **fields : int, enum member or array
        Fields by name, broadcast against each other; those that are left out are 0.

    Returns
    -------
    ndarray
        Shape ``(n, 2)``; ``n`` is 1 when all fields are single numbers.

    Raises
    ------
    TypeError
        If a value is not an integer or an enum member.
    ValueError
        If a name is not a field, or a value does not fit its field.
    """
    columns = [(_slot(name).word, _column(name, value)) for name, value in fields.items()]
    shape = np.broadcast_shapes((1,), *(column.shape for _, column in columns))
    flits = np.zeros((*shape, 2), np.uint64)
    for word, column in columns:
        flits[:, word] |= column
    return flits


def replace_fields(headers: FlitArray, **fields: Integers) -> FlitArray:
    """Copy of `headers` with other values in some fields.

    Parameters
    ----------
    headers : ndarray
        Header flits, shape ``(n, 2)``.
    **fields : int, enum member or array
        The new values, each one number or one for every header.

    Returns
    -------
    ndarray
        The new header flits. Errors are those of :func:`pack_headers`.
    """
    result: FlitArray = headers.copy()
    for name, value in fields.items():
        column, slot = _column(name, value), _slot(name)
        result[:, slot.word] = result[:, slot.word] & ~(slot.mask << slot.shift) | column
    return result


def unpack_field(headers: FlitArray, name: str) -> IntArray:
    """One field of many header flits."""
    slot = _slot(name)
    words: FlitArray = headers[:, slot.word] >> slot.shift & slot.mask
    return words.view(np.int64)


def unpack_headers(headers: FlitArray) -> dict[str, IntArray]:
    """All fields of many header flits, by name."""
    return {name: unpack_field(headers, name) for name in _SLOTS}


def extension_flits(counts: IntArray) -> IntArray:
    """Extension flits that lists of so many targets take."""
    flits: IntArray = -(-counts // LANES)
    return flits


def pack_targets(targets: npt.ArrayLike, counts: Integers | None = None) -> FlitArray:
    """Extension flits of target lists.

    Parameters
    ----------
    targets : array_like
        Without `counts`, shape ``(n, k)``: `n` lists of `k` targets. With `counts`, all lists end
        to end in one dimension.
    counts : array_like, optional
        Length of each list.

    Returns
    -------
    ndarray
        Shape ``(m, 2)``, the lists' extension flits one list after the other, unused lanes zero.

    Raises
    ------
    TypeError
        If a target is not an integer.
    ValueError
        If a target does not fit 16 bits, the shape is another or `counts` does not add up.
    """
    array = np.asarray(targets)
    if counts is None:
        if array.ndim != 2:
            raise ValueError(f"`targets` must have the shape (n, k), not {array.shape!r}")
        number, width = array.shape
        flat = as_integers("targets", array.reshape(-1), 0, (1 << TARGET_BITS) - 1)
        lanes = np.zeros((number, -(-width // LANES) * LANES), np.dtype("<u2"))
        lanes[:, :width] = flat.reshape(number, width)
    else:
        flat = as_integers("targets", array, 0, (1 << TARGET_BITS) - 1)
        lengths = np.atleast_1d(as_integers("counts", counts, 0, np.iinfo(np.int64).max))
        if flat.ndim != 1 or lengths.sum() != len(flat):
            raise ValueError(f"`counts` must add up to {flat.size}, not {int(lengths.sum())!r}")
        extensions = extension_flits(lengths)
        lanes = np.zeros(int(extensions.sum()) * LANES, np.dtype("<u2"))
        lanes[ragged_index(offsets(extensions) * LANES, lengths)] = flat
    return lanes.reshape(-1).view(np.dtype("<u8")).reshape(-1, 2).astype(np.uint64, copy=False)


def lanes_of(flits: FlitArray) -> npt.NDArray[np.uint16]:
    """All flits as 16-bit lanes in one row, lane ``i`` of flit ``f`` at ``8 * f + i``."""
    little = np.ascontiguousarray(flits).astype(np.dtype("<u8"), copy=False)
    return little.reshape(-1).view(np.dtype("<u2"))


def unpack_targets(flits: FlitArray, counts: Integers) -> IntArray:
    """Target lists from their extension flits, the reverse of :func:`pack_targets`.

    Parameters
    ----------
    flits : ndarray
        The extension flits of all lists, one list after the other.
    counts : array_like
        Length of each list.

    Returns
    -------
    ndarray
        All lists end to end.

    Raises
    ------
    ValueError
        If the number of flits is not that of lists of these lengths.
    """
    flits = as_flits("flits", flits)
    lengths = np.atleast_1d(as_integers("counts", counts, 0, np.iinfo(np.int64).max))
    extensions = extension_flits(lengths)
    if extensions.sum() != len(flits):
        raise ValueError(f"`flits` must be {int(extensions.sum())}, not {len(flits)!r}")
    lanes = lanes_of(flits)
    if not (lengths % LANES).any():
        return lanes.astype(np.int64)
    return lanes[ragged_index(offsets(extensions) * LANES, lengths)].astype(np.int64)


def packet_flits(headers: FlitArray) -> IntArray:
    """Flits of each packet, its header included, from the header alone.

    Defined for every header, malformed ones too: a list follows when opcode bits 3:2 say dynamic,
    one byte-enable flit when the bit is set, and ``length`` data flits, even more than 16, when
    :func:`dysharp.rtl.flits.carries_data` says so. Every part of the system finds the end of a
    packet by this rule, so a malformed packet can be consumed whole.
    """
    opcode = unpack_field(headers, "opcode")
    lists = np.where(_IS_DYNAMIC[opcode], extension_flits(unpack_field(headers, "count")), 0)
    data = np.where(_HAS_DATA[opcode], unpack_field(headers, "length"), 0)
    return 1 + lists + unpack_field(headers, "byte_enable") + data


def split_packets(flits: FlitArray) -> IntArray:
    """Index of the header of each packet in a stream of whole packets.

    Raises
    ------
    ValueError
        If the stream ends inside a packet.
    """
    flits = as_flits("flits", flits)
    # Each header tells where the next one stands, so the walk itself is sequential; all the
    # arithmetic is done before it, for every flit as if it were a header.
    following = (np.arange(len(flits)) + packet_flits(flits)).tolist()
    starts, at = [], 0
    while at < len(following):
        starts.append(at)
        at = following[at]
    if at != len(following):
        raise ValueError(f"`flits` must end with a whole packet, not inside packet {starts[-1]!r}")
    return np.array(starts, np.int64)


def to_hex(flits: FlitArray) -> list[str]:
    """Each flit as 32 hexadecimal digits, bit 127 first."""
    return [f"{high:016x}{low:016x}" for low, high in as_flits("flits", flits).tolist()]


def from_hex(lines: Iterable[str]) -> FlitArray:
    """Flits from hexadecimal, the reverse of :func:`to_hex`; ``_`` and blanks may separate digits.

    Raises
    ------
    ValueError
        If a line does not have 32 digits, or one of them is not hexadecimal.
    """
    words = []
    for line in lines:
        digits = line.replace("_", "").replace(" ", "")
        if not _HEX_FLIT.fullmatch(digits):
            raise ValueError(f"`lines` must be {_HEX_DIGITS} hexadecimal digits, not {line!r}")
        value = int(digits, 16)
        words.append((value & ((1 << _WORD_BITS) - 1), value >> _WORD_BITS))
    return np.array(words, np.uint64).reshape(-1, 2)


def packing_rates(packets: int = 200_000, seed: int = 0) -> tuple[float, float]:
    """Measure packing and unpacking of requests with eight targets, header and list.

    Parameters
    ----------
    packets : int
        How many requests are packed at once.
    seed : int
        Seed of their fields.

    Returns
    -------
    tuple of float
        Requests packed and requests unpacked in a second of this core.
    """
    rng = np.random.default_rng(seed)
    fields: dict[str, Integers] = {
        field.name: rng.integers(0, 1 << field.width, packets) for field in HEADER_FIELDS
    }
    targets = rng.integers(0, 1 << TARGET_BITS, (packets, LANES))
    counts = np.full(packets, LANES)
    begin = process_time()
    headers, lists = pack_headers(**fields), pack_targets(targets)
    middle = process_time()
    unpack_headers(headers)
    unpack_targets(lists, counts)
    return packets / (middle - begin), packets / (process_time() - middle)
