# SPDX-License-Identifier: Apache-2.0
"""The test plan and the tests agree."""

import ast
import re
from pathlib import Path

FOLDER = Path(__file__).parent


def test_plan_names_all_tests_and_no_others():
    planned = re.findall(r"`(test_reduce_\w+\.py::\w+)`", (FOLDER / "testplan.md").read_text())
    written = {
        f"{path.name}::{node.name}"
        for path in FOLDER.glob("test_reduce_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    assert sorted(planned) == sorted(written)
