# SPDX-License-Identifier: Apache-2.0

import json
from pathlib import Path

import pytest
from dysharp.gen.cli import main
from dysharp.golden.model.layer import simulate_layer
from dysharp.golden.model.machine import Machine
from dysharp.golden.model.workload import WORKLOADS


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["layer", *map(str, arguments)])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_one_system_is_as_the_model_says(tmp_path: Path) -> None:
    file = tmp_path / "layer.json"
    assert not run("--workload", "S-8", "--system", "DySHARP", "--lists", "kept", "--json", file)
    time = simulate_layer(WORKLOADS["S-8"], Machine(lists="kept"), "DySHARP")
    report = json.loads(file.read_text())
    assert report["DySHARP"]["seconds"] == pytest.approx(time.seconds)
    assert report["DySHARP"]["bound"] == time.bound
    assert report["machine"]["lists"] == "kept"


def test_comparison_with_the_paper(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "paper.json"
    assert not run("--compare-paper", "--json", file)
    report = json.loads(file.read_text())
    assert report["full_is_best"] is True
    assert report["ablation"]["DySHARP"] > report["ablation"]["COMET"] > 1
    shown = capsys.readouterr().out
    assert "DySHARP-COMET" in shown
    assert "difference" in shown


def test_sweep_with_a_picture(tmp_path: Path) -> None:
    picture = tmp_path / "gpus.png"
    options = ("--workload", "S-8", "--system", "COMET", "--sweep", "gpus")
    assert not run(*options, "--plot", picture)
    assert picture.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workload", "X-8"), "`--workload` must be one of S-8, "),
        (("--system", "NoSHARP"), "`--system` must be all or one of DeepEP, "),
        (("--plot", "a.png"), "`--plot` goes with `--sweep`"),
        (("--lists", "lost"), "`lists` must be "),
        (("--sweep", "moon"), "must be one of "),
        (("--gpus", "0"), "`gpus` must be "),
        (("--sweep", "gpus", "--plot", "a.txt", "--workload", "S-8"), ".png or .svg, not 'a.txt'"),
        (("--json", "/no/where.json", "--workload", "S-8", "--system", "NVLS"), "/no/where.json"),
    ],
)
def test_user_errors(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*options) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
