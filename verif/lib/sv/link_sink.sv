// SPDX-License-Identifier: Apache-2.0
// Receives flits, gives their credits back at a chosen pace, and logs what came.
//
// +depth=N      slots of each channel's buffer (handed out after reset)
// +ready=P      percent of cycles in which one flit may be drained; 100 by default
// +burst=N      average length of the on and off periods; 0: every cycle on its own
// +stall=MASK   ports (hexadecimal mask) that drain nothing until cycle +stall_until=N
// +seed=N       seed of the pace
// Log, <dir>/out<phase>_<port>.log: as gpu_model.
module link_sink (
    input  logic         clk,
    input  logic [7:0]   port,
    input  logic         rst,
    input  logic [31:0]  cycle,
    input  logic [7:0]   phase,
    input  logic         valid,
    input  logic [127:0] flit,
    output logic [1:0]   credit,
    output logic         quiet
);
  string dir;
  integer log_file, depth, ready, burst, seed, stall_until;
  logic [63:0] stall;
  logic was_rst, on;
  logic [31:0] random;
  integer held[2], owed[2];
  logic [15:0] left;
  logic open_packet, open_vc, turn;

  initial begin
    was_rst = 1'b0;
    log_file = 0;
    if (!$value$plusargs("dir=%s", dir)) dir = ".";
    if (!$value$plusargs("depth=%d", depth)) depth = 64;
    if (!$value$plusargs("ready=%d", ready)) ready = 100;
    if (!$value$plusargs("burst=%d", burst)) burst = 0;
    if (!$value$plusargs("seed=%d", seed)) seed = 1;
    if (!$value$plusargs("stall=%h", stall)) stall = 64'h0;
    if (!$value$plusargs("stall_until=%d", stall_until)) stall_until = 0;
  end

  // Framing, only to know the channel of every flit.
  wire [15:0] following = flit_pkg::behind(flit);
  wire vc = open_packet ? open_vc : flit_pkg::is_response(flit);
  wire stalled = stall[port] && cycle < stall_until;
  wire drain = on && !stalled;
  wire pick = held[1] > 0 && (turn || held[0] == 0);
  wire drains = drain && (held[0] > 0 || held[1] > 0);

  always_ff @(posedge clk) begin
    was_rst <= rst;
    credit <= 2'b00;
    if (rst) begin
      held[0] <= 0;
      held[1] <= 0;
      owed[0] <= depth;
      owed[1] <= depth;
      open_packet <= 1'b0;
      turn <= 1'b0;
      on <= 1'b1;
      random <= 32'h9e3779b9 * (32'(port) + 32'd1) ^ (32'(seed) * 32'h85ebca6b) ^ 32'h1;
    end else begin
      if (was_rst) begin
        if (log_file != 0) $fclose(log_file);
        log_file = $fopen($sformatf("%s/out%0d_%0d.log", dir, phase, port), "w");
      end
      random <= random_pkg::xorshift(random == 32'h0 ? 32'h1 : random);
      if (burst == 0) on <= int'(random[22:8]) % 100 < ready;
      else if (int'(random[30:16]) % burst == 0) on <= int'(random[15:1]) % 100 < ready;
      for (int v = 0; v < 2; v++) begin
        held[v] <= held[v] + int'(valid && int'(vc) == v) - int'(drains && int'(pick) == v);
        owed[v] <= owed[v] + int'(drains && int'(pick) == v) - int'(owed[v] > 0);
        credit[v] <= owed[v] > 0;
      end
      if (drains) turn <= !pick;
      if (valid) begin
        $fwrite(log_file, "%08x %032x\n", cycle, flit);
        if (open_packet) begin
          left <= left - 16'd1;
          open_packet <= left != 16'd1;
        end else begin
          left <= following;
          open_packet <= following != 16'd0;
          open_vc <= vc;
        end
      end
    end
  end

  // The receiver's buffer overflowed: the switch sent without a credit.
  always_ff @(posedge clk)
    if (!rst && (held[0] > depth || held[1] > depth)) begin
      $display("ERROR: port %0d sent without a credit", port);
      $fatal;
    end

  assign quiet = !valid;
endmodule
