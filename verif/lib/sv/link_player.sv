// SPDX-License-Identifier: Apache-2.0
// Plays the flits of a file onto a link, as fast as gaps and credits allow.
//
// The file holds 20 bytes a flit: a 32-bit control word {channel, ignore credits, wait for tags,
// 13 zeros, gap[15:0]} and the 128-bit flit, both big-endian. `gap` is the least number of idle
// cycles before the flit. The file <dir>/stim<phase>_<port>.bin is opened when reset ends.
//
// A request needs a credit for each flit when it is sent. A response needs those of all its flits
// when its header is sent, from its destination; one without a destination needs none. (Of one that
// is too long for any receiver, as many as there are, and the others one by one.)
//
// "Wait for tags": a multicast request that arms a reduction entry is not sent while its tag is in
// use, that is from the header of a request with this tag to that of a result or a refusal. And a
// request is not begun without credits for all of its flits, so that it never holds up answers that
// share the link.
module link_player #(
    parameter int PORTS = 2,
    parameter int RESPONSE_DEPTH = 32
) (
    input  logic                 clk,
    input  logic [7:0]           port,
    input  logic                 rst,
    input  logic                 go,
    input  logic [7:0]           phase,
    // Credits left: requests, then responses by destination.
    input  logic [PORTS:0][15:0] credits,
    input  logic                 freed,
    input  logic [8:0]           freed_tag,
    // A flit that may go out now; it does if `sends`.
    output logic                 wants,
    output logic [127:0]         flit,
    output logic                 last,
    output logic [15:0]          cost,
    output logic [15:0]          pays,
    input  logic                 sends,
    output logic                 done
);
  import flit_pkg::*;

  string dir;
  integer source, got;
  logic was_rst, loaded, ended;
  logic [159:0] word, fetched;
  logic [15:0] idle;
  logic [511:0] busy;
  logic open, open_free;
  logic [15:0] open_pays, left, paid;

  initial begin
    was_rst = 1'b0;
    source = 0;
    loaded = 1'b0;
    ended = 1'b0;
    if (!$value$plusargs("dir=%s", dir)) dir = ".";
  end

  wire vc = word[159];
  wire forced = word[158];
  wire minds_tags = word[157];
  wire [15:0] size = 16'd1 + behind(word[127:0]);
  wire [15:0] target = destination(word[127:0]);
  wire nowhere = target >= PORTS;
  wire free = open ? open_free : forced || (vc && nowhere);
  wire [15:0] start = size < RESPONSE_DEPTH ? size : 16'(RESPONSE_DEPTH);
  wire tag_taken = minds_tags && !open && arms(word[127:0]) && busy[tag_of(word[127:0])];

  assign flit = word[127:0];
  assign last = open ? left == 16'd1 : size == 16'd1;
  assign pays = open ? open_pays : vc && !nowhere ? 16'd1 + target : 16'd0;
  assign cost = free ? 16'd0 : !vc ? 16'd1 : !open ? start : paid == 16'd0 ? 16'd1 : 16'd0;
  wire [15:0] needed = minds_tags && !vc && !open && !free ? start : cost;
  assign wants = go && loaded && idle >= word[143:128] && credits[pays] >= needed && !tag_taken;
  assign done = ended;

  always_ff @(posedge clk) begin
    was_rst <= rst;
    if (rst) begin
      loaded <= 1'b0;
      ended <= 1'b0;
      idle <= 16'h0;
      open <= 1'b0;
      busy <= '0;
    end else begin
      if (was_rst) begin
        if (source != 0) $fclose(source);
        source = $fopen($sformatf("%s/stim%0d_%0d.bin", dir, phase, port), "rb");
      end
      if (idle != 16'hffff) idle <= idle + 16'h1;
      if (freed) busy[freed_tag] <= 1'b0;
      if (sends) begin
        idle <= 16'h0;
        open <= !last;
        if (!open) begin
          open_free <= free;
          open_pays <= pays;
          left <= size - 16'd1;
          paid <= start - 16'd1;
          if (arms(word[127:0])) busy[tag_of(word[127:0])] <= 1'b1;
        end else begin
          left <= left - 16'd1;
          if (paid != 16'd0) paid <= paid - 16'd1;
        end
      end
      if (go && !ended && (sends || !loaded)) begin
        got = source == 0 ? 0 : $fread(fetched, source);
        word <= fetched;
        loaded <= got == 20;
        ended <= got != 20;
      end
    end
  end
endmodule
