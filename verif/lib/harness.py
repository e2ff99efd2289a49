# SPDX-License-Identifier: Apache-2.0
"""Writes the simulation top around a generated switch: a player and a sink at every link.

Stimulus and logs are files, so that the simulation does not stop in Python while it runs. With
``+trace=1`` all ports of the switch are written to ``trace.log`` at every clock edge
(:mod:`.trace`).
"""

from pathlib import Path

__all__ = ["CONTROL_PORTS", "SOURCES", "write_harness"]

_SV = Path(__file__).with_name("sv")
SOURCES = (_SV / "link_player.sv", _SV / "link_sink.sv")

CONTROL_PORTS = ("clk", "rst", "go", "phase", "cycle", "done", "quiet")
"""What a bench drives and reads, besides ``bus__*``."""

_BUS = (
    ("input", 1, "valid"),
    ("input", 1, "write"),
    ("input", 16, "address"),
    ("input", 32, "wdata"),
    ("output", 1, "done"),
    ("output", 32, "rdata"),
    ("output", 1, "error"),
)


def write_harness(dut: str, ports: int, out: Path) -> tuple[Path, Path]:
    """Write ``harness.sv`` and the list of signals that Verilator must keep visible.

    Parameters
    ----------
    dut : str
        Module name of the switch.
    ports : int
        Its ports.
    out : Path
        Folder.

    Returns
    -------
    tuple[Path, Path]
        The SystemVerilog file and the Verilator control file.
    """
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        "module harness (",
        "    input logic clk, input logic rst, input logic go, input logic [7:0] phase,",
        "    output logic [31:0] cycle, output logic done, output logic [31:0] quiet,",
        ",\n".join(
            f"    {direction} logic [{width - 1}:0] bus__{name}" for direction, width, name in _BUS
        ),
        ");",
        f"  localparam int N = {ports};",
        "  logic [N-1:0] rx_valid, tx_valid, player_done, sink_quiet;",
        "  logic [127:0] rx_flit[N], tx_flit[N];",
        "  logic [1:0] rx_credit[N], tx_credit[N];",
        "  for (genvar p = 0; p < N; p++) begin : link",
        "    link_player #(.PORT(p)) player (.clk, .rst, .go, .cycle, .phase,",
        "        .valid(rx_valid[p]), .flit(rx_flit[p]), .credit(rx_credit[p]),",
        "        .done(player_done[p]));",
        "    link_sink #(.PORT(p)) sink (.clk, .rst, .cycle, .phase,",
        "        .valid(tx_valid[p]), .flit(tx_flit[p]), .credit(tx_credit[p]),",
        "        .quiet(sink_quiet[p]));",
        "  end",
        "  // `quiet`: cycles since anything moved last. `done`: all players have ended.",
        "  initial cycle = 0;",
        "  always_ff @(posedge clk) begin",
        "    cycle <= cycle + 1;",
        "    quiet <= (rst || !go || !(&sink_quiet) || (|rx_valid)) ? 0 : quiet + 1;",
        "  end",
        "  assign done = &player_done;",
        f"  {dut} dut (.clk, .rst,",
    ]
    lines += [f"      .bus__{name}," for _, _, name in _BUS]
    ports_of_links = [
        (f"{side}__{port}__{name}", f"{side}_{name}[{port}]")
        for port in range(ports)
        for side in ("rx", "tx")
        for name in ("valid", "flit", "credit")
    ]
    lines += [
        ",\n".join(f"      .{name}({wire})" for name, wire in ports_of_links),
        "  );",
    ]
    traced = [("rst", "rst"), *((f"bus__{name}",) * 2 for _, _, name in _BUS), *ports_of_links]
    names = " ".join(name for name, _ in traced)
    formats = " ".join(["%h"] * len(traced))
    lines += [
        "  string dir;",
        "  integer trace, trace_file;",
        "  initial begin",
        '    if (!$value$plusargs("dir=%s", dir)) dir = ".";',
        '    if (!$value$plusargs("trace=%d", trace)) trace = 0;',
        "    trace_file = 0;",
        "    if (trace != 0) begin",
        '      trace_file = $fopen({dir, "/trace.log"}, "w");',
        f'      $fwrite(trace_file, "{names}\\n");',
        "    end",
        "  end",
        "  always_ff @(posedge clk)",
        "    if (trace != 0)",
        f'      $fwrite(trace_file, "{formats}\\n",',
        ",\n".join(f"          {wire}" for _, wire in traced) + ");",
        "endmodule",
        "",
    ]
    out.mkdir(parents=True, exist_ok=True)
    harness = out / "harness.sv"
    harness.write_text("\n".join(lines))
    visible = [*CONTROL_PORTS, *(f"bus__{name}" for _, _, name in _BUS)]
    control = out / "harness.vlt"
    control.write_text(
        "`verilator_config\n"
        + "".join(f'public_flat_rw -module "harness" -var "{name}"\n' for name in visible)
    )
    return harness, control
