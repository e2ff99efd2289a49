# SPDX-License-Identifier: Apache-2.0
"""Clean-up of the RTLIL text that Amaranth writes, before Yosys turns it into SystemVerilog.

Amaranth writes one module per instance and names them by their path. Here identical modules
become one, and every name becomes an identifier that no tool has to escape. RTLIL is taken as
Amaranth prints it, one statement a line; see ``docs/generation.md`` for what is done and why.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .names import Namer, snake_case

__all__ = ["CleanDesign", "MemoryUse", "ModuleUse", "PortWire", "clean"]

_CHUNK = re.compile(r"^module \\(\S+)\n(.*?)^end\n", re.MULTILINE | re.DOTALL)
_CELL_TYPE = re.compile(r"^  cell \\(\S+) ", re.MULTILINE)
_ID = re.compile(r"[\\$]\S+")
_MEMID = re.compile(r'(\\MEMID ")\\(\\\S+)(")')
_PRIORITY = re.compile(r"^(    parameter signed \\PRIORITY 32')[01]{32}$", re.MULTILINE)
_SERIAL = re.compile(r"\$\d+(?=$|\[)")
_INDEX = re.compile(r"[_$]*\d+$")


@dataclass(frozen=True)
class PortWire:
    """One port of the top as it stands in the text."""

    name: str
    """Name in the SystemVerilog."""
    path: str
    """Name that Amaranth gave it."""
    direction: str
    width: int


@dataclass(frozen=True)
class ModuleUse:
    """One module and how often it occurs in the whole design."""

    name: str
    component: str | None
    """Class that it was made from."""
    instances: int


@dataclass(frozen=True)
class MemoryUse:
    """One memory of a module and how often it occurs in the whole design."""

    module: str
    name: str
    width: int
    depth: int
    count: int


@dataclass(frozen=True)
class CleanDesign:
    """The cleaned text and what it consists of."""

    text: str
    ports: tuple[PortWire, ...]
    modules: tuple[ModuleUse, ...]
    memories: tuple[MemoryUse, ...]


@dataclass
class _Wire:
    name: str
    width: int
    signed: bool = False
    port: str = ""
    init: str = ""


@dataclass
class _Cell:
    kind: str
    name: str
    parameters: list[str]
    connections: list[tuple[str, str]]


@dataclass
class _Module:
    path: str
    wires: dict[str, _Wire]
    memories: dict[str, tuple[int, int]]
    cells: list[_Cell]
    processes: list[list[str]]
    connections: list[tuple[str, str]]

    def ports(self) -> list[_Wire]:
        return [wire for wire in self.wires.values() if wire.port]

    def signals(self) -> Iterator[str]:
        """Everything that is read, and everything that is written by other than a connection."""
        for cell in self.cells:
            for _, signal in cell.connections:
                yield signal
        for process in self.processes:
            yield from process
        for _, signal in self.connections:
            yield signal


def clean(text: str, top: str, kinds: Mapping[str, str] | None = None) -> CleanDesign:
    """Merge identical modules and rename everything.

    Parameters
    ----------
    text : str
        RTLIL as :func:`.elaborate.elaborate` returns it, or `amaranth.back.rtlil.convert`.
    top : str
        Name of the top module, an identifier; it becomes the prefix of all other module names.
    kinds : Mapping[str, str], optional
        Class name of the component behind a module path. A module without one is named after its
        instance.

    Returns
    -------
    CleanDesign
        Every module stands before those that it instantiates.
    """
    chunks = {path: _renumber_checks(body) for path, body in _CHUNK.findall(text)}
    if top not in chunks:
        raise ValueError(f"`top` must be a module of the text, not {top!r}")
    twin = _merge_equal_text(chunks)
    modules = {path: _parse(path, chunks[path], twin) for path in chunks if twin[path] == path}
    for module in modules.values():
        _drop_field_names(module)
    same, ports = _merge_equal_structure(modules)
    kept = {path: module for path, module in modules.items() if same[path] == path}
    count = _count(kept, same, top)

    name_module = Namer()
    kinds = kinds or {}
    names = {path: name_module(_module_name(path, top, kinds)) for path in kept}
    for module in kept.values():
        _clock_checks(module)
    wires = {path: _wire_names(module) for path, module in kept.items()}

    lines: list[str] = []
    for path, module in kept.items():
        for cell in module.cells:
            child = cell.kind[1:]
            if child in same:
                final = wires[same[child]]
                cell.kind = f"\\{names[same[child]]}"
                cell.connections = [
                    (final[ports[child][port]], signal) for port, signal in cell.connections
                ]
        lines += ["attribute \\top 1"] if path == top else []
        lines += _print(names[path], module, wires[path])
    return CleanDesign(
        text="\n".join(lines) + "\n",
        ports=tuple(
            PortWire(wires[top][wire.name][1:], wire.name[1:], wire.port, wire.width)
            for wire in kept[top].ports()
        ),
        modules=tuple(ModuleUse(names[path], kinds.get(path), count[path]) for path in kept),
        memories=tuple(
            MemoryUse(names[path], wires[path][name][1:], width, depth, count[path])
            for path, module in kept.items()
            for name, (width, depth) in module.memories.items()
        ),
    )


def _renumber_checks(body: str) -> str:
    """Count the priorities of checks and prints per module; Amaranth does so over the design.

    They order what happens at the same time in one module, and each is lower than the last.
    """
    serial = itertools.count(1)
    return _PRIORITY.sub(lambda match: f"{match[1]}{(1 << 32) - next(serial):032b}", body)


def _merge_equal_text(chunks: Mapping[str, str]) -> dict[str, str]:
    """Map every path to the first one with the same text. Cheap, and catches nearly all."""
    group: dict[str, str] = {}
    known: dict[str, str] = {}
    for path in reversed(list(chunks)):  # submodules before their parents
        body = _CELL_TYPE.sub(
            lambda match: f"  cell \\{group.get(match[1], match[1])} ", chunks[path]
        )
        group[path] = known.setdefault(body, path)
    first: dict[str, str] = {}
    return {path: first.setdefault(group[path], path) for path in chunks}


def _merge_equal_structure(
    modules: Mapping[str, _Module],
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Map every path to the first one that differs in names only, and its ports to that one's."""
    group: dict[str, str] = {}
    order: dict[str, list[str]] = {}
    known: dict[str, str] = {}
    for path in reversed(list(modules)):
        structure, order[path] = _canonical(modules[path], group, order)
        group[path] = known.setdefault(structure, path)
    first: dict[str, str] = {}
    same = {path: first.setdefault(group[path], path) for path in modules}
    ports = {path: dict(zip(order[path], order[same[path]], strict=True)) for path in modules}
    return same, ports


def _canonical(
    module: _Module, group: Mapping[str, str], order: Mapping[str, list[str]]
) -> tuple[str, list[str]]:
    """Text of a module in which names are replaced by their order of appearance.

    The wires are listed last, since the order in which Amaranth prints the ports depends on what
    is outside.

    Returns
    -------
    structure : str
        Equal for two modules exactly if one becomes the other by renaming.
    ports : list[str]
        The ports, in an order that corresponds between equal modules.
    """
    numbers: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"#{numbers.setdefault(match[0], len(numbers))}"

    lines = []
    for cell in module.cells:
        child = cell.kind[1:]
        if child in group:
            place = {port: index for index, port in enumerate(order[child])}
            lines.append(f"submodule {group[child]}")
            pins = [
                (str(index), signal)
                for index, signal in sorted((place[p], s) for p, s in cell.connections)
            ]
        else:
            lines.append(f"cell {cell.kind}")
            lines += [
                _MEMID.sub(lambda m: m[1] + _ID.sub(number, m[2]), line) for line in cell.parameters
            ]
            pins = cell.connections
        lines += [f"{port} {_ID.sub(number, signal)}" for port, signal in pins]
    for process in module.processes:
        lines.append("process")
        lines += [_ID.sub(number, line) for line in process]
    lines += [_ID.sub(number, f"{left} {right}") for left, right in module.connections]
    # What occurs nowhere is told apart by its name.
    lines += sorted(name for name in (*module.wires, *module.memories) if name not in numbers)
    for name in sorted((*module.wires, *module.memories)):
        numbers.setdefault(name, len(numbers))
    lines += [f"{numbers[name]} {shape}" for name, shape in module.memories.items()]
    wires = sorted(module.wires.values(), key=lambda wire: numbers[wire.name])
    lines += [
        f"{numbers[wire.name]} {wire.width} {wire.signed} {wire.port} {wire.init}" for wire in wires
    ]
    return "\n".join(lines), [wire.name for wire in wires if wire.port]


def _count(kept: Mapping[str, _Module], same: Mapping[str, str], top: str) -> Counter[str]:
    """Count the instances of every module in the whole design."""
    count = Counter({top: 1})
    for path, module in kept.items():
        for cell in module.cells:
            if cell.kind[1:] in same:
                count[same[cell.kind[1:]]] += count[path]
    return count


def _module_name(path: str, top: str, kinds: Mapping[str, str]) -> str:
    if path == top:
        return top
    stem = snake_case(kinds[path]) if path in kinds else path.rpartition(".")[2]
    return f"{top}_{_INDEX.sub('', stem) or stem}"


def _parse(path: str, body: str, twin: Mapping[str, str]) -> _Module:
    module = _Module(path, {}, {}, [], [], [])
    init = ""
    lines = iter(body.splitlines())
    for line in lines:
        words = line.split()
        if not words:
            continue
        match words[0]:
            case "attribute":
                if words[1] == "\\init":
                    init = words[2]
            case "wire":
                kinds = words[3:-1]
                port = next((kind for kind in ("input", "output", "inout") if kind in kinds), "")
                module.wires[words[-1]] = _Wire(
                    words[-1], int(words[2]), "signed" in kinds, port, init
                )
                init = ""
            case "memory":
                module.memories[words[-1]] = (int(words[2]), int(words[4]))
            case "cell":
                kind = f"\\{twin[words[1][1:]]}" if words[1][1:] in twin else words[1]
                module.cells.append(_Cell(kind, words[2], *_parse_cell(lines)))
            case "process":
                module.processes.append(_parse_process(lines))
            case "connect":
                module.connections.append(_parse_connection(line))
            case _:
                raise ValueError(f"`text` must be RTLIL as Amaranth prints it, not {line!r}")
    return module


def _parse_connection(line: str) -> tuple[str, str]:
    _, left, right = line.split(None, 2)
    return left, right


def _parse_cell(lines: Iterator[str]) -> tuple[list[str], list[tuple[str, str]]]:
    parameters = []
    connections = []
    for raw in lines:
        line = raw.strip()
        if line == "end":
            break
        if line.startswith("connect "):
            connections.append(_parse_connection(line))
        else:
            parameters.append(line)
    return parameters, connections


def _parse_process(lines: Iterator[str]) -> list[str]:
    body = []
    depth = 1
    for raw in lines:
        line = raw.strip()
        depth += line.startswith("switch ")
        depth -= line == "end"
        if not depth:
            break
        body.append(line)
    return body


def _drop_field_names(module: _Module) -> None:
    """Remove the wires that only give a name to a part of a structure.

    Nothing reads them, their names need escapes, and there are more of them than of all others.
    """
    read = set()
    for signal in module.signals():
        read.update(_ID.findall(signal))
    fields = {
        name
        for name, wire in module.wires.items()
        if ("." in name or "[" in name) and not wire.port and name not in read
    }
    module.wires = {name: wire for name, wire in module.wires.items() if name not in fields}
    module.connections = [(left, right) for left, right in module.connections if left not in fields]


def _clock_checks(module: _Module) -> None:
    """Sample the checks at the clock edge instead of at every change.

    In a simulator a combinational check also sees the values between two settled states, and
    fails on them.
    """
    for cell in module.cells:
        if cell.kind == "$check" and "parameter \\TRG_ENABLE 0" in cell.parameters:
            if "\\clk" not in module.wires:
                continue
            trigger = {"TRG_ENABLE": "1", "TRG_WIDTH": "1", "TRG_POLARITY": "1'1"}
            cell.parameters = [
                line for line in cell.parameters if line.split()[1][1:] not in trigger
            ] + [f"parameter \\{name} {value}" for name, value in trigger.items()]
            pins = dict(cell.connections)
            cell.connections = list((pins | {"\\TRG": "\\clk"}).items())


def _wire_names(module: _Module) -> dict[str, str]:
    """Map every name of a module to its clean one. Ports have the first choice.

    Anonymous wires stay so, Yosys numbers them; but what goes into a register is named after it.
    """
    namer = Namer()
    wishes = {name: name for name in module.wires if name[0] == "\\"}
    wishes |= {name: name for name in module.memories}
    wishes |= {cell.name: cell.name for cell in module.cells if cell.name[0] == "\\"}
    for cell in module.cells:
        pins = dict(cell.connections)
        if cell.kind in ("$dff", "$adff"):
            data, register = _ID.match(pins["\\D"]), pins["\\Q"]
            if data and data[0][0] == "$" and register[0] == "\\":
                wishes.setdefault(data[0], f"{_SERIAL.sub('', register)}_next")
    ports = [wire.name for wire in module.ports()]
    ordered = dict.fromkeys([*ports, *wishes])
    return {name: f"\\{namer(_SERIAL.sub('', wishes[name][1:]))}" for name in ordered}


def _print(name: str, module: _Module, names: Mapping[str, str]) -> Iterator[str]:
    def rename(signal: str) -> str:
        return _ID.sub(lambda match: names.get(match[0], match[0]), signal)

    yield f"module \\{name}"
    port_number = 0
    for wire in module.wires.values():
        if wire.init:
            yield f"attribute \\init {wire.init}"
        words = ["wire", f"width {wire.width}"]
        if wire.port:
            port_number += 1  # Yosys takes 0 for none
            words.append(f"{wire.port} {port_number}")
        if wire.signed:
            words.append("signed")
        yield " ".join([*words, rename(wire.name)])
    for memory, (width, depth) in module.memories.items():
        yield f"memory width {width} size {depth} {rename(memory)}"
    for cell in module.cells:
        yield f"cell {cell.kind} {rename(cell.name)}"
        for line in cell.parameters:
            yield _print_parameter(cell.kind, line, names)
        for port, signal in cell.connections:
            yield f"connect {port} {rename(signal)}"
        yield "end"
    for number, process in enumerate(module.processes):
        yield f"process $process{number}"
        for line in process:
            yield rename(line)
        yield "end"
    for left, right in module.connections:
        yield f"connect {rename(left)} {rename(right)}"
    yield "end"


def _print_parameter(kind: str, line: str, names: Mapping[str, str]) -> str:
    if kind == "$check" and line.startswith('parameter \\FORMAT "'):
        # A failed check prints its message without a line's end, and the simulator's own
        # message would follow on the same line.
        return line if line.endswith('\\n"') or line.endswith('""') else f'{line[:-1]}\\n"'
    return _MEMID.sub(lambda match: f"{match[1]}\\{names[match[2]]}{match[3]}", line)
