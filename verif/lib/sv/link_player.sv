// SPDX-License-Identifier: Apache-2.0
// Plays the flits of a file onto a link, as fast as gaps and credits allow, and logs what it sent.
//
// The file holds 20 bytes a flit: a 32-bit control word {channel, ignore credits, 14 zeros,
// gap[15:0]} and the 128-bit flit, both big-endian. `gap` is the least number of idle cycles before
// the flit. `+phase=N` chooses the file <dir>/stim<N>_<PORT>.bin; it is opened when reset ends.
// Log: one line a flit, "<cycle, 8 hex digits> <flit, 32 hex digits>".
module link_player #(
    parameter int PORT = 0
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         go,
    input  logic [31:0]  cycle,
    input  logic [7:0]   phase,
    output logic         valid,
    output logic [127:0] flit,
    input  logic [1:0]   credit,
    output logic         done
);
  string dir;
  integer source, log_file, got;
  logic was_rst, loaded, ended;
  logic [159:0] word;
  logic [15:0] idle;
  integer credits[2];

  wire vc = word[159];
  wire forced = word[158];
  wire ready = loaded && idle >= word[143:128] && (forced || credits[vc] > 0);

  initial begin
    was_rst = 1'b0;
    source = 0;
    log_file = 0;
    loaded = 1'b0;
    ended = 1'b0;
    valid = 1'b0;
    if (!$value$plusargs("dir=%s", dir)) dir = ".";
  end

  always_ff @(posedge clk) begin
    was_rst <= rst;
    valid <= 1'b0;
    flit <= 'x;
    if (rst) begin
      loaded <= 1'b0;
      ended <= 1'b0;
      idle <= 16'h0;
      credits[0] <= 0;
      credits[1] <= 0;
    end else begin
      if (was_rst) begin
        source = $fopen($sformatf("%s/stim%0d_%0d.bin", dir, phase, PORT), "rb");
        log_file = $fopen($sformatf("%s/in%0d_%0d.log", dir, phase, PORT), "w");
      end
      credits[0] <= credits[0] + int'(credit[0]) - int'(go && ready && !forced && !vc);
      credits[1] <= credits[1] + int'(credit[1]) - int'(go && ready && !forced && vc);
      if (idle != 16'hffff) idle <= idle + 16'h1;
      if (go && ready) begin
        valid <= 1'b1;
        flit <= word[127:0];
        idle <= 16'h0;
        // The flit is on the link in the next cycle.
        $fwrite(log_file, "%08x %032x\n", cycle + 32'd1, word[127:0]);
      end
      if (go && !ended && (ready || !loaded)) begin
        got = source == 0 ? 0 : $fread(word, source);
        loaded <= got == 20;
        ended <= got != 20;
      end
    end
  end

  assign done = ended;
endmodule
