# SPDX-License-Identifier: Apache-2.0
"""One element of a reduction: every type and every operation."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..flits import DType, ReduceOp
from .adder import MAX_STAGES, MODE, Fp32Adder
from .convert import Fp16To32, Fp32To16, scaled_to_32

__all__ = ["OPERATION", "ReduceLane", "delayed", "is_f16", "operation_of"]

OPERATION = data.StructLayout({"mode": MODE, "op": ReduceOp})
"""What the lanes do with their operands, once these are 32 bits wide."""


def is_f16(dtype: Value) -> Value:
    """Whether the 16-bit elements of a type are f16, not bf16; any value for the other types."""
    return ~dtype[0]


def operation_of(m: Module, dtype: Value, op: Value, first: Value) -> data.View:
    """Decode type and operation for all lanes; combinational."""
    operation = Signal(OPERATION)
    mode = operation.mode
    # Integers are compared, and handed through when they are the first, like floats; what only
    # they have is computed beside the adder.
    floating = (dtype == DType.F32) | (dtype[2:] != 0)
    compares = (op == ReduceOp.MIN) | (op == ReduceOp.MAX)
    m.d.comb += [
        operation.op.eq(op),
        mode.first.eq(first),
        mode.pick.eq(first | compares),
        mode.minimum.eq(op == ReduceOp.MIN),
        mode.floating.eq(floating),
        mode.unsigned.eq(dtype == DType.U32),
        mode.bypass.eq(~floating & ~first & ~compares),
    ]
    return operation


def delayed(m: Module, value: Value, cycles: int, name: str) -> Value:
    """`value` of so many cycles before, from registers without reset."""
    for cycle in range(cycles):
        register = Signal(len(value), name=f"{name}_{cycle}", reset_less=True)
        m.d.sync += register.eq(value)
        value = register
    return value


class ReduceLane(wiring.Component):
    """Computes ``acc = op(acc, part)`` on one element of any type.

    Operands of 16 bits become f32 in the first cycle, without rounding, and the sum is f32. If the
    sum is to be f16 again, all numbers are taken times 2**-112 (:func:`scaled_to_32`), so that
    nothing has to be normalised on the way from the RAM. Sums that are to be of 16 bits are rounded
    a second time. That is the same as one rounding of the
    exact sum: f32 has 24 bits, f16 11 and bf16 8, and for sums of two numbers of *p* bits a first
    rounding to ``2p + 2`` bits or more does no harm (Figueroa 1995). It holds for results that are
    subnormal in 16 bits too: they are multiples of the last place of their operands, hence exact.
    The second rounding of a minimum or maximum changes nothing.

    Parameters
    ----------
    stages : int
        Registers inside the adder, 1 to 4.
    words : bool
        Whether there are 32-bit integers; without, only floats.

    Members
    -------
    part_word, acc_word : In(32)
        Operands of 32 bits.
    part_half, acc_half : In(16)
        Operands of 16 bits.
    take_part_word, take_acc_word : In(1)
        Which of both is taken.
    f16 : In(1)
        Operands of 16 bits are f16, else bf16.
    scaled : In(1)
        F16 numbers are taken times 2**-112. ``acc_half`` always is.
    operation : In(:data:`OPERATION`)
        What to do; *one cycle after* the operands.
    result_f16, result_scaled : In(1)
        ``half`` is to be f16, else bf16, and the sum is scaled; in the cycle of the result.
    word : Out(32)
        The result.
    half : Out(16)
        The result rounded to 16 bits.

    Timing
    ------
    ``word`` comes out of a register ``1 + stages`` cycles after the operands. ``half`` is
    combinational from it. The operands go through a multiplexer and a conversion into a register.

    Reset
    -----
    The registers have none.
    """

    def __init__(self, *, stages: int, words: bool) -> None:
        if stages not in range(1, MAX_STAGES + 1):
            raise ValueError(f"`stages` must be 1 to {MAX_STAGES}, not {stages!r}")
        self._adder = Fp32Adder(stages=stages, modes=True)
        self._words = words
        super().__init__(
            {
                "part_word": In(32),
                "acc_word": In(32),
                "part_half": In(16),
                "acc_half": In(16),
                "take_part_word": In(1),
                "take_acc_word": In(1),
                "f16": In(1),
                "scaled": In(1),
                "operation": In(OPERATION),
                "result_f16": In(1),
                "result_scaled": In(1),
                "word": Out(32),
                "half": Out(16),
            }
        )

    @property
    def stages(self) -> int:
        """Registers inside the adder."""
        return self._adder.stages

    @property
    def words(self) -> bool:
        """Whether there are 32-bit integers."""
        return self._words

    @property
    def latency(self) -> int:
        """Cycles from the operands to the result."""
        return 1 + self.stages

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        m.submodules.adder = adder = self._adder
        m.submodules.part_to_f32 = part_to_f32 = Fp16To32()
        m.submodules.to_half = to_half = Fp32To16()

        part = Signal(32, reset_less=True)
        acc = Signal(32, reset_less=True)
        m.d.comb += [
            part_to_f32.i.eq(self.part_half),
            part_to_f32.f16.eq(self.f16),
        ]
        part_half = Mux(
            self.f16 & self.scaled, scaled_to_32(self.part_half, self.f16), part_to_f32.o
        )
        acc_half = scaled_to_32(self.acc_half, self.f16)
        m.d.sync += [
            part.eq(Mux(self.take_part_word, self.part_word, part_half)),
            acc.eq(Mux(self.take_acc_word, self.acc_word, acc_half)),
        ]

        mode = self.operation.mode
        m.d.comb += [
            adder.a.eq(acc),
            adder.b.eq(part),
            adder.mode.eq(mode),
        ]
        if self._words:
            op = self.operation.op
            bits = Mux(
                op == ReduceOp.AND, acc & part, Mux(op == ReduceOp.OR, acc | part, acc ^ part)
            )
            m.d.comb += adder.value.eq(Mux(op == ReduceOp.ADD, acc + part, bits))
        else:
            m.d.comb += [
                adder.mode.floating.eq(1),
                adder.mode.unsigned.eq(0),
                adder.mode.bypass.eq(0),
            ]

        m.d.comb += [
            self.word.eq(adder.sum),
            to_half.i.eq(adder.sum),
            to_half.f16.eq(self.result_f16),
            to_half.scaled.eq(self.result_scaled),
            self.half.eq(to_half.o),
        ]
        return m
