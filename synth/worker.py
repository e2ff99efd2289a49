# SPDX-License-Identifier: Apache-2.0
"""One Yosys run in a process of its own: ``python -m dysharp.synth.worker JOB.json``.

A Yosys error ends the process that Yosys runs in; no exception can be caught. The result goes to
the file that the job names.
"""

import json
import resource
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from .errors import FlowError
from .hierarchy import keep_levels, merge_twins, read_tree
from .memories import RamMacro, extract_rams

__all__ = ["Job", "run"]


@dataclass(kw_only=True)
class Job:
    """What one run of the worker is told; all paths absolute.

    Parameters
    ----------
    design : str
        SystemVerilog, or RTLIL when the name ends in ``.il`` or ``.rtlil``.
    top : str
        Top module.
    libs : list of str
        Liberty files.
    dont_use : list of str
        Patterns of cells not to map to.
    abc_ps : float or None
        Delay that ABC aims for; None for smallest area without buffers.
    abc_script : str or None
        Script for ABC in place of its own.
    constr : str or None
        File with driving cell and load for ABC.
    ram_threshold_bits : int
        Larger memories become macros.
    flatten : bool
        Whether the netlist is flat.
    tree_levels : int
        Levels below the top that the area is told of; 0 for no table.
    netlist, stat, tree_stat, result : str
        Files to write.
    """

    design: str
    top: str
    libs: list[str]
    dont_use: list[str]
    abc_ps: float | None
    abc_script: str | None
    constr: str | None
    ram_threshold_bits: int
    flatten: bool
    tree_levels: int
    netlist: str
    stat: str
    tree_stat: str
    result: str


class _Session:
    """The passes of the flow on one design."""

    def __init__(self, ys: Any, job: Job) -> None:
        self._ys = ys
        self._job = job
        self.design = ys.Design()
        self._libs = " ".join(f'-liberty "{lib}"' for lib in job.libs)
        self._dont_use = " ".join(f"-dont_use {cell}" for cell in job.dont_use)

    def passes(self, *commands: str) -> None:
        for command in commands:
            self._ys.run_pass(command, self.design)

    def read(self) -> dict[str, RamMacro]:
        """Read, drop what is only for simulation and proofs, and cut the RAMs out."""
        job = self._job
        rtlil = Path(job.design).suffix in (".il", ".rtlil")
        self.passes(f'{"read_rtlil" if rtlil else "read_verilog -sv"} "{job.design}"')
        if not self.design.has(self._ys.IdString(f"\\{job.top}")):
            raise FlowError(f"`top` must be a module of {Path(job.design).name}, not {job.top!r}")
        self.passes(
            f"hierarchy -check -top {job.top}",
            "proc",
            "chformal -remove",
            "delete t:$print",
            "opt_expr -mux_undef",
            "opt_dff",
            "opt_clean",
            "memory_dff",
            "memory_collect",
            "opt_clean",
        )
        self._forget_init()
        return extract_rams(self._ys, self.design, job.ram_threshold_bits)

    def _forget_init(self) -> None:
        """Remove initial values: silicon has none, so nothing may be built on them."""
        self.passes("setattr -unset init w:*")
        for module in self.design.modules_.values():
            for cell in module.cells_.values():
                if cell.type.str() != "$mem_v2":
                    continue
                if cell.getParam(self._ys.IdString("\\WR_PORTS")).as_int():
                    cell.setParam(self._ys.IdString("\\INIT"), self._ys.Const.from_string("x"))

    def map(self, *, flatten: bool) -> None:
        """Synthesise and map to the cells of the library."""
        job = self._job
        constr = f'-D {job.abc_ps:.6g} -constr "{job.constr}"' if job.abc_ps else ""
        script = f'-script "{job.abc_script}"' if job.abc_script else ""
        self.passes(
            f"synth {'-flatten' if flatten else ''} -noshare -top {job.top}",
            "opt_clean",
        )
        self._name_flops()
        self.passes(
            f"dfflibmap {self._libs} {self._dont_use}",
            "opt",
            f"abc {self._libs} {self._dont_use} {constr} {script}",
            "setundef -zero",
            "opt_clean -purge",
        )

    def _name_flops(self) -> None:
        """Name registers after the signals they drive, so that paths can be read."""
        for module in self.design.modules_.values():
            for cell in [*module.cells_.values()]:
                kind = cell.type.str()
                if not kind.startswith(("$_DFF", "$_SDFF", "$_ALDFF")):
                    continue
                bit = next(iter(cell.getPort(self._ys.IdString("\\Q")).to_sigbit_vector()))
                name = bit.wire.name.str()
                if name.startswith("\\"):
                    index = f"[{bit.offset}]" if bit.wire.width > 1 else ""
                    module.rename(cell, module.uniquify(self._ys.IdString(f"{name}{index}_reg")))

    def stat(self, path: str) -> None:
        self.passes(f'tee -q -o "{path}" stat -json {self._libs}')

    def check_and_write(self) -> None:
        """Check that all is mapped and driven, then write the netlist that OpenSTA can read."""
        for lib in self._job.libs:
            self.passes(
                "read_liberty -lib -ignore_miss_func -ignore_miss_dir -ignore_miss_data_latch "
                f'-overwrite "{lib}"'
            )
        self.passes(
            "check -mapped -assert",
            "splitnets -ports",
            "opt_clean -purge",
            f'write_verilog -noattr -noexpr -nohex -nodec "{self._job.netlist}"',
        )


def run(job: Job) -> dict[str, Any]:
    """Run the flow and give what is to be told of it."""
    ys: Any = import_module("pyosys.libyosys")
    session = _Session(ys, job)
    rams = session.read()
    session.passes("design -save cut")
    session.map(flatten=job.flatten)
    session.stat(job.stat)
    session.check_and_write()
    tree: list[dict[str, Any]] = []
    if job.tree_levels:
        session.passes("design -load cut")
        keep_levels(ys, session.design, job.top, job.tree_levels)
        session.passes("flatten", "opt_clean")
        instances = merge_twins(ys, session.design, job.top)
        session.passes("opt_clean")
        session.map(flatten=False)
        session.stat(job.tree_stat)
        tree = read_tree(instances, Path(job.tree_stat))
    usage = (
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return {
        "rams": {name: macro.as_dict() for name, macro in rams.items()},
        "tree": tree,
        "peak_mib": max(usage) // 1024,
    }


def main(argv: list[str]) -> int:
    """Entry point of the process."""
    job = Job(**json.loads(Path(argv[0]).read_text(encoding="utf-8")))
    try:
        result = run(job)
    except FlowError as error:
        result = {"error": str(error)}
    Path(job.result).write_text(json.dumps(result), encoding="utf-8")
    return 2 if "error" in result else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
