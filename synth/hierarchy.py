# SPDX-License-Identifier: Apache-2.0
"""Area by part of the design; the first two functions run inside the Yosys process.

The flat netlist has no parts any more: ABC gives its gates new names. So the table comes from a
second run in which the modules of the first levels below the top stay apart. Modules that are the
same but for their names, as the queues of eight ports are, are mapped once.
"""

import json
import re
from pathlib import Path
from typing import Any

__all__ = ["Instances", "keep_levels", "merge_twins", "read_tree"]

Instances = dict[str, str]
"""Path of an instance, ``/`` between levels, the top being "" -> name of its module."""

_NAME = re.compile(r"[\\$]\S+")
_DIGITS = re.compile(r"[_$]?\d+")


def keep_levels(ys: Any, design: Any, top: str, levels: int) -> None:
    """Mark the modules of `levels` levels below `top` so that ``flatten`` leaves them."""
    names = [f"\\{top}"]
    for _ in range(levels):
        below: list[str] = []
        for name in names:
            for cell in design.module(ys.IdString(name)).cells_.values():
                module = design.module(cell.type)
                if module is None or module.get_blackbox_attribute():
                    continue
                module.set_bool_attribute(ys.IdString("\\keep_hierarchy"))
                below.append(cell.type.str())
        names = below


def _canonical(ys: Any, design: Any, module: Any) -> tuple[str, list[str]]:
    """Text of a module with all names but those of cell types and their ports made plain."""
    lines = design_lines(design, module)
    local: dict[str, str] = {}
    ports: list[str] = []
    for line in lines:
        words = line.split()
        if words[0] in ("wire", "memory", "cell"):
            local.setdefault(words[-1], f"n{len(local)}")
            if "input" in words or "output" in words or "inout" in words:
                ports.append(words[-1])
    text = []
    for line in lines:
        words = line.split()
        if words[0] == "module":
            continue
        if words[0] == "cell":
            text.append(f"cell {words[1]}")
        elif words[0] == "connect" and line.startswith("    "):
            signal = line.split(None, 2)[2]
            text.append(f"{words[1]} {_NAME.sub(lambda m: local.get(m[0], m[0]), signal)}")
        elif words[0] == "parameter":
            text.append(line)
        else:
            text.append(_NAME.sub(lambda m: local.get(m[0], m[0]), line))
    return "\n".join(text), ports


def design_lines(design: Any, module: Any) -> list[str]:
    """Lines of a module's text without attributes and empty lines."""
    text: str = module.to_rtlil_str()
    return [
        line
        for line in text.splitlines()
        if line.strip() and not line.lstrip().startswith(("attribute", "autoidx", "#"))
    ]


def merge_twins(ys: Any, design: Any, top: str) -> Instances:
    """Make all instances of equal modules instances of one, and list the instances.

    Called after ``flatten`` with the modules to tell of kept apart.
    """
    changed = True
    while changed:
        changed = False
        first: dict[str, tuple[Any, list[str]]] = {}
        twins: dict[str, tuple[Any, dict[str, str]]] = {}
        for module in [*design.modules_.values()]:
            if module.get_blackbox_attribute() or module.name.str() == f"\\{top}":
                continue
            text, ports = _canonical(ys, design, module)
            if text in first:
                kept, names = first[text]
                twins[module.name.str()] = (kept, dict(zip(ports, names, strict=True)))
            else:
                first[text] = (module, ports)
        for module in [*design.modules_.values()]:
            if module.name.str() in twins:
                continue
            for cell in [*module.cells_.values()]:
                if cell.type.str() not in twins:
                    continue
                kept, rename = twins[cell.type.str()]
                ends = {port.str(): signal for port, signal in cell.connections_.items()}
                for port in ends:
                    cell.unsetPort(ys.IdString(port))
                cell.type = kept.name
                for port, signal in ends.items():
                    cell.setPort(ys.IdString(rename[port]), signal)
                changed = True
        for name in twins:
            design.remove(design.module(ys.IdString(name)))
    return _instances(ys, design, top)


def _instances(ys: Any, design: Any, top: str) -> Instances:
    found: Instances = {"": f"\\{top}"}
    pending = [("", f"\\{top}")]
    while pending:
        path, name = pending.pop()
        for cell in design.module(ys.IdString(name)).cells_.values():
            module = design.module(cell.type)
            if module is None or module.get_blackbox_attribute():
                continue
            below = f"{path}/{cell.name.str()[1:]}" if path else cell.name.str()[1:]
            found[below] = cell.type.str()
            pending.append((below, cell.type.str()))
    return found


def load_stat(path: Path) -> dict[str, Any]:
    """Read what ``tee -o FILE stat -json`` wrote; it may begin with lines on gzipped files."""
    text = path.read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text[text.index("{") :])
    return data


def read_tree(instances: Instances, stat: Path) -> list[dict[str, Any]]:
    """List each kind of instance with the cells that it holds itself.

    Returns
    -------
    list of dict
        ``part`` (path with digits taken out, so that all ports fall together), ``instances`` and
        ``cells_by_type`` summed over them.
    """
    modules = load_stat(stat)["modules"]
    rows: dict[str, dict[str, Any]] = {}
    known = set(instances.values())
    for path, name in instances.items():
        part = _DIGITS.sub("", path) or "(top)"
        row = rows.setdefault(part, {"part": part, "instances": 0, "cells_by_type": {}})
        row["instances"] += 1
        for cell, count in modules[name]["num_cells_by_type"].items():
            if cell not in known and f"\\{cell}" not in known:
                row["cells_by_type"][cell] = row["cells_by_type"].get(cell, 0) + count
    return [rows[part] for part in sorted(rows)]
