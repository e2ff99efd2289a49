# SPDX-License-Identifier: Apache-2.0
"""Conversions between f32 and the 16-bit formats f16 (IEEE 754 binary16) and bf16."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .adder import F32, increment, leading_zeros

__all__ = ["F16", "Fp16To32", "Fp32To16", "scaled_to_32"]

F16 = data.StructLayout({"fraction": 10, "exponent": 5, "sign": 1})

_REBIAS = 127 - 15


def scaled_to_32(value: Value, f16: Value) -> Value:
    """Bf16 as f32, and f16 times 2**-112 as f32, with hardly any logic.

    With that factor the exponents have the same bits, and subnormals are subnormal in both formats
    with their places under each other, so nothing has to be normalised.
    """
    half = data.View(F16, value)
    exponent = Cat(half.exponent, half.exponent.all().replicate(3))
    return Mux(
        f16,
        Cat(Const(0, 13), half.fraction, exponent, half.sign),
        Cat(Const(0, 16), value),
    )


class Fp16To32(wiring.Component):
    """Converts an f16 or bf16 number to f32, without any rounding.

    Subnormal f16 numbers become normal. The fraction of a NaN stays as it is.

    Members
    -------
    f16 : In(1)
        ``i`` is f16, else bf16.
    i : In(16)
        Number.
    o : Out(32)
        The same as f32.

    Timing
    ------
    Combinational; the longest path counts the zeros of an f16 subnormal and shifts it.
    """

    f16: In(1)
    i: In(16)
    o: Out(32)

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        half = data.View(F16, self.i)
        top = half.exponent[-1]
        # Adding 112 to an exponent that is not 0 copies bit 4 and sets the three below to its
        # inverse; the exponent of infinity has ones in all of them.
        middle = ~top | half.exponent.all()
        exponent = Cat(half.exponent[:4], middle, middle, middle, top)

        count, none = leading_zeros(half.fraction)
        shifted: Value = half.fraction
        for bit in range(len(count)):
            stage = Signal(10, name=f"moved_by_{1 << bit}")
            m.d.comb += stage.eq(Mux(count[bit], shifted << (1 << bit), shifted))
            shifted = stage
        # The first one stands before the fraction then: 2**-24 is the last bit of an f16.
        small = Cat(shifted[:9] << 1, ((_REBIAS - count)[:8]) & ~none.replicate(8))
        wide = Mux(half.exponent.any(), Cat(half.fraction, exponent), small)
        m.d.comb += self.o.eq(
            Mux(
                self.f16,
                Cat(Const(0, 13), wide, half.sign),
                Cat(Const(0, 16), self.i),
            )
        )
        return m


class Fp32To16(wiring.Component):
    """Rounds an f32 number to f16 or bf16: to nearest, ties to even.

    Results that are subnormal are rounded at their last place, results that are too large become
    infinity, and every NaN becomes the canonical one (0x7E00 or 0x7FC0).

    Members
    -------
    f16 : In(1)
        ``o`` is f16, else bf16.
    scaled : In(1)
        ``i`` is the number times 2**-112, if it is to be f16 (:func:`scaled_to_32`).
    i : In(32)
        Number.
    o : Out(16)
        The rounded one.

    Timing
    ------
    Combinational.
    """

    f16: In(1)
    scaled: In(1)
    i: In(32)
    o: Out(16)

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        word = data.View(F32, self.i)
        exponent = word.exponent
        nan = exponent.all() & word.fraction.any()

        # f16: numbers below 2**-14 lose a bit for each exponent less. Twelve leave nothing but a
        # sticky bit, and four bits of the distance can tell 0 to 15.
        below = exponent < _REBIAS + 1
        distance = Signal(4)
        m.d.comb += distance.eq(Mux(below, _REBIAS + 1 - exponent, 0))
        gone = exponent < _REBIAS + 1 - 12
        shifted: Value = Cat(word.fraction[12:], 1)  # to the guard bit
        sticky: Value = word.fraction[:12].any()
        for bit in reversed(range(4)):
            step = 1 << bit
            stage = Signal(12, name=f"moved_by_{step}")
            lost = Signal(name=f"lost_by_{step}")
            m.d.comb += [
                stage.eq(Mux(distance[bit], shifted >> step, shifted)),
                lost.eq(sticky | (distance[bit] & shifted[:step].any())),
            ]
            shifted, sticky = stage, lost
        over = exponent >= _REBIAS + 31
        plain = ~over & ~gone
        half = Signal(15)
        m.d.comb += half.eq(
            Cat(
                (shifted[1:11] & plain.replicate(10)) | Cat(Const(0, 9), nan),
                # Bit 4 stays and the lower ones too: 112 is 0b1110000.
                (Cat(exponent[:4], exponent[-1]) & ~below.replicate(5)) | over.replicate(5),
            )
        )
        half_up = shifted[0] & (sticky | shifted[1]) & plain

        # Of a scaled number the last place is the same for all, subnormal or not.
        too_large = exponent[5:].any() | exponent[:5].all()
        scaled = Signal(15)
        m.d.comb += scaled.eq(
            Mux(
                too_large,
                Cat(Const(0, 9), nan, Const(0b11111, 5)),
                Cat(word.fraction[13:], exponent[:5]),
            )
        )
        scaled_up = word.fraction[12] & (word.fraction[:12].any() | word.fraction[13]) & ~too_large

        brain = Signal(15)
        m.d.comb += brain.eq(
            Cat(word.fraction[16:22] & ~nan.replicate(6), word.fraction[22] | nan, exponent)
        )
        brain_up = word.fraction[15] & (word.fraction[:15].any() | word.fraction[16]) & ~nan

        # Two increments, since f16 that is not scaled is late.
        early = increment(Mux(self.f16, scaled, brain), Mux(self.f16, scaled_up, brain_up))
        magnitude = Mux(self.f16 & ~self.scaled, increment(half, half_up), early)
        m.d.comb += self.o.eq(Cat(magnitude, word.sign & ~nan))
        return m
