# SPDX-License-Identifier: Apache-2.0
"""Asks the memories for the words of target lists."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..common.ram_fifo import RamFifo
from ..gpu_params import GpuParams
from .layouts import entry_bits, fetch_layout, word_bits

__all__ = ["ListFetcher"]


class ListFetcher(wiring.Component):
    """Carries out orders to fetch a list, one after the other.

    Parameters
    ----------
    params : GpuParams
        The queue.

    Members
    -------
    w_en, fetch : In
        An order (:func:`fetch_layout`); one for each entry of the queue has room.
    shared_request, global_request : Out
        Streams of ``address`` and ``id``, which is the number of the entry and, in its low bits,
        of the word.

    Timing
    ------
    The first request of an order that comes in cycle *t* is offered from *t* + 4 on. One request a
    cycle, without pauses between orders.

    Ordering
    --------
    In order; a memory that does not take requests holds up those for the other one, too.

    Reset
    -----
    Orders are forgotten.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        request = data.StructLayout({"address": 48, "id": entry_bits(params) + word_bits(params)})
        super().__init__(
            {
                "w_en": In(1),
                "fetch": In(fetch_layout(params)),
                "shared_request": Out(stream.Signature(request)),
                "global_request": Out(stream.Signature(request)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        layout = fetch_layout(params)
        m.submodules.orders = orders = RamFifo(layout.size, params.queue_depth, head_in_flops=True)
        m.d.comb += [orders.w_en.eq(self.w_en), orders.w_data.eq(self.fetch)]
        order = data.View(layout, orders.o.payload)

        to_shared = Signal()
        to_global = Signal()
        address = Signal(44, reset_less=True)
        entry = Signal(entry_bits(params), reset_less=True)
        word = Signal(word_bits(params), reset_less=True)
        left = Signal(word_bits(params) + 1, reset_less=True)
        final = Signal()  # `left` is 1
        taken = Signal()
        free = Signal()
        m.d.comb += [
            taken.eq(
                (to_shared & self.shared_request.ready) | (to_global & self.global_request.ready)
            ),
            free.eq(~(to_shared | to_global) | (taken & final)),
            orders.o.ready.eq(free),
        ]
        for request, valid in ((self.shared_request, to_shared), (self.global_request, to_global)):
            m.d.comb += [
                request.valid.eq(valid),
                request.payload.address.eq(Cat(Const(0, 4), address)),
                request.payload.id.eq(Cat(word, entry)),
            ]
        with m.If(free):
            m.d.sync += [
                to_shared.eq(orders.o.valid & order.shared),
                to_global.eq(orders.o.valid & ~order.shared),
                address.eq(order.address),
                entry.eq(order.id),
                word.eq(0),
                left.eq(order.words),
                final.eq(order.words == 1),
            ]
        with m.Elif(taken):
            m.d.sync += [
                address.eq(address + 1),
                word.eq(word + 1),
                left.eq(left - 1),
                final.eq(left == 2),
            ]
        return m
