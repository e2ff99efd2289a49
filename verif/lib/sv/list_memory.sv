// SPDX-License-Identifier: Apache-2.0
// A memory of target lists: one of a queue's two fetch ports.
//
// Replies come in any order, after a latency between the settings' bounds, from the cycle in which
// a request is taken. Requests are taken in so many percent of the cycles as the settings say.
//
// At `load`, the contents are read from <dir>/<NAME><step>_<gpu>.bin if there is such a file, from
// address 0 on, a multiple of 16 bytes. Addresses beyond it are answered with an error.
module list_memory #(
    parameter     NAME = "shared",
    parameter int BYTES = 1 << 20,
    parameter int ID_BITS = 8
) (
    input  logic                   clk,
    input  logic                   rst,
    input  logic [7:0]             gpu,
    input  logic [31:0]            cycle,
    input  logic [7:0]             step,
    input  logic                   load,
    input  logic [31:0]            seed,
    input  logic [31:0]            latency_min,
    input  logic [31:0]            latency_max,
    input  logic [31:0]            percent,
    input  logic                   request_valid,
    output logic                   request_ready,
    input  logic [48+ID_BITS-1:0]  request_payload,
    output logic                   reply_valid,
    input  logic                   reply_ready,
    output logic [ID_BITS+128:0]   reply_payload,
    output logic                   quiet
);
  /* verilator no_inline_module */
  localparam int DEPTH = 2048, WORDS = BYTES / 16;

  string dir;
  integer file, size;
  logic [127:0] image[WORDS];
  logic [31:0] random;

  function automatic logic [127:0] turned(input logic [127:0] word);
    turned = {<<8{word}};
  endfunction

  initial begin
    if (!$value$plusargs("dir=%s", dir)) dir = ".";
    size = 0;
  end

  // Under way, at the place of the cycle in which they are due; then in the order of their replies.
  logic wheel_valid[DEPTH];
  logic [ID_BITS+128:0] wheel[DEPTH], ready_replies[DEPTH];
  integer count, place, head, tail, waiting;
  logic [10:0] now;
  logic falls_due;
  wire takes = request_valid && request_ready;
  wire gives = reply_valid && reply_ready;
  wire [47:0] address = request_payload[47:0];
  wire beyond = address >= 48'(size);

  assign reply_valid = waiting != 0;
  assign reply_payload = ready_replies[head];
  assign quiet = !takes && count == 0;

  always_ff @(posedge clk) begin
    if (rst) begin
      count <= 0;
      head <= 0;
      tail <= 0;
      waiting <= 0;
      request_ready <= 1'b0;
      for (int i = 0; i < DEPTH; i++) wheel_valid[i] = 1'b0;
      random <= 32'h85ebca6b * (32'(gpu) + 32'd1) ^ 32'h1;
    end else begin
      random <= random_pkg::xorshift(load ? random ^ seed * 32'h9e3779b9 | 32'h1 : random);
      request_ready <= int'(random[14:0]) % 100 < percent && count < DEPTH / 2;
      count <= count + int'(takes) - int'(gives);
      now = 11'(cycle + 32'd1);
      if (takes) begin
        place = int'(11'(cycle + latency_min
            + (random >> 8) % (latency_max - latency_min + 32'd1)));
        while (wheel_valid[place]) place = (place + 1) % DEPTH;
        wheel_valid[place] = 1'b1;
        wheel[place] = {
            beyond, beyond ? 128'h0 : turned(image[int'(address >> 4)]),
            request_payload[48+:ID_BITS]};
      end
      falls_due = wheel_valid[now];
      if (falls_due) begin
        wheel_valid[now] = 1'b0;
        ready_replies[tail] <= wheel[now];
        tail <= (tail + 1) % DEPTH;
      end
      waiting <= waiting + int'(falls_due) - int'(gives);
      if (gives) head <= (head + 1) % DEPTH;
      if (load) begin
        file = $fopen($sformatf("%s/%s%0d_%0d.bin", dir, NAME, step, gpu), "rb");
        if (file != 0) begin
          size = $fread(image, file);
          $fclose(file);
        end
      end
    end
  end
endmodule
