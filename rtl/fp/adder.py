# SPDX-License-Identifier: Apache-2.0
"""Adder of f32 numbers that can also pick one of its operands or hand a value through."""

from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import any_of, prefix_or, tree

__all__ = ["F32", "MAX_STAGES", "MODE", "Fp32Adder", "increment", "leading_zeros"]

F32 = data.StructLayout({"fraction": 23, "exponent": 8, "sign": 1})

MODE = data.StructLayout(
    {"pick": 1, "first": 1, "minimum": 1, "floating": 1, "unsigned": 1, "bypass": 1}
)
"""What an adder with modes does; all 0 but ``floating`` is addition.

``pick``: the result is one of the operands: with ``first`` always *b*, else the smaller one with
``minimum``, else the larger one. ``floating``: they are f32, else 32-bit integers, with
``unsigned`` or two's complement. ``bypass``: the result is ``value``; ``floating`` must be 0.
"""

_CUTS: dict[int, tuple[str, ...]] = {
    0: (),
    1: ("sum",),
    2: ("aligned", "sum"),
    3: ("aligned", "counted", "sum"),
    4: ("swapped", "aligned", "counted", "sum"),
}
MAX_STAGES = max(_CUTS)

_EXTRA = 3  # guard, round and sticky bit behind the significand
_SIGNIFICAND = 24
_WIDE = 1 + _SIGNIFICAND + _EXTRA  # with the carry in front


class Fp32Adder(wiring.Component):
    """Adds two IEEE 754 binary32 numbers, rounded to nearest, ties to even.

    Subnormal operands and results are kept. A NaN result is 0x7FC00000, whichever NaN went in.
    The sum of opposite zeros, and of a number and its opposite, is +0.

    One path serves all operands. The larger one by magnitude stays, the other is shifted right to
    its exponent, with a guard, a round and a sticky bit behind; the difference is never negative.
    The sum is shifted left until its first one, or the exponent 1 of subnormal results, is at the
    top.

    Whatever is not a sum (NaN, infinity, a picked operand, a value handed through) takes the same
    path as a number with a one before the fraction to which 0 is added: nothing of it changes.

    Parameters
    ----------
    stages : int
        Registers on the way, 0 to 4; 0 makes it combinational.
    modes : bool
        Whether it does more than add: ``mode`` and ``value`` are there.

    Members
    -------
    a, b : In(32)
        Operands.
    mode : In(:data:`MODE`)
        What to do.
    value : In(32)
        The result with ``mode.bypass``.
    sum : Out(32)
        The result.

    Timing
    ------
    ``sum`` belongs to the operands of `stages` cycles before; with 1 or more it comes out of a
    register. One result a cycle.

    Reset
    -----
    The registers have none.

    Area
    ----
    See ``docs/fp.md``.
    """

    def __init__(self, *, stages: int = 0, modes: bool = False) -> None:
        if stages not in _CUTS:
            raise ValueError(f"`stages` must be 0 to {MAX_STAGES}, not {stages!r}")
        self._stages = stages
        self._modes = modes
        members = {"a": In(32), "b": In(32), "sum": Out(32)}
        if modes:
            members |= {"mode": In(MODE), "value": In(32)}
        super().__init__(members)

    @property
    def stages(self) -> int:
        """Registers on the way."""
        return self._stages

    @property
    def modes(self) -> bool:
        """Whether it does more than add."""
        return self._modes

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        swapped = self._cut(m, "swapped", **self._swap(m))
        aligned = self._cut(m, "aligned", **self._align(m, swapped))
        counted = self._cut(m, "counted", **self._add(m, aligned))
        result = self._cut(m, "sum", bits=self._round(m, counted))
        m.d.comb += self.sum.eq(result.bits)
        return m

    def _cut(self, m: Module, point: str, **values: Value) -> SimpleNamespace:
        """Put registers behind `values`, if there is a cut at this point."""
        if point not in _CUTS[self._stages]:
            return SimpleNamespace(**values)
        registers = {
            name: Signal(len(value), name=f"{point}_{name}", reset_less=True)
            for name, value in values.items()
        }
        m.d.sync += [register.eq(values[name]) for name, register in registers.items()]
        return SimpleNamespace(**registers)

    def _swap(self, m: Module) -> dict[str, Value]:
        """Find the operand that stays and how far the other one must move."""
        a, b = data.View(F32, self.a), data.View(F32, self.b)
        if self._modes:
            mode = self.mode
        else:
            mode = Signal(MODE, init={"floating": 1})  # nothing drives it

        less, equal = _compare(self.a[:31], self.b[:31])
        # The exponents alone are known to be less earlier than the operands.
        less_exponent, _ = _compare(a.exponent, b.exponent)
        ones_a, ones_b = a.exponent.all(), b.exponent.all()
        nan_a = Signal()
        nan_b = Signal()
        differ = a.sign ^ b.sign
        nan = Signal()
        m.d.comb += [
            nan_a.eq(ones_a & a.fraction.any() & mode.floating),
            nan_b.eq(ones_b & b.fraction.any() & mode.floating),
            nan.eq(
                Mux(
                    mode.pick,
                    (nan_a | mode.first) & nan_b,
                    nan_a | nan_b | (ones_a & ones_b & differ & mode.floating),
                )
            ),
        ]
        # Below the sign the order of magnitudes is that of the bits. Among equals any will do.
        by_magnitude = Signal()
        inverted = Signal()
        fixed = Signal()
        with m.If(~mode.pick):
            m.d.comb += by_magnitude.eq(1)
        with m.Elif(mode.first | nan_a):
            m.d.comb += fixed.eq(1)
        with m.Elif(~nan_b):
            m.d.comb += [
                by_magnitude.eq(~differ),
                inverted.eq(mode.minimum ^ (a.sign & mode.floating)),
                fixed.eq(b.sign ^ ~mode.minimum ^ mode.unsigned),
            ]
        swap = Signal()
        m.d.comb += swap.eq(Mux(by_magnitude, less ^ inverted, fixed))

        # Subnormal numbers have no one before the fraction and the weight of exponent 1: at
        # exponent 0 they are twice their fraction.
        normal_a, normal_b = a.exponent.any(), b.exponent.any()
        significand_a = Mux(normal_a, Cat(a.fraction, 1), Cat(0, a.fraction))
        significand_b = Mux(normal_b, Cat(b.fraction, 1), Cat(0, b.fraction))
        distance = Signal(8)
        m.d.comb += distance.eq(
            Mux(less_exponent, b.exponent - a.exponent, a.exponent - b.exponent)
        )

        alone = Signal()  # nothing is added
        large = Signal(_SIGNIFICAND)
        small = Signal(_SIGNIFICAND)
        m.d.comb += [
            alone.eq(mode.pick | mode.bypass | ones_a | ones_b),
            large.eq(Mux(swap, significand_b, significand_a)),
            small.eq(Mux(swap, significand_a, significand_b) & ~alone.replicate(_SIGNIFICAND)),
        ]
        subtract = Signal()
        m.d.comb += subtract.eq(differ & ~alone)
        sign = Mux(swap, b.sign, a.sign) & ~(subtract & equal) & ~nan
        exponent = Mux(swap, b.exponent, a.exponent) | nan.replicate(8)
        normal = Mux(swap, normal_b, normal_a)
        large = (large & ~nan.replicate(_SIGNIFICAND)) | Cat(Const(0, 22), nan, nan)
        if self._modes:
            value = data.View(F32, self.value)
            sign = Mux(mode.bypass, value.sign, sign)
            exponent = Mux(mode.bypass, value.exponent, exponent)
            large = Mux(mode.bypass, Cat(value.fraction, 1), large)
            normal |= mode.bypass
        return {
            "sign": sign,
            "exponent": exponent,
            "normal": normal,
            "large": large,
            "small": small,
            "distance": distance,
            "subtract": subtract,
        }

    def _align(self, m: Module, s: SimpleNamespace) -> dict[str, Value]:
        """Shift the smaller operand; what falls out behind is kept as one sticky bit."""
        shifted: Value = Cat(Const(0, 2), s.small)
        lost: list[Value] = []
        far = any_of(s.distance[5:])
        for bit in reversed(range(5)):
            step = 1 << bit
            move = s.distance[bit]
            lost.append(shifted[:step].any() & move)
            stage = Signal(len(shifted), name=f"aligned_by_{step}")
            m.d.comb += stage.eq(Mux(move, shifted >> step, shifted))
            shifted = stage
        near = Signal(len(shifted))
        m.d.comb += near.eq(shifted & ~far.replicate(len(shifted)))
        sticky = any_of(lost) | (far & s.small.any())
        return {
            "sign": s.sign,
            "exponent": s.exponent,
            "normal": s.normal,
            "large": s.large,
            "small": Cat(sticky, near),
            "subtract": s.subtract,
        }

    def _add(self, m: Module, s: SimpleNamespace) -> dict[str, Value]:
        """Add or subtract, and count how far the sum must move to the left."""
        inverse = s.small ^ s.subtract.replicate(len(s.small))
        low = Signal(_EXTRA + 1)
        high = Signal(_SIGNIFICAND + 1)
        total = Signal(_WIDE)
        m.d.comb += [
            low.eq(inverse[:_EXTRA] + s.subtract),
            high.eq(s.large + inverse[_EXTRA:] + (s.subtract & ~any_of(s.small[:_EXTRA]))),
            # A difference has no carry in front: what stands there is the missing borrow.
            total.eq(Cat(low[:_EXTRA], high[:-1], high[-1] & ~s.subtract)),
        ]
        # A one where exponent 1 is reached stops the count; that is the top for exponent 0.
        stop = Signal(_WIDE)
        m.d.comb += stop.eq(
            Cat(
                *(s.exponent == _WIDE - 1 - place for place in range(_WIDE - 1)),
                ~s.normal,
            )
        )
        ends = total | stop
        counts, nones = zip(
            *(leading_zeros(ends[max(top - 8, 0) : top]) for top in range(_WIDE, 0, -8)),
            strict=True,
        )
        return {
            "sign": s.sign,
            "exponent": (s.exponent + 1)[:8],
            "total": total,
            "moves": Cat(
                ends[-1] & (s.exponent != 254),
                ~ends[-1] & ends[-2],
                ~ends[-1] & ~ends[-2] & ends[-3],
            ),
            "counts": Cat(Cat(count, Const(0, 3 - len(count))) for count in counts),
            "none_0": nones[0],
            "none_01": nones[0] & nones[1],
            "none_2": nones[2],
            "overflow": total[-1] & (s.exponent == 254),
        }

    def _round(self, m: Module, s: SimpleNamespace) -> Value:
        """Round the sum and shift it to the left.

        Only sums that move by 0, 1 or 2 places have anything behind the fraction: of a difference
        that loses more, the operands were at most one place apart. So it is known early where to
        round, it is done before the shift, and subnormal results, which are exact, never are.
        """
        total = s.total
        moves = s.moves
        ups = [
            move & total[last - 1] & (total[: last - 1].any() | total[last])
            for move, last in zip(moves, range(_EXTRA + 1, 1, -1), strict=True)
        ]
        # The carry into the places that all three have, and from there the ones it runs through.
        carry = Signal()
        m.d.comb += carry.eq(ups[0] | (total[3] & (ups[1] | (total[2] & ups[2]))))
        ones = Cat(Const(1, 1), ~prefix_or(~total[_EXTRA + 1 :]))
        flips = Cat(ups[2], ups[1] | (ups[2] & total[2]), ones[:-1] & carry.replicate(24))
        carry_out = Signal()
        top = _SIGNIFICAND - 2
        m.d.comb += carry_out.eq(
            carry & ones[top] & (moves[2] | (total[-2] & (moves[1] | total[-1])))
        )
        # The first of the four parts of the sum that has a one.
        parts = [s.counts.word_select(part, 3) for part in range(4)]
        count = Signal(5)
        m.d.comb += count.eq(
            Mux(
                s.none_01,
                Cat(Mux(s.none_2, parts[3], parts[2]), s.none_2, 1),
                Cat(Mux(s.none_0, parts[1], parts[0]), s.none_0, 0),
            )
        )
        masked = Cat(total[2:-1] & ~s.overflow.replicate(_WIDE - 3), total[-1])
        shifted: Value = masked ^ flips
        for bit in reversed(range(len(count))):
            step = 1 << bit
            stage = Signal(len(shifted), name=f"moved_by_{step}")
            m.d.comb += stage.eq(Mux(count[bit], shifted << step, shifted))
            shifted = stage
        # A carry out of the top leaves nothing of the number but its exponent.
        normal = shifted[-1] | carry_out
        exponent = Signal(8)
        m.d.comb += exponent.eq(
            Mux(carry_out, s.exponent + 1 - count, s.exponent - count) & normal.replicate(8)
        )
        return Cat(shifted[2:-1], exponent, s.sign)


def _compare(a: Value, b: Value) -> tuple[Value, Value]:
    """Return whether ``a < b`` and whether ``a == b``, of unsigned numbers of the same width."""
    pairs = [(~x & y, ~(x ^ y)) for x, y in zip(reversed(a), reversed(b), strict=True)]
    return tree(pairs, lambda high, low: (high[0] | (high[1] & low[0]), high[1] & low[1]))


def increment(value: Value, up: Value) -> Value:
    """Add one bit, without the carry out; `up` may be late."""
    # Written as a prefix, since a carry chain stays one in the mapping.
    ones = ~prefix_or(~value)
    return value ^ (Cat(Const(1, 1), ones[:-1]) & up.replicate(len(value)))


def leading_zeros(value: Value) -> tuple[Value, Value]:
    """Count the zeros before the first one, from the top; and whether all bits are zero.

    The count of no ones at all is not defined.
    """
    width = len(value)
    if width == 1:
        return Const(0, 0), ~value
    half = 1 << (width - 1).bit_length() - 1
    if half == width:
        half //= 2
    # The upper part has a power of two of bits, so that the counts need no addition.
    upper, none_upper = leading_zeros(value[-half:])
    lower, none_lower = leading_zeros(value[:-half])
    if not len(upper):  # no multiplexer of no bits: Verilog has none
        return none_upper, none_upper & none_lower
    padded = Cat(lower, Const(0, len(upper) - len(lower)))
    return Cat(Mux(none_upper, padded, upper), none_upper), none_upper & none_lower
