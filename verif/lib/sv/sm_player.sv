// SPDX-License-Identifier: Apache-2.0
// Plays the accesses of a GPU's cores, and logs their results.
//
// <dir>/access<step>_<gpu>.bin holds 40 bytes an access, big-endian: {barrier, 15 zeros, gap[31:0]}
// and the access. `gap` is the least number of idle cycles before it; `barrier`: it waits until all
// accesses before it have their results. The file is opened at `load` and played while `go`.
// Results are taken in so many percent of the cycles as the settings say.
//
// Logs: <dir>/result<step>_<gpu>.log, one line "<cycle, 8 hex digits> <result, 39 hex digits>" for
// each, and <dir>/issue<step>_<gpu>.log, the cycle in which each access was taken, 8 hex digits.
module sm_player (
    input  logic                  clk,
    input  logic                  rst,
    input  logic [7:0]            gpu,
    input  logic [31:0]           cycle,
    input  logic [7:0]            step,
    input  logic                  load,
    input  logic                  go,
    input  system_pkg::settings_t settings,
    output logic                  access_valid,
    input  logic                  access_ready,
    output logic [271:0]          access_payload,
    input  logic                  result_valid,
    output logic                  result_ready,
    input  logic [155:0]          result_payload,
    output logic                  done,
    output logic                  quiet
);
  /* verilator no_inline_module */
  import system_pkg::*;

  string dir;
  integer source, got, results, issues, outstanding;
  logic loaded, ended, was_go;
  logic [319:0] word, fetched;
  logic [31:0] idle, random;
  // By name: an access that has no result, unless it is refused.
  logic posted[1<<16];

  initial begin
    source = 0;
    results = 0;
    issues = 0;
    loaded = 1'b0;
    ended = 1'b1;
    if (!$value$plusargs("dir=%s", dir)) dir = ".";
  end

  access_t next;
  result_t result;
  assign next = access_t'(word[271:0]);
  assign result = result_t'(result_payload);
  wire silent = next.posted && !is_load(next.opcode);
  wire barrier = word[319];
  assign access_valid = go && loaded && idle >= word[303:272] && !(barrier && outstanding != 0);
  assign access_payload = word[271:0];
  wire sends = access_valid && access_ready;
  wire ends = result_valid && result_ready;
  assign done = ended && outstanding == 0;
  assign quiet = !sends && !result_valid;

  always_ff @(posedge clk) begin
    if (rst) begin
      loaded <= 1'b0;
      ended <= 1'b1;
      outstanding <= 0;
      was_go <= 1'b0;
      idle <= '1;
      random <= 32'hc2b2ae35 * (32'(gpu) + 32'd1) ^ 32'h1;
      result_ready <= 1'b0;
    end else begin
      random <= random_pkg::xorshift(load ? random ^ settings.seed * 32'h27d4eb2f | 32'h1 : random);
      result_ready <= int'(random[22:8]) % 100 < settings.result_percent;
      was_go <= go;
      if (was_go && !go) begin  // what comes between two steps may read the logs
        $fflush(results);
        $fflush(issues);
      end
      if (idle != '1) idle <= idle + 32'd1;
      if (sends) begin
        idle <= 32'd0;
        posted[next.rd] = silent;
        $fwrite(issues, "%08x\n", cycle);
      end
      if (ends) $fwrite(results, "%08x %039x\n", cycle, result_payload);
      outstanding <= outstanding + int'(sends && !silent)
          - (ends && !posted[result.rd] ? int'(result.accesses) : 0);
      if (load) begin
        if (source != 0) $fclose(source);
        if (results != 0) $fclose(results);
        if (issues != 0) $fclose(issues);
        source = $fopen($sformatf("%s/access%0d_%0d.bin", dir, step, gpu), "rb");
        results = $fopen($sformatf("%s/result%0d_%0d.log", dir, step, gpu), "w");
        issues = $fopen($sformatf("%s/issue%0d_%0d.log", dir, step, gpu), "w");
        loaded <= 1'b0;
        ended <= source == 0;
      end else if (go && !ended && (sends || !loaded)) begin
        got = $fread(fetched, source);
        word <= fetched;
        loaded <= got == 40;
        ended <= got != 40;
      end
    end
  end
endmodule
