# SPDX-License-Identifier: Apache-2.0
"""Hub: takes requests of the switch, carries them out on this GPU's memory and answers them."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..common.bus import BusSignature
from ..common.flit_stream import flit_stream
from ..flits import FLIT_BITS
from ..gpu_params import GpuParams
from .hub_path import HubPath
from .ports import MemorySignature, TableSignature
from .translator import Translator

__all__ = ["Hub"]


class Hub(wiring.Component):
    """The memory side of a GPU's link.

    Parameters
    ----------
    params : GpuParams
        The hub.

    Members
    -------
    valid, flit : In
        Flits of requests from the switch (channel ``REQUEST``).
    credit : Out(1)
        One more slot for them: ``hub_flits`` after reset, then one for each flit that is done with.
    answer : Out
        Stream of flits (:func:`flit_stream`): answers, by whole packets.
    answer_credit : In(gpus)
        The switch hands out one more slot for responses to this GPU; there are none at first.
    memory : Out
        The GPU's memory (:class:`MemorySignature`).
    table : Out
        The AL tables in it (:class:`TableSignature`).
    bus : In
        Registers (:class:`BusSignature`, ``rtl/hub_register_map.py``).

    Timing, ordering, reset
    -----------------------
    See :class:`HubPath` and :class:`Translator`.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        super().__init__(
            {
                "valid": In(1),
                "flit": In(FLIT_BITS),
                "credit": Out(1),
                "answer": Out(flit_stream()),
                "answer_credit": In(params.gpus),
                "memory": Out(MemorySignature(params.memory_flits)),
                "table": Out(TableSignature(params)),
                "bus": In(BusSignature()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        m.submodules.path = path = HubPath(self._params)
        m.submodules.translator = translator = Translator(self._params)
        m.d.comb += [
            path.valid.eq(self.valid),
            path.flit.eq(self.flit),
            self.credit.eq(path.credit),
            path.answer_credit.eq(self.answer_credit),
            path.presum.eq(translator.presum),
            translator.request_event.eq(path.request_event),
            translator.refused_event.eq(path.refused_event),
        ]
        connect(m, path.answer, flipped(self.answer))
        connect(m, path.memory, flipped(self.memory))
        connect(m, path.lookup, translator.request)
        connect(m, translator.result, path.translation)
        connect(m, translator.table, flipped(self.table))
        connect(m, flipped(self.bus), translator.bus)
        return m
