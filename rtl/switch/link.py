# SPDX-License-Identifier: Apache-2.0
"""One direction of a link: flits forward, credits back."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..flits import FLIT_BITS

__all__ = ["VCS", "LinkSignature"]

VCS = 2
"""Virtual channels with buffers: request and response."""


class LinkSignature(wiring.Signature):
    """A link direction, seen from the sender.

    Members
    -------
    valid : Out(1)
        ``flit`` holds a flit in this cycle. There is no ready: the sender holds a credit.
    flit : Out(128)
        The flit. The flits of a packet follow each other; flits of two packets never interleave.
    credit : In(2)
        Bit *v*: the receiver hands out one more flit slot of virtual channel *v*. After reset a
        receiver hands out its whole buffer in this way, and a sender starts with none.
    """

    def __init__(self) -> None:
        super().__init__({"valid": Out(1), "flit": Out(FLIT_BITS), "credit": In(VCS)})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinkSignature)

    def __repr__(self) -> str:
        return "LinkSignature()"
