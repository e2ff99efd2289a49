# SPDX-License-Identifier: Apache-2.0
"""Static timing of a mapped netlist with OpenSTA: no wires, an ideal clock."""

import hashlib
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import FlowError
from .flow import AreaResult
from .liberty import Library, unpack
from .macros import ram_liberty
from .pdks import Pdk, RamModel

__all__ = ["GROUPS", "TimingPath", "TimingResult", "analyse", "sta_available"]

GROUPS = ("reg2reg", "in2reg", "reg2out", "in2out")
"""Path groups; RAM macros count as registers."""

_PROGRAM = "sta"
_MARK = "@@"
_REPORT = "-format full -digits 5 -fields {slew cap input_pin fanout}"
_LINE = re.compile(r"([\^v])\s+(\S+)/(\S+)\s+\((\S+)\)\s*$")

_ESCAPE = "\\"
_INSTANCE = re.compile(r"^  \S+ (\S+)\s+\($")
_TIED_PIN = re.compile(r"^    \.(\S+?)\s*\(1'\w+\)")
_TIED_PORT = re.compile(r"^  assign (\S+)\s+= 1'\w+;")


def sta_available() -> bool:
    """Whether the program ``sta`` of OpenSTA is on the path."""
    return shutil.which(_PROGRAM) is not None


@dataclass(frozen=True, kw_only=True)
class TimingPath:
    """The worst path of one group.

    Parameters
    ----------
    group : str
        One of `GROUPS`.
    start, end : str
        Register, macro or port.
    delay_ps : float
        From the clock edge or the input to the next edge, with clock to output and setup, without
        what lies outside of the ports.
    slack_ps : float
        At the clock of the run.
    period_ps : float
        Shortest clock at which the path would just meet, the share of the ports kept.
    cells : int
        Combinational cells on the path.
    text : str
        The path as OpenSTA tells it.
    """

    group: str
    start: str
    end: str
    delay_ps: float
    slack_ps: float
    period_ps: float
    cells: int
    text: str


@dataclass(frozen=True, kw_only=True)
class TimingResult:
    """What OpenSTA told.

    Parameters
    ----------
    clock_ps : float
        Clock of the run.
    io_share : float
        Part of the clock that lies before every input and after every output.
    paths : dict of str to TimingPath
        Worst path of each group that has any.
    fo4_ps : float or None
        Delay of an inverter with four of its kind as load, in the same library.
    version : str
        Of OpenSTA.
    """

    clock_ps: float
    io_share: float
    paths: dict[str, TimingPath]
    fo4_ps: float | None
    version: str

    @property
    def worst(self) -> TimingPath:
        """The path that sets the shortest clock."""
        return max(self.paths.values(), key=lambda path: path.period_ps)

    @property
    def slack_ps(self) -> float:
        """Smallest slack."""
        return min(path.slack_ps for path in self.paths.values())

    @property
    def min_period_ps(self) -> float:
        """Shortest clock at which all paths meet."""
        return self.worst.period_ps

    @property
    def fmax_ghz(self) -> float:
        """Clock rate of `min_period_ps`."""
        return 1e3 / self.min_period_ps

    @property
    def worst_fo4(self) -> float | None:
        """Delay of the worst path in FO4, the figure to carry to another technology."""
        return self.worst.delay_ps / self.fo4_ps if self.fo4_ps else None

    def summary(self) -> str:
        """One line a group, the worst path below."""
        lines = [
            f"{path.group:8} period {path.period_ps:8.1f} ps  slack {path.slack_ps:8.1f} ps  "
            f"{path.cells:3} cells  {path.start} -> {path.end}"
            for path in self.paths.values()
        ]
        fo4 = f", {self.worst_fo4:.1f} FO4" if self.worst_fo4 else ""
        lines.append(f"fmax {self.fmax_ghz:.3f} GHz{fo4}")
        return "\n".join([*lines, self.worst.text])


def analyse(
    result: AreaResult,
    *,
    clock_ps: float | None = None,
    io_share: float = 0.2,
    ram: RamModel | None = None,
    load_ff: float | None = None,
    with_fo4: bool = True,
) -> TimingResult:
    """Find the worst paths of a netlist that `synthesise` made.

    Parameters
    ----------
    result : AreaResult
        The synthesis; its netlist is read.
    clock_ps : float, optional
        Clock on the port ``clk``; by default that of the synthesis.
    io_share : float
        Part of the clock that is taken before every input and after every output.
    ram : RamModel, optional
        Figures for the macros; by default those of the technology.
    load_ff : float, optional
        At the outputs; by default that of the technology.
    with_fo4 : bool
        Whether the FO4 of the library is measured too.

    Raises
    ------
    FlowError
        If OpenSTA is missing, tells any error, finds no path or an endpoint without constraint.
    """
    clock = clock_ps if clock_ps is not None else result.clock_ps
    if clock is None or not clock > 0:
        raise FlowError(f"`clock_ps` must be positive for timing, not {clock!r}")
    if not 0 <= io_share < 0.5:
        raise FlowError(f"`io_share` must be 0 up to 0.5, not {io_share!r}")
    model = ram or (result.pdk.ram if result.pdk else None)
    if result.macros and model is None:
        raise FlowError(f"`ram` must be given for macros on library {result.library.names[0]}")
    workdir = result.netlist.parent
    libs = unpack(result.library, workdir / "libs")
    if result.macros and model is not None:
        rams = workdir / "rams.lib"
        text = ram_liberty((use.macro for use in result.macros), model, result.library)
        rams.write_text(text, encoding="ascii")
        libs.append(rams)
    script = _script(result, libs, clock, io_share, load_ff)
    output = _run(script, workdir, "timing")
    _check_setup(output, result.netlist)
    time_ps = result.library.time_ps
    paths = {}
    for group in GROUPS:
        path = _parse(group, output, time_ps, clock, io_share)
        if path is not None:
            paths[group] = path
    if not paths:
        raise FlowError(f"OpenSTA found no path in {result.netlist.name}: is there a port `clk`?")
    fo4 = _fo4(result.library, result.pdk, libs, workdir) if with_fo4 and result.pdk else None
    version = re.search(r"@@version (\S+)", output)
    return TimingResult(
        clock_ps=clock,
        io_share=io_share,
        paths=paths,
        fo4_ps=fo4,
        version=version[1] if version else "",
    )


def _prologue(libs: Sequence[Path], netlist: Path, top: str) -> list[str]:
    return [
        "proc must {args} {",
        "  if {[catch {uplevel 1 $args} answer]} {",
        '    puts "@@error $answer"',
        "    exit 1",
        "  }",
        "  return $answer",
        "}",
        *(f"must read_liberty {{{lib}}}" for lib in libs),
        f"must read_verilog {{{netlist}}}",
        f"must link_design {{{top}}}",
    ]


def _script(
    result: AreaResult, libs: Sequence[Path], clock: float, share: float, load_ff: float | None
) -> str:
    library, pdk = result.library, result.pdk
    period = clock / library.time_ps
    load = (load_ff if load_ff is not None else pdk.load_ff if pdk else 5.0) / library.cap_ff
    lines = [
        *_prologue(libs, result.netlist, result.top),
        f"must create_clock -name clk -period {period:.6g} [must get_ports clk]",
        "set ins {}",
        "foreach port [all_inputs] {",
        '  if {[get_name $port] ne "clk"} { lappend ins $port }',
        "}",
        "set outs [all_outputs]",
        f"must set_output_delay {period * share:.6g} -clock clk $outs",
        f"must set_load {load:.6g} $outs",
        "set starts [must all_registers -clock_pins]",
        "set ends [must all_registers -data_pins]",
        "if {[llength $ins]} {",
        f"  must set_input_delay {period * share:.6g} -clock clk $ins",
        *([f"  must set_driving_cell -lib_cell {pdk.driving_cell} $ins"] if pdk else []),
        "}",
    ]
    ends = {"reg": "$ends", "out": "$outs"}
    starts = {"reg": "$starts", "in": "$ins"}
    for group in GROUPS:
        start, end = (
            names[key] for names, key in zip((starts, ends), group.split("2"), strict=True)
        )
        lines += [
            f'puts "{_MARK}group {group}"',
            f"if {{[llength {start}] && [llength {end}]}} {{",
            f"  must report_checks -path_delay max -from {start} -to {end} {_REPORT}",
            "}",
        ]
    lines += [
        f'puts "{_MARK}group check"',
        "must check_setup -verbose -unconstrained_endpoints -no_clock -loops",
        f'puts "{_MARK}version [must sta::version]"',
        f'puts "{_MARK}end"',
        "exit 0",
    ]
    return "\n".join(lines) + "\n"


def _run(script: str, workdir: Path, name: str) -> str:
    if not sta_available():
        raise FlowError("timing needs the program `sta` of OpenSTA on the path")
    path = workdir / f"{name}.tcl"
    path.write_text(script, encoding="ascii")
    done = subprocess.run(
        [_PROGRAM, "-no_splash", "-exit", str(path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        cwd=workdir,
        check=False,
    )
    output = done.stdout + done.stderr
    (workdir / f"{name}.log").write_text(output, encoding="utf-8")
    errors = [
        line.strip()
        for line in output.splitlines()
        if line.startswith((f"{_MARK}error", "Error"))
        or ("not found" in line and ".lib, line" not in line)
    ]
    if errors or done.returncode or f"{_MARK}end" not in output:
        reason = errors[0].removeprefix(f"{_MARK}error ") if errors else "it ended early"
        raise FlowError(f"OpenSTA failed: {reason} (whole log: {workdir / name}.log)")
    return output


def _check_setup(output: str, netlist: Path) -> None:
    """Refuse loops, missing clocks, and endpoints without constraint that are not constants."""
    section = output.partition(f"{_MARK}group check\n")[2].partition(_MARK)[0]
    constants = _constant_pins(netlist.read_text(encoding="utf-8"))
    unconstrained = False
    for line in section.splitlines():
        if line.startswith("Warning: "):
            unconstrained = line.endswith(("unconstrained endpoints.", "unconstrained endpoint."))
            if not unconstrained:
                raise FlowError(f"OpenSTA found a wrong set-up: {line.removeprefix('Warning: ')}")
        elif unconstrained and line.strip() and line.strip() not in constants:
            raise FlowError(f"OpenSTA found an endpoint without constraint: {line.strip()}")


def _constant_pins(netlist: str) -> set[str]:
    """Pins and ports that a netlist of Yosys ties to a constant; no path ends there."""
    found = set()
    instance = ""
    for line in netlist.splitlines():
        if start := _INSTANCE.match(line):
            instance = start[1].removeprefix(_ESCAPE)
        elif pin := _TIED_PIN.match(line):
            found.add(f"{instance}/{pin[1].removeprefix(_ESCAPE)}")
        elif port := _TIED_PORT.match(line):
            found.add(port[1].removeprefix(_ESCAPE))
    return found


def _parse(
    group: str, output: str, time_ps: float, clock: float, share: float
) -> TimingPath | None:
    text = output.partition(f"{_MARK}group {group}\n")[2].partition(_MARK)[0].strip("\n")
    start = re.search(r"^Startpoint: (\S+)", text, re.MULTILINE)
    end = re.search(r"^Endpoint: (\S+)", text, re.MULTILINE)
    slack_match = re.search(r"(-?[0-9.]+)\s+slack ", text)
    if start is None or end is None or slack_match is None:
        return None
    slack = float(slack_match[1]) * time_ps
    inside = 1.0 - share * sum(end in group.split("2") for end in ("in", "out"))
    delay = clock * inside - slack
    steps = [match for match in map(_LINE.search, text.splitlines()) if match]
    cells = dict.fromkeys(step[2] for step in steps)
    logic = len(cells) - sum(name in cells for name in {start[1], end[1]})
    return TimingPath(
        group=group,
        start=start[1],
        end=end[1],
        delay_ps=delay,
        slack_ps=slack,
        period_ps=delay / inside,
        cells=logic,
        text=text,
    )


_STAGES = 8


def _fo4(library: Library, pdk: Pdk, libs: Sequence[Path], workdir: Path) -> float | None:
    """Measure an inverter in the middle of a chain in which each drives four."""
    cell = library.cells.get(pdk.inverter)
    if cell is None:
        return None
    digest = hashlib.sha256("".join(library.sha256).encode()).hexdigest()[:16]
    cache = workdir / "libs" / f"{digest}.fo4"
    if cache.is_file():
        return float(cache.read_text(encoding="ascii"))
    pins = pdk.inverter_pins
    lines = ["module chain(a, y);", "input a;", "output y;"]
    lines += [f"wire n{i};" for i in range(1, _STAGES)]
    lines += [f"wire d{i}_{k};" for i in range(_STAGES) for k in range(3)]
    nets = ["a", *(f"n{i}" for i in range(1, _STAGES)), "y"]
    for i in range(_STAGES):
        lines.append(f"{cell.name} s{i} (.{pins[0]}({nets[i]}), .{pins[1]}({nets[i + 1]}));")
        lines += [
            f"{cell.name} l{i}_{k} (.{pins[0]}({nets[i]}), .{pins[1]}(d{i}_{k}));" for k in range(3)
        ]
    netlist = workdir / "fo4.net.v"
    netlist.write_text("\n".join([*lines, "endmodule"]) + "\n", encoding="ascii")
    script = [
        *_prologue(libs, netlist, "chain"),
        "must create_clock -name v -period 1",
        "must set_input_delay 0 -clock v [get_ports a]",
        "must set_output_delay 0 -clock v [get_ports y]",
        "must report_checks -path_delay max -from [get_ports a] -to [get_ports y] -digits 6",
        f'puts "{_MARK}end"',
        "exit 0",
    ]
    output = _run("\n".join(script) + "\n", workdir, "fo4")
    times = {
        name: float(time) for time, name in re.findall(r"([0-9.]+)\s+[\^v]\s+(s\d)/\S+ \(", output)
    }
    try:
        value = (times["s5"] - times["s1"]) / 4 * library.time_ps
    except KeyError:
        return None
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.write_text(f"{value:.6g}", encoding="ascii")
    return value
