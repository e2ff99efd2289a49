# SPDX-License-Identifier: Apache-2.0
"""The queue of one (input, output) pair, and the layout of what it holds."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..common.ram import Ram
from ..flits import FLIT_BITS, LANES
from ..params import SwitchParams
from .link import VCS

__all__ = ["PairQueue", "entry_layout"]


def entry_layout(dynamic: bool) -> data.StructLayout:
    """Return the layout of what a pair queue stores for one flit.

    ``flit``, ``last`` (of its packet) and, with dynamic support, ``list_next`` (an extension flit
    follows) and ``lanes`` (which of that flit's targets belong to this output; undefined without).
    The lanes come one flit ahead, so that the output has a cycle to work out where they go.
    """
    fields: dict[str, int] = {"flit": FLIT_BITS, "last": 1}
    if dynamic:
        fields |= {"lanes": LANES, "list_next": 1}
    return data.StructLayout(fields)


class PairQueue(wiring.Component):
    """Flits of one input for one output, a queue per virtual channel in one RAM.

    Every pair has room of its own, so that a slow output never holds up another one's packets here.

    Parameters
    ----------
    params : SwitchParams
        ``request_depth``, ``response_depth`` and ``dynamic`` are used.

    Members
    -------
    w_en, w_vc, w_entry : In
        Append an entry to the queue of channel ``w_vc``. The writer looks at the room before.
    limit_request, limit_response : In
        Entries that the channel's queue may hold for a packet to be written.
    room_request, room_response : Out(1)
        It holds no more.
    full_response : Out(1)
        The response queue has no free slot.
    nonempty : Out(2)
        Bit *v*: channel *v* holds an entry that can be popped.
    pop, pop_vc : In
        Read the oldest entry of ``pop_vc`` and step over it.
    back : In(1)
        Step the request channel back by one entry that was popped before. Not together with
        ``pop``.
    r_entry : Out
        The entry popped last.

    Timing
    ------
    An entry written in cycle *t* can be popped in *t* + 1; ``r_entry`` follows ``pop`` by a cycle.

    Area
    ----
    The RAM, and ``4 * log2(depth)`` flops a channel.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        self._depths = (params.request_depth, params.response_depth)
        entry = entry_layout(params.dynamic)
        super().__init__(
            {
                "w_en": In(1),
                "w_vc": In(1),
                "w_entry": In(entry),
                "limit_request": In(range(self._depths[0])),
                "limit_response": In(range(self._depths[1])),
                "room_request": Out(1),
                "room_response": Out(1),
                "full_response": Out(1),
                "nonempty": Out(VCS),
                "pop": In(1),
                "pop_vc": In(1),
                "back": In(1),
                "r_entry": Out(entry),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        m.submodules.ram = ram = Ram(width=self.w_entry.shape().size, depth=sum(self._depths))
        w_address, r_address = [], []
        limits = (self.limit_request, self.limit_response)
        rooms = (self.room_request, self.room_response)
        for vc, (depth, limit, room) in enumerate(zip(self._depths, limits, rooms, strict=True)):
            bits = depth.bit_length()  # one more than an address: full and empty differ
            w_ptr = Signal(bits, name=f"w_ptr{vc}")
            r_ptr = Signal(bits, name=f"r_ptr{vc}")
            # Not `ptr + enable`: the enables come late, the incremented pointers need not.
            with m.If(self.w_en & (self.w_vc == vc)):
                m.d.sync += w_ptr.eq(w_ptr + 1)
            with m.If(self.pop & (self.pop_vc == vc)):
                m.d.sync += r_ptr.eq(r_ptr + 1)
            if vc == 0 and self._params.dynamic:
                with m.If(self.back):
                    m.d.sync += r_ptr.eq(r_ptr - 1)
            # limit - (w_ptr - r_ptr) is -depth to depth - 1, so the top bit is its sign. One sum of
            # three terms is faster than a difference and a comparison.
            slack = (limit + r_ptr - w_ptr)[:bits]
            m.d.comb += [room.eq(~slack[-1]), self.nonempty[vc].eq(w_ptr != r_ptr)]
            if vc:
                m.d.comb += self.full_response.eq((w_ptr ^ r_ptr) == depth)
            # The response queue lies behind the request queue; both depths are powers of two.
            base = self._depths[0] if vc else 0
            w_address.append(_at(base, w_ptr[:-1]))
            r_address.append(_at(base, r_ptr[:-1]))
        m.d.comb += [
            ram.w_en.eq(self.w_en),
            ram.w_addr.eq(Mux(self.w_vc, w_address[1], w_address[0])),
            ram.w_data.eq(self.w_entry),
            ram.r_en.eq(self.pop),
            ram.r_addr.eq(Mux(self.pop_vc, r_address[1], r_address[0])),
            self.r_entry.as_value().eq(ram.r_data),
        ]
        return m


def _at(base: int, offset):
    """Add without an adder where `base` is a multiple of the range of `offset`."""
    span = 1 << len(offset)
    if base % span:
        return base + offset
    return Cat(offset, Const(base // span, (base // span).bit_length()))
