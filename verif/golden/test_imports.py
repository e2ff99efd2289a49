# SPDX-License-Identifier: Apache-2.0
"""What the golden models may know of the RTL: tables, never a component."""

import ast
from pathlib import Path

import dysharp.golden.switch as anchor
import pytest

GOLDEN = Path(anchor.__file__).parent
ALLOWED = {
    "flits",
    "params",
    "param_checks",
    "gpu_params",
    "register_map",
    "hub_register_map",
    "address_hash",
}
COMPONENTS_OF_HASH = {"link_of"}


def imports(path: Path) -> list[tuple[str, str]]:
    """(Absolute module, name) pairs that a file of golden imports."""
    depth = len(path.relative_to(GOLDEN).parts)
    package = ["dysharp", "golden", *path.relative_to(GOLDEN).parts[:-1]]
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level <= depth + 1
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found += [(module, alias.name) for alias in node.names]
    return found


@pytest.mark.parametrize("path", sorted(GOLDEN.rglob("*.py")), ids=lambda path: path.name)
def test_golden_imports_only_tables_of_rtl(path: Path) -> None:
    for module, name in imports(path):
        full = f"{module}.{name}" if module == "dysharp.rtl" else module
        parts = full.split(".")
        assert parts[0] not in {"amaranth", "cocotb", "pyosys"}, full
        if parts[0] == "dysharp":
            assert parts[1] in {"golden", "rtl"}, full
        if parts[:2] == ["dysharp", "rtl"]:
            assert len(parts) == 3, full
            assert parts[2] in ALLOWED, full
            if parts[2] == "address_hash":
                assert name not in COMPONENTS_OF_HASH, name


def test_scan_sees_imports() -> None:
    seen = {module for path in GOLDEN.rglob("*.py") for module, _ in imports(path)}
    assert "dysharp.rtl.flits" in seen
    assert "dysharp.golden.route" in seen
