# SPDX-License-Identifier: Apache-2.0
"""Makes the address in memory of a lookup whose place is known."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..common.multiplier import Multiplier
from ..flits import Status
from ..gpu_params import GpuParams
from .al_walker import MISS_RESULT
from .ports import Translation
from .ring_queue import RingQueue
from .translation_layouts import (
    BLOCK_BITS,
    INDEX_BITS,
    OBJECT_CONFIG,
    PLACE_BITS,
    outcome_layout,
)

__all__ = ["PlaceStage"]

_WAITING = 16
"""Lookups between here and the user: enough for one a cycle."""


class PlaceStage(wiring.Component):
    """Computes ``place * block + rest + base``; results wait in a queue.

    Parameters
    ----------
    params : GpuParams
        The hub.

    Members
    -------
    room : Out(1)
        A lookup can be taken.
    valid, outcome : In
        Take it.
    base : In(44)
        A cycle later: base of its expert and stage, if it is dynamic.
    miss : In
        A cycle later: how its miss ended, if it waited for one.
    objects : In, one per object
        Their registers.
    result : Out
        Stream of :class:`Translation`.
    refused : Out(1)
        A lookup ends with an error.

    Timing
    ------
    One lookup a cycle.
    """

    LATENCY = 9
    """Cycles from a lookup to its result."""

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        super().__init__(
            {
                "room": Out(1, init=1),
                "valid": In(1),
                "outcome": In(outcome_layout(params)),
                "base": In(PLACE_BITS),
                "miss": In(MISS_RESULT),
                "objects": In(OBJECT_CONFIG).array(params.objects),
                "result": Out(stream.Signature(Translation)),
                "refused": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        m.submodules.multiply = multiply = Multiplier(
            BLOCK_BITS, INDEX_BITS, addend_bits=[PLACE_BITS, PLACE_BITS], out_bits=PLACE_BITS
        )
        m.submodules.results = results = RingQueue(width=PLACE_BITS + 1, depth=_WAITING)

        # 1: the words that were read.
        valid1 = Signal()
        outcome1 = Signal.like(self.outcome)
        block1 = Signal(BLOCK_BITS)
        memory1 = Signal(PLACE_BITS)
        number = self.outcome.object
        m.d.sync += [
            valid1.eq(self.valid),
            outcome1.eq(self.outcome),
            block1.eq(Array([item.block for item in self.objects])[number]),
            memory1.eq(Array([item.memory for item in self.objects])[number]),
        ]
        # 2: the factors.
        valid2 = Signal()
        good2 = Signal()
        index = Signal(INDEX_BITS)
        block = Signal(BLOCK_BITS)
        base = Signal(PLACE_BITS)
        rest = Signal(PLACE_BITS)
        found = Mux(outcome1.missed, self.miss.index, outcome1.index)
        static = memory1 & outcome1.static.replicate(PLACE_BITS)
        m.d.sync += [
            valid2.eq(valid1),
            good2.eq(outcome1.good & (~outcome1.missed | self.miss.good)),
            index.eq(found & outcome1.dynamic.replicate(INDEX_BITS)),
            block.eq(block1),
            base.eq(Mux(outcome1.dynamic, self.base, static)),
            rest.eq(outcome1.rest),
        ]
        m.d.comb += [
            multiply.a.eq(block),
            multiply.b.eq(index),
            multiply.addend0.eq(base),
            multiply.addend1.eq(rest),
        ]
        ended: Value = Cat(valid2, good2)
        for cycle in range(multiply.latency):
            register = Signal(2, name=f"ended{cycle}")
            m.d.sync += register.eq(ended)
            ended = register
        valid, good = ended[0], ended[1]
        m.d.comb += [
            self.refused.eq(valid & ~good),
            results.w_en.eq(valid),
            results.w_data.eq(Cat(multiply.out & good.replicate(PLACE_BITS), good)),
        ]

        takes = Signal()
        m.d.comb += [
            self.result.valid.eq(results.valid),
            self.result.payload.address.eq(Cat(Const(0, 4), results.head[:PLACE_BITS])),
            self.result.payload.status.eq(
                Mux(results.head[PLACE_BITS], Status.OK.value, Status.BAD_ADDRESS.value)
            ),
            takes.eq(results.valid & self.result.ready),
            results.take.eq(takes),
        ]
        waiting = Signal(range(_WAITING + 1))
        waiting_next = Signal(range(_WAITING + 1))
        m.d.comb += waiting_next.eq(waiting + self.valid - takes)
        m.d.sync += [waiting.eq(waiting_next), self.room.eq(waiting_next != _WAITING)]
        return m
