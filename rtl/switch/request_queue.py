# SPDX-License-Identifier: Apache-2.0
"""The request queue of one (input, output) pair, and the layout of what it holds."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..common.ram import Ram
from ..flits import FLIT_BITS, LANES
from ..params import SwitchParams

__all__ = ["RequestQueue", "entry_layout"]


def entry_layout(dynamic: bool) -> data.StructLayout:
    """Return the layout of what a pair's queue stores for one flit.

    ``flit``, ``last`` (of its packet) and, with dynamic support, ``list_next`` (an extension flit
    follows) and ``lanes`` (which of that flit's targets belong to this output; undefined without).
    The lanes come one flit ahead, so that the output has a cycle to work out where they go.
    """
    fields = {"flit": FLIT_BITS, "last": 1}
    if dynamic:
        fields |= {"lanes": LANES, "list_next": 1}
    return data.StructLayout(fields)


class RequestQueue(wiring.Component):
    """Request flits of one input for one output.

    Every pair has room of its own, so that a slow output never holds up another one's packets here.

    Parameters
    ----------
    params : SwitchParams
        ``request_depth`` and ``dynamic`` are used.

    Members
    -------
    w_en, w_entry : In
        Append an entry. The writer looks at the room before.
    limit : In
        Entries that the queue may hold for a packet to be written.
    room : Out(1)
        It holds no more.
    nonempty : Out(1)
        It holds an entry that can be popped.
    pop : In(1)
        Read the oldest entry and step over it.
    back : In(1)
        Step back by one entry that was popped before. Not together with ``pop``.
    r_entry : Out
        The entry popped last.

    Timing
    ------
    An entry written in cycle *t* can be popped in *t* + 1; ``r_entry`` follows ``pop`` by a cycle.

    Area
    ----
    The RAM, and ``2 * log2(depth)`` flops.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        entry = entry_layout(params.dynamic)
        super().__init__(
            {
                "w_en": In(1),
                "w_entry": In(entry),
                "limit": In(range(params.request_depth)),
                "room": Out(1),
                "nonempty": Out(1),
                "pop": In(1),
                "back": In(1),
                "r_entry": Out(entry),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        depth = self._params.request_depth
        m.submodules.ram = ram = Ram(width=self.w_entry.shape().size, depth=depth)
        bits = depth.bit_length()  # one more than an address: full and empty differ
        w_ptr = Signal(bits)
        r_ptr = Signal(bits)
        # Not `ptr + enable`: the enables come late, the incremented pointers need not.
        with m.If(self.w_en):
            m.d.sync += w_ptr.eq(w_ptr + 1)
        with m.If(self.pop):
            m.d.sync += r_ptr.eq(r_ptr + 1)
        if self._params.dynamic:
            with m.If(self.back):
                m.d.sync += r_ptr.eq(r_ptr - 1)
        # limit - (w_ptr - r_ptr) is -depth to depth - 1, so the top bit is its sign. One sum of
        # three terms is faster than a difference and a comparison.
        slack = (self.limit + r_ptr - w_ptr)[:bits]
        m.d.comb += [
            self.room.eq(~slack[-1]),
            self.nonempty.eq(w_ptr != r_ptr),
            ram.w_en.eq(self.w_en),
            ram.w_addr.eq(w_ptr[:-1]),
            ram.w_data.eq(self.w_entry),
            ram.r_en.eq(self.pop),
            ram.r_addr.eq(r_ptr[:-1]),
            self.r_entry.as_value().eq(ram.r_data),
        ]
        return m
