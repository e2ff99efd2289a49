# SPDX-License-Identifier: Apache-2.0
"""Queue of a port's responses on their way to the link."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..common.check import check
from ..common.ram import Ram
from ..flits import FLIT_BITS
from ..params import SwitchParams

__all__ = ["ResultQueue"]


class ResultQueue(wiring.Component):
    """Flits in order; room is reserved for a whole packet before its first flit is written.

    Parameters
    ----------
    params : SwitchParams
        ``result_depth`` is used.

    Members
    -------
    reserve : In
        Flits to be reserved in this cycle; never more than ``room``.
    room : Out
        Flits that are neither held nor reserved; a flit that is popped is counted two cycles later.
    w_en, w_flit, w_last : In
        Append a flit that room was reserved for.
    nonempty : Out(1)
        There is a flit to pop.
    pop : In(1)
        Read the oldest flit and step over it.
    flit, last : Out
        The flit popped last.

    Timing
    ------
    A flit written in cycle *t* can be popped in *t* + 1; it is on ``flit`` a cycle after ``pop``.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        super().__init__(
            {
                "reserve": In(range(params.max_response_flits + 1)),
                "room": Out(range(params.result_depth + 1), init=params.result_depth),
                "w_en": In(1),
                "w_flit": In(FLIT_BITS),
                "w_last": In(1),
                "nonempty": Out(1),
                "pop": In(1),
                "flit": Out(FLIT_BITS),
                "last": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        depth = self._params.result_depth
        m.submodules.ram = ram = Ram(width=FLIT_BITS + 1, depth=depth)
        bits = depth.bit_length()
        w_ptr = Signal(bits)
        r_ptr = Signal(bits)
        with m.If(self.w_en):
            m.d.sync += w_ptr.eq(w_ptr + 1)
        with m.If(self.pop):
            m.d.sync += r_ptr.eq(r_ptr + 1)
        # `pop` comes late, so its room is counted a cycle later.
        popped = Signal()
        m.d.sync += [popped.eq(self.pop), self.room.eq(self.room - self.reserve + popped)]
        m.d.comb += [
            self.nonempty.eq(w_ptr != r_ptr),
            ram.w_en.eq(self.w_en),
            ram.w_addr.eq(w_ptr[:-1]),
            ram.w_data.eq(Cat(self.w_flit, self.w_last)),
            ram.r_en.eq(self.pop),
            ram.r_addr.eq(r_ptr[:-1]),
            Cat(self.flit, self.last).eq(ram.r_data),
        ]
        check(m, platform, self.reserve <= self.room, "result queue: reserved more than there is")
        check(m, platform, ~self.w_en | ((w_ptr ^ r_ptr) != depth), "result queue: overflow")
        check(m, platform, ~self.pop | self.nonempty, "result queue: popped while empty")
        return m
