# SPDX-License-Identifier: Apache-2.0
"""Names of tests, in a block's test plan and in its files."""

import ast
import re
from pathlib import Path

__all__ = ["planned_tests", "written_tests"]


def planned_tests(folder: Path, block: str) -> list[str]:
    """Find the tests that ``testplan.md`` names, as ``file::function``, as often as it does."""
    text = (folder / "testplan.md").read_text()
    return sorted(re.findall(rf"`(test_{block}_\w+\.py::\w+)`", text))


def written_tests(folder: Path, block: str) -> list[str]:
    """Find the tests in the files ``test_<block>_*.py``."""
    return sorted(
        f"{path.name}::{node.name}"
        for path in folder.glob(f"test_{block}_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )
