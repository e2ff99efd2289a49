# SPDX-License-Identifier: Apache-2.0
"""The command `area` on a small design in place of the generated one."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from dysharp.gen import registry, writer
from dysharp.synth.commands import register
from dysharp.synth.errors import FlowError
from dysharp.synth.timing import sta_available
from typer.testing import CliRunner

from .designs import Buffers, write


@dataclass
class _Params:
    large: int = 256


class _Entry:
    def params(self, preset: str, overrides: dict[str, str]) -> _Params:
        assert preset == "tiny"
        return _Params(**{key: int(value) for key, value in overrides.items()})


def _write_top(top: str, params: _Params, out: Path, *, checks: bool) -> Path:
    assert not checks
    out.mkdir(parents=True, exist_ok=True)
    return write(Buffers(large=params.large), out / f"{top}.il")


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """Give a command line with nothing but this command."""
    monkeypatch.setattr(registry, "get", lambda top: _Entry())
    monkeypatch.setattr(writer, "write_top", _write_top)
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    return app


def test_command_area_prints_tables_and_writes_json(app: typer.Typer, tmp_path: Path) -> None:
    report = tmp_path / "deep" / "report.json"
    arguments = ["area", "--top", "top", "--preset", "tiny", "--set", "large=512"]
    arguments += ["--json", str(report), "--clock-ps", "1000", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert "512 x 16" in result.output
    assert "no wires" in result.output
    figures = json.loads(report.read_text(encoding="utf-8"))
    assert figures["memory_bits"] == 2 * 512 * 16
    assert figures["parameters"] == {"preset": "tiny", "large": 512}
    assert figures["library"]["name"] == "embedded"
    assert (figures["fmax_GHz"] is not None) == sta_available()


def test_command_area_without_clock_says_why_no_timing(app: typer.Typer) -> None:
    arguments = ["area", "--top", "top", "--preset", "tiny", "--levels", "0"]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert "No timing: state --clock-ps" in result.output


def test_command_area_wrong_setting(app: typer.Typer) -> None:
    arguments = ["area", "--top", "top", "--preset", "tiny", "--set", "large"]
    with pytest.raises(FlowError, match=r"^`--set` must be KEY=VALUE, not 'large'$"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
