# SPDX-License-Identifier: Apache-2.0
"""The contract of reductions in exact integer arithmetic, one element at a time.

It shares nothing with ``golden/numerics.py`` or the RTL: a finite number is an integer, in units of
the last place of the smallest f32, and every result is the exact one, rounded once.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

from dysharp.golden.arrays import value_of
from dysharp.rtl.flits import LANES, TO_F32, WIDE, DType, ReduceOp

__all__ = [
    "BF16",
    "F16",
    "F32",
    "Format",
    "Member",
    "add",
    "convert",
    "element_format",
    "flit_step",
    "pick",
    "step",
]

Member: TypeAlias = Any
"""Of `DType` or `ReduceOp`; checkers take the members of Amaranth's enums for integers."""

_UNIT = -149  # of all values here, as a power of two


@dataclass(frozen=True)
class Format:
    """A binary format of IEEE 754: `bits` in all, `fraction` of them behind the exponent."""

    bits: int
    fraction: int

    @property
    def exponents(self) -> int:
        """Exponent field of infinity."""
        return (1 << self.bits - self.fraction - 1) - 1

    @property
    def infinity(self) -> int:
        """Positive infinity."""
        return self.exponents << self.fraction

    @property
    def nan(self) -> int:
        """The canonical NaN."""
        return self.infinity | 1 << self.fraction - 1

    @property
    def last_place(self) -> int:
        """Weight of the last bit of a subnormal number, as a power of two."""
        return 1 - self.exponents // 2 - self.fraction

    def negative(self, bits: int) -> bool:
        """Whether the sign is set."""
        return bool(bits >> self.bits - 1)

    def magnitude(self, bits: int) -> int:
        """All but the sign."""
        return bits & (1 << self.bits - 1) - 1

    def is_nan(self, bits: int) -> bool:
        """Whether it is any NaN."""
        return self.magnitude(bits) > self.infinity

    def value(self, bits: int) -> int:
        """Value of a finite number, as a multiple of the unit; infinity is beyond all others."""
        exponent, fraction = divmod(self.magnitude(bits), 1 << self.fraction)
        if exponent:
            fraction |= 1 << self.fraction
        exact = fraction << max(exponent, 1) - 1 + self.last_place - _UNIT
        return -exact if self.negative(bits) else exact

    def rounded(self, exact: int, negative: bool) -> int:
        """Round to nearest, ties to even; the sign is told for zeros."""
        size = abs(exact)
        drop = max(size.bit_length() - self.fraction - 1, self.last_place - _UNIT)
        kept, rest = divmod(size, 1 << drop)
        half = 1 << drop >> 1
        kept += rest > half or (rest == half and half > 0 and kept % 2 == 1)
        # `kept` has a one at `fraction` or above unless it is subnormal: that one adds 1 to the
        # exponent field, and a carry of the rounding another one.
        bits = kept + (drop - (self.last_place - _UNIT) << self.fraction)
        sign = exact < 0 if exact else negative
        return min(bits, self.infinity) | sign << self.bits - 1


F32, F16, BF16 = Format(32, 23), Format(16, 10), Format(16, 7)


def element_format(dtype: Member) -> Format | None:
    """Format of the elements of a part; None for integers."""
    if dtype is DType.F32:
        return F32
    if dtype in (DType.F16, DType.F16_ACC32, DType.F16_TO_F32):
        return F16
    return BF16 if value_of(dtype) > value_of(DType.F32) else None


def convert(source: Format, target: Format, bits: int) -> int:
    """Convert to another format."""
    if source.is_nan(bits):
        return target.nan
    if source.magnitude(bits) == source.infinity:
        return target.infinity | source.negative(bits) << target.bits - 1
    return target.rounded(source.value(bits), source.negative(bits))


def add(form: Format, a: int, b: int) -> int:
    """Add two numbers of one format."""
    if form.is_nan(a) or form.is_nan(b):
        return form.nan
    infinities = {bits for bits in (a, b) if form.magnitude(bits) == form.infinity}
    if infinities:
        return form.nan if len(infinities) > 1 else infinities.pop()
    return form.rounded(form.value(a) + form.value(b), form.negative(a) and form.negative(b))


def pick(form: Format, op: Member, a: int, b: int) -> int:
    """Return minimumNumber or maximumNumber of two numbers."""
    numbers = [bits for bits in (a, b) if not form.is_nan(bits)]
    if not numbers:
        return form.nan
    ordered = sorted(numbers, key=lambda bits: (form.value(bits), not form.negative(bits)))
    return ordered[0 if op is ReduceOp.MIN else -1]


def _integer(dtype: Member, op: Member, a: int, b: int) -> int:
    if op is ReduceOp.ADD:
        return a + b & 0xFFFFFFFF
    if op in (ReduceOp.AND, ReduceOp.OR, ReduceOp.XOR):
        return {ReduceOp.AND: a & b, ReduceOp.OR: a | b, ReduceOp.XOR: a ^ b}[op]
    flip = 1 << 31 if dtype is DType.S32 else 0
    choose = min if op is ReduceOp.MIN else max
    return choose(a ^ flip, b ^ flip) ^ flip


def step(dtype: Member, op: Member, form: Format | None, acc: int | None, part: int) -> int:
    """One step of one element; without `acc` the first one."""
    if form is None:
        return part if acc is None else _integer(dtype, op, acc, part)
    if acc is None:
        return form.nan if form.is_nan(part) else part
    return add(form, acc, part) if op is ReduceOp.ADD else pick(form, op, acc, part)


def _split(word: int, width: int, count: int) -> list[int]:
    return [word >> width * place & (1 << width) - 1 for place in range(count)]


def _join(items: list[int], width: int) -> int:
    return sum(item << width * place for place, item in enumerate(items))


def flit_step(
    dtype: Member, op: Member, *, first: bool, from_f32: bool, half: int, flit: int, acc: int
) -> tuple[int, int | None]:
    """Return ``sum`` and ``result`` of a vector for one flit; None where undefined."""
    form = element_format(dtype)
    wide = dtype in WIDE
    if wide:
        assert form is not None
        if from_f32:
            parts = _split(flit, 32, 4)
            sums = _split(acc >> 128 * half, 32, 4)
        else:
            parts = [convert(form, F32, bits) for bits in _split(flit, 16, LANES)]
            sums = _split(acc, 32, LANES)
        news = [
            step(dtype, op, F32, None if first else old, part)
            for old, part in zip(sums, parts, strict=True)
        ]
        word = _join(news, 32)
        rounded = _join([convert(F32, form, new) for new in news], 16)
        if from_f32:
            word |= word << 128
            rounded |= rounded << 64
        return word, None if dtype in TO_F32 else rounded
    width = form.bits if form else 32
    count = 128 // width
    news = [
        step(dtype, op, form, None if first else old, part)
        for old, part in zip(
            _split(acc >> 128 * half, width, count), _split(flit, width, count), strict=True
        )
    ]
    word = _join(news, width)
    return word | word << 128, word
