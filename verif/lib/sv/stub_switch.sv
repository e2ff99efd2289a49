// SPDX-License-Identifier: Apache-2.0
// Stands in for a switch when the harness itself is tested (test_responder.py).
//
// Requests from port p leave by port (p + 1) mod N. When the last part of an answer is there (`more`
// = 0), its destination gets a result of one flit. It checks that nothing is sent without credits,
// nor a response without credits for all of it.
//
// +stub_depth=N    credits of each class after reset
// +stub_stuck=MASK destination ports (hexadecimal) whose credits are never given back
// +stub_slow=N     a credit is given back after N cycles, 63 at most
module stub_switch #(
    parameter int N = 2
) (
    input  logic                clk,
    input  logic                rst,
    input  logic [N-1:0]        rx_valid,
    input  logic [N-1:0][127:0] rx_flit,
    output logic [N*(N+1)-1:0]  rx_credit,
    output logic [N-1:0]        tx_valid,
    output logic [N-1:0][127:0] tx_flit,
    input  logic [2*N-1:0]      tx_credit
);
  import flit_pkg::*;

  localparam int ROOM = 1 << 16;

  integer depth, slow, now, at, to, size;
  logic [63:0] stuck;
  header_t header;
  // Of each link in: flits to come of a packet, its class (-1: none), and of each class credits
  // that are to be given, and that the harness holds.
  integer left[N], kind[N], owed[N*(N+1)], held[N*(N+1)];
  logic [N:0] due[N*64];
  // Of each link out: flits to come of a packet and its channel; of each channel a queue, credits.
  integer sending[N], channel[N], filled[N*2], drained[N*2], credits[N*2];
  logic [127:0] waiting[N*2*ROOM];

  initial begin
    if (!$value$plusargs("stub_depth=%d", depth)) depth = 32;
    if (!$value$plusargs("stub_stuck=%h", stuck)) stuck = 64'h0;
    if (!$value$plusargs("stub_slow=%d", slow)) slow = 1;
  end

  task automatic push(input integer place, input logic [127:0] flit);
    waiting[place*ROOM+filled[place]%ROOM] = flit;
    filled[place] = filled[place] + 1;
  endtask

  task automatic receive(input integer port, input logic [127:0] flit);
    if (left[port] == 0) begin
      header = flit;
      left[port] = int'(behind(flit)) + 1;
      to = int'(destination(flit));
      kind[port] = !is_response(flit) ? 0 : to < N ? 1 + to : -1;
      if (kind[port] > 0) begin
        if (held[port*(N+1)+kind[port]] < left[port]) begin
          $display("ERROR: port %0d began a response without credits for all of it", port);
          $fatal;
        end
        if (!header.more) begin
          header.opcode = RSP_ACK;
          header.address = '0;
          header.stage = '0;
          header.length = '0;
          push(2 * to + 1, header);
        end
      end
    end
    if (kind[port] == 0) push(2 * ((port + 1) % N), flit);
    left[port] = left[port] - 1;
    if (kind[port] >= 0) begin
      at = port * (N + 1) + kind[port];
      held[at] = held[at] - 1;
      if (held[at] < 0) begin
        $display("ERROR: port %0d sent without a credit", port);
        $fatal;
      end
      if (kind[port] == 0 || !stuck[kind[port]-1]) due[port*64+(now+slow)%64][kind[port]] = 1'b1;
    end
  endtask

  always @(posedge clk) begin
    now = (now + 1) % 64;
    for (int p = 0; p < N; p++) begin
      tx_valid[p] <= 1'b0;
      tx_flit[p] <= 'x;
      rx_credit[p*(N+1)+:N+1] <= '0;
      if (rst) begin
        now = 0;
        left[p] = 0;
        sending[p] = 0;
        for (int c = 0; c <= N; c++) begin
          owed[p*(N+1)+c] = depth;
          held[p*(N+1)+c] = 0;
        end
        for (int i = 0; i < 64; i++) due[p*64+i] = '0;
        for (int v = 0; v < 2; v++) begin
          filled[2*p+v] = 0;
          drained[2*p+v] = 0;
          credits[2*p+v] = 0;
        end
      end else begin
        for (int c = 0; c <= N; c++) begin
          at = p * (N + 1) + c;
          if (rx_credit[at]) held[at] = held[at] + 1;
          if (due[p*64+now][c]) owed[at] = owed[at] + 1;
          if (owed[at] > 0) begin
            owed[at] = owed[at] - 1;
            rx_credit[at] <= 1'b1;
          end
        end
        due[p*64+now] = '0;
        if (rx_valid[p]) receive(p, rx_flit[p]);
      end
    end
    if (!rst)
      for (int p = 0; p < N; p++) begin
        for (int v = 0; v < 2; v++)
          if (tx_credit[2*p+v]) credits[2*p+v] = credits[2*p+v] + 1;
        if (sending[p] == 0) channel[p] = filled[2*p+1] != drained[2*p+1] ? 1 : 0;
        at = 2 * p + channel[p];
        if (filled[at] != drained[at] && credits[at] > 0) begin
          header = waiting[at*ROOM+drained[at]%ROOM];
          if (sending[p] == 0) sending[p] = int'(behind(header)) + 1;
          sending[p] = sending[p] - 1;
          drained[at] = drained[at] + 1;
          credits[at] = credits[at] - 1;
          tx_valid[p] <= 1'b1;
          tx_flit[p] <= header;
        end
      end
  end
endmodule
