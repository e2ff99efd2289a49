# SPDX-License-Identifier: Apache-2.0
"""Yosys in a process of its own, for the tests of generation."""

import subprocess
import sys

__all__ = ["yosys"]

_RUN = """
import sys
from pyosys import libyosys
design = libyosys.Design()
for command in sys.argv[1:]:
    libyosys.run_pass(command, design)
"""


def yosys(commands, cwd):
    """Run commands; return the exit code and all output."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *commands],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr
