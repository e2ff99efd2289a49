# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("gen", "golden", "rtl", "synth", "verif")


def packages():
    """List the packages that the folders hold."""
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("__init__.py"):
            yield "dysharp." + ".".join(path.parent.relative_to(ROOT).parts)


def test_every_package_is_listed_for_installation():
    text = (ROOT / "pyproject.toml").read_text()
    missing = [name for name in packages() if f'"{name}"' not in text]
    assert not missing


def test_every_source_says_its_licence_first():
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            first = path.read_text().partition("\n")[0]
            assert first == "# SPDX-License-Identifier: Apache-2.0", path


@pytest.mark.regress
def test_wheel_holds_everything_and_works_from_elsewhere(tmp_path):
    source = tmp_path / "source"
    for folder in FOLDERS:
        shutil.copytree(
            ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path, source]
    subprocess.run(pip, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".sv", ".vlt", ".lib", ".tcl"):
                assert (unpacked / "dysharp" / path.relative_to(ROOT)).is_file(), path
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    code = (
        "import dysharp.rtl.flits, dysharp.gen.cli as cli; print(cli.__file__);"
        "cli.main(['generate', '--preset', 'tiny', '--out', '.'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(unpacked)},  # before the editable installation
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(str(unpacked))
    assert (elsewhere / "dysharp_switch.sv").is_file()
