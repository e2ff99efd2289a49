# SPDX-License-Identifier: Apache-2.0
"""Splitter: makes jobs and lookups of headers and lists, far ahead of their execution."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from ..common.ram_fifo import RamFifo
from ..flits import EXTENSION, FLIT_BITS, HEADER, LANES, Addressing, Kind
from ..gpu_params import GpuParams
from .path_layouts import JOB, choose
from .ports import Lookup, Space

__all__ = ["Splitter"]


class _State(enum.Enum, shape=2):
    HEAD = 0
    SINGLE = 1
    LIST = 2


class Splitter(wiring.Component):
    """Buffers headers and lists, and asks for the places of all targets.

    Parameters
    ----------
    params : GpuParams
        The hub.

    Members
    -------
    w_en, w_flit : In
        Append a flit of a header or a list; there is room for ``hub_flits``.
    freed : Out(1)
        The room of a flit is free again.
    lookup : Out
        Stream of :class:`Lookup`: one for each target, in list order.
    job, job_en, job_full : Out, Out, In
        A request, in order (:data:`JOB`).
    mark, mark_en, mark_full : Out, Out, In
        With each lookup: whether it is the request's last.

    Timing
    ------
    A request takes one cycle, and one for each target.

    Reset
    -----
    Empty.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        super().__init__(
            {
                "w_en": In(1),
                "w_flit": In(FLIT_BITS),
                "freed": Out(1),
                "lookup": Out(stream.Signature(Lookup)),
                "job": Out(JOB),
                "job_en": Out(1),
                "job_full": In(1),
                "mark": Out(1),
                "mark_en": Out(1),
                "mark_full": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        m.submodules.heads = heads = RamFifo(FLIT_BITS, self._params.hub_flits)
        m.d.comb += [heads.w_en.eq(self.w_en), heads.w_data.eq(self.w_flit)]

        state = Signal(_State)
        header = data.View(HEADER, heads.o.payload)
        targets = data.View(EXTENSION, heads.o.payload)
        dynamic = header.opcode[2:4] == Addressing.DYNAMIC
        count = Mux(dynamic, header.count, 1)
        fields = [count if name == "count" else Cat(getattr(header, name)) for name, _ in JOB]
        m.d.comb += Cat(self.job.as_value()).eq(
            Cat(value[: field.width] for value, (_, field) in zip(fields, JOB, strict=True))
        )

        lane = Signal(range(LANES))
        left = Signal(len(self.job.count))
        last = Signal()
        place_free = Signal()  # a lookup can be made
        emits = Signal()
        takes = Signal()
        begins = Signal()
        m.d.comb += [
            last.eq((state == _State.SINGLE) | (left == 1)),
            place_free.eq((~self.lookup.valid | self.lookup.ready) & ~self.mark_full),
            begins.eq((state == _State.HEAD) & heads.o.valid & ~self.job_full),
            emits.eq(
                place_free & ((state == _State.SINGLE) | ((state == _State.LIST) & heads.o.valid))
            ),
            takes.eq(begins | (emits & (state == _State.LIST) & (last | (lane == LANES - 1)))),
            heads.o.ready.eq(takes),
            self.freed.eq(takes),
            self.job_en.eq(begins),
            self.mark_en.eq(emits),
            self.mark.eq(last),
        ]
        asked = Signal(Lookup)  # of this request, but for the target
        with m.If(begins):
            opcode = header.opcode
            how = opcode[2:4]
            m.d.sync += [
                state.eq(Mux(dynamic, _State.LIST.value, _State.SINGLE.value)),
                left.eq(count),
                lane.eq(0),
                asked.space.eq(
                    Mux(
                        how == Addressing.UNICAST,
                        Space.LOCAL.value,
                        Mux(dynamic, Space.DYNAMIC.value, Space.STATIC.value),
                    )
                ),
                asked.stage.eq(header.stage),
                asked.allocate.eq(opcode[:2] == Kind.STORE),
                asked.address.eq(header.address),
                asked.length.eq(header.length),
            ]
        with m.Elif(emits):
            m.d.sync += [lane.eq(lane + 1), left.eq(left - 1)]
            with m.If(last):
                m.d.sync += state.eq(_State.HEAD)
        with m.If(emits):
            m.d.sync += [
                self.lookup.payload.eq(asked),
                self.lookup.payload.target.eq(
                    Mux(state == _State.LIST, choose([targets[n] for n in range(LANES)], lane), 0)
                ),
                self.lookup.valid.eq(1),
            ]
        with m.Elif(self.lookup.ready):
            m.d.sync += self.lookup.valid.eq(0)
        return m
