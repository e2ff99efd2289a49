# SPDX-License-Identifier: Apache-2.0
"""A lane's way to a sum of 16-bit numbers equals one rounding of the exact sum.

The lane converts to f32, adds, which rounds, and rounds again. The specification adds integers, in
units of the last place of the operand with the smaller exponent, and rounds once. It is a list of
cases by the length of the sum; there is nothing of an adder with one path in it.
"""

from typing import Any

from amaranth.hdl import Assert, Assume, Cat, Module, Mux, Signal
from dysharp.rtl.common.bits import any_of

from .native import NarrowAdder
from .reference import Format

__all__ = ["far_distance", "far_spec", "near_spec", "special_spec"]


def far_distance(form: Format) -> int:
    """From this distance of exponents on the smaller number is lost.

    It is less than half of the last place of the larger one, also of that below a power of two.
    """
    return form.fraction + 3


def _operands(m: Module, form: Format, swapped: bool) -> tuple[NarrowAdder, Signal, Signal]:
    m.submodules.dut = dut = NarrowAdder(f16=form.fraction == 10)
    large, small = Signal(form.bits), Signal(form.bits)
    first, second = (small, large) if swapped else (large, small)
    m.d.comb += [dut.a.eq(first), dut.b.eq(second)]
    return dut, large, small


def near_spec(
    form: Format, distance: int, *, swapped: bool, ties_up: bool = False
) -> tuple[Module, list[Any]]:
    """Add all finite numbers of which the exponent of one is larger by `distance`.

    Parameters
    ----------
    form : Format
        f16 or bf16.
    distance : int
        Exponent field of one operand less that of the other.
    swapped : bool
        Whether the larger one is the second operand.
    ties_up : bool
        Round ties up instead of to even: the proof must fail.
    """
    m = Module()
    dut, large, small = _operands(m, form, swapped)
    low, high = form.fraction, form.bits - 1
    exponent, other = large[low:high], small[low:high]
    m.d.comb += Assume((exponent == other + distance) & ~exponent.all())

    # Exponent 0 weighs like 1, so that it is one place closer.
    one = Cat(small[:low], other != 0)
    two = Cat(large[:low], exponent != 0)
    width = low + 2 + distance
    size_two, total, size = Signal(width), Signal(range(-(1 << width), 1 << width)), Signal(width)
    m.d.comb += [
        size_two.eq(Mux(other == 0, two << max(distance - 1, 0), two << distance)),
        total.eq(Mux(large[-1], -size_two, size_two) + Mux(small[-1], -one, one)),
        size.eq(Mux(total < 0, -total, total)),
    ]
    unit = Mux(other == 0, 1, other)
    wanted = Signal(form.bits + 8)
    for length in range(1, width + 1):  # without ones it stays 0
        longest = ~size[length:].any() & size[length - 1]
        with m.If(longest):
            drop = length - (low + 1)
            if drop <= 0:  # exact; to the left as far as the exponent goes
                move = Signal(range(low + 2), name=f"move{length}")
                m.d.comb += [
                    move.eq(Mux(unit - 1 < -drop, unit - 1, -drop)),
                    wanted.eq((size << move) + ((unit - 1 - move) << low)),
                ]
            else:
                kept = size[drop:]
                half, rest = size[drop - 1], size[: drop - 1].any() if drop > 1 else 0
                up = half if ties_up else half & (rest | kept[0])
                m.d.comb += wanted.eq(kept + up + ((unit - 1 + drop) << low))
    magnitude = Mux(wanted > form.infinity, form.infinity, wanted)
    sign = Mux(total == 0, large[-1] & small[-1], total < 0)
    m.d.comb += Assert(dut.sum == Cat(magnitude[: form.bits - 1], sign))
    return m, [large, small]


def far_spec(form: Format, *, swapped: bool, closer: int = 0) -> tuple[Module, list[Any]]:
    """Lose the operand whose exponent is smaller by :func:`far_distance` or more.

    Parameters
    ----------
    form : Format
        f16 or bf16.
    swapped : bool
        Whether the larger one is the second operand.
    closer : int
        Begin so much closer: with 1 the proof must fail.
    """
    m = Module()
    dut, large, small = _operands(m, form, swapped)
    low, high = form.fraction, form.bits - 1
    exponent, other = large[low:high], small[low:high]
    m.d.comb += [
        Assume((exponent >= other + (far_distance(form) - closer)) & ~exponent.all()),
        Assert(dut.sum == large),
    ]
    return m, [large, small]


def special_spec(form: Format) -> tuple[Module, list[Any]]:
    """Add infinities and NaNs, to anything."""
    m = Module()
    dut, a, b = _operands(m, form, False)
    high = form.bits - 1
    infinite = [bits[:high] == form.infinity for bits in (a, b)]
    nan = any_of(bits[:high] > form.infinity for bits in (a, b))
    is_nan = nan | (infinite[0] & infinite[1] & (a[-1] ^ b[-1]))
    m.d.comb += [
        Assume(nan | infinite[0] | infinite[1]),
        Assert(dut.sum == Mux(is_nan, form.nan, Mux(infinite[0], a, b))),
    ]
    return m, [a, b]
