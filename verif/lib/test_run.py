# SPDX-License-Identifier: Apache-2.0

import re
import shutil
from pathlib import Path

import pytest
from dysharp.golden.packets import Packets
from dysharp.golden.switch import SwitchConfig
from dysharp.rtl.flits import Opcode
from dysharp.rtl.params import PRESETS
from dysharp.verif.lib import run
from dysharp.verif.lib.harness import SOURCES
from dysharp.verif.lib.run import SimulationError, build, emptied, simulate
from dysharp.verif.switch.environment import Phase, SwitchEnvironment
from dysharp.verif.switch.stimulus import make_packets

TINY = PRESETS["tiny"]
SV = Path(__file__).with_name("sv")
needs_icarus = pytest.mark.skipif(
    not shutil.which("iverilog"), reason="Icarus Verilog is not installed"
)


@needs_icarus
def test_source_that_does_not_build_is_shown(tmp_path: Path) -> None:
    source = tmp_path / "broken.sv"
    source.write_text("module top(input logic clk); wire x = ; endmodule\n")
    with pytest.raises(SimulationError, match=r"(?s)^icarus could not build top: .*broken\.sv"):
        build([source], top="top", folder=tmp_path, simulator="icarus")
    assert not list(tmp_path.glob("*/built"))


def test_modules_that_are_blocks_behave_the_same(tmp_path: Path) -> None:
    """The system's builds are made of blocks; here with a flat one beside it."""
    source = tmp_path / "two.sv"
    source.write_text(
        "module half #(parameter int STEP = 1) (input logic clk, output logic [7:0] n);\n"
        "  initial n = 0;\n  always_ff @(posedge clk) n <= n + 8'(STEP);\nendmodule\n"
        "module top(input logic clk, output logic [7:0] sum);\n  logic [7:0] a, b;\n"
        "  half one (.clk, .n(a));\n  half two (.clk, .n(b));\n  assign sum = a + b;\nendmodule\n"
    )
    signals = tmp_path / "signals.vlt"
    signals.write_text(
        "`verilator_config\n"
        + "".join(f'public_flat_rw -module "top" -var "{name}"\n' for name in ("clk", "sum"))
    )
    bench = tmp_path / "bench_two_halves.py"
    bench.write_text(
        "import cocotb\nfrom cocotb.triggers import Timer\n\n\n@cocotb.test()\n"
        "async def counts(dut):\n    for _ in range(5):\n        dut.clk.value = 0\n"
        "        await Timer(1, 'ns')\n        dut.clk.value = 1\n        await Timer(1, 'ns')\n"
        "    assert int(dut.sum.value) == 10\n"
    )
    folders = set()
    for blocks in ((), ("half",)):
        made = build(
            [source], top="top", folder=tmp_path / "builds", control=[signals], blocks=blocks
        )
        folders.add(made.folder)
        assert (made.folder / "Vtop_hier.mk").exists() == bool(blocks)
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(tmp_path)
            simulate(
                made,
                module=bench.stem,
                folder=tmp_path / "run",
                seed=1,
                plusargs={},
                config={},
            )
    assert len(folders) == 2


def test_blocks_have_no_waves(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^`blocks` must be empty in a build with waves$"):
        build([], top="top", folder=tmp_path, waves=True, blocks=["half"])


def test_simulators_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"^`simulator` must be verilator or icarus, not 'vcs'$"):
        build([], top="top", folder=tmp_path, simulator="vcs")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(SimulationError, match=r"^Icarus .* apt-get install iverilog$"):
        build([], top="top", folder=tmp_path, simulator="icarus")
    monkeypatch.setattr(run, "find_spec", lambda name: None)
    with pytest.raises(SimulationError, match=re.escape("pip install 'dysharp[sim]'")):
        build([], top="top", folder=tmp_path)


@needs_icarus
def test_failed_assertion_of_the_rtl_fails_the_run(tmp_path: Path) -> None:
    """Icarus only prints it; the sink's check of credits stands for all of them."""
    environment = SwitchEnvironment(TINY, tmp_path, simulator="icarus")
    sink = tmp_path / "link_sink.sv"
    text = (SV / "link_sink.sv").read_text()
    sink.write_text(text.replace("held[0] > depth", "valid"))
    made = build(
        [
            next((tmp_path / "rtl").glob("*/harness.sv")),
            *(path for path in SOURCES if path.name != sink.name),
            sink,
            next((tmp_path / "rtl").glob("*/dysharp_switch.sv")),
        ],
        top="harness",
        folder=tmp_path / "builds",
        simulator="icarus",
    )
    environment._made = made
    packet = make_packets(Opcode.READ, gpu=0, address=[0])
    phase = Phase(inputs=[packet, *[Packets()] * 3], config=SwitchConfig.at_reset(TINY))
    with pytest.raises(
        SimulationError, match=r"ERROR: port 0 sent without a credit; see .*run\.log"
    ):
        environment.run([phase], name="broken", seed=1)


def test_a_folder_has_one_run_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "old.log").touch()
    with emptied(tmp_path / "run"):
        assert not list((tmp_path / "run").iterdir())
        with pytest.raises(SimulationError, match="another run uses this folder"):
            with emptied(tmp_path / "run"):
                pass
    with emptied(tmp_path / "run"):
        pass
