# SPDX-License-Identifier: Apache-2.0
"""Area and timing as tables for people and JSON for programs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dysharp.gen.json_text import json_text
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from .errors import FlowError
from .flow import AreaResult
from .timing import TimingResult

__all__ = ["print_report", "report_dict", "write_report"]


def report_dict(
    area: AreaResult,
    timing: TimingResult | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Give all figures as plain data; the keys of the top level are those to compare runs by.

    Keys of timing are there without OpenSTA too, with None.
    """
    library, pdk = area.library, area.pdk
    return {
        "top": area.top,
        "parameters": dict(parameters or {}),
        "library": {
            "name": pdk.name if pdk else library.names[0],
            "files": [
                {"library": name, "file": path.name, "sha256": digest}
                for name, path, digest in zip(
                    library.names, library.paths, library.sha256, strict=True
                )
            ],
            "area_unit": pdk.area_unit if pdk else None,
            "nand2": library.nand2.name,
            "nand2_area": area.nand2_area,
        },
        "area": _round(area.area),
        "area_ge": _round(area.area_ge),
        "sequential_area": _round(area.sequential_area),
        "combinational_area": _round(area.combinational_area),
        "cells": area.cells,
        "flops": area.flops,
        "memory_bits": area.memory_bits,
        "macro_area_estimate": _round(area.macro_area_estimate),
        "macro_area_source": pdk.ram.area_source if pdk else None,
        "macros": [
            {
                "name": use.macro.name,
                "width": use.macro.width,
                "depth": use.macro.depth,
                "write_enables": use.macro.enables,
                "count": use.count,
                "bits": use.bits,
                "area_estimate": _round(use.area_estimate),
            }
            for use in area.macros
        ],
        "parts": [
            {
                "part": part.name,
                "instances": part.instances,
                "area": _round(part.area),
                "area_ge": _round(part.area / area.nand2_area),
                "sequential_area": _round(part.sequential_area),
                "cells": part.cells,
                "flops": part.flops,
                "memory_bits": part.memory_bits,
            }
            for part in area.parts
        ],
        "clock_ps": area.clock_ps,
        "worst_path_ps": _round(timing.worst.delay_ps) if timing else None,
        "worst_path_fo4": _round(timing.worst_fo4) if timing else None,
        "slack_ps": _round(timing.slack_ps) if timing else None,
        "min_period_ps": _round(timing.min_period_ps) if timing else None,
        "fmax_GHz": _round(timing.fmax_ghz) if timing else None,
        "fo4_ps": _round(timing.fo4_ps) if timing else None,
        "io_share": timing.io_share if timing else None,
        "macro_timing_source": pdk.ram.timing_source if pdk else None,
        "paths": {
            path.group: {
                "start": path.start,
                "end": path.end,
                "delay_ps": _round(path.delay_ps),
                "slack_ps": _round(path.slack_ps),
                "min_period_ps": _round(path.period_ps),
                "cells": path.cells,
            }
            for path in (timing.paths.values() if timing else ())
        },
        "versions": area.versions | ({"opensta": timing.version} if timing else {}),
    }


def write_report(path: Path, report: Mapping[str, Any]) -> None:
    """Write `report` as JSON."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json_text(report), encoding="utf-8")
    except OSError as error:
        raise FlowError(f"cannot write {path}: {error.strerror}") from None


def print_report(
    console: Console, area: AreaResult, timing: TimingResult | None, note: str = ""
) -> None:
    """Print area, parts, macros and timing; `note` says why there is no timing."""
    pdk = area.pdk
    unit = pdk.area_unit if pdk else "library units"
    console.print(_area_table(area, unit))
    if area.parts:
        console.print(_parts_table(area))
    if area.macros:
        console.print(_macros_table(area, unit))
        if pdk:
            low, high = pdk.ram.bit_area_range
            console.print(
                Text(
                    f"RAM macros: {pdk.ram.bit_area:g} {unit} a bit ({low:g} to {high:g}), "
                    f"{pdk.ram.area_source}"
                )
            )
    if timing is not None:
        console.print(_timing_table(timing))
        fo4 = f", {timing.worst_fo4:.1f} FO4 of {timing.fo4_ps:.1f} ps" if timing.worst_fo4 else ""
        console.print(
            Text(
                f"fmax {timing.fmax_ghz:.3f} GHz, set by {timing.worst.group}: "
                f"{timing.worst.delay_ps:.1f} ps{fo4}"
            )
        )
    if note:
        console.print(Text(note))
    console.print(Text("Cells only: no wires, no clock tree, no layout; see docs/area.md."))


def _round(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.7g}")


def _row(*cells: object) -> list[RenderableType]:
    """Plain text, so that brackets of a signal name are no markup."""
    return [Text(cell if isinstance(cell, str) else _figure(cell)) for cell in cells]


def _figure(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _table(title: str, *columns: str, words: int = 1) -> Table:
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < words else "right", overflow="fold")
    return table


def _area_table(area: AreaResult, unit: str) -> Table:
    name = area.pdk.name if area.pdk else area.library.names[0]
    clock = f"{area.clock_ps:g} ps" if area.clock_ps else "none, smallest area"
    table = _table(f"{area.top} on {name}, clock {clock}", "standard cells", unit, "GE", "number")
    for what, size, number in (
        ("combinational", area.combinational_area, area.cells - area.flops),
        ("registers", area.sequential_area, area.flops),
        ("all", area.area, area.cells),
    ):
        table.add_row(*_row(what, size, size / area.nand2_area, number))
    return table


def _parts_table(area: AreaResult) -> Table:
    table = _table(
        "by part (mapped apart)", "part", "instances", "GE", "GE each", "%", "flops", "RAM bits"
    )
    total = sum(part.area for part in area.parts) or 1.0
    for part in sorted(area.parts, key=lambda part: -part.area):
        gates = part.area / area.nand2_area
        share = 100.0 * part.area / total
        each = gates / part.instances
        table.add_row(
            *_row(part.name, part.instances, gates, each, share, part.flops, part.memory_bits)
        )
    gates = total / area.nand2_area
    table.add_row(
        *_row("sum", "", gates, "", 100.0, sum(part.flops for part in area.parts), area.memory_bits)
    )
    return table


def _macros_table(area: AreaResult, unit: str) -> Table:
    table = _table("RAM macros", "words x bits", "number", "bits", f"estimate, {unit}")
    for use in area.macros:
        estimate = "unknown" if use.area_estimate is None else use.area_estimate
        table.add_row(
            *_row(f"{use.macro.depth} x {use.macro.width}", use.count, use.bits, estimate)
        )
    total = area.macro_area_estimate
    number = sum(use.count for use in area.macros)
    table.add_row(*_row("sum", number, area.memory_bits, total if total is not None else "unknown"))
    return table


def _timing_table(timing: TimingResult) -> Table:
    share = f"{100 * timing.io_share:g} % of the clock outside of each port"
    table = _table(
        f"worst paths, {share}",
        "group",
        "from",
        "to",
        "delay, ps",
        "slack, ps",
        "clock, ps",
        "cells",
        words=3,
    )
    for path in timing.paths.values():
        table.add_row(
            *_row(
                path.group,
                path.start,
                path.end,
                path.delay_ps,
                path.slack_ps,
                path.period_ps,
                path.cells,
            )
        )
    return table
