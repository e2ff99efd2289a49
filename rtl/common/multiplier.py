# SPDX-License-Identifier: Apache-2.0
"""Pipelined multiplier of unsigned numbers, one product a cycle."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Multiplier"]


class Multiplier(wiring.Component):
    """``a * b`` plus further numbers, in its low bits.

    The partial products and the addends are summed up by levels of carry-save adders; the two
    numbers that are left are added in segments, each for a carry of 0 and of 1.

    Parameters
    ----------
    a_bits, b_bits : int
        Bits of the factors. The smaller one should be `a`: it has a partial product a bit.
    addend_bits : sequence of int
        Bits of each number that is added.
    out_bits : int, optional
        Low bits of the result that are computed; by default so many that nothing is lost of
        the product.
    levels : int
        Levels of carry-save adders between registers.
    segment : int
        Bits of a segment of the last addition.

    Members
    -------
    a, b : In
        Factors.
    addend : In, one per addend
        What is added: members ``addend0``, ``addend1`` and so on.
    out : Out(out_bits)
        Low bits of the result.

    Timing
    ------
    ``out`` follows the inputs by :attr:`latency` cycles. There is no reset: nothing is valid until
    the first inputs came through.
    """

    def __init__(
        self,
        a_bits: int,
        b_bits: int,
        *,
        addend_bits: Sequence[int] = (),
        out_bits: int | None = None,
        levels: int = 3,
        segment: int = 16,
    ) -> None:
        for name, value in (
            ("a_bits", a_bits),
            ("b_bits", b_bits),
            ("levels", levels),
            ("segment", segment),
            *((f"addend_bits[{i}]", bits) for i, bits in enumerate(addend_bits)),
            *((("out_bits", out_bits),) if out_bits is not None else ()),
        ):
            if value < 1:
                raise ValueError(f"`{name}` must be 1 or more, not {value!r}")
        self._levels = levels
        self._segment = segment
        self._addends = len(addend_bits)
        self._bits = a_bits + b_bits if out_bits is None else out_bits
        self._rows = min(a_bits, self._bits) + len(addend_bits)
        members = {"a": In(a_bits), "b": In(b_bits), "out": Out(self._bits)}
        members |= {f"addend{i}": In(bits) for i, bits in enumerate(addend_bits)}
        super().__init__(members)

    @property
    def latency(self) -> int:
        """Cycles from the inputs to ``out``."""
        rows, depth = self._rows, 0
        while rows > 2:
            rows -= rows // 3
            depth += 1
        return max(1, -(-depth // self._levels)) + 2

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        rows: list[Value] = [
            Cat(Const(0, shift), self.b & bit.replicate(len(self.b)))[: self._bits]
            if shift
            else (self.b & bit.replicate(len(self.b)))[: self._bits]
            for shift, bit in enumerate(self.a)
            if shift < self._bits
        ]
        rows += [getattr(self, f"addend{i}")[: self._bits] for i in range(self._addends)]
        stage = depth = 0
        while True:
            if len(rows) <= 2 or (depth and depth % self._levels == 0):
                rows = self._registered(m, rows, f"rows{stage}")
                stage += 1
            if len(rows) <= 2:
                break
            rows = self._compressed(m, rows, f"level{depth}")
            depth += 1
        self._add(m, rows)
        return m

    def _registered(self, m: Module, rows: list[Value], name: str) -> list[Value]:
        """Put the rows into registers."""
        held: list[Value] = []
        for number, row in enumerate(rows):
            register = Signal(len(row), name=f"{name}_{number}", reset_less=True)
            m.d.sync += register.eq(row)
            held.append(register)
        return held

    def _compressed(self, m: Module, rows: list[Value], name: str) -> list[Value]:
        """Make two rows out of every three."""
        made: list[Value] = []
        whole = len(rows) // 3 * 3
        for number in range(0, whole, 3):
            inputs = []
            bits = max(len(row) for row in rows[number : number + 3])
            for place, row in enumerate(rows[number : number + 3]):
                # Named once, or the expressions below it would be written out anew at each use.
                taken = Signal(bits, name=f"{name}_{number + place}")
                m.d.comb += taken.eq(row)
                inputs.append(taken)
            a, b, c = inputs
            made.append(a ^ b ^ c)
            carry = (a & b) | (a & c) | (b & c)
            made.append(Cat(Const(0, 1), carry)[: self._bits])
        return made + rows[whole:]

    def _add(self, m: Module, rows: list[Value]) -> None:
        """Add the last two rows: segments first, then their carries."""
        one = Cat(rows[0], Const(0, self._bits))[: self._bits]
        other = Cat(rows[1], Const(0, self._bits))[: self._bits] if len(rows) > 1 else Const(0, 1)
        other = Cat(other, Const(0, self._bits))[: self._bits]
        carry: Value = Const(0, 1)
        parts = []
        for low in range(0, self._bits, self._segment):
            high = min(low + self._segment, self._bits)
            bits = high - low
            plain = Signal(bits + 1, name=f"plain{low}", reset_less=True)
            m.d.sync += plain.eq(one[low:high] + other[low:high])
            if not low:
                parts.append(plain[:bits])
                carry = plain[bits]
                continue
            more = Signal(bits + 1, name=f"more{low}", reset_less=True)
            m.d.sync += more.eq(one[low:high] + other[low:high] + Const(1, 1))
            chosen = Signal(name=f"carry{low}")
            m.d.comb += chosen.eq(carry)
            parts.append(Mux(chosen, more[:bits], plain[:bits]))
            carry = plain[bits] | (more[bits] & chosen)
        total = Signal(self._bits, reset_less=True)
        m.d.sync += total.eq(Cat(parts))
        m.d.comb += self.out.eq(total)
