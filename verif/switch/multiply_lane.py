# SPDX-License-Identifier: Apache-2.0
"""The other way to map a target to its GPU, multiplication with a reciprocal, to be measured."""

from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from dysharp.rtl.flits import TARGET_BITS
from dysharp.rtl.switch.route_unit import MULTIPLE_BITS

__all__ = ["CompareLanes", "MultiplyLanes", "reciprocal"]


def reciprocal(experts_per_gpu: int) -> tuple[int, int]:
    """Multiplier of 17 bits and shift, exact for 16-bit targets (Granlund and Montgomery 1994).

    ``target // experts_per_gpu == target * multiplier >> 16 + shift``.
    """
    shift = (experts_per_gpu - 1).bit_length()
    low = (1 << TARGET_BITS) * ((1 << shift) - experts_per_gpu) // experts_per_gpu + 1
    return (1 << TARGET_BITS) + low, shift


class MultiplyLanes(wiring.Component):
    """GPU masks of targets, by multiplication.

    Parameters
    ----------
    gpus, lanes : int
        GPUs, and targets at a time.
    """

    def __init__(self, gpus: int, lanes: int) -> None:
        self.gpus = gpus
        super().__init__(
            {
                "multiplier": In(TARGET_BITS + 1),
                "shift": In(5),
                "target": In(TARGET_BITS).array(lanes),
                "gpu": Out(gpus).array(lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        for target, gpu in zip(self.target, self.gpu, strict=True):
            quotient = (target * self.multiplier)[TARGET_BITS:] >> self.shift
            m.d.comb += gpu.eq(Cat(quotient == number for number in range(self.gpus)))
        return m


class CompareLanes(wiring.Component):
    """GPU masks of targets, by comparison with the multiples, as :class:`RouteUnit` does.

    Parameters
    ----------
    gpus, lanes : int
        GPUs, and targets at a time.
    """

    def __init__(self, gpus: int, lanes: int) -> None:
        super().__init__(
            {
                "multiples": In(MULTIPLE_BITS).array(gpus),
                "target": In(TARGET_BITS).array(lanes),
                "gpu": Out(gpus).array(lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        for target, gpu in zip(self.target, self.gpu, strict=True):
            beyond = Cat(target >= multiple for multiple in self.multiples)
            m.d.comb += gpu.eq(Cat(1, beyond[:-1]) & ~beyond)
        return m
