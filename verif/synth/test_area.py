# SPDX-License-Identifier: Apache-2.0
"""Area on the embedded library, RAM macros, and errors that a user can make."""

import re
from pathlib import Path
from typing import Any

import pytest
from dysharp.synth.embedded import library_text
from dysharp.synth.errors import FlowError
from dysharp.synth.flow import EMBEDDED_LIB, AreaResult, synthesise
from dysharp.synth.liberty import read_libraries
from dysharp.synth.pdks import PDKS, find_pdk

from .designs import AdderBetweenRegisters, Buffers, Crossbar, pdk_libs, write


@pytest.fixture(scope="module")
def buffers(tmp_path_factory: pytest.TempPathFactory) -> AreaResult:
    """Map two RAMs to macros, one to flops."""
    folder = tmp_path_factory.mktemp("buffers")
    return synthesise(write(Buffers(), folder / "top.il"), "top", workdir=folder)


def test_area_embedded_library_is_what_its_table_says() -> None:
    assert EMBEDDED_LIB.read_text(encoding="ascii") == library_text()


def test_area_embedded_nand2_is_one() -> None:
    library = read_libraries([EMBEDDED_LIB])
    assert (library.nand2.name, library.nand2.area) == ("NAND2_X1", 1.0)
    pdk = find_pdk(library)
    assert pdk is PDKS[0]
    assert {pdk.inverter, pdk.driving_cell} <= set(library.cells)


def test_area_of_adder_counts_its_registers(tmp_path: Path) -> None:
    design = write(AdderBetweenRegisters(), tmp_path / "top.il")
    result = synthesise(design, "top", workdir=tmp_path, clock_ps=1000, tree_levels=0)
    assert result.flops == 96
    # A ripple of 32 full adders is some 9 GE a bit; resets are 96 AND gates.
    assert 150 < result.combinational_area < 1000
    assert result.area_ge == result.area
    assert result.memory_bits == 0
    assert result.macro_area_estimate == 0


def test_area_ram_above_threshold_is_a_macro(buffers: AreaResult) -> None:
    (use,) = buffers.macros
    assert (use.macro.depth, use.macro.width, use.macro.enables) == (256, 16, 1)
    assert use.count == 2
    assert buffers.memory_bits == 2 * 256 * 16
    assert buffers.macro_area_estimate == pytest.approx(2 * 256 * 16 * PDKS[0].ram.bit_area)


def test_area_ram_below_threshold_becomes_flops(buffers: AreaResult, tmp_path: Path) -> None:
    # 16 x 16 words, the read register and the sum.
    assert buffers.flops == 256 + 16 + 16
    design = write(Buffers(), tmp_path / "top.il")
    cut = synthesise(design, "top", workdir=tmp_path, ram_threshold_bits=255, tree_levels=0)
    assert cut.flops == 16
    assert {use.macro.depth: use.count for use in cut.macros} == {16: 1, 256: 2}


def test_area_numbers_add_up(buffers: AreaResult) -> None:
    cells = buffers.library.cells
    by_type = buffers.cells_by_type
    assert buffers.area == pytest.approx(sum(cells[n].area * c for n, c in by_type.items()))
    assert buffers.cells == sum(by_type.values())
    assert buffers.area == buffers.sequential_area + buffers.combinational_area
    parts = {part.name: part for part in buffers.parts}
    assert set(parts) == {"(top)", "q", "s"}
    assert (parts["q"].instances, parts["q"].area) == (2, 0)
    assert sum(part.flops for part in parts.values()) == buffers.flops
    assert sum(part.memory_bits for part in parts.values()) == buffers.memory_bits
    assert sum(part.area for part in parts.values()) == pytest.approx(buffers.area, rel=0.1)


def test_area_of_verilog_equals_that_of_rtlil(buffers: AreaResult, tmp_path: Path) -> None:
    verilog = tmp_path / "top.sv"
    verilog.write_text(_RAM_IN_VERILOG, encoding="ascii")
    result = synthesise(verilog, "top", workdir=tmp_path, tree_levels=0)
    (use,) = result.macros
    assert use.macro == buffers.macros[0].macro
    assert result.cells == 0


_RAM_IN_VERILOG = """
module top(input clk, input w, input r, input [7:0] a, input [7:0] b, input [15:0] d,
           output [15:0] q);
  store words (.clk, .w, .r, .a, .b, .d, .q);
endmodule
module store(input clk, input w, input r, input [7:0] a, input [7:0] b, input [15:0] d,
             output reg [15:0] q);
  reg [15:0] mem [255:0];
  always_ff @(posedge clk) if (w) mem[a] <= d;
  always_ff @(posedge clk) if (r) q <= mem[b];
endmodule
"""


def _message(error: pytest.ExceptionInfo[FlowError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def test_area_ram_with_logic_is_refused(tmp_path: Path) -> None:
    design = write(Buffers(invert=True), tmp_path / "top.il")
    with pytest.raises(FlowError) as error:
        synthesise(design, "top", workdir=tmp_path)
    assert re.fullmatch(
        r"module top\.q_[01] must hold nothing but its memory of 4096 bits, which is over the "
        r"limit of 2048 for flops, not \$not too",
        _message(error),
    )


def test_area_ram_with_asynchronous_read_is_refused(tmp_path: Path) -> None:
    design = write(Buffers(comb=True), tmp_path / "top.il")
    with pytest.raises(FlowError) as error:
        synthesise(design, "top", workdir=tmp_path)
    assert re.fullmatch(
        r"the memory of module top\.q_[01] must have one write port and one synchronous read "
        r"port to become a macro, not 1 and 1 asynchronous",
        _message(error),
    )


def test_area_unknown_top_is_refused(tmp_path: Path) -> None:
    design = write(AdderBetweenRegisters(), tmp_path / "top.il")
    with pytest.raises(FlowError, match=r"^`top` must be a module of top\.il, not 'bottom'$"):
        synthesise(design, "bottom", workdir=tmp_path)


def test_area_broken_design_is_one_line(tmp_path: Path) -> None:
    design = tmp_path / "top.sv"
    design.write_text("module top(input a; endmodule\n", encoding="ascii")
    with pytest.raises(FlowError) as error:
        synthesise(design, "top", workdir=tmp_path)
    assert re.match(r"^Yosys failed: .*top\.sv:1: .*\(whole log: .*\)$", _message(error))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, r"cannot read library .*bad\.lib: No such file or directory"),
        (b"hello", r".*bad\.lib is not a Liberty file: no `library \(\.\.\.\)` group in it"),
        (b"\x1f\x8b\x08\x00broken", r"cannot unpack library .*bad\.lib: .*"),
        (b"library (empty) {\n}\n", r"library empty has no cells"),
        (
            b'library (odd) {\n cell (X) { area : 1; pin (Y) { function : "A"; } }\n}\n',
            r"library odd has no two-input NAND to count gates with",
        ),
    ],
)
def test_area_bad_library_is_one_line(tmp_path: Path, content: bytes | None, reason: str) -> None:
    design = write(AdderBetweenRegisters(), tmp_path / "top.il")
    lib = tmp_path / "bad.lib"
    if content is not None:
        lib.write_bytes(content)
    with pytest.raises(FlowError) as error:
        synthesise(design, "top", workdir=tmp_path, libs=[lib])
    assert re.fullmatch(reason, _message(error))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"clock_ps": 0.0}, r"^`clock_ps` must be positive, not 0\.0$"),
        ({"ram_threshold_bits": -1}, r"^`ram_threshold_bits` must be 0 or more, not -1$"),
        ({"tree_levels": -1}, r"^`tree_levels` must be 0 or more, not -1$"),
        (
            {"clock_ps": 100.0, "driving_cell": "NO"},
            r"^`driving_cell` must be a cell of dysharp_gate_equivalents, not 'NO'$",
        ),
    ],
)
def test_area_wrong_option(tmp_path: Path, options: dict[str, Any], reason: str) -> None:
    design = write(AdderBetweenRegisters(), tmp_path / "top.il")
    with pytest.raises(FlowError, match=reason):
        synthesise(design, "top", workdir=tmp_path, **options)


@pytest.mark.parametrize(
    ("name", "nand2"),
    [
        ("nangate45", 0.798),
        ("sky130hd", 3.7536),
        ("asap7", 0.05832),
        ("gf180mcu7t", 10.976),
        ("ihp-sg13g2", 7.2576),
    ],
)
def test_area_open_library_is_recognised(name: str, nand2: float) -> None:
    library = read_libraries(pdk_libs(name))
    assert library.nand2.area == nand2
    pdk = find_pdk(library)
    assert pdk is not None
    assert pdk.name == name
    assert {pdk.inverter, pdk.driving_cell} <= set(library.cells)


@pytest.mark.parametrize(
    ("name", "low", "high"), [("nangate45", 18e3, 20e3), ("asap7", 19e3, 21.5e3)]
)
def test_area_of_crossbar_is_as_known(name: str, low: float, high: float, tmp_path: Path) -> None:
    """Crossbars of this size have 18 to 20 kGE in open libraries, in asap7 8 % above nangate45."""
    design = write(Crossbar(), tmp_path / "top.il")
    libs = pdk_libs(name)
    result = synthesise(design, "top", workdir=tmp_path, libs=libs, tree_levels=0)
    # Yosys codes the pointer of each arbiter with one bit a port.
    assert result.flops == 8 * (128 + 1 + 8)
    assert low < result.area_ge < high
