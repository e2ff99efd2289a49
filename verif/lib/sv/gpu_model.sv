// SPDX-License-Identifier: Apache-2.0
// What stands at one link of the switch in place of a GPU: a player, a responder and a sink.
//
// Player and responder share the link to the switch by whole packets, in turns when both have one.
// Log of that link, <dir>/in<phase>_<port>.log: one line a flit, "<cycle, 8 hex digits> <flit, 32
// hex digits>".
module gpu_model #(
    parameter int PORTS = 2,
    parameter int RESPONSE_DEPTH = 32
) (
    input  logic           clk,
    input  logic [7:0]     port,
    input  logic           rst,
    input  logic           go,
    input  logic [31:0]    cycle,
    input  logic [7:0]     phase,
    output logic           rx_valid,
    output logic [127:0]   rx_flit,
    input  logic [PORTS:0] rx_credit,
    input  logic           tx_valid,
    input  logic [127:0]   tx_flit,
    output logic [1:0]     tx_credit,
    output logic           done,
    output logic           quiet
);
  // One copy of the code for all ports; 64 of them take minutes to build.
  /* verilator no_inline_module */
  import flit_pkg::*;

  string dir;
  integer log_file;
  logic was_rst, open, owner, turn;
  logic tx_open;
  logic [15:0] tx_left;
  logic [PORTS:0][15:0] credits;
  logic player_wants, player_last, player_done, responder_wants, responder_last, responder_idle;
  logic [127:0] player_flit, responder_flit;
  logic [15:0] player_cost, player_pays;

  initial begin
    was_rst = 1'b0;
    log_file = 0;
    rx_valid = 1'b0;
    if (!$value$plusargs("dir=%s", dir)) dir = ".";
  end

  // 0: the player, 1: the responder.
  wire chosen = open ? owner : responder_wants && (turn || !player_wants);
  wire player_sends = player_wants && !chosen;
  wire responder_sends = responder_wants && chosen;
  wire sends = player_sends || responder_sends;
  wire last = chosen ? responder_last : player_last;

  wire tx_begins = tx_valid && !tx_open;
  wire tx_ends = tx_valid && (tx_open ? tx_left == 16'd1 : behind(tx_flit) == 16'd0);

  link_player #(.PORTS(PORTS), .RESPONSE_DEPTH(RESPONSE_DEPTH)) player (
      .clk, .port, .rst, .go, .phase, .credits,
      .freed(tx_begins && is_result(tx_flit)), .freed_tag(tag_of(tx_flit)),
      .wants(player_wants), .flit(player_flit), .last(player_last),
      .cost(player_cost), .pays(player_pays), .sends(player_sends), .done(player_done));
  responder #(.PORTS(PORTS)) answers (
      .clk, .port, .rst, .cycle, .phase, .credit(rx_credit), .credits,
      .pay(player_sends), .cost(player_cost), .pays(player_pays),
      .begins(tx_begins), .ends(tx_ends), .request(tx_flit),
      .wants(responder_wants), .flit(responder_flit), .last(responder_last),
      .sends(responder_sends), .idle(responder_idle));
  link_sink sink (
      .clk, .port, .rst, .cycle, .phase,
      .valid(tx_valid), .flit(tx_flit), .credit(tx_credit), .quiet);

  always_ff @(posedge clk) begin
    was_rst <= rst;
    rx_valid <= 1'b0;
    rx_flit <= 'x;
    if (rst) begin
      open <= 1'b0;
      turn <= 1'b0;
      tx_open <= 1'b0;
    end else begin
      if (was_rst) begin
        if (log_file != 0) $fclose(log_file);
        log_file = $fopen($sformatf("%s/in%0d_%0d.log", dir, phase, port), "w");
      end
      if (sends) begin
        rx_valid <= 1'b1;
        rx_flit <= chosen ? responder_flit : player_flit;
        // The flit is on the link in the next cycle.
        $fwrite(log_file, "%08x %032x\n", cycle + 32'd1, chosen ? responder_flit : player_flit);
        open <= !last;
        owner <= chosen;
        turn <= !chosen;
      end
      if (tx_valid) begin
        tx_open <= !tx_ends;
        tx_left <= tx_open ? tx_left - 16'd1 : behind(tx_flit);
      end
    end
  end

  // A player that has ended inside a packet stands for a GPU that is gone: it answers no more.
  assign done = player_done && (responder_idle || (open && !owner));
endmodule
