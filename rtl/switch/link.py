# SPDX-License-Identifier: Apache-2.0
"""One direction of a link: flits forward, credits back."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..flits import FLIT_BITS

__all__ = ["CREDIT_BITS", "VCS", "LinkSignature"]

CREDIT_BITS = 13
"""Width of the credit counters: a receiver may hand out up to 4096 slots of a class."""

VCS = 2
"""Virtual channels: request and response."""


class LinkSignature(wiring.Signature):
    """A link direction, seen from the sender.

    Parameters
    ----------
    classes : int
        Classes of credits, 2 or more. Class 0 is for requests. A switch's output has one class for
        all responses; a switch's input has one for the responses to each port, so that responses
        to one requester never wait for room that another one's take.

    Members
    -------
    valid : Out(1)
        ``flit`` holds a flit in this cycle. There is no ready: the sender holds a credit.
    flit : Out(128)
        The flit. The flits of a packet follow each other; flits of two packets never interleave.
    credit : In(classes)
        Bit *c*: the receiver hands out one more flit slot of class *c*. After reset a receiver
        hands out its whole buffer in this way, and a sender starts with none. A sender starts a
        response when it has credits for all of its flits.
    """

    def __init__(self, classes: int = VCS) -> None:
        if classes < VCS:
            raise ValueError(f"`classes` must be {VCS} or more, not {classes!r}")
        self._classes = classes
        super().__init__({"valid": Out(1), "flit": Out(FLIT_BITS), "credit": In(classes)})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinkSignature) and self._classes == other._classes

    def __repr__(self) -> str:
        return f"LinkSignature({self._classes})"
