# SPDX-License-Identifier: Apache-2.0
"""Writes the simulation top around a generated system: cores and memories of every GPU.

They are the models in ``verif/lib/sv``. What these know of accesses and flits is written from the
definitions in ``rtl`` into the package ``system_pkg``, which stands before the top, so the harness
comes before :data:`SOURCES`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from amaranth.hdl import Shape
from dysharp.golden.arrays import value_of
from dysharp.rtl.common.bus import BusSignature
from dysharp.rtl.flits import FLIT_BITS, Kind
from dysharp.rtl.gpu_params import GpuParams
from dysharp.rtl.hub.ports import TableSignature
from dysharp.rtl.queue.ports import Access, FetchSignature, Result
from dysharp.verif.lib import run
from dysharp.verif.lib.harness import framing_lines, struct_lines

__all__ = ["CONTROL_PORTS", "SETTINGS", "SOURCES", "Sizes", "write_harness"]

_SV = Path(run.__file__).with_name("sv")
SOURCES = tuple(
    _SV / f"{name}.sv"
    for name in (
        "random_pkg",
        "gpu_memory",
        "list_memory",
        "sm_player",
        "packet_player",
        "link_log",
        "bus_player",
    )
)

CONTROL_PORTS = (
    *("clk", "rst", "go", "step", "load", "dump", "part", "start"),
    *("cycle", "done", "quiet", "bus_ended", "fault"),
)
"""What a bench drives and reads."""

SETTINGS = (
    *("seed", "read_min", "read_max", "write_min", "write_max", "memory_percent"),
    *("table_min", "table_max", "table_percent"),
    *("shared_min", "shared_max", "global_min", "global_max", "list_percent"),
    *("result_percent", "links"),
)
"""Numbers in ``<dir>/settings<step>.cfg``, on one line."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Bytes of the memories of each GPU, multiples of 16."""

    memory: int = 1 << 20
    shared: int = 1 << 17
    global_: int = 1 << 20


def write_harness(dut: str, gpu: GpuParams, sizes: Sizes, out: Path) -> tuple[Path, Path]:
    """Write ``harness.sv`` and the list of signals that Verilator must keep visible.

    Parameters
    ----------
    dut : str
        Module name of the system.
    gpu : GpuParams
        The side of each of its GPUs.
    sizes : Sizes
        How large the memories are.
    out : Path
        Folder.

    Returns
    -------
    tuple[Path, Path]
        The SystemVerilog file and the Verilator control file.
    """
    gpus = gpu.gpus
    list_ids = _width(FetchSignature(gpu).members["request"].signature, "payload") - 48
    table_ids = TableSignature(gpu).members["reply_id"].shape
    wires = _Wires(gpus)
    beat = gpu.memory_flits * FLIT_BITS
    stream = (("valid", 1, False), ("ready", 1, True))
    groups = {
        "access": (("valid", 1, True), ("ready", 1, False), ("payload", _bits(Access), True)),
        "result": (*stream, ("payload", _bits(Result), False)),
        "memory__write": (*stream, ("payload", 48 + beat + beat // 8, False)),
        "memory__read": (*stream, ("payload", 48, False)),
        "memory": (
            ("written", 1, True),
            ("write_error", 1, True),
            ("reply", 1, True),
            ("reply_data", beat, True),
            ("reply_error", 1, True),
        ),
        "table__read": (*stream, ("payload", 48 + table_ids, False)),
        "table__write": (*stream, ("payload", 80, False)),
        "table": (
            ("reply", 1, True),
            ("reply_id", table_ids, True),
            ("reply_data", 32, True),
            ("written", 1, True),
        ),
        "ordinary": (("valid", 1, True), ("ready", 1, False), ("payload", FLIT_BITS + 1, True)),
        **{
            f"{port}__{side}": members
            for port in ("shared_list", "global_list")
            for side, members in (
                ("request", (*stream, ("payload", 48 + list_ids, False))),
                (
                    "reply",
                    (
                        ("valid", 1, True),
                        ("ready", 1, False),
                        ("payload", list_ids + FLIT_BITS + 1, True),
                    ),
                ),
            )
        },
    }
    for path, members in groups.items():
        port, *rest = path.split("__")
        for name, width, _ in members:
            wires.add(port, "__".join([*rest, name]), width)
    for name, width in (("ordinary_valid", 1), ("ordinary_flit", FLIT_BITS)):
        wires.add(name, "", width)
    for side in ("up", "down"):
        wires.add(f"{side}_valid", "", 1)
        wires.add(f"{side}_flit", "", FLIT_BITS)
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        *_package(),
        "module harness (",
        "    input logic clk, input logic rst, input logic go, input logic [7:0] step,",
        "    input logic load, input logic dump, input logic part, input logic start,",
        "    output logic [31:0] cycle, output logic done, output logic [31:0] quiet,",
        "    output logic bus_ended, output logic fault);",
        f"  localparam int N = {gpus};",
        "  import system_pkg::*;",
        *wires.declarations,
        "  settings_t settings;",
        "  logic loads;  // the models follow when the settings are there",
        "  logic [N-1:0] sm_done, sm_quiet, packets_done, packets_quiet, memory_quiet;",
        "  logic [N-1:0] shared_quiet, global_quiet, faults;",
        "  logic [N:0] bus_valid, bus_done, bus_error;",
        "  logic [N:0][31:0] bus_rdata;",
        "  logic bus_write;",
        "  logic [15:0] bus_address;",
        "  logic [31:0] bus_wdata;",
        "  for (genvar g = 0; g < N; g++) begin : gpu",
        _models(gpu, sizes, list_ids, table_ids),
        "  end",
        "  bus_player #(.BUSES(N + 1)) bus (",
        "      .clk, .rst, .step, .part, .start, .done(bus_ended), .bus_valid, .bus_write,",
        "      .bus_address, .bus_wdata, .bus_done, .bus_rdata, .bus_error);",
        f"  {dut} dut (.clk, .rst, .fault(faults),",
        ",\n".join(
            [
                *wires.connections,
                *(
                    line
                    for number in range(gpus + 1)
                    for line in _bus("switch_bus" if number == gpus else f"bus__{number}", number)
                ),
            ]
        ),
        "  );",
        _CONTROL,
        "endmodule",
        "",
    ]
    out.mkdir(parents=True, exist_ok=True)
    harness = out / "harness.sv"
    harness.write_text("\n".join(lines))
    control = out / "harness.vlt"
    control.write_text(
        "`verilator_config\n"
        + "".join(f'public_flat_rw -module "harness" -var "{name}"\n' for name in CONTROL_PORTS)
    )
    return harness, control


class _Wires:
    """Wires between the system and the models: one array for each port that every GPU has."""

    def __init__(self, gpus: int) -> None:
        self._gpus = gpus
        self.declarations: list[str] = []
        self.connections: list[str] = []

    def add(self, port: str, member: str, width: int) -> None:
        """Add ``<port>__<gpu>__<member>``."""
        name = "__".join(filter(None, (port, member)))
        array = f"w_{name}"
        self.declarations.append(f"  logic [{width - 1}:0] {array}[N];")
        self.connections += [
            f"      .{'__'.join(filter(None, (port, str(gpu), member)))}({array}[{gpu}])"
            for gpu in range(self._gpus)
        ]


def _models(gpu: GpuParams, sizes: Sizes, list_ids: int, table_ids: int) -> str:
    """Return the instances of one GPU's models."""
    common = ".clk, .rst, .gpu(8'(g)), .cycle, .step, .load(loads)"

    def joined(pairs: Iterable[tuple[str, str]]) -> str:
        return ", ".join(f".{port}(w_{wire}[g])" for port, wire in pairs)

    stream = ("valid", "ready", "payload")
    memory = [
        *((f"{side}_{m}", f"memory__{side}__{m}") for side in ("write", "read") for m in stream),
        *((m, f"memory__{m}") for m in ("written", "write_error")),
        *((m, f"memory__{m}") for m in ("reply", "reply_data", "reply_error")),
        *(
            (f"table_{side}_{m}", f"table__{side}__{m}")
            for side in ("read", "write")
            for m in stream
        ),
        *((f"table_{m}", f"table__{m}") for m in ("reply", "reply_id", "reply_data", "written")),
    ]
    lines = [
        f"    gpu_memory #(.BYTES({sizes.memory}), .FLITS({gpu.memory_flits}),",
        f"        .ID_BITS({table_ids})) memory (",
        f"        {common}, .dump, .settings, {joined(memory)},",
        "        .quiet(memory_quiet[g]));",
    ]
    for kind, size in (("shared", sizes.shared), ("global", sizes.global_)):
        ports = [
            (f"{side}_{m}", f"{kind}_list__{side}__{m}")
            for side in ("request", "reply")
            for m in stream
        ]
        lines += [
            f'    list_memory #(.NAME("{kind}"), .BYTES({size}),',
            f"        .ID_BITS({list_ids})) {kind}_lists (",
            f"        {common}, .seed(settings.seed), .percent(settings.list_percent),",
            f"        .latency_min(settings.{kind}_min), .latency_max(settings.{kind}_max),",
            f"        {joined(ports)}, .quiet({kind}_quiet[g]));",
        ]
    accesses = [(f"{port}_{m}", f"{port}__{m}") for port in ("access", "result") for m in stream]
    packets = [
        *((m, f"ordinary__{m}") for m in stream),
        ("answer_valid", "ordinary_valid"),
        ("answer_flit", "ordinary_flit"),
    ]
    lines += [
        f"    sm_player sm ({common}, .go, .settings, {joined(accesses)},",
        "        .done(sm_done[g]), .quiet(sm_quiet[g]));",
        f"    packet_player packets ({common}, .go, {joined(packets)},",
        "        .done(packets_done[g]), .quiet(packets_quiet[g]));",
    ]
    for side in ("up", "down"):
        ports = [("valid", f"{side}_valid"), ("flit", f"{side}_flit")]
        lines += [
            f'    link_log #(.NAME("{side}")) {side} ({common}, .go, .on(settings.links[0]),',
            f"        {joined(ports)});",
        ]
    return "\n".join(lines)


def _bus(port: str, number: int) -> list[str]:
    """Return the connections of one of the buses."""
    shared = ("write", "address", "wdata")
    members = BusSignature().members
    return [
        f"      .{port}__{name}(bus_{name}{'' if name in shared else f'[{number}]'})"
        for name in members
    ]


_CONTROL = """\
  // `quiet`: cycles since anything moved last. `done`: all players have ended, and nothing is
  // still to be answered.
  string dir;
  integer file, got, number;
  initial begin
    cycle = 0;
    if (!$value$plusargs("dir=%s", dir)) dir = ".";
  end
  logic links_quiet;
  always_comb begin
    links_quiet = 1'b1;
    for (int g = 0; g < N; g++)
      if (w_up_valid[g] || w_down_valid[g]) links_quiet = 1'b0;
  end
  always_ff @(posedge clk) begin
    cycle <= cycle + 1;
    loads <= load;
    quiet <= (rst || !go || !links_quiet
        || !(&{sm_quiet, packets_quiet, memory_quiet, shared_quiet, global_quiet}))
        ? 0 : quiet + 1;
    if (load) begin
      file = $fopen($sformatf("%s/settings%0d.cfg", dir, step), "r");
      for (int i = SETTING_COUNT - 1; i >= 0; i--) begin
        got = file == 0 ? 0 : $fscanf(file, "%d", number);
        if (got != 1) begin
          $display("ERROR: no settings for step %0d", step);
          $fatal;
        end
        settings[32*i+:32] <= number;
      end
      $fclose(file);
    end
  end
  assign done = &{sm_done, packets_done};
  assign fault = |faults;"""


def _bits(kind: type) -> int:
    return Shape.cast(kind).width


def _width(signature: object, name: str) -> int:
    return Shape.cast(signature.members[name].shape).width


def _package() -> list[str]:
    """Return what the models know of accesses and flits, as a SystemVerilog package."""
    structs: dict[str, list[tuple[str, int]]] = {
        "access_t": [(_plain(name), field.width) for name, field in Access.as_shape()],
        "result_t": [(_plain(name), field.width) for name, field in Result.as_shape()],
        "settings_t": [(name, 32) for name in reversed(SETTINGS)],
    }
    load = value_of(Kind.LOAD)
    return [
        "package system_pkg;",
        *framing_lines(),
        *(line for kind, fields in structs.items() for line in struct_lines(kind, fields)),
        f"  localparam int SETTING_COUNT = {len(SETTINGS)};",
        "  function automatic logic is_load(input logic [3:0] opcode);",
        f"    is_load = opcode[1:0] == 2'd{load};",
        "  endfunction",
        "endpackage",
    ]


def _plain(name: str) -> str:
    """Avoid keywords."""
    return f"{name}_" if name in ("list", "shared", "last") else name
