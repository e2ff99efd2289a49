// SPDX-License-Identifier: Apache-2.0
// Logs the flits of a link, <dir>/<NAME><step>_<gpu>.log: one line a flit, "<cycle, 8 hex digits>
// <flit, 32 hex digits>". Without `on` the file stays empty.
module link_log #(
    parameter NAME = "up"
) (
    input logic         clk,
    input logic         rst,
    input logic [7:0]   gpu,
    input logic [31:0]  cycle,
    input logic [7:0]   step,
    input logic         load,
    input logic         go,
    input logic         on,
    input logic         valid,
    input logic [127:0] flit
);
  /* verilator no_inline_module */
  string dir;
  integer log_file;
  logic was_go;

  initial begin
    log_file = 0;
    was_go = 1'b0;
    if (!$value$plusargs("dir=%s", dir)) dir = ".";
  end

  always_ff @(posedge clk)
    if (!rst) begin
      was_go <= go;
      if (was_go && !go) $fflush(log_file);
      if (valid && on && log_file != 0) $fwrite(log_file, "%08x %032x\n", cycle, flit);
      if (load) begin
        if (log_file != 0) $fclose(log_file);
        log_file = $fopen($sformatf("%s/%s%0d_%0d.log", dir, NAME, step, gpu), "w");
      end
    end
endmodule
