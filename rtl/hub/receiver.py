# SPDX-License-Identifier: Apache-2.0
"""Receiver of the hub: parts requests into headers, lists and data."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import is_one_of
from ..flits import (
    FLIT_BITS,
    HEADER,
    MAX_BYTE_ENABLE_FLITS,
    MAX_DATA_FLITS,
    Addressing,
    Kind,
    Opcode,
    Vc,
    addressing,
)
from ..gpu_params import GpuParams
from ..switch.receiver import data_flits, extension_flits

__all__ = ["HubReceiver"]

_KNOWN = tuple(code for code in Opcode if addressing(code.value) is not Addressing.RESPONSE)


class HubReceiver(wiring.Component):
    """Tells for every flit what it is.

    Parameters
    ----------
    params : GpuParams
        The hub.

    Members
    -------
    valid, flit : In
        Requests from the switch, one flit a cycle.
    o_flit : Out
        The flit, of which one of these says where it goes:
    is_head : Out(1)
        Header or list.
    is_data : Out(1)
        Byte enables or data.
    dropped : Out(1)
        Nowhere; its room is free again.
    whole : Out(1)
        It is the last one of a good request.
    taken, refused : Out(1)
        A request came in; it is malformed and is dropped.

    Timing
    ------
    Two cycles from ``flit`` to ``o_flit``.

    Errors
    ------
    The switch has checked requests, so a malformed one can be answered by nobody's rule; it is
    consumed whole and dropped. Its end is found as ``rtl/flits.py`` says, whatever is wrong.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        super().__init__(
            {
                "valid": In(1),
                "flit": In(FLIT_BITS),
                "o_flit": Out(FLIT_BITS),
                "is_head": Out(1),
                "is_data": Out(1),
                "dropped": Out(1),
                "whole": Out(1),
                "taken": Out(1),
                "refused": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        held = Signal()
        flit = Signal(FLIT_BITS)
        m.d.sync += [held.eq(self.valid), flit.eq(self.flit)]

        header = data.View(HEADER, flit)
        opcode = header.opcode
        dynamic = opcode[2:4] == Addressing.DYNAMIC
        loads = opcode[:2] == Kind.LOAD
        extensions = Signal(range(1 << 13))
        behind = Signal(14)
        m.d.comb += [
            extensions.eq(extension_flits(header)),
            behind.eq(extensions + data_flits(header) + header.byte_enable),
        ]
        good = Signal()
        m.d.comb += good.eq(
            is_one_of(opcode, _KNOWN)
            & (header.vc == Vc.REQUEST)
            & (header.gpu < params.gpus)
            & (header.length != 0)
            & (header.length <= MAX_DATA_FLITS)
            & (~dynamic | ((header.count != 0) & (header.count <= params.max_targets)))
            & (~header.byte_enable | (~loads & (header.length <= MAX_BYTE_ENABLE_FLITS)))
        )

        is_open = Signal()
        is_good = Signal()
        left = Signal(14)  # flits still to come
        lists = Signal(13)  # list flits among them
        keeps = Signal()
        ends = Signal()
        in_head = Signal()
        m.d.comb += [
            keeps.eq(Mux(is_open, is_good, good)),
            ends.eq(Mux(is_open, left == 1, behind == 0)),
            in_head.eq(~is_open | (lists != 0)),
        ]
        with m.If(held):
            m.d.sync += is_open.eq(~ends)
            with m.If(is_open):
                m.d.sync += left.eq(left - 1)
                with m.If(lists != 0):
                    m.d.sync += lists.eq(lists - 1)
            with m.Else():
                m.d.sync += [left.eq(behind), lists.eq(extensions), is_good.eq(good)]
        m.d.sync += [
            self.o_flit.eq(flit),
            self.is_head.eq(held & keeps & in_head),
            self.is_data.eq(held & keeps & ~in_head),
            self.dropped.eq(held & ~keeps),
            self.whole.eq(held & keeps & ends),
            self.taken.eq(held & ~is_open),
            self.refused.eq(held & ~is_open & ~good),
        ]
        return m
