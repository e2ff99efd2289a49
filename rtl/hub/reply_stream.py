# SPDX-License-Identifier: Apache-2.0
"""Reply stream: beats of the memory, one flit a cycle."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..common.check import check
from ..common.ram_fifo import RamFifo
from ..flits import FLIT_BITS
from ..gpu_params import GpuParams
from .path_layouts import choose, lane_bits

__all__ = ["ReplyStream"]


class ReplyStream(wiring.Component):
    """Buffers beats, and gives those of their flits that were asked for.

    Parameters
    ----------
    params : GpuParams
        The hub.
    rows : int
        Beats that are held.

    Members
    -------
    w_en, w_data, w_error, w_first, w_last : In
        Append a beat: its data, whether the memory told an error, its first and last flit that
        count. There is room, since it was counted when the beat was asked for.
    some, claim : Out, In
        There is a flit that nobody has claimed; claim it. It is taken at least one cycle later, in
        the order of the claims.
    flit, error : Out
        The next flit to be taken.
    take : In(1)
        Step over it.
    freed : Out(1)
        ... and over its beat.

    Timing
    ------
    A beat's first flit may be claimed one cycle after the beat was written. A flit a cycle.

    Reset
    -----
    Empty.
    """

    def __init__(self, params: GpuParams, rows: int) -> None:
        self._params = params
        self._rows = rows
        lanes = lane_bits(params)
        super().__init__(
            {
                "w_en": In(1),
                "w_data": In(params.memory_flits * FLIT_BITS),
                "w_error": In(1),
                "w_first": In(lanes),
                "w_last": In(lanes),
                "some": Out(1),
                "claim": In(1),
                "flit": Out(FLIT_BITS),
                "error": Out(1),
                "take": In(1),
                "freed": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        flits, bits = params.memory_flits, params.memory_flits * FLIT_BITS
        lanes = lane_bits(params)
        m.submodules.beats = beats = RamFifo(bits + 1 + 2 * lanes, self._rows)
        words = [beats.o.payload.word_select(n, FLIT_BITS) for n in range(flits)]
        first = beats.o.payload[bits + 1 : bits + 1 + lanes]
        last = beats.o.payload[bits + 1 + lanes :]
        inside = Signal()
        place = Signal(lanes)
        at = Signal(lanes)
        m.d.comb += [
            beats.w_en.eq(self.w_en),
            beats.w_data.eq(Cat(self.w_data, self.w_error, self.w_first, self.w_last)),
            at.eq(Mux(inside, place, first)),
            self.flit.eq(choose(words, at)),
            self.error.eq(beats.o.payload[bits]),
            self.freed.eq(self.take & (at == last)),
            beats.o.ready.eq(self.freed),
        ]
        check(m, platform, ~self.take | beats.o.valid, "reply stream: took what is not there")
        # Flits that are not claimed.
        count = Signal(range(self._rows * flits + 1))
        arrived = Signal.like(count)
        m.d.comb += arrived.eq(count + Mux(self.w_en, (self.w_last - self.w_first)[:lanes] + 1, 0))
        m.d.sync += [
            count.eq(Mux(self.claim, arrived - 1, arrived)),
            self.some.eq(Mux(self.claim, arrived[1:] != 0, arrived != 0)),
        ]
        with m.If(self.take):
            m.d.sync += [inside.eq(at != last), place.eq(at + 1)]
        return m
