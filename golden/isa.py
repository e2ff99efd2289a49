# SPDX-License-Identifier: Apache-2.0
"""PTX-style text of multimem and dymultimem instructions, parsed to accesses.

The syntax is PTX's for ``multimem``, with numbers in place of the registers that hold addresses,
data and counts; ``docs/queue.md`` has all of it. For example::

    dymultimem.st.v4.f32 [0x10000], {1.0, 2.0, 3.0, 4.0}, 8, [0x40];
    dymultimem.ld_reduce.add.v8.bf16.acc::f32 {a, b, c, d, e, f, g, h}, [0x20000], 8, [0x40];
    multimem.red.add.v4.f32 [0x3000], {1.0, 1.0, 1.0, 1.0}, 2;
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..rtl.flits import REDUCTIONS, DType, Opcode, Order, ReduceOp
from .arrays import value_of
from .queue import ACCESS

__all__ = ["Instruction", "IsaError", "accesses_of", "parse"]


class IsaError(ValueError):
    """Text that is no instruction.

    Parameters
    ----------
    line, column : int
        Where, counted from 1.
    message : str
        What is wrong, in one line.
    """

    def __init__(self, line: int, column: int, message: str) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.line = line
        self.column = column
        self.message = message


@dataclass(frozen=True)
class Instruction:
    """An instruction and the access that it is.

    Attributes
    ----------
    access : ndarray
        A record of :data:`~dysharp.golden.queue.ACCESS`.
    registers : tuple of str
        Destinations of a load, one for each element; otherwise none.
    line : int
        Where it begins, counted from 1.
    """

    access: np.void
    registers: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    line: int
    column: int


_TOKENS = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*|/\*.*?\*/)
  | (?P<number>[-+]?(?:0[xX][0-9a-fA-F]+|0[fFdD][0-9a-fA-F]+(?![\w.])
      |(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d+(?:[eE][-+]?\d+)?)(?![\w.]))
  | (?P<word>[%$A-Za-z_][\w$]*(?:\.\w+(?:::\w+)?)*)
  | (?P<mark>[\[\]{},;+])
    """,
    re.VERBOSE | re.DOTALL,
)
_KINDS = {
    "multimem.st": Opcode.MM_ST,
    "multimem.ld_reduce": Opcode.MM_LD_REDUCE,
    "multimem.red": Opcode.MM_RED,
    "dymultimem.st": Opcode.DY_ST,
    "dymultimem.ld_reduce": Opcode.DY_LD_REDUCE,
}
_BITS = {
    "b32": 32,
    "u32": 32,
    "s32": 32,
    "f32": 32,
    "b64": 64,
    "u64": 64,
    "s64": 64,
    "f64": 64,
    "f16": 16,
    "bf16": 16,
    "f16x2": 32,
    "bf16x2": 32,
}
_DTYPES = {
    "b32": DType.B32,
    "u32": DType.U32,
    "s32": DType.S32,
    "f32": DType.F32,
    "f16": DType.F16,
    "f16x2": DType.F16,
    "bf16": DType.BF16,
    "bf16x2": DType.BF16,
}
_ACC32 = {DType.F16: DType.F16_ACC32, DType.BF16: DType.BF16_ACC32}
_MEMBERS: Any = ReduceOp  # enumerations of Amaranth are untyped
_OPERATIONS: dict[str, Any] = {op.name.lower(): op for op in _MEMBERS}
_GROUPS = {
    "order of memory": ("weak", "relaxed", "acquire", "release"),
    "scope": ("cta", "cluster", "gpu", "sys"),
    "state space": ("global",),
    "operation": tuple(_OPERATIONS),
    "vector": ("v2", "v4", "v8"),
    "accumulation": ("acc::f32",),
    "type": tuple(_BITS),
    "space of the list": ("list::shared", "list::global"),
    "order of the sum": ("arrival", "canonical"),
    "posted": ("posted",),
    "last": ("last",),
}
"""Qualifiers by what they say; of each at most one."""
_GROUP_OF = {text: group for group, texts in _GROUPS.items() for text in texts}
_SIZES = (32, 64, 128)


def _tokens(text: str) -> Iterator[_Token]:
    place, line, start = 0, 1, 0
    while place < len(text):
        match = _TOKENS.match(text, place)
        if not match:
            raise IsaError(line, place - start + 1, f"unexpected {text[place]!r}")
        kind = match.lastgroup or ""
        if kind != "space":
            yield _Token(kind, match.group(), line, place - start + 1)
        breaks = match.group().count("\n")
        if breaks:
            line += breaks
            start = match.start() + match.group().rindex("\n") + 1
        place = match.end()
    yield _Token("end", "end of the text", line, place - start + 1)


def parse(text: str, *, first_rd: int = 0) -> list[Instruction]:
    """Parse instructions.

    Parameters
    ----------
    text : str
        Any number of them, each ended by ``;``, with ``//`` and ``/* */`` comments.
    first_rd : int
        ``rd`` of the first access; those of the others follow, modulo 2**16.

    Raises
    ------
    IsaError
        With line and column of the first mistake.
    """
    parser = _Parser(list(_tokens(text)))
    instructions: list[Instruction] = []
    while not parser.at_end:
        instructions.append(parser.instruction(first_rd + len(instructions) & 0xFFFF))
    return instructions


def accesses_of(text: str, *, first_rd: int = 0) -> npt.NDArray[np.void]:
    """Return the accesses of a text as one array; arguments and errors as of :func:`parse`."""
    instructions = parse(text, first_rd=first_rd)
    accesses = np.zeros(len(instructions), ACCESS)
    for index, instruction in enumerate(instructions):
        accesses[index] = instruction.access
    return accesses


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._all = tokens
        self._next = 0

    @property
    def at_end(self) -> bool:
        return self._peek.kind == "end"

    @property
    def _peek(self) -> _Token:
        return self._all[self._next]

    def _take(self, kind: str, what: str) -> _Token:
        token = self._peek
        if token.kind != kind:
            raise _error(token, f"expected {what}, not {token.text!r}")
        self._next += 1
        return token

    def _mark(self, text: str) -> _Token:
        token = self._peek
        if token.text != text:
            raise _error(token, f"expected {text!r}, not {token.text!r}")
        self._next += 1
        return token

    def instruction(self, rd: int) -> Instruction:
        head = self._take("word", "an instruction")
        name, *qualifiers = re.findall(r"\w+(?:::\w+)?", head.text)
        if qualifiers:
            name += "." + qualifiers.pop(0)
        if name not in _KINDS:
            raise _error(head, f"unknown instruction {name!r}")
        opcode = value_of(_KINDS[name])
        dynamic, load, store = opcode >> 3 == 1, opcode & 3 == 2, opcode & 3 == 1
        said = _qualifiers(head, qualifiers)
        kind = said.get("type")
        if kind is None:
            raise _error(head, "there is no type")
        elements = int(said.get("vector", "v1")[1:])
        bits = _BITS[kind] * elements
        if bits not in _SIZES:
            raise _error(head, f"an access has 32, 64 or 128 bits, not {bits}")
        access = np.zeros((), ACCESS)
        access["opcode"], access["rd"], access["size"] = opcode, rd, _SIZES.index(bits)
        access["last"] = "last" in said
        self._reduction(head, said, access, store)
        if "posted" in said:
            if load:
                raise _error(head, "a load cannot be posted")
            access["posted"] = 1
        if "space of the list" in said and not dynamic:
            raise _error(head, "a static instruction has no list")
        access["shared"] = said.get("space of the list") == "list::shared"

        registers: tuple[str, ...] = ()
        if load:
            registers = tuple(
                token.text for token in self._vector(head, elements, "word", "a register")
            )
            self._mark(",")
            access["address"] = self._address(int(access["size"]))
        else:
            access["address"] = self._address(int(access["size"]))
            self._mark(",")
            tokens = self._vector(head, elements, "number", "a number")
            values = [_element(token, kind) for token in tokens]
            whole = sum(value << _BITS[kind] * n for n, value in enumerate(values))
            access["data"] = [whole & (1 << 64) - 1, whole >> 64]
        if dynamic:
            self._mark(",")
            access["count"] = self._integer("the number of targets", (1 << 15) - 1)
            self._mark(",")
            access["list"] = self._address(None)
        elif self._peek.text == ",":
            self._mark(",")
            access["count"] = self._integer("the group", (1 << 15) - 1)
        self._mark(";")
        record: np.void = access[()]  # type: ignore[assignment]  # of a structure, not an array
        return Instruction(record, registers, head.line)

    def _reduction(
        self, head: _Token, said: dict[str, str], access: npt.NDArray[np.void], store: bool
    ) -> None:
        """Type and operation of a reduction; a store must not have any."""
        if store:
            for group in ("operation", "accumulation", "order of the sum"):
                if group in said:
                    raise _error(head, f"a store has no {group}")
            return
        if "operation" not in said:
            raise _error(head, "there is no operation")
        kind = said["type"]
        if kind not in _DTYPES:
            raise _error(head, f"there is no reduction of .{kind}")
        dtype: Any = _DTYPES[kind]
        if "accumulation" in said:
            if dtype not in _ACC32:
                raise _error(head, f".{said['accumulation']} is for .f16 and .bf16")
            dtype = _ACC32[dtype]
        op = _OPERATIONS[said["operation"]]
        if op not in REDUCTIONS[dtype]:
            raise _error(head, f".{kind} does not have .{said['operation']}")
        if value_of(Opcode.MM_RED) == access["opcode"] and access["size"] != 2:
            raise _error(head, "a multimem.red has 128 bits")
        access["dtype"], access["op"] = value_of(dtype), value_of(op)
        canonical = said.get("order of the sum") == "canonical"
        access["order"] = value_of(Order.CANONICAL if canonical else Order.ARRIVAL)

    def _vector(self, head: _Token, elements: int, kind: str, what: str) -> list[_Token]:
        """Elements in braces; a single one may stand alone."""
        if elements == 1 and self._peek.text != "{":
            return [self._take(kind, what)]
        begin = self._mark("{")
        found = [self._take(kind, what)]
        while self._peek.text == ",":
            self._mark(",")
            found.append(self._take(kind, what))
        self._mark("}")
        if len(found) != elements:
            raise _error(begin, f"expected {elements} elements, not {len(found)}")
        return found

    def _address(self, size: int | None) -> int:
        """Take ``[number]`` or ``[number+number]``."""
        begin = self._mark("[")
        address = self._integer("an address", (1 << 48) - 1)
        if self._peek.text == "+" or self._peek.text.startswith("+"):
            if self._peek.text == "+":
                self._mark("+")
            address += self._integer("an offset", (1 << 48) - 1)
        self._mark("]")
        if address >> 48:
            raise _error(begin, "an address has 48 bits")
        if size is not None and address % (4 << size):
            raise _error(begin, f"the address must be a multiple of {4 << size}")
        if size is None and address % 2:
            raise _error(begin, "the address of a list must be even")
        return address

    def _integer(self, what: str, most: int) -> int:
        token = self._take("number", what)
        value = _integer_of(token)
        if value is None or not 0 <= value <= most:
            raise _error(token, f"{what} must be 0 to {most:#x}, not {token.text}")
        return value


def _error(token: _Token, message: str) -> IsaError:
    return IsaError(token.line, token.column, message)


def _qualifiers(head: _Token, names: list[str]) -> dict[str, str]:
    said: dict[str, str] = {}
    for name in names:
        group = _GROUP_OF.get(name)
        if group is None:
            raise _error(head, f"unknown qualifier .{name}")
        if group in said:
            raise _error(head, f".{said[group]} and .{name} cannot be together")
        said[group] = name
    return said


def _integer_of(token: _Token) -> int | None:
    if re.fullmatch(r"[-+]?(0[xX][0-9a-fA-F]+|\d+)", token.text):
        return int(token.text, 16 if "x" in token.text.lower() else 10)
    return None


def _element(token: _Token, kind: str) -> int:
    """Bits of one element of a store or of a ``red``."""
    bits = _BITS[kind]
    value = _integer_of(token)
    exact = re.fullmatch(r"0([fFdD])([0-9a-fA-F]+)", token.text)
    is_float = kind in ("f16", "bf16", "f32", "f64")
    if exact:
        digits = 8 if exact[1] in "fF" else 16
        if len(exact[2]) != digits or bits != 4 * digits:
            raise _error(token, f"{token.text} is no .{kind}")
        return int(exact[2], 16)
    hexadecimal = "x" in token.text.lower()
    if value is not None and (hexadecimal or not is_float):
        if not -(1 << bits - 1) <= value < 1 << bits:
            raise _error(token, f"{token.text} has more than {bits} bits")
        return value & (1 << bits) - 1
    if not is_float:
        raise _error(token, f"{token.text} is no .{kind}")
    return _float_bits(float(token.text), kind)


def _float_bits(value: float, kind: str) -> int:
    """`value` rounded to nearest, ties to even."""
    with np.errstate(over="ignore"):
        if kind == "f64":
            return int(struct.unpack("<Q", struct.pack("<d", value))[0])
        if kind == "f16":
            return int(np.float16(value).view(np.uint16))
        single = np.float32(value)
    pattern = int(single.view(np.uint32))
    if kind == "f32":
        return pattern
    # To bf16 straight from f64: a value that the first rounding took to a tie is set right.
    if pattern & 0xFFFF == 0x8000 and float(single) != value:
        pattern += 1 if abs(value) > abs(float(single)) else -1
    return pattern + 0x7FFF + (pattern >> 16 & 1) >> 16
