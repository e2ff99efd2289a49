// SPDX-License-Identifier: Apache-2.0
// Plays packets of ordinary loads and stores, and logs the flits of their answers.
//
// <dir>/ordinary<step>_<gpu>.bin holds 20 bytes a flit, big-endian: {wait, 15 zeros, gap[15:0]} and
// the flit. `gap` is the least number of idle cycles before it; `wait`: it waits until all packets
// before it are answered. The file is opened at `load` and played while `go`.
//
// Log, <dir>/answer<step>_<gpu>.log: one line a flit, "<cycle, 8 hex digits> <flit, 32 hex
// digits>".
module packet_player (
    input  logic         clk,
    input  logic         rst,
    input  logic [7:0]   gpu,
    input  logic [31:0]  cycle,
    input  logic [7:0]   step,
    input  logic         load,
    input  logic         go,
    output logic         valid,
    input  logic         ready,
    output logic [128:0] payload,
    input  logic         answer_valid,
    input  logic [127:0] answer_flit,
    output logic         done,
    output logic         quiet
);
  /* verilator no_inline_module */
  import system_pkg::*;

  string dir;
  integer source, got, log_file, outstanding;
  logic loaded, ended, was_go;
  logic [159:0] word, fetched;
  logic [15:0] idle, left, answer_left;

  initial begin
    source = 0;
    log_file = 0;
    if (!$value$plusargs("dir=%s", dir)) dir = ".";
  end

  wire last = left == 16'd1 || (left == 16'd0 && behind(word[127:0]) == 16'd0);
  assign valid = go && loaded && idle >= word[143:128] && !(word[159] && outstanding != 0);
  assign payload = {last, word[127:0]};
  wire sends = valid && ready;
  wire begins = sends && left == 16'd0;
  wire answered = answer_valid && answer_left == 16'd0;
  assign done = ended && outstanding == 0;
  assign quiet = !sends && !answer_valid;

  always_ff @(posedge clk) begin
    if (rst) begin
      loaded <= 1'b0;
      ended <= 1'b1;
      outstanding <= 0;
      was_go <= 1'b0;
      idle <= '1;
      left <= 16'd0;
      answer_left <= 16'd0;
    end else begin
      was_go <= go;
      if (was_go && !go) $fflush(log_file);
      if (idle != '1) idle <= idle + 16'd1;
      if (sends) begin
        idle <= 16'd0;
        left <= left == 16'd0 ? behind(word[127:0]) : left - 16'd1;
      end
      if (answer_valid) begin
        answer_left <= answer_left == 16'd0 ? behind(answer_flit) : answer_left - 16'd1;
        $fwrite(log_file, "%08x %032x\n", cycle, answer_flit);
      end
      outstanding <= outstanding + int'(begins) - int'(answered);
      if (load) begin
        if (source != 0) $fclose(source);
        if (log_file != 0) $fclose(log_file);
        source = $fopen($sformatf("%s/ordinary%0d_%0d.bin", dir, step, gpu), "rb");
        log_file = $fopen($sformatf("%s/answer%0d_%0d.log", dir, step, gpu), "w");
        loaded <= 1'b0;
        ended <= source == 0;
      end else if (go && !ended && (sends || !loaded)) begin
        got = $fread(fetched, source);
        word <= fetched;
        loaded <= got == 20;
        ended <= got != 20;
      end
    end
  end
endmodule
