# SPDX-License-Identifier: Apache-2.0
"""The register bus: one access at a time."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["ADDRESS_BITS", "BusSignature"]

ADDRESS_BITS = 16


class BusSignature(wiring.Signature):
    """A register access, seen from the master.

    Members
    -------
    valid : Out(1)
        Start an access; high for one cycle. The next one may start after ``done``.
    write : Out(1)
        Write ``wdata``; otherwise read.
    address : Out(16)
        Byte address of a 32-bit register.
    wdata : Out(32)
        Data to write.
    done : In(1)
        The access has ended.
    rdata : In(32)
        Data read, with ``done``.
    error : In(1)
        With ``done``: no such register, or a write to a register that cannot be written.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "valid": Out(1),
                "write": Out(1),
                "address": Out(ADDRESS_BITS),
                "wdata": Out(32),
                "done": In(1),
                "rdata": In(32),
                "error": In(1),
            }
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BusSignature)

    def __repr__(self) -> str:
        return "BusSignature()"
