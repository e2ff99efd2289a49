# SPDX-License-Identifier: Apache-2.0
"""Proofs with the SAT solver of Yosys, about a circuit that asserts its properties.

Yosys runs in a process of its own, since an error ends it. What was to be proved is counted, so
that a property that got lost on the way cannot pass for one that holds.
"""

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amaranth.back.rtlil import convert
from amaranth.hdl import Module

__all__ = ["Proof", "prove"]

_RUN = """
import sys
from pyosys import libyosys
design = libyosys.Design()
for command in sys.argv[1:]:
    libyosys.run_pass(command, design)
"""
_PREPARE = (
    "read_rtlil spec.il",
    "hierarchy -top spec",
    "proc",
    "flatten",
    # The words of a memory may be anything: a read is a free input.
    "delete t:$memrd* t:$memwr* t:$meminit*",
    "opt_clean",
    "async2sync",
    "chformal -lower",
    "opt_clean",
    "select -count t:$assert",
    "select -count t:$assume",
)
_PROVED = ("Induction step proven: SUCCESS!", "proof finished - no model found: SUCCESS!")
_FAILED = ("model found: FAIL!", "model found for base case: FAIL!")
_SECONDS = 300


@dataclass(frozen=True)
class Proof:
    """Outcome of a proof.

    Parameters
    ----------
    holds : bool
        Whether all properties hold; if not, there is a counterexample.
    properties, assumptions : int
        How many there were.
    log : str
        What Yosys printed.
    """

    holds: bool
    properties: int
    assumptions: int
    log: str


def prove(
    spec: Module,
    ports: Sequence[Any],
    folder: Path,
    *,
    induction: int | None = None,
    depth: int | None = None,
    peek: Mapping[str, str] | None = None,
) -> Proof:
    """Prove all assertions of a circuit, for all inputs that its assumptions allow.

    Parameters
    ----------
    spec : Module
        The circuit with what is asserted about it. Without `induction` and `depth` it must be
        combinational. Reset is held low.
    ports : sequence
        Its free inputs.
    folder : Path
        For the files.
    induction : int, optional
        Prove by temporal induction of at most this length, from the initial state.
    depth : int, optional
        Only look at so many cycles after reset.
    peek : mapping of str to str, optional
        Inputs that always have the value of a signal inside, by names as in Verilog. For what an
        induction must be told of the state; a signal that is not there is an error.

    Raises
    ------
    RuntimeError
        If Yosys fails, or neither proves nor disproves.
    """
    (folder / "spec.il").write_text(
        convert(spec, name="spec", ports=ports, emit_src=False), encoding="utf-8"
    )
    command = "sat -prove-asserts -set-assumes"
    if induction is not None or depth is not None:
        command += f" -set rst 0 -tempinduct{'-baseonly' if induction is None else ''}"
        # Without `-seq`, which would leave the first cycles unproved.
        command += f" -maxsteps {depth if induction is None else induction}"
    for name, inner in (peek or {}).items():
        command += f" -set {name} \\{inner}"
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *_PREPARE, f"{command} spec"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    log = done.stdout + done.stderr
    counts = re.findall(r"^(\d+) objects?\.$", log, re.MULTILINE)
    proved = any(text in log for text in _PROVED)
    if induction is None and depth is not None:
        proved = f"proved base case for {depth} steps: SUCCESS!" in log
    failed = any(text in log for text in _FAILED)
    if done.returncode or len(counts) != 2 or proved == failed:
        raise RuntimeError(f"Yosys neither proved nor disproved:\n{log[-3000:]}")
    return Proof(proved, int(counts[0]), int(counts[1]), log)
