# SPDX-License-Identifier: Apache-2.0
"""Which of a GPU's links a packet uses: a hash of its address, shared by RTL and ``golden``.

Bit ``k`` of the link number is the parity of ``address & HASH_MASKS[k]``. The hash is linear over
GF(2), so in hardware it is one XOR tree a bit. Two links use the first mask, four links both.

The masks were searched for (weight at most 12, bits 7 to 47) and then measured, not derived:

- Strides 128 B, 4 KiB, 7168 B and 14336 B, the steps of real activations: over 1024 consecutive
  blocks no link gets more than 2.4 % above or below its even share, over 4096 blocks 0.8 %.
- Powers of two from 2**7 to 2**40: at most 12.5 % over 1024 blocks.
- All multiples of 128 B up to 64 KiB: at most 44 % over 1024 blocks (79 of the 512 strides above
  12.5 %), 23 % over 4096 blocks (10 of 512). For scale: random choice has a standard deviation of
  5.4 % over 1024 blocks.

A plain parity over many neighbouring bits does not do: along the steps 3, 5 and 7 it is biased (the
Thue-Morse sequence), so that one link of a 7168 B row would carry far more than the other.
"""

from amaranth.hdl import Cat, Value, ValueLike

__all__ = ["GRANULE_BITS", "HASH_MASKS", "link_of"]

GRANULE_BITS = 7
"""Addresses that differ only in so many low bits (128 B) always share a link."""

HASH_MASKS = (0x9044_2140_8A80, 0xA41A_1808_4100)
"""Address bits (byte address, 48 bits) whose parity is bit 0 and bit 1 of the link number."""


def link_of(address: ValueLike, links: int) -> Value:
    """Link of a GPU that a packet with this address uses.

    Parameters
    ----------
    address : value-like
        48-bit byte address.
    links : int
        Links of one GPU: 1, 2 or 4.

    Returns
    -------
    Value
        ``log2(links)`` bits, so none for one link. Combinational.

    Raises
    ------
    ValueError
        If `links` is another number.
    """
    if links not in (1, 2, 4) or isinstance(links, bool):
        raise ValueError(f"`links` must be one of (1, 2, 4), not {links!r}")
    bits = Value.cast(address)
    return Cat((bits & mask).xor() for mask in HASH_MASKS[: links.bit_length() - 1])
