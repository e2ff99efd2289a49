# SPDX-License-Identifier: Apache-2.0
"""Writes the simulation top around a generated switch: a model of a GPU at every link.

It plays stimulus, takes what comes, and may answer it (``sv/gpu_model.sv`` and the files that it
names). What these know of flits and of routing is written from the definitions in ``rtl`` into the
package ``flit_pkg``, which stands before the top, so the harness comes before :data:`SOURCES`.

Stimulus and logs are files, so that the simulation does not stop in Python while it runs. With
``+trace=1`` all ports of the switch are written to ``trace.log`` at every clock edge
(:mod:`.trace`).
"""

from collections.abc import Iterable
from pathlib import Path

from dysharp.golden.arrays import value_of
from dysharp.rtl.address_hash import HASH_MASKS
from dysharp.rtl.flits import (
    FLIT_BITS,
    HEADER_FIELDS,
    LANES,
    WIDE,
    Addressing,
    DType,
    Kind,
    Opcode,
    Status,
    Vc,
)
from dysharp.rtl.params import SwitchParams

__all__ = ["CONTROL_PORTS", "SOURCES", "framing_lines", "struct_lines", "write_harness"]

_SV = Path(__file__).with_name("sv")
SOURCES = tuple(
    _SV / f"{name}.sv"
    for name in ("random_pkg", "link_player", "link_sink", "responder", "gpu_model")
)

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


def write_harness(dut: str, params: SwitchParams, out: Path) -> tuple[Path, Path]:
    """Write ``harness.sv`` and the list of signals that Verilator must keep visible.

    Parameters
    ----------
    dut : str
        Module name of the switch.
    params : SwitchParams
        Its parameters.
    out : Path
        Folder.

    Returns
    -------
    tuple[Path, Path]
        The SystemVerilog file and the Verilator control file.
    """
    ports = params.ports
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        *_package(params),
        "module harness (",
        "    input logic clk, input logic rst, input logic go, input logic [7:0] phase,",
        "    output logic [31:0] cycle, output logic done, output logic [31:0] quiet,",
        ",\n".join(
            f"    {direction} logic [{width - 1}:0] bus__{name}" for direction, width, name in _BUS
        ),
        ");",
        f"  localparam int N = {ports};",
        "  logic [N-1:0] rx_valid, tx_valid, gpu_done, gpu_quiet;",
        f"  logic [{FLIT_BITS - 1}:0] rx_flit[N], tx_flit[N];",
        "  logic [N:0] rx_credit[N];",
        "  logic [1:0] tx_credit[N];",
        "  for (genvar p = 0; p < N; p++) begin : link",
        f"    gpu_model #(.PORTS(N), .RESPONSE_DEPTH({params.response_depth})) gpu (",
        "        .clk, .port(8'(p)), .rst, .go, .cycle, .phase,",
        "        .rx_valid(rx_valid[p]), .rx_flit(rx_flit[p]), .rx_credit(rx_credit[p]),",
        "        .tx_valid(tx_valid[p]), .tx_flit(tx_flit[p]), .tx_credit(tx_credit[p]),",
        "        .done(gpu_done[p]), .quiet(gpu_quiet[p]));",
        "  end",
        "  // `quiet`: cycles since anything moved last. `done`: all players have ended, and",
        "  // there is nothing that is still to be answered.",
        "  initial cycle = 0;",
        "  always_ff @(posedge clk) begin",
        "    cycle <= cycle + 1;",
        "    quiet <= (rst || !go || !(&gpu_quiet) || (|rx_valid)) ? 0 : quiet + 1;",
        "  end",
        "  assign done = &gpu_done;",
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


def struct_lines(name: str, fields: Iterable[tuple[str, int]]) -> list[str]:
    """Return a SystemVerilog struct; fields, with their widths, from bit 0 upwards."""
    return [
        "  typedef struct packed {",
        *(f"    logic [{width - 1}:0] {field};" for field, width in reversed(list(fields))),
        f"  }} {name};",
    ]


def framing_lines() -> list[str]:
    """Return the struct of a header, and the function that counts the flits behind it."""
    response, dynamic = value_of(Addressing.RESPONSE), value_of(Addressing.DYNAMIC)
    return [
        *struct_lines("header_t", ((field.name, field.width) for field in HEADER_FIELDS)),
        "  // Flits behind a header.",
        "  function automatic logic [15:0] behind(input header_t header);",
        "    behind = 16'(header.byte_enable);",
        f"    if (header.opcode[3:2] == 2'd{response} ? header.opcode[1] : header.opcode[0])",
        "      behind = behind + 16'(header.length);",
        f"    if (header.opcode[3:2] == 2'd{dynamic})",
        f"      behind = behind + (16'(header.count) + 16'd{LANES - 1}) / 16'd{LANES};",
        "  endfunction",
    ]


def _package(params: SwitchParams) -> list[str]:
    """Return what the harness knows of flits and of routing, as a SystemVerilog package."""
    constants = [
        ("logic [1:0]", Addressing, ""),
        ("logic [1:0]", Kind, ""),
        ("logic [3:0]", Opcode, ""),
        ("logic [3:0]", DType, ""),
        ("logic [1:0]", Vc, "_VC"),
        ("logic [3:0]", Status, "_STATUS"),
    ]
    wide = sum(1 << value_of(dtype) for dtype in WIDE)
    links = params.links_per_gpu.bit_length() - 1
    return [
        "package flit_pkg;",
        *framing_lines(),
        *(
            f"  localparam {kind} {member.name}{suffix} = {value_of(member)};"
            for kind, members, suffix in constants
            for member in members
        ),
        f"  localparam logic [15:0] WIDE = 16'h{wide:x};",
        "  function automatic logic is_response(input header_t header);",
        "    is_response = header.opcode[3:2] == RESPONSE;",
        "  endfunction",
        "  // The port that a response goes to; beyond the last one if its GPU does not exist.",
        "  function automatic logic [15:0] destination(input header_t header);",
        f"    destination = 16'(header.gpu) * 16'd{params.links_per_gpu};",
        *(
            f"    destination = destination + (16'(^(header.address & 48'h{mask:x})) << {bit});"
            for bit, mask in enumerate(HASH_MASKS[:links])
        ),
        "  endfunction",
        "  function automatic logic [8:0] tag_of(input header_t header);",
        "    tag_of = header.tag;",
        "  endfunction",
        "  // A multicast request that somebody waits for.",
        "  function automatic logic arms(input header_t header);",
        "    arms = (header.opcode[3:2] == STATIC || header.opcode[3:2] == DYNAMIC)",
        "        && (!header.posted || header.opcode[1:0] == LOAD || header.opcode[1:0] == NONE);",
        "  endfunction",
        "  // What ends a request at the requester.",
        "  function automatic logic is_result(input header_t header);",
        "    is_result = header.opcode == RSP_ACK || header.opcode == RSP_DATA;",
        "  endfunction",
        "endpackage",
    ]
