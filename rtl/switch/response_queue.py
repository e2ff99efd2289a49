# SPDX-License-Identifier: Apache-2.0
"""The response queue of one (input, output) pair."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..common.check import check
from ..common.ram import Ram
from ..flits import FLIT_BITS
from ..params import SwitchParams

__all__ = ["ResponseQueue"]


class ResponseQueue(wiring.Component):
    """Response flits of one input for one output; the oldest is always in sight.

    A sender holds a credit of this very pair for every flit, so a response that has to wait for
    its turn in a sum never holds up another requester's.

    Parameters
    ----------
    params : SwitchParams
        ``response_depth`` is used.

    Members
    -------
    w_en, w_flit, w_last : In
        Append a flit. The sender holds a credit for it, so there is room.
    full : Out(1)
        No room: whoever writes now broke the credit rule. The flit must not be written.
    valid, flit, last : Out
        The oldest flit.
    take : In(1)
        Step over it. Only with ``valid``.

    Timing
    ------
    A flit written in cycle *t* to an empty queue is in sight in *t* + 2. One flit per cycle.

    Area
    ----
    The RAM, whose output register holds the oldest flit, and ``2 * log2(depth)`` flops.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        super().__init__(
            {
                "w_en": In(1),
                "w_flit": In(FLIT_BITS),
                "w_last": In(1),
                "full": Out(1),
                "valid": Out(1),
                "flit": Out(FLIT_BITS),
                "last": Out(1),
                "take": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        depth = self._params.response_depth
        m.submodules.ram = ram = Ram(width=FLIT_BITS + 1, depth=depth)
        bits = depth.bit_length()
        w_ptr = Signal(bits)
        r_ptr = Signal(bits)  # `r_ptr`: behind the flit in sight
        fetch = Signal()
        m.d.comb += [
            self.full.eq((w_ptr ^ r_ptr) == depth),
            fetch.eq((w_ptr != r_ptr) & (~self.valid | self.take)),
            ram.w_en.eq(self.w_en),
            ram.w_addr.eq(w_ptr[:-1]),
            ram.w_data.eq(Cat(self.w_flit, self.w_last)),
            ram.r_en.eq(fetch),
            ram.r_addr.eq(r_ptr[:-1]),
            Cat(self.flit, self.last).eq(ram.r_data),
        ]
        with m.If(self.w_en):
            m.d.sync += w_ptr.eq(w_ptr + 1)
        with m.If(fetch):
            m.d.sync += [r_ptr.eq(r_ptr + 1), self.valid.eq(1)]
        with m.Elif(self.take):
            m.d.sync += self.valid.eq(0)
        check(m, platform, ~(self.w_en & self.full), "response queue: written while full")
        check(m, platform, ~self.take | self.valid, "response queue: took what is not there")
        return m
