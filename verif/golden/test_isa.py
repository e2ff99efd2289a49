# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from dysharp.golden.isa import IsaError, accesses_of, parse
from dysharp.rtl.flits import DType, Opcode, Order, ReduceOp


def test_isa_store() -> None:
    text = "dymultimem.st.v4.f32.list::shared [0x10000+16], {1.0, -2, 0f40400000, 4e0}, 8, [0x42];"
    (instruction,) = parse(text)
    access = instruction.access
    assert access["opcode"] == Opcode.DY_ST.value
    assert (access["size"], access["address"]) == (2, 0x10010)
    assert (access["count"], access["shared"], access["list"]) == (8, 1, 0x42)
    assert access["data"].tolist() == [0xC0000000_3F800000, 0x40800000_40400000]
    assert instruction.registers == ()


def test_isa_load() -> None:
    text = """
    // Combine, as rounded once at the end.
    dymultimem.ld_reduce.relaxed.sys.global.add.acc::f32.v8.bf16.canonical
        {a, b, c, d, e, f, g, %r7}, [0x20000], 12, [0x40]; /* two
    lines */ multimem.ld_reduce.and.b32 x, [4], 3;
    """
    first, second = parse(text, first_rd=0xFFFF)
    assert first.registers == ("a", "b", "c", "d", "e", "f", "g", "%r7")
    assert (first.line, second.line) == (3, 5)
    access = first.access
    assert access["opcode"] == Opcode.DY_LD_REDUCE.value
    assert access["dtype"] == DType.BF16_ACC32.value
    assert access["order"] == Order.CANONICAL.value
    assert (access["rd"], access["shared"]) == (0xFFFF, 0)
    access = second.access
    assert access["opcode"] == Opcode.MM_LD_REDUCE.value
    assert (access["dtype"], access["op"]) == (DType.B32.value, ReduceOp.AND.value)
    assert (access["rd"], access["size"], access["count"]) == (0, 0, 3)


@pytest.mark.parametrize(
    ("kind", "vector", "bits"),
    [
        (kind, vector, bits * (vector or 1))
        for kind, bits in {"b32": 32, "u64": 64, "f16": 16, "bf16x2": 32, "f64": 64}.items()
        for vector in (0, 2, 4, 8)
        if bits * (vector or 1) in (32, 64, 128)
    ],
)
def test_isa_sizes(kind: str, vector: int, bits: int) -> None:
    data = ", ".join(["1"] * (vector or 1))
    vec = f".v{vector}" if vector else ""
    accesses = accesses_of(f"multimem.st.release.gpu{vec}.{kind}.posted.last [0], {{{data}}}, 1;")
    assert accesses["size"][0] == (32, 64, 128).index(bits)
    assert accesses["posted"][0] == accesses["last"][0] == 1


@pytest.mark.parametrize(
    ("kind", "text", "bits"),
    [
        ("f16", "1.5", 0x3E00),
        ("f16", "1e9", 0x7C00),
        ("bf16", "1.0", 0x3F80),
        ("bf16", "1.00390625", 0x3F80),  # a tie, to even
        ("bf16", "1.01171875", 0x3F82),  # a tie, to even
        ("bf16", "1.00390626", 0x3F81),
        ("bf16", "1.0039062500001", 0x3F81),  # a tie only after rounding to f32
        ("bf16", "1.0117187499999", 0x3F81),
        ("bf16", "0x8000", 0x8000),
    ],
)
def test_isa_float_elements(kind: str, text: str, bits: int) -> None:
    accesses = accesses_of(f"multimem.st.v2.{kind} [0], {{{text}, 0}};")
    assert accesses["data"][0].tolist() == [bits, 0]


def test_isa_red_and_integers() -> None:
    accesses = accesses_of("multimem.red.min.v4.s32 [0x10], {-1, 0x7fffffff, 0, 1}, 2;")
    assert accesses["opcode"][0] == Opcode.MM_RED.value
    assert (accesses["dtype"][0], accesses["op"][0]) == (DType.S32.value, ReduceOp.MIN.value)
    assert accesses["data"][0].tolist() == [0x7FFFFFFF_FFFFFFFF, 1 << 32]
    assert len(accesses_of(" // nothing")) == 0
    assert accesses_of("multimem.st.f64 [8], 0d3ff0000000000000;")["data"][0, 0] == np.uint64(
        0x3FF << 52
    )


_ST = "dymultimem.st.f32 [4], 1.0, 1, [2];"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#", "line 1, column 1: unexpected '#'"),
        (f"{_ST}\n  foo.bar;", "line 2, column 3: unknown instruction 'foo.bar'"),
        ("multimem;", "line 1, column 1: unknown instruction 'multimem'"),
        ("dymultimem.red.add.f32", "line 1, column 1: unknown instruction 'dymultimem.red'"),
        ("multimem.st [0], 1;", "line 1, column 1: there is no type"),
        ("multimem.st.v3.f32 [0], 1;", "line 1, column 1: unknown qualifier .v3"),
        ("multimem.st.f32.u32 [0], 1;", "line 1, column 1: .f32 and .u32 cannot be together"),
        (
            "multimem.st.f16 [0], 1;",
            "line 1, column 1: an access has 32, 64 or 128 bits, not 16",
        ),
        ("multimem.st.add.f32 [0], 1;", "line 1, column 1: a store has no operation"),
        ("multimem.ld_reduce.f32 a, [0];", "line 1, column 1: there is no operation"),
        ("multimem.ld_reduce.add.f64 a, [0];", "line 1, column 1: there is no reduction of .f64"),
        (
            "multimem.ld_reduce.add.acc::f32.f32 a, [0];",
            "line 1, column 1: .acc::f32 is for .f16 and .bf16",
        ),
        ("multimem.ld_reduce.and.f32 a, [0];", "line 1, column 1: .f32 does not have .and"),
        ("multimem.ld_reduce.add.f32.posted a, [0];", "line 1, column 1: a load cannot be posted"),
        ("multimem.red.add.f32 [0], 1;", "line 1, column 1: a multimem.red has 128 bits"),
        (
            "multimem.st.f32.list::shared [0], 1;",
            "line 1, column 1: a static instruction has no list",
        ),
        ("multimem.st.f32 0, 1;", "line 1, column 17: expected '[', not '0'"),
        (
            "multimem.st.f32 [2], 1;",
            "line 1, column 17: the address must be a multiple of 4",
        ),
        ("multimem.st.f32 [x], 1;", "line 1, column 18: expected an address, not 'x'"),
        (
            "multimem.st.f32 [0x1000000000000], 1;",
            "line 1, column 18: an address must be 0 to 0xffffffffffff, not 0x1000000000000",
        ),
        (
            "multimem.st.f32 [0xfffffffffffc+4], 1;",
            "line 1, column 17: an address has 48 bits",
        ),
        (
            "multimem.st.f32 [1.5], 1;",
            "line 1, column 18: an address must be 0 to 0xffffffffffff, not 1.5",
        ),
        ("multimem.st.f32 [0], x;", "line 1, column 22: expected a number, not 'x'"),
        (
            "multimem.st.v2.f32 [0], {1};",
            "line 1, column 25: expected 2 elements, not 1",
        ),
        ("multimem.st.u32 [0], 1.5;", "line 1, column 22: 1.5 is no .u32"),
        (
            "multimem.st.u32 [0], 0x100000000;",
            "line 1, column 22: 0x100000000 has more than 32 bits",
        ),
        ("multimem.st.f32 [0], 0f12;", "line 1, column 22: 0f12 is no .f32"),
        ("multimem.st.f32 [0], 1", "line 1, column 23: expected ';', not 'end of the text'"),
        ("dymultimem.st.f32 [0], 1;", "line 1, column 25: expected ',', not ';'"),
        (
            "dymultimem.st.f32 [0], 1, 1, [3];",
            "line 1, column 30: the address of a list must be even",
        ),
        (
            "dymultimem.st.f32 [0], 1, 40000, [2];",
            "line 1, column 27: the number of targets must be 0 to 0x7fff, not 40000",
        ),
        ("/* open", "line 1, column 1: unexpected '/'"),
    ],
)
def test_isa_errors(text: str, message: str) -> None:
    with pytest.raises(IsaError) as caught:
        parse(text)
    assert str(caught.value) == message
    assert (f"line {caught.value.line}, column {caught.value.column}: ") in message
