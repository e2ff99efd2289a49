# SPDX-License-Identifier: Apache-2.0
"""Writes a component as SystemVerilog, with a JSON file beside it that says what is in it.

The way is Amaranth -> RTLIL -> clean-up (:mod:`.rtlil`) -> Yosys -> SystemVerilog. The bytes
depend on the component, its parameters and the versions of the tools, and on nothing else.
"""

import dataclasses
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from amaranth.hdl import Shape, ShapeCastable, ShapeLike
from amaranth.lib import data, wiring
from amaranth.lib.enum import EnumType

from . import registry
from .elaborate import elaborate, port_name
from .errors import UserError
from .json_text import json_text
from .names import Namer
from .rtlil import CleanDesign, clean

__all__ = ["WriteError", "write_component", "write_top"]

_NO_INITIAL_VALUES = ("setattr -unset init", "delete t:$meminit*")
_EXPECTED_WARNINGS = (
    "CASEOVERLAP",  # a multiplexer with one-hot selects is written as a case with wildcards
    "CASEINCOMPLETE",  # what a case leaves out keeps the value that is assigned before it
    "DECLFILENAME",  # all modules are in one file
    "PROCASSINIT",  # initial values of registers
    "CMPCONST",  # a field with a value for every code is compared with its greatest
    "UNSIGNED",  # ... or with 0
    "VARHIDDEN",  # Yosys writes multiplexers as functions, whose operands have short names
    "UNUSEDSIGNAL",  # parts of signals
    "WIDTHTRUNC",  # `!` of a vector asks whether it is zero
    "WIDTHEXPAND",  # operands of different widths are extended as Verilog does it
)
_RUN_YOSYS = """
import sys
from pyosys import libyosys
design = libyosys.Design()
for command in sys.argv[1:]:
    libyosys.run_pass(command, design)
"""


class WriteError(UserError):
    """The design cannot be written: Yosys refuses it, or the folder cannot be written."""


def write_top(
    top: str,
    params: Any,
    out: Path,
    *,
    checks: bool = True,
    initial_values: bool = True,
) -> Path:
    """Write a registered top.

    Parameters
    ----------
    top : str
        Name in the registry.
    params : object
        Instance of the top's parameter class.
    out : Path
        Folder; made if it does not exist.
    checks, initial_values : bool
        As in :func:`write_component`.

    Returns
    -------
    Path
        ``<out>/dysharp_<top>.sv``; ``<out>/dysharp_<top>.json`` lies beside it.
    """
    entry = registry.get(top)
    parameters = {
        "preset": entry.preset_of(params),
        "parameters": dataclasses.asdict(params),
    }
    return write_component(
        entry.build(params),
        name=f"dysharp_{top}",  # `switch` itself is a keyword of C++
        out=out,
        parameters=parameters,
        checks=checks,
        initial_values=initial_values,
    )


def write_component(
    component: wiring.Component,
    *,
    name: str,
    out: Path,
    parameters: Mapping[str, object] | None = None,
    checks: bool = True,
    initial_values: bool = True,
) -> Path:
    """Write any component, registered or not.

    Parameters
    ----------
    component : wiring.Component
        Its signature gives the ports; ``clk`` and ``rst`` are added.
    name : str
        Name of the module and of the files; a plain identifier.
    out : Path
        Folder; made if it does not exist.
    parameters : Mapping[str, object], optional
        Entries that go into the JSON file unchanged, right after the name.
    checks : bool
        Whether the assertions beside the RTL are written. Simulation wants them, synthesis does
        not.
    initial_values : bool
        Whether registers and memories get the initial values that Amaranth assumes. Silicon has
        none: without them a four-state simulation shows a missing reset as X.

    Returns
    -------
    Path
        ``<out>/<name>.sv``; ``<out>/<name>.json`` lies beside it.

    Raises
    ------
    WriteError
        Yosys refuses the design, or the folder cannot be written.
    """
    if Namer()(name) != name:
        raise ValueError(f"`name` must be a plain identifier and no keyword, not {name!r}")
    elaborated = elaborate(component, name, None if checks else "synthesis")
    design = clean(elaborated.text, name, elaborated.kinds)
    verilog = _verilog(design, name, initial_values)
    sidecar = {
        "top": name,
        **(parameters or {}),
        "checks": checks,
        "initial_values": initial_values,
        "latency": getattr(component, "latency", None),
        "ports": _ports(component, design),
        "modules": [dataclasses.asdict(module) for module in design.modules],
        "memories": [dataclasses.asdict(memory) for memory in design.memories],
        "tools": {tool: version(tool) for tool in ("dysharp", "amaranth", "pyosys")},
        "sha256": hashlib.sha256(verilog.encode()).hexdigest(),
    }
    path = out / f"{name}.sv"
    try:
        out.mkdir(parents=True, exist_ok=True)
        _replace(path, verilog)
        _replace(path.with_suffix(".json"), json_text(sidecar))
    except OSError as error:
        raise WriteError(f"{error.filename}: {error.strerror}") from error
    return path


def _replace(path: Path, text: str) -> None:
    """Write a file so that nobody ever sees half of it."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def _verilog(design: CleanDesign, name: str, initial_values: bool) -> str:
    # `proc` turns processes into multiplexers. As `always_comb` blocks they would set a signal to
    # its default and then to its value, and two such blocks that read other bits of each other's
    # signals wake each other for ever in Icarus.
    commands = [
        f"read_rtlil {name}.il",
        "proc -norom",
        *(() if initial_values else _NO_INITIAL_VALUES),
        f"write_verilog -sv -noattr {name}.sv",
    ]
    with tempfile.TemporaryDirectory(prefix="dysharp-") as folder:
        Path(folder, f"{name}.il").write_text(design.text, encoding="utf-8")
        # A Yosys error ends the process that it happens in.
        done = subprocess.run(
            [sys.executable, "-c", _RUN_YOSYS, *commands],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            lines = (done.stdout + done.stderr).splitlines()
            reason = next((line for line in lines if "ERROR" in line), "no message")
            raise WriteError(f"yosys, top {name}: {reason} (exit code {done.returncode})")
        text = Path(folder, f"{name}.sv").read_text(encoding="utf-8")
    _, _, text = text.partition("\n")  # names the build of Yosys, down to its compiler
    header = (
        "// SPDX-License-Identifier: Apache-2.0\n"
        f"// Generated by dysharp, do not edit. Parameters and ports are in {name}.json.\n"
        "/* verilator lint_save */\n"
        + "".join(f"/* verilator lint_off {warning} */\n" for warning in _EXPECTED_WARNINGS)
    )
    # Checks are the only processes that Yosys writes in the old form, which does not run at time 0.
    text = re.sub(r"^( *)always @\*", r"\1always_comb", text, flags=re.MULTILINE)
    return f"{header}{text}/* verilator lint_restore */\n"


def _ports(component: wiring.Component, design: CleanDesign) -> list[dict[str, object]]:
    members = {
        port_name(path): member for path, member, _ in component.signature.flatten(component)
    }
    ports: list[dict[str, object]] = []
    for wire in design.ports:
        port: dict[str, object] = {
            "name": wire.name,
            "direction": wire.direction,
            "width": wire.width,
        }
        if wire.path in members:
            port |= _meaning(members[wire.path].shape)
        ports.append(port)
    return ports


def _meaning(shape: ShapeLike) -> dict[str, object]:
    """Tell what the bits of a port or field stand for, as far as the shape says so."""
    while isinstance(shape, ShapeCastable) and not isinstance(shape, data.Layout | EnumType):
        shape = shape.as_shape()
    if isinstance(shape, EnumType):
        return {"values": {member.name: int(member.value) for member in shape}}
    if isinstance(shape, data.ArrayLayout):
        width = Shape.cast(shape.elem_shape).width
        element = {"width": width, **_meaning(shape.elem_shape)}
        return {"length": shape.length, "element": element}
    if isinstance(shape, data.Layout):
        return {
            "fields": [
                {"name": str(name), "offset": part.offset, "width": part.width}
                | _meaning(part.shape)
                for name, part in shape
            ]
        }
    return {"signed": True} if Shape.cast(shape).signed else {}
