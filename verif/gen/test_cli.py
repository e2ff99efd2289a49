# SPDX-License-Identifier: Apache-2.0
import json
import re
from importlib.metadata import version

import pytest
from dysharp.gen import cli, commands


@pytest.fixture
def run(capsys):
    """Run the command line; return exit code, output and error output."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return run


def test_version(run):
    assert run("--version") == (0, f"dysharp {version('dysharp')}\n", "")


def test_without_a_command_the_help_is_shown(run):
    code, out, err = run()
    assert (code, err) == (0, "")
    for command in ("generate", "doctor", "trace"):
        assert command in out


def test_generate_writes_a_top(run, grid, tmp_path):
    code, out, _ = run(
        "generate", "--top", "grid", "--preset", "small", "--set", "columns=3",
        "--set", "depth=5", "--no-checks", "--out", str(tmp_path / "rtl"),
    )  # fmt: skip
    path = tmp_path / "rtl" / "dysharp_grid.sv"
    assert code == 0
    assert out == f"wrote {path} and dysharp_grid.json\n"
    assert "assert" not in path.read_text()
    parameters = json.loads(path.with_suffix(".json").read_text())["parameters"]
    assert (parameters["columns"], parameters["depth"]) == (3, 5)


def test_generate_all_writes_every_top(run, tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(commands.registry, "names", lambda: ("switch", "switch"))
    monkeypatch.setattr(
        commands,
        "write_top",
        lambda name, params, out, checks: written.append(name) or out / f"{name}.sv",
    )
    code, out, _ = run("generate", "--top", "all", "--preset", "tiny", "--out", str(tmp_path))
    assert code == 0
    assert len(out.splitlines()) == len(written) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("generate --top nothing", r"`top` must be one of switch.*, not 'nothing'"),
        ("generate --preset none", r"`preset` of top switch must be one of .*, not 'none'"),
        ("generate --set ports", r"`--set` must be KEY=VALUE, not 'ports'"),
        ("generate --set =4", r"`--set` must be KEY=VALUE, not '=4'"),
        ("generate --set ports=4 --set ports=5", r"`--set` must name a parameter once, .*"),
        ("generate --set ports=many", r"`ports` must be an integer, not 'many'"),
        ("generate --set ports=1", r"top switch, preset default: `ports` must be .*, not 1"),
        ("generate --set prots=8", r"parameter of top switch must be one of ports, .*"),
        ("generate --top all --set ports=8", r"`--set` must come with one top, .*"),
        ("generate --nothing", r"No such option: --nothing.*"),
        ("nothing", r"No such command 'nothing'.*"),
        ("trace --kind uniform --tokens 1 --experts 2 --top-k 1", r"Missing option '--out'.*"),
        (
            "trace --kind x --tokens 1 --experts 2 --top-k 1 --out t",
            r"`kind` must be one of uniform, power, normal, not 'x'",
        ),
        (
            "trace --kind uniform --tokens x --experts 2 --top-k 1 --out t",
            r"Invalid value for '--tokens'.*",
        ),
    ],
)
def test_user_error_is_one_line_and_exit_code_2(run, arguments, message):
    code, out, err = run(*arguments.split())
    assert (code, out) == (2, "")
    assert re.fullmatch(f"dysharp: {message}\n", err)


def test_trace_is_written_with_equal_bytes_each_time(run, tmp_path):
    contents = []
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        path = tmp_path / name
        code, out, err = run(
            "trace", "--kind", "power", "--alpha", "1.2", "--tokens", "20", "--experts", "16",
            "--top-k", "4", "--seed", "9", "--out", str(path),
        )  # fmt: skip
        assert (code, err) == (0, "")
        assert out == f"wrote {path}: 20 tokens, 4 of 16 experts each\n"
        contents.append(path.read_bytes())
    assert contents[0] == contents[1]


class TestDoctor:
    def test_table_names_every_tool(self, run):
        code, out, _ = run("doctor")
        for tool in commands._TOOLS:
            assert re.search(rf"^ {re.escape(tool.name)} ", out, re.MULTILINE)
        assert code == (1 if "MISSING" in out else 0)

    def test_missing_tool_comes_with_its_remedy_and_exit_code_1(self, run, monkeypatch):
        missing = commands._Tool("no-such-tool", "nothing", "fetch it")
        monkeypatch.setattr(commands, "_TOOLS", (missing,))
        code, out, _ = run("doctor")
        assert code == 1
        assert re.search(r"no-such-tool +nothing +MISSING +fetch it", out)

    def test_missing_optional_tool_is_no_failure(self, run, monkeypatch):
        missing = commands._Tool("no-such-tool", "nothing", "fetch it", package=True, optional=True)
        monkeypatch.setattr(commands, "_TOOLS", (missing,))
        code, out, _ = run("doctor")
        assert code == 0
        assert re.search(r"no-such-tool +nothing +missing \(optional\) +fetch it", out)


class TestMissingDependency:
    SOURCES = (
        cli._Source("dysharp.gen.commands"),
        cli._Source("no_such_package.commands", "dysharp[sim]"),
    )

    @pytest.fixture(autouse=True)
    def missing(self, monkeypatch):
        build = cli._build
        monkeypatch.setattr(cli, "_build", lambda: build(self.SOURCES))

    def test_other_commands_work(self, run):
        code, out, _ = run("doctor")
        assert code in (0, 1)
        assert "amaranth" in out

    def test_unknown_command_says_what_to_install(self, run):
        code, _, err = run("demo")
        assert code == 2
        assert "No such command 'demo'" in err
        assert (
            "The commands of no_such_package.commands are not there, no_such_package is missing: "
            'pip install "dysharp[sim]"' in err
        )

    def test_help_says_what_to_install(self, run):
        code, out, _ = run("--help")
        assert code == 0
        assert 'pip install "dysharp[sim]"' in " ".join(out.split())
