# SPDX-License-Identifier: Apache-2.0
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from dysharp.gen import cli
from dysharp.gen.traces import synthetic_trace, write_trace
from dysharp.rtl.system import SYSTEM_PRESETS
from dysharp.verif import commands, console, layer, run_command
from dysharp.verif.lib.run import SimulationError
from dysharp.verif.results import tool_versions, write_results

BUILD = Path(__file__).parents[1] / "build"


@pytest.fixture
def run(capsys):
    """Run the command line; return exit code, output and error output."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return run


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    write_trace(path, synthetic_trace("uniform", tokens=50, experts=16, top_k=4, seed=5))
    return path


def on(trace, **changes):
    """Return the arguments of `dysharp run` on a trace."""
    options = {"gpus": 4, "experts_per_gpu": 4, "payload": 128, "packets_per_token": 2}
    words = ["run", "--trace", trace]
    for name, value in (options | changes).items():
        if value is None:
            continue
        words += [f"--{name.replace('_', '-')}", value]
    return words


def test_run_prints_tables_and_writes_json(run, trace, tmp_path):
    figures = tmp_path / "deep" / "figures.json"
    code, out, err = run(
        *on(trace, gpus=8, experts_per_gpu=2, tokens=40, seed=2, json=figures, out=BUILD / "sim"),
        "--dispatch",
    )
    assert (code, err) == (0, "")
    for text in ("links", "fan-out", "one to each expert", "efficiency", f"wrote {figures}"):
        assert text in out
    found = json.loads(figures.read_text())
    assert found["efficiency"] == found["ideal_cycles"] / found["measured_cycles"]
    assert (found["packets"], found["packets_per_expert_unicast"]) == (80, 320)
    assert found["copies"] == found["packets_per_gpu_unicast"]
    assert [link["port"] for link in found["links"]] == list(range(8))
    assert sum(link["flits_out"] for link in found["links"]) == found["flits_out"]
    assert found["parameters"]["switch"]["ports"] == 8
    assert found["parameters"]["tokens"] == 40
    assert (found["seed"], found["tools"]) == (2, tool_versions())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"payload": 100}, "`payload` must be a multiple of 16 up to 256 bytes, not 100"),
        ({"gpus": 1}, "`gpus` must be 2 or more, not 1"),
        ({"gpus": 65}, "65 GPUs with 1 links each: `ports` must be 2 to 64, not 65"),
        ({"gpus": "x"}, r"Invalid value for '--gpus'.*"),
        ({"links_per_gpu": 3}, r"4 GPUs with 3 links each: `links_per_gpu` must be .*, not 3"),
        ({"experts_per_gpu": 0}, "`experts_per_gpu` must be 1 to 65535, not 0"),
        ({"packets_per_token": 0}, "`packets_per_token` must be 1 or more, not 0"),
        ({"tokens": 0}, "`tokens` must be 1 or more, not 0"),
        ({"ready": 101}, "`ready` must be 1 to 100, not 101"),
        ({"order": "x"}, "`order` must be one of arrival, canonical, not 'x'"),
        ({"dtype": "b32"}, "`dtype` must be one of u32, s32, .*, bf16_to_f32, not 'b32'"),
        ({"placement": "x"}, "`placement` must be one of interleaved, blocked, not 'x'"),
        ({"tokens": 51}, r"TRACE:51: the trace holds 50 tokens, not 51"),
    ],
)
def test_run_with_a_wrong_option(run, trace, tmp_path, changes, message):
    code, out, err = run(*on(trace, out=tmp_path / "out", **changes))
    assert (code, out) == (2, "")
    assert re.fullmatch(f"dysharp: {message}\n", err.replace(str(trace), "TRACE"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "1: No such file or directory"),
        ("", "1: the trace holds no token"),
        ('{"ids": [1, 2]}\n{"ids": [1,\n', "2: malformed JSON: .*"),
        ("7\n", "1: a line must be a JSON object, not '7'"),
        ('{"ids": [1, 2]}\n{"t": 1}\n', "2: `ids` is missing"),
        ('{"ids": [1, 2]}\n{"ids": [3, 16]}\n', "2: an expert must be 0 to 15, not 16"),
        (
            '{"ids": [1, 2]}\n{"ids": [1, 2, 3]}\n',
            "2: `ids` must have 2 experts like the lines before, not 3",
        ),
        ('{"ids": [1, 1]}\n', r"1: the experts of a token must differ, not \[1, 1\]"),
    ],
)
def test_run_with_a_bad_trace_names_file_and_line(run, tmp_path, content, message):
    path = tmp_path / "bad.jsonl"
    if content is not None:
        path.write_text(content)
    code, out, err = run(*on(path, out=tmp_path / "out"))
    assert (code, out) == (2, "")
    assert re.fullmatch(f"dysharp: {re.escape(str(path))}:{message}\n", err)


def test_run_ends_with_1_when_a_check_fails(run, trace, monkeypatch):
    def fail(*_, **__):
        raise SimulationError("one difference\nin two lines")

    monkeypatch.setattr(run_command, "replay", fail)
    assert run(*on(trace)) == (1, "", "dysharp: one difference in two lines\n")


def test_run_ends_with_2_when_a_tool_is_missing(run, trace, monkeypatch):
    monkeypatch.setattr(console.shutil, "which", lambda name: None)
    monkeypatch.setattr(console, "find_spec", lambda name: None)
    missing = "g++, make, perl, verilator: not found"
    message = f"dysharp: {missing}; `dysharp doctor` tells the command that brings it\n"
    assert run(*on(trace)) == (2, "", message)


def on_layer(trace, **changes):
    """Return the arguments of `dysharp run` with a whole layer."""
    return on(trace, **{"payload": None, "packets_per_token": None, "hidden": 128} | changes)


def test_run_of_a_layer(run, trace, tmp_path, monkeypatch):
    monkeypatch.setattr(layer, "system_for", lambda *sizes: SYSTEM_PRESETS["tiny"])
    figures, picture = tmp_path / "figures.json", tmp_path / "links.svg"
    code, out, err = run(
        *on_layer(trace, mode="together", tokens=20, json=figures, picture=picture, at_once=2),
        "--out",
        BUILD / "sim",
    )
    assert (code, err) == (0, "")
    for text in ("links", "together", "efficiency", f"wrote {picture}", f"wrote {figures}"):
        assert text in out
    found = json.loads(figures.read_text())
    assert found["efficiency"] == found["ideal_cycles"] / found["measured_cycles"]
    assert found["bit_exact"] is True
    assert (found["tokens"], found["pairs"], found["hidden"]) == (20, 80, 128)
    assert found["link_flits"] == found["planned_link_flits"]
    assert found["parameters"]["system"]["gpu"]["tlb_form"] == "CAM"
    assert (found["parameters"]["mode"], found["parameters"]["at_once"]) == ("together", 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": 24}, "`hidden` must be a multiple of 16 up to 1048576 bytes, not 24"),
        ({"hidden": None}, "`hidden`, or `payload` and `packets_per_token`, must be given"),
        ({"hidden": None, "mode": "serial"}, "`mode` goes with `hidden` only"),
        ({"payload": 128}, "`payload` goes without `hidden` only"),
        ({"mode": "x"}, "`mode` of a layer must be one of dispatch, .*, together, not 'x'"),
        ({"dtype": "u32"}, "`dtype` of a layer must be one of f32, .*, bf16_acc32, not 'u32'"),
        ({"links_per_gpu": 2}, "`links_per_gpu` of a layer must be 1, not 2"),
        ({"picture": "a.jpg"}, r"the picture must end in .png or .svg, not 'a.jpg'"),
        ({"experts_per_gpu": 512}, "4 GPUs with 512 experts each: `experts` times `objects` .*"),
        ({"inner": 0}, "`inner` must be 1 or more, not 0"),
    ],
)
def test_run_of_a_layer_with_a_wrong_option(run, trace, tmp_path, changes, message):
    code, out, err = run(*on_layer(trace, out=tmp_path / "out", **changes))
    assert (code, out) == (2, "")
    assert re.fullmatch(f"dysharp: {message}\n", err)


class TestVerify:
    @pytest.fixture
    def called(self, monkeypatch):
        """Command lines of pytest, which is not run and ends with 5."""
        lines = []

        def call(line):
            lines.append(line)
            return SimpleNamespace(returncode=5)

        monkeypatch.setattr(subprocess, "run", call)
        return lines

    @pytest.mark.parametrize(
        ("options", "arguments"),
        [
            ((), ["-n", "3", "-m", "not regress"]),
            (("--regress",), ["-n", "3"]),
            (("-k", "a or b"), ["-n", "3", "-k", "(a or b)", "-m", "not regress"]),
            (
                ("-k", "a", "--simulator", "icarus", "--regress"),
                ["-n", "3", "-k", "(a) and icarus"],
            ),
            (("--simulator", "verilator", "--regress"), ["-n", "3", "-k", "not icarus"]),
        ],
    )
    def test_calls_pytest_on_the_folder(
        self, run, called, monkeypatch, tmp_path, options, arguments
    ):
        monkeypatch.setattr(commands, "_VERIF", tmp_path / "verif")
        (tmp_path / "pyproject.toml").touch()
        code, out, _ = run("verify", "--jobs", "3", *options)
        assert code == 5
        line = [sys.executable, "-m", "pytest", str(tmp_path / "verif"), *arguments]
        assert called == [line]
        assert out.startswith("pytest -n 3")

    def test_installed_package_has_no_project_file(self, run, called, monkeypatch, tmp_path):
        monkeypatch.setattr(commands, "_VERIF", tmp_path / "verif")
        run("verify")
        assert "--import-mode=importlib" in called[0]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--simulator", "x"), "`--simulator` must be verilator or icarus, not 'x'"),
            (("--jobs", "-1"), "`--jobs` must be 0 or more, not -1"),
        ],
    )
    def test_wrong_option(self, run, called, options, message):
        assert run("verify", *options) == (2, "", f"dysharp: {message}\n")
        assert called == []

    def test_runs_tests_and_passes_their_exit_code_on(self, run):
        expression = "test_write_results_refuses_names_that_are_taken"
        code, _, _ = run("verify", "--jobs", "1", "-k", expression)
        assert code == 0
        code, _, _ = run("verify", "--jobs", "1", "-k", "no_test_has_this_name")
        assert code == 5


class TestBench:
    @pytest.fixture
    def module(self, monkeypatch):
        """Stand in for the module of the bench, and keep what it is called with."""
        made = ModuleType("dysharp_fake_bench")
        made.calls = []

        def bench(folder, seed, quick, progress):
            progress("one thing")
            made.calls.append((folder, seed, quick))
            return {"rate": 0.5, "cycles": 12, "trace": "none", "fmax": None}

        made.bench = bench
        monkeypatch.setitem(sys.modules, "dysharp_fake_bench", made)
        monkeypatch.setitem(commands.BENCHES, "fake", "dysharp_fake_bench")
        return made

    def test_writes_and_prints_figures(self, run, module, tmp_path):
        path = tmp_path / "bench.json"
        code, out, err = run(
            "bench", "fake", "--json", path, "--seed", "4", "--quick", "--out", tmp_path / "out"
        )
        assert (code, err) == (0, "")
        assert module.calls == [(tmp_path / "out" / "fake", 4, True)]
        assert re.search(r"rate .* 0\.5 ", out)
        assert json.loads(path.read_text()) == {
            "rate": 0.5,
            "cycles": 12,
            "trace": "none",
            "fmax": None,
            "parameters": {"bench": "fake", "quick": True},
            "seed": 4,
            "tools": tool_versions(),
        }

    def test_failed_check_ends_with_1(self, run, module, tmp_path):
        def fail(*_):
            raise AssertionError("seed 1, see x:\nport 0: wrong")

        module.bench = fail
        code, _, err = run("bench", "fake", "--json", tmp_path / "b.json")
        assert (code, err) == (1, "dysharp: seed 1, see x: port 0: wrong\n")

    def test_unknown_bench(self, run, tmp_path):
        message = "dysharp: the bench must be one of switch, reduce, gpu, system, not 'x'\n"
        assert run("bench", "x", "--json", tmp_path / "b.json") == (2, "", message)


def test_demo_is_called_with_its_folder(run, monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(commands, "demo", lambda folder, **rest: calls.append((folder, rest)))
    assert run("demo", "--out", tmp_path, "--seed", "3") == (0, "", "")
    assert (calls[0][0], calls[0][1]["seed"]) == (tmp_path, 3)


@pytest.mark.regress
def test_demo(run):
    code, out, err = run("demo", "--out", BUILD / "test_demo")
    assert (code, err) == (0, "")
    for text in ("1. Verilog", "2. Check", "3. Trace", "4. Area", "results"):
        assert text in out
    for name in ("replay.json", "area.json", "rtl/dysharp_switch.sv"):
        assert (BUILD / "test_demo" / name).exists()


def test_write_results_refuses_names_that_are_taken(tmp_path):
    with pytest.raises(ValueError, match=r"^`values` must not have the key 'seed'$"):
        write_results(tmp_path / "r.json", {"seed": 1}, parameters={}, seed=0)


def test_results_that_cannot_be_written_are_a_user_error(run, trace, tmp_path, monkeypatch):
    figures = SimpleNamespace(figures=dict, params=run_command.switch_for(4))
    monkeypatch.setattr(run_command, "replay", lambda *_, **__: figures)
    monkeypatch.setattr(run_command, "print_replay", lambda *_: None)
    (tmp_path / "file").touch()
    code, _, err = run(*on(trace, json=tmp_path / "file" / "r.json"))
    assert code == 2
    assert re.fullmatch(r"dysharp: cannot write .*r\.json: .*\n", err)
