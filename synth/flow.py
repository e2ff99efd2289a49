# SPDX-License-Identifier: Apache-2.0
"""Synthesis of one design on one library: area, macros and a netlist for timing."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .errors import FlowError
from .hierarchy import load_stat
from .liberty import Library, read_libraries
from .memories import PREFIX, RamMacro
from .pdks import Pdk, find_pdk
from .worker import Job

__all__ = ["DELAY_SCRIPTS", "EMBEDDED_LIB", "AreaResult", "MacroUse", "Part", "synthesise"]

EMBEDDED_LIB = Path(__file__).with_name("gate_equivalents.lib")
"""The library of this project: areas in gate equivalents, no technology."""

DELAY_SCRIPTS = tuple(Path(__file__).with_name(name) for name in ("delay.abc", "delay_nf.abc"))
"""Scripts for ABC that map for delay. The first one gives the faster netlist, but ABC's `map`
aborts on some designs and libraries; then the next one is taken."""

_UNSAFE = re.compile(r"[^\w.$\\-]")


@dataclass(frozen=True, kw_only=True)
class MacroUse:
    """How often one kind of RAM macro is in the design.

    Parameters
    ----------
    macro : RamMacro
        The kind.
    count : int
        Instances.
    area_estimate : float or None
        Of all of them, bits times the bit area of the technology; None without a figure.
    """

    macro: RamMacro
    count: int
    area_estimate: float | None

    @property
    def bits(self) -> int:
        """Bits of all instances."""
        return self.macro.bits * self.count


@dataclass(frozen=True, kw_only=True)
class Part:
    """One row of the area table: all instances whose paths differ in digits only.

    Parameters
    ----------
    name : str
        Path below the top without digits; ``(top)`` is what the top holds itself.
    instances : int
        How many.
    area, sequential_area : float
        Standard cells that the instances hold themselves, not those of parts below.
    cells, flops, memory_bits : int
        Counts of the same.
    """

    name: str
    instances: int
    area: float
    sequential_area: float
    cells: int
    flops: int
    memory_bits: int


@dataclass(frozen=True, kw_only=True)
class AreaResult:
    """What came out of one synthesis.

    Parameters
    ----------
    top : str
        Top module.
    clock_ps : float or None
        The clock that was aimed for; None in area mode, where no buffers are put in.
    area, sequential_area, combinational_area : float
        Standard cells in the library's unit, macros left out.
    nand2_area : float
        Area of the library's smallest NAND2.
    cells, flops : int
        Standard cells and the registers among them.
    cells_by_type : dict of str to int
        Standard cells.
    macros : tuple of MacroUse
        RAMs.
    parts : tuple of Part
        Area by part, from a run of its own in which parts stay apart: the sum differs from `area`
        by some per cent, since nothing is optimised over their borders.
    library : Library
        What it was mapped to.
    pdk : Pdk or None
        The technology, when it is a known one.
    netlist : Path
        Verilog for timing.
    versions : dict of str to str
        Of the tools.
    peak_mib : int
        Largest memory use of the run.
    """

    top: str
    clock_ps: float | None
    area: float
    sequential_area: float
    nand2_area: float
    cells: int
    flops: int
    cells_by_type: dict[str, int] = field(repr=False)
    macros: tuple[MacroUse, ...]
    parts: tuple[Part, ...]
    library: Library = field(repr=False)
    pdk: Pdk | None = field(repr=False)
    netlist: Path
    versions: dict[str, str]
    peak_mib: int

    @property
    def combinational_area(self) -> float:
        """Standard cells that are no registers."""
        return self.area - self.sequential_area

    @property
    def area_ge(self) -> float:
        """Standard cell area in NAND2 equivalents."""
        return self.area / self.nand2_area

    @property
    def memory_bits(self) -> int:
        """Bits in RAM macros."""
        return sum(use.bits for use in self.macros)

    @property
    def macro_area_estimate(self) -> float | None:
        """Estimate of all RAM macros in the library's unit; None without a figure for it."""
        estimates = [use.area_estimate for use in self.macros]
        known = [estimate for estimate in estimates if estimate is not None]
        return sum(known) if len(known) == len(estimates) else None


def synthesise(
    design: Path,
    top: str,
    *,
    workdir: Path,
    libs: Sequence[Path] = (EMBEDDED_LIB,),
    clock_ps: float | None = None,
    ram_threshold_bits: int = 2048,
    dont_use: Sequence[str] | None = None,
    driving_cell: str | None = None,
    load_ff: float | None = None,
    abc_ps: float | None = None,
    abc_script: Path | None = None,
    flatten: bool = True,
    tree_levels: int = 1,
) -> AreaResult:
    """Map `design` to standard cells, with RAMs of more than a few bits as macros.

    Parameters
    ----------
    design : Path
        SystemVerilog of the generator, or RTLIL (``.il``).
    top : str
        Top module.
    workdir : Path
        Folder for all files of the run; made when missing.
    libs : sequence of Path
        Liberty files, plain or gzipped, that together are one library.
    clock_ps : float, optional
        Clock period to aim for. Without, the smallest area without any buffers is made, whose
        timing says nothing.
    ram_threshold_bits : int
        A memory of more bits is a macro and must be in a module of its own; smaller ones become
        flops.
    dont_use : sequence of str, optional
        Patterns of cells not to map to; by default those of the technology.
    driving_cell : str, optional
        At the inputs; by default that of the technology.
    load_ff : float, optional
        At the outputs; by default that of the technology.
    abc_ps : float, optional
        Delay that ABC aims for between registers; by default the clock less what a register of
        the technology takes.
    abc_script : Path, optional
        Script for ABC. By default those in `DELAY_SCRIPTS` when a clock is stated, the next one
        when ABC fails; else ABC's own.
    flatten : bool
        Whether the netlist is made flat.
    tree_levels : int
        Levels below the top in the table by parts, 0 for none; it doubles the run time.

    Returns
    -------
    AreaResult
        The figures, all parts of a total adding up.

    Raises
    ------
    FlowError
        For a file that cannot be read, an unknown top, or a memory that can be no macro.
    """
    _check(top, clock_ps, ram_threshold_bits, tree_levels)
    if not design.is_file():
        raise FlowError(f"cannot read design {design}: no such file")
    library = read_libraries(libs)
    nand2 = library.nand2
    pdk = find_pdk(library)
    workdir.mkdir(parents=True, exist_ok=True)
    workdir = workdir.resolve()
    constr = None
    if clock_ps is not None:
        cell = driving_cell or (pdk.driving_cell if pdk else None)
        if cell is None or cell not in library.cells:
            raise FlowError(f"`driving_cell` must be a cell of {library.names[0]}, not {cell!r}")
        constr = workdir / "abc.constr"
        load = load_ff if load_ff is not None else pdk.load_ff if pdk else 5.0
        constr.write_text(f"set_driving_cell {cell}\nset_load {load:g}\n", encoding="ascii")
        if abc_ps is None:
            overhead = pdk.flop_overhead_ps if pdk else 0.2 * clock_ps
            abc_ps = max(clock_ps - overhead, 0.25 * clock_ps)
    # ABC's own script keeps the area low and lets a late signal start a carry chain.
    scripts = [abc_script]
    if clock_ps is not None and abc_script is None:
        scripts = [_with_delay(template, abc_ps, workdir) for template in DELAY_SCRIPTS]
    job = Job(
        design=str(design.resolve()),
        top=top,
        libs=[str(path.resolve()) for path in library.paths],
        dont_use=list(dont_use if dont_use is not None else pdk.dont_use if pdk else ()),
        abc_ps=abc_ps if clock_ps is not None else None,
        abc_script=None,
        constr=str(constr) if constr else None,
        ram_threshold_bits=ram_threshold_bits,
        flatten=flatten,
        tree_levels=tree_levels,
        netlist=str(workdir / f"{_UNSAFE.sub('_', top)}.net.v"),
        stat=str(workdir / "stat.json"),
        tree_stat=str(workdir / "stat_parts.json"),
        result=str(workdir / "result.json"),
    )
    for script in scripts:
        job = replace(job, abc_script=str(script.resolve()) if script else None)
        try:
            result = _run(job, workdir)
            break
        except _AbcError:
            if script is scripts[-1]:
                raise
    return _collect(job, result, library, nand2.area, pdk, clock_ps)


def _check(top: str, clock_ps: float | None, threshold: int, levels: int) -> None:
    if not top or _UNSAFE.search(top):
        raise FlowError(f"`top` must be a module name, not {top!r}")
    if clock_ps is not None and not clock_ps > 0:
        raise FlowError(f"`clock_ps` must be positive, not {clock_ps!r}")
    if threshold < 0:
        raise FlowError(f"`ram_threshold_bits` must be 0 or more, not {threshold!r}")
    if levels < 0:
        raise FlowError(f"`tree_levels` must be 0 or more, not {levels!r}")


class _AbcError(FlowError):
    """ABC failed, not Yosys."""


def _with_delay(template: Path, delay_ps: float | None, workdir: Path) -> Path:
    script = workdir / template.name
    text = template.read_text(encoding="ascii").replace("{D}", f"{delay_ps:.6g}")
    script.write_text(text, encoding="ascii")
    return script


def _run(job: Job, workdir: Path) -> dict[str, Any]:
    job_file, log, result = workdir / "job.json", workdir / "yosys.log", Path(job.result)
    job_file.write_text(json.dumps(asdict(job), indent=1), encoding="utf-8")
    result.unlink(missing_ok=True)
    with log.open("wb") as out:
        code = subprocess.run(
            [sys.executable, "-m", "dysharp.synth.worker", str(job_file)],
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=workdir,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            check=False,
        ).returncode
    if result.is_file():
        data: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        if "error" in data:
            raise FlowError(data["error"])
        return data
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    reason = errors[-1] if errors else (lines[-1] if lines else f"exit code {code}")
    kind = _AbcError if reason.startswith(("ABC: ", "Can't open ABC output")) else FlowError
    raise kind(f"Yosys failed: {reason} (whole log: {log})")


def _collect(
    job: Job,
    result: dict[str, Any],
    library: Library,
    nand2_area: float,
    pdk: Pdk | None,
    clock_ps: float | None,
) -> AreaResult:
    stat = load_stat(Path(job.stat))
    counts = Counter[str](stat["design"]["num_cells_by_type"])
    macros = {macro.name: macro for macro in (RamMacro(**m) for m in result["rams"].values())}
    uses = tuple(
        MacroUse(
            macro=macro,
            count=counts[name],
            area_estimate=macro.bits * counts[name] * pdk.ram.bit_area if pdk else None,
        )
        for name, macro in sorted(macros.items())
        if counts[name]
    )
    cells = {name: count for name, count in counts.items() if not name.startswith(PREFIX)}
    foreign = sorted(name for name in cells if name not in library.cells)
    if foreign and job.flatten:
        raise FlowError(f"cells {', '.join(foreign)} are not of library {library.names[0]}")
    cells = {name: count for name, count in cells.items() if name in library.cells}
    area, sequential, number, flops = _sums(cells, library)
    return AreaResult(
        top=job.top,
        clock_ps=clock_ps,
        area=area,
        sequential_area=sequential,
        nand2_area=nand2_area,
        cells=number,
        flops=flops,
        cells_by_type=cells,
        macros=uses,
        parts=tuple(_part(row, library, macros) for row in result["tree"]),
        library=library,
        pdk=pdk,
        netlist=Path(job.netlist),
        versions={
            "pyosys": version("pyosys"),
            "yosys": str(stat.get("creator", "")),
            "python": sys.version.split()[0],
        },
        peak_mib=result["peak_mib"],
    )


def _sums(cells: dict[str, int], library: Library) -> tuple[float, float, int, int]:
    """Area, sequential area, cells and flops of a bag of cells."""
    area = sum(library.cells[name].area * count for name, count in cells.items())
    flops = {name: count for name, count in cells.items() if library.cells[name].flop}
    sequential = sum(library.cells[name].area * count for name, count in flops.items())
    return area, sequential, sum(cells.values()), sum(flops.values())


def _part(row: dict[str, Any], library: Library, macros: dict[str, RamMacro]) -> Part:
    cells = {n: c for n, c in row["cells_by_type"].items() if n in library.cells}
    bits = sum(macros[n].bits * c for n, c in row["cells_by_type"].items() if n in macros)
    area, sequential, number, flops = _sums(cells, library)
    return Part(
        name=row["part"],
        instances=row["instances"],
        area=area,
        sequential_area=sequential,
        cells=number,
        flops=flops,
        memory_bits=bits,
    )
