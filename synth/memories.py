# SPDX-License-Identifier: Apache-2.0
"""Turns modules that hold one large RAM into macros; runs inside the Yosys process."""

from dataclasses import asdict, dataclass
from typing import Any

from .errors import FlowError

__all__ = ["RamMacro", "extract_rams"]

PREFIX = "dysharp_ram_"


@dataclass(frozen=True, kw_only=True)
class RamMacro:
    """One kind of RAM: one write port, one synchronous read port with enable, one clock.

    Parameters
    ----------
    depth, width : int
        Words and bits a word.
    abits : int
        Address bits.
    enables : int
        Write enables; each is for ``width / enables`` bits.
    """

    depth: int
    width: int
    abits: int
    enables: int = 1

    @property
    def name(self) -> str:
        """Cell name in the netlist."""
        suffix = f"_we{self.enables}" if self.enables > 1 else ""
        return f"{PREFIX}{self.depth}x{self.width}{suffix}"

    @property
    def bits(self) -> int:
        """Bits of one macro."""
        return self.depth * self.width

    @property
    def inputs(self) -> list[str]:
        """Input pins but the clock; all pins are single bits, which every tool reads alike."""
        return [
            *(f"w_en_{i}" for i in range(self.enables)),
            *(f"w_addr_{i}" for i in range(self.abits)),
            *(f"w_data_{i}" for i in range(self.width)),
            "r_en",
            *(f"r_addr_{i}" for i in range(self.abits)),
        ]

    @property
    def outputs(self) -> list[str]:
        """Output pins."""
        return [f"r_data_{i}" for i in range(self.width)]

    def as_dict(self) -> dict[str, int]:
        """Plain form for a job file."""
        return asdict(self)


def _plain(name: Any) -> str:
    text: str = name.str()
    return text.removeprefix("\\")


def extract_rams(ys: Any, design: Any, threshold: int) -> dict[str, RamMacro]:
    """Replace every memory of more than `threshold` bits by a black box.

    Parameters
    ----------
    ys : module
        ``pyosys.libyosys``.
    design : libyosys.Design
        After ``memory_collect``.
    threshold : int
        Bits; larger memories become macros.

    Returns
    -------
    dict of str to RamMacro
        Name of the module that held the memory -> its macro.

    Raises
    ------
    FlowError
        If a module with a large memory holds anything else, or the memory is no RAM with one
        write port and one synchronous read port.
    """
    found: dict[str, RamMacro] = {}
    known: set[str] = set()
    for module in [*design.modules_.values()]:
        cells = [*module.cells_.values()]
        memories = [cell for cell in cells if cell.type.str() == "$mem_v2"]
        large = [cell for cell in memories if _size(ys, cell) > threshold]
        if not large:
            continue
        name = _plain(module.name)
        memory = large[0]
        forced, wiring = _write_wiring(ys, module)
        others = [c for c in cells if c.name.str() not in wiring | {memory.name.str()}]
        if others:
            kinds = sorted({cell.type.str().removeprefix("\\") for cell in others})
            raise FlowError(
                f"module {name} must hold nothing but its memory of {_size(ys, memory)} bits, "
                f"which is over the limit of {threshold} for flops, not {', '.join(kinds)} too"
            )
        macro, connections = _macro(ys, name, memory, forced)
        if macro.name not in known:
            known.add(macro.name)
            _define(ys, design, macro)
        module.remove(memory)
        box = module.addCell(ys.IdString("\\macro"), ys.IdString(f"\\{macro.name}"))
        for pin, bit in connections.items():
            box.setPort(ys.IdString(f"\\{pin}"), ys.SigSpec(bit, 1))
        found[name] = macro
    return found


def _size(ys: Any, cell: Any) -> int:
    size: int = _number(ys, cell, "SIZE") * _number(ys, cell, "WIDTH")
    return size


def _number(ys: Any, cell: Any, name: str) -> int:
    value: int = cell.getParam(ys.IdString(f"\\{name}")).as_int()
    return value


def _bits(ys: Any, cell: Any, port: str) -> list[Any]:
    return list(cell.getPort(ys.IdString(f"\\{port}")).to_sigbit_vector())


def _key(bit: Any) -> tuple[str, int]:
    if bit.is_wire():
        return bit.wire.name.str(), bit.offset
    return f"constant {bit.data}", 0


def _write_wiring(ys: Any, module: Any) -> tuple[dict[tuple[str, int], Any], set[str]]:
    """Find the multiplexers that Verilog's ``if (w_en) mem[a] <= d`` leaves at the write port.

    One with "no write" at its first input is wiring: its output is the enable itself.
    """
    forced: dict[tuple[str, int], Any] = {}
    names: set[str] = set()
    for cell in module.cells_.values():
        if cell.type.str() != "$mux":
            continue
        low, high = (cell.getPort(ys.IdString(port)) for port in ("\\A", "\\B"))
        output = [_key(bit) for bit in _bits(ys, cell, "Y")]
        select = _bits(ys, cell, "S")[0]
        if low.is_fully_zero() and high.is_fully_ones():
            forced |= dict.fromkeys(output, select)
        elif low.is_fully_undef():
            forced |= dict(zip(output, high.to_sigbit_vector(), strict=True))
        else:
            continue
        names.add(cell.name.str())
    return forced, names


def _macro(
    ys: Any, module: str, memory: Any, forced: dict[tuple[str, int], Any]
) -> tuple[RamMacro, dict[str, Any]]:
    def flag(name: str) -> bool:
        return bool(memory.getParam(ys.IdString(f"\\{name}")).as_bool())

    ports = _number(ys, memory, "WR_PORTS"), _number(ys, memory, "RD_PORTS")
    if ports != (1, 1) or not flag("RD_CLK_ENABLE") or not flag("WR_CLK_ENABLE"):
        kind = "synchronous" if flag("RD_CLK_ENABLE") else "asynchronous"
        raise FlowError(
            f"the memory of module {module} must have one write port and one synchronous read "
            f"port to become a macro, not {ports[0]} and {ports[1]} {kind}"
        )
    for port in ("RD_ARST", "RD_SRST"):
        if not memory.getPort(ys.IdString(f"\\{port}")).is_fully_zero():
            raise FlowError(f"the read port of module {module} must have no reset to be a macro")
    if flag("RD_TRANSPARENCY_MASK"):
        raise FlowError(f"the read port of module {module} must not be transparent to be a macro")
    if not flag("RD_CLK_POLARITY") or not flag("WR_CLK_POLARITY"):
        raise FlowError(f"the memory of module {module} must work on rising edges to be a macro")
    clock, read_clock = (_bits(ys, memory, port)[0] for port in ("WR_CLK", "RD_CLK"))
    if _key(clock) != _key(read_clock):
        raise FlowError(f"the memory of module {module} must have one clock to be a macro")

    enable = [forced.get(_key(bit), bit) for bit in _bits(ys, memory, "WR_EN")]
    width = len(enable)
    edges = [i for i in range(1, width) if _key(enable[i]) != _key(enable[i - 1])]
    lane = edges[0] if edges else width
    if width % lane or any(edge % lane for edge in edges):
        lane = 1
    macro = RamMacro(
        depth=_number(ys, memory, "SIZE"),
        width=width,
        abits=_number(ys, memory, "ABITS"),
        enables=width // lane,
    )
    pins: dict[str, Any] = {"clk": clock, "r_en": _bits(ys, memory, "RD_EN")[0]}
    for prefix, bits in (
        ("w_en", enable[::lane]),
        ("w_addr", _bits(ys, memory, "WR_ADDR")),
        ("w_data", _bits(ys, memory, "WR_DATA")),
        ("r_addr", _bits(ys, memory, "RD_ADDR")),
        ("r_data", _bits(ys, memory, "RD_DATA")),
    ):
        pins |= {f"{prefix}_{i}": forced.get(_key(bit), bit) for i, bit in enumerate(bits)}
    return macro, pins


def _define(ys: Any, design: Any, macro: RamMacro) -> None:
    module = design.addModule(ys.IdString(f"\\{macro.name}"))
    for index, pin in enumerate(["clk", *macro.inputs, *macro.outputs]):
        wire = module.addWire(ys.IdString(f"\\{pin}"), 1)
        wire.port_id = index + 1
        wire.port_input = not pin.startswith("r_data")
        wire.port_output = not wire.port_input
    module.fixup_ports()
    module.set_bool_attribute(ys.IdString("\\blackbox"))
