# SPDX-License-Identifier: Apache-2.0

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from dysharp.verif.lib.trial import Trial, time_limit

SUITE = """
import pytest

@pytest.mark.parametrize("size", [4])
def test_breaks(trial, size, tmp_path):
    for seed in trial.seeds(5):
        if trial.waves:
            wave = tmp_path / f"{seed}.vcd"
            wave.touch()
            trial.waveforms.append(wave)
        assert seed != 3

def test_passes(trial):
    for seed in trial.seeds(2):
        print("seed", seed)
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., str]:
    """Run pytest on a suite of its own, with the hooks of this one."""
    (tmp_path / "conftest.py").write_text(
        "from dysharp.verif.conftest import pytest_pyfunc_call, trial\n"
    )
    (tmp_path / "test_suite.py").write_text(SUITE)

    def run(**environment: str) -> str:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("DYSHARP")}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA"],
            cwd=tmp_path,
            env=inherited | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return done.stdout

    return run


def test_failure_prints_command_and_leaves_waveform(run: Callable[..., str]) -> None:
    text = run()
    line = 'DYSHARP_SEED=3 DYSHARP_WAVES=1 .venv/bin/pytest "test_suite.py::test_breaks[4]"'
    assert text.count(line) == 1
    (wave,) = [line for line in text.splitlines() if line.startswith("waveform: ")]
    assert wave.endswith("/3.vcd")
    assert "1 failed, 1 passed" in text


def test_seed_of_the_environment_replaces_all(run: Callable[..., str]) -> None:
    text = run(DYSHARP_SEED="77")
    assert "2 passed" in text
    assert "seed 77" in text
    assert "seed 1" not in text


def test_waves_of_the_environment_are_not_made_twice(run: Callable[..., str]) -> None:
    text = run(DYSHARP_SEED="3", DYSHARP_WAVES="1")
    assert text.count("waveform: ") == 1
    assert "second run" not in text


def test_time_limit() -> None:
    with pytest.raises(TimeoutError, match=r"^the test took longer than 1 s$"), time_limit(1):
        time.sleep(5)


def test_names_are_file_names() -> None:
    name = Trial("verif/switch/test_switch_random.py::test_random[tiny-heavy]").name
    assert name == "test_switch_random.py--test_random-tiny-heavy"
