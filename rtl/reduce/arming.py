# SPDX-License-Identifier: Apache-2.0
"""Arming: makes the order to arm a reduction entry out of a request's header."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import any_of, popcount
from ..flits import FLIT_BITS, HEADER, Addressing, Kind
from ..params import SwitchParams

__all__ = ["Arming", "arm_layout"]


def arm_layout(params: SwitchParams) -> data.StructLayout:
    """Return the layout of an order to arm an entry.

    ``load`` (or store), ``total`` targets, ``expected`` GPUs; ``aux`` is the header's: operation
    and order.
    """
    widths = {name: HEADER[name].width for name in ("tag", "gen", "aux", "length", "dtype")}
    return data.StructLayout(
        {**widths, "load": 1, "total": params.count_bits, "expected": params.gpus}
    )


class Arming(wiring.Component):
    """One register between a port's requests and its reduction entries.

    Parameters
    ----------
    params : SwitchParams
        The switch.

    Members
    -------
    valid, flit, ports : In
        A header whose copies go to ``ports``. Only with ``ready``.
    ready : Out(1)
        The register is free.
    o : Out
        The order (stream of :func:`arm_layout`).

    Timing
    ------
    One cycle; ``ready`` and ``o`` are registers but for the count of a group's GPUs.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        super().__init__(
            {
                "valid": In(1),
                "flit": In(FLIT_BITS),
                "ports": In(params.ports),
                "ready": Out(1),
                "o": Out(stream.Signature(arm_layout(params))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        header = data.View(HEADER, self.flit)
        order = self.o.payload
        links = params.links_per_gpu
        gpus = Cat(
            any_of(self.ports[gpu * links : (gpu + 1) * links]) for gpu in range(params.gpus)
        )
        count = Signal(params.count_bits)
        is_static = Signal()
        m.d.comb += [
            self.ready.eq(~self.o.valid),
            order.total.eq(Mux(is_static, popcount(order.expected), count)),
        ]
        with m.If(self.valid):
            m.d.sync += [
                self.o.valid.eq(1),
                order.tag.eq(header.tag),
                order.gen.eq(header.gen),
                order.aux.eq(header.aux),
                order.length.eq(header.length),
                order.dtype.eq(header.dtype),
                order.load.eq(header.opcode[:2] == Kind.LOAD),
                order.expected.eq(gpus),
                count.eq(header.count),
                is_static.eq(header.opcode[2:4] == Addressing.STATIC),
            ]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        return m
