# SPDX-License-Identifier: Apache-2.0
"""Rates of a MultimemQ, alone and with the link's serializer behind it."""

import random
from typing import Any

import numpy as np
import numpy.typing as npt
from amaranth.hdl import Cat, Elaboratable, Module
from amaranth.lib import stream
from amaranth.lib.wiring import connect
from dysharp.golden.queue import make_accesses
from dysharp.rtl.endpoint.serializer import Serializer
from dysharp.rtl.flits import Opcode
from dysharp.rtl.gpu_params import GpuParams
from dysharp.rtl.queue.ports import Beat
from dysharp.rtl.queue.queue import MultimemQ

from .units import Bench, Lists, Responder, random_lists

__all__ = ["QueueOnLink", "play_freely", "rate", "store_rate", "stores"]

_WARM = 100  # accesses that are not counted


class QueueOnLink(Elaboratable):
    """A queue whose flits go out one by one; `beats` offers each as a beat of its own."""

    def __init__(self, params: GpuParams) -> None:
        self._queue = MultimemQ(params)
        self.beats = stream.Signature(Beat).create(path=("beats",))
        for name in self._queue.signature.members:
            if name != "beats":
                setattr(self, name, getattr(self._queue, name))

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        m.submodules.queue = queue = self._queue
        m.submodules.serializer = serializer = Serializer()
        connect(m, queue.beats, serializer.i)
        beat = self.beats.payload
        m.d.comb += [
            self.beats.valid.eq(serializer.o.valid),
            serializer.o.ready.eq(self.beats.ready),
            # The place of a flit in its beat is not known any more; a header begins a packet.
            Cat(beat.flits).eq(serializer.o.payload.flit),
            beat.present.eq(1),
            beat.last.eq(serializer.o.payload.last),
        ]
        return m


def stores(number: int, /, **fields: int) -> npt.NDArray[np.void]:
    """Aligned 16-byte stores that follow on each other, 8 targets in shared memory."""
    numbers = np.arange(number)
    values = {"opcode": Opcode.DY_ST.value, "size": 2, "count": 8, "shared": 1, "list": 0x40}
    return make_accesses(
        number,
        address=(1 << 40) + 16 * numbers,
        rd=numbers,
        data=np.stack([numbers, ~numbers], axis=1).astype(np.uint64),
        **(values | fields),
    )


def play_freely(
    params: GpuParams, accesses: npt.NDArray[np.void], latency: int = 20, **options: Any
) -> Bench:
    """Play accesses and compare with the model.

    Parameters
    ----------
    params : GpuParams
        The queue.
    accesses : ndarray
        What to play.
    latency : int
        Cycles of the memories of lists. Responses come after 20.
    **options
        Of the :class:`Bench`; by default nothing is ever held up.
    """
    rng = random.Random(1)
    memories = random_lists(rng)
    bench = Bench(
        params,
        accesses,
        memories,
        rng,
        lists=Lists(memories, rng, latency=(latency, latency)),
        responder=Responder(rng, params.tags, latency=(20, 20), errors=0.0, stale=0.0),
        **options,
    )
    bench.run(quiet=120 + latency)
    bench.check()
    return bench


def rate(bench: Bench) -> float:
    """Return accesses a cycle at the slower end: taken, or sent in packets of equal length."""
    taken = bench.accepted[_WARM:]
    each = len(bench.accepted) / len(bench.packets)
    sent = bench.sent[_WARM // 8 :]
    return min(
        (len(taken) - 1) / (taken[-1] - taken[0]), each * (len(sent) - 1) / (sent[-1] - sent[0])
    )


def store_rate(params: GpuParams, number: int = 600, *, on_link: bool = False) -> float:
    """Measure accesses a cycle of :func:`stores`, on request behind the serializer."""
    queue = QueueOnLink if on_link else MultimemQ
    return rate(play_freely(params, stores(number), queue=queue))
