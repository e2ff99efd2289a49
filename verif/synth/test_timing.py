# SPDX-License-Identifier: Apache-2.0
"""Timing with OpenSTA: known paths, RAM macros, errors."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dysharp.synth.errors import FlowError
from dysharp.synth.flow import AreaResult, synthesise
from dysharp.synth.pdks import PDKS, RamModel
from dysharp.synth.report import print_report, report_dict, write_report
from dysharp.synth.timing import analyse, sta_available
from rich.console import Console

from .designs import AdderBetweenRegisters, Buffers, pdk_libs, write

needs_sta = pytest.mark.skipif(not sta_available(), reason="OpenSTA (`sta`) is not on the path")

_CLOCK_PS = 1000.0


@pytest.fixture(scope="module")
def adder(tmp_path_factory: pytest.TempPathFactory) -> AreaResult:
    """Map the adder to the embedded library."""
    folder = tmp_path_factory.mktemp("adder")
    design = write(AdderBetweenRegisters(), folder / "top.il")
    return synthesise(design, "top", workdir=folder, clock_ps=_CLOCK_PS, tree_levels=0)


@pytest.fixture(scope="module")
def buffers(tmp_path_factory: pytest.TempPathFactory) -> AreaResult:
    """Map the RAMs to the embedded library."""
    folder = tmp_path_factory.mktemp("buffers")
    design = write(Buffers(), folder / "top.il")
    return synthesise(design, "top", workdir=folder, clock_ps=_CLOCK_PS, tree_levels=1)


@needs_sta
def test_timing_adder_meets_slow_clock_and_misses_fast_one(adder: AreaResult) -> None:
    slow, fast = analyse(adder, clock_ps=2000), analyse(adder, clock_ps=100)
    assert slow.slack_ps > 0 > fast.slack_ps
    assert set(slow.paths) == {"reg2reg", "in2reg", "reg2out"}
    path = slow.paths["reg2reg"]
    assert path.start.startswith(("left", "right"))
    assert path.end.startswith("o[")
    # The clock is no part of the delay: both runs find the same.
    assert path.delay_ps == pytest.approx(fast.paths["reg2reg"].delay_ps, abs=0.1)
    assert path.delay_ps == pytest.approx(path.period_ps)
    assert slow.fmax_ghz == pytest.approx(1e3 / slow.min_period_ps)
    # A carry over 32 bits takes 6 gates at least, and 3 a bit at most.
    assert 6 <= path.cells <= 96
    assert "data arrival time" in path.text


@needs_sta
def test_timing_fo4_of_embedded_library_is_what_its_table_says(adder: AreaResult) -> None:
    result = analyse(adder)
    assert result.fo4_ps == pytest.approx(20.0)
    assert result.worst_fo4 == pytest.approx(result.worst.delay_ps / 20.0)


@needs_sta
def test_timing_meets_exactly_at_its_shortest_clock(adder: AreaResult) -> None:
    period = analyse(adder).min_period_ps
    assert analyse(adder, clock_ps=period).slack_ps == pytest.approx(0.0, abs=0.1)


@needs_sta
def test_timing_path_through_ram_has_its_clock_to_output(buffers: AreaResult) -> None:
    result = analyse(buffers)
    ram = PDKS[0].ram
    path = result.paths["reg2reg"]
    assert path.start.endswith(".macro")
    assert path.delay_ps > ram.clk_to_q(4096) + 8 * 4.0
    assert f"{ram.clk_to_q(4096):.5f}" in path.text
    into = result.paths["in2reg"]
    assert into.end.endswith((".macro", "_reg"))
    slower = analyse(buffers, ram=_slower(100.0))
    assert slower.paths["reg2reg"].delay_ps == pytest.approx(path.delay_ps + 100.0, abs=0.1)


def _slower(by_ps: float) -> RamModel:
    ram = PDKS[0].ram
    return replace(ram, clk_to_q_ps=tuple((bits, ps + by_ps) for bits, ps in ram.clk_to_q_ps))


@needs_sta
@pytest.mark.parametrize("name", [pdk.name for pdk in PDKS[1:]])
def test_timing_on_open_library(name: str, tmp_path: Path) -> None:
    design = write(Buffers(), tmp_path / "top.il")
    libs = pdk_libs(name)
    result = synthesise(design, "top", workdir=tmp_path, libs=libs, clock_ps=5000, tree_levels=0)
    timing = analyse(result)
    assert result.pdk is not None
    assert timing.worst.group == "reg2reg"
    assert timing.worst.start.endswith(".macro")
    assert timing.worst.delay_ps > result.pdk.ram.clk_to_q(4096)
    # FO4 is some 1/2 ps a nanometre of gate length: 20 ps for 7 nm devices of 20 nm, 350 ps for the
    # 5 V devices of gf180 at 3.3 V.
    assert timing.fo4_ps is not None
    assert 10 < timing.fo4_ps < 400


@needs_sta
def test_timing_report_has_all_figures(buffers: AreaResult, tmp_path: Path) -> None:
    timing = analyse(buffers)
    report = report_dict(buffers, timing, {"large": 256})
    write_report(tmp_path / "report.json", report)
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8")) == report
    assert report["fmax_GHz"] == pytest.approx(timing.fmax_ghz, rel=1e-6)
    assert report["parameters"] == {"large": 256}
    assert {"pyosys", "yosys", "python", "opensta"} <= set(report["versions"])
    assert sum(part["flops"] for part in report["parts"]) == report["flops"]
    console = Console(record=True, width=120, file=(tmp_path / "out.txt").open("w"))
    print_report(console, buffers, timing)
    console.file.close()
    text = console.export_text()
    assert "256 x 16" in text
    assert timing.worst.end in text


def test_timing_report_without_opensta_has_none(buffers: AreaResult) -> None:
    report = report_dict(buffers)
    assert report["fmax_GHz"] is None
    assert report["worst_path_ps"] is None
    assert report["memory_bits"] == 8192


def test_timing_without_opensta_is_one_line(
    adder: AreaResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(FlowError, match=r"^timing needs the program `sta` of OpenSTA on the path$"):
        analyse(adder)


@needs_sta
def test_timing_failure_of_opensta_is_one_line(adder: AreaResult, tmp_path: Path) -> None:
    broken = tmp_path / "top.net.v"
    broken.write_text("module top(clk); input clk; NOSUCH x (.A(clk)); endmodule\n", "ascii")
    with pytest.raises(FlowError, match=r"^OpenSTA failed: .*\(whole log: .*timing\.log\)$"):
        analyse(replace(adder, netlist=broken))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"clock_ps": 0.0}, r"^`clock_ps` must be positive for timing, not 0\.0$"),
        ({"io_share": 0.5}, r"^`io_share` must be 0 up to 0\.5, not 0\.5$"),
    ],
)
def test_timing_wrong_option(adder: AreaResult, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(FlowError, match=reason):
        analyse(adder, **options)


_CONSTANT_OUTPUTS = """
module top(input clk, input [3:0] a, output reg [3:0] q, output [2:0] k);
  assign k = 3'b101;
  always_ff @(posedge clk) q <= a + 1;
endmodule
"""


@needs_sta
def test_timing_constant_output_needs_no_constraint(tmp_path: Path) -> None:
    design = tmp_path / "top.sv"
    design.write_text(_CONSTANT_OUTPUTS, encoding="ascii")
    result = synthesise(design, "top", workdir=tmp_path, clock_ps=_CLOCK_PS, tree_levels=0)
    assert set(analyse(result).paths) == {"in2reg", "reg2out"}


@needs_sta
def test_timing_register_on_another_clock_is_refused(tmp_path: Path) -> None:
    design = tmp_path / "top.sv"
    text = _CONSTANT_OUTPUTS.replace("input clk", "input clk, input other")
    text = text.replace("endmodule", "reg r; always_ff @(posedge other) r <= a[0]; endmodule")
    text = text.replace("3'b101", "{2'b0, r}")
    design.write_text(text, encoding="ascii")
    result = synthesise(design, "top", workdir=tmp_path, clock_ps=_CLOCK_PS, tree_levels=0)
    with pytest.raises(FlowError, match=r"^OpenSTA found "):
        analyse(result)
