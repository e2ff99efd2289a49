// SPDX-License-Identifier: Apache-2.0
// Answers the requests that the switch sends to a GPU, out of a memory.
//
// It answers every multicast request that is not posted, with PART_ACK or PART_DATA, and unicast
// requests with RSP_ACK or RSP_DATA. It is on in phases that have a file
// <dir>/responder<phase>.cfg, one line with these decimal numbers:
//
// presum       1: one part for all targets of a copy; 0: one part for each
// f32          1: pre-sums of wide types are f32, twice as long (where that is 16 flits at most)
// delay_min, delay_max   cycles from the end of a request to when its answer may be sent
// reorder      1: answers to one destination may overtake each other
// unicast      1: unicast requests are answered too
// seed         of delays and faults
// and per mille of the multicast requests that it answers, at most one of:
// drop         no part is sent at all
// duplicate    one part is sent twice
// wrong_length one part has one data flit too many (too few, if there were 16), or any on a store
// wrong_dtype  one part has the lowest bit of `dtype` inverted
// over_count   one part covers seven targets more
// stale_gen    before one part, one with gen - 1 is sent
// error_status one part is a PART_ACK with BAD_ADDRESS
//
// Data: flit j for target t of a copy is memory[(address / 16 + j + 61 * t) mod 4096]; a pre-sum is
// that of target 0. The memory is <dir>/memory<phase>_<port>.bin, 16 bytes a flit, big-endian.
//
// There is a queue for each destination port, so none blocks another. The destinations take turns
// if they have an answer that is due, and credits for all of it. All response credits of the link
// are counted here, since those of an answer are set aside before it gets onto the link.
module responder #(
    parameter int PORTS = 2,
    parameter int CAPACITY = 1024 * PORTS
) (
    input  logic                 clk,
    input  logic [7:0]           port,
    input  logic                 rst,
    input  logic [31:0]          cycle,
    input  logic [7:0]           phase,
    input  logic [PORTS:0]       credit,
    output logic [PORTS:0][15:0] credits,
    // The player pays for what it sends.
    input  logic                 pay,
    input  logic [15:0]          cost,
    input  logic [15:0]          pays,
    // From the switch: the header of a packet; its end.
    input  logic                 begins,
    input  logic                 ends,
    input  logic [127:0]         request,
    // To the switch.
    output logic                 wants,
    output logic [127:0]         flit,
    output logic                 last,
    input  logic                 sends,
    output logic                 idle
);
  import flit_pkg::*;

  localparam int NO_FAULT = 0, DROP = 1, DUPLICATE = 2, WRONG_LENGTH = 3, WRONG_DTYPE = 4,
      OVER_COUNT = 5, STALE_GEN = 6, ERROR_STATUS = 7;

  string dir;
  integer file, got;
  integer presum, f32, delay_min, delay_max, reorder, unicast, seed;
  integer rate[8];
  logic was_rst, on;
  logic [31:0] random;
  logic [127:0] memory[4096];

  // The requests that are not answered yet, in a linked list for each destination.
  logic [127:0] entry_header[CAPACITY];
  logic [31:0] entry_due[CAPACITY];
  integer entry_next[CAPACITY];
  logic [14:0] entry_part[CAPACITY];
  logic [14:0] entry_fault_part[CAPACITY];
  logic [2:0] entry_fault[CAPACITY];
  logic entry_extra[CAPACITY];
  integer oldest[PORTS], newest[PORTS];
  logic [PORTS-1:0] waiting;
  logic none;
  integer fresh, released;
  integer turn;

  // The packet that is sent or to be sent.
  logic chosen, begun;
  logic [127:0] answer;
  logic [4:0] left;
  logic [11:0] index;

  logic [127:0] opened;
  logic [PORTS:0][15:0] now;
  header_t asked, part;
  logic [14:0] parts;
  logic [11:0] offset;
  integer draw, place, ahead, after, choice, entry;
  logic found, special, advance;

  initial begin
    was_rst = 1'b0;
    on = 1'b0;
    chosen = 1'b0;
    if (!$value$plusargs("dir=%s", dir)) dir = ".";
  end

  assign wants = chosen;
  assign flit = begun ? memory[index] : answer;
  assign last = left == 5'd0;
  assign idle = !chosen && none;

  // How many targets the copy `asked` is for.
  function automatic logic [14:0] targets_of(input header_t header);
    targets_of = header.opcode[3:2] == DYNAMIC ? header.count : 15'd1;
  endfunction

  function automatic logic to_one(input header_t header);
    to_one = header.opcode[3:2] == UNICAST;
  endfunction

  // The next part of `entry`: `part`, `offset` of its data, and whether the entry moves on.
  task automatic compose;
    asked = entry_header[entry];
    parts = presum != 0 ? 15'd1 : targets_of(asked);
    part = '0;
    part.address = asked.address;
    part.stage = asked.stage;
    part.tag = asked.tag;
    part.gen = asked.gen;
    part.gpu = asked.gpu;
    part.dtype = asked.dtype;
    part.vc = RESPONSE_VC;
    part.count = presum != 0 ? targets_of(asked) : 15'd1;
    part.more = entry_part[entry] + 15'd1 != parts;
    if (asked.opcode[1:0] == LOAD) begin
      part.opcode = asked.opcode[3:2] == UNICAST ? RSP_DATA : PART_DATA;
      part.length = asked.length;
      if (presum != 0 && f32 != 0 && WIDE[asked.dtype] && asked.length <= 5'd8
          && asked.opcode[3:2] != UNICAST) begin
        part.length = asked.length << 1;
        part.dtype = F32;
      end
    end else begin
      part.opcode = asked.opcode[3:2] == UNICAST ? RSP_ACK : PART_ACK;
    end
    special = entry_fault[entry] != NO_FAULT && entry_part[entry] == entry_fault_part[entry];
    advance = 1'b1;
    if (special)
      case (entry_fault[entry])
        DUPLICATE: advance = entry_extra[entry];
        STALE_GEN: begin
          advance = entry_extra[entry];
          if (!advance) part.gen = asked.gen - 2'd1;
        end
        WRONG_LENGTH: begin
          part.opcode = PART_DATA;
          part.length = part.length == 5'd16 ? 5'd15 : part.length + 5'd1;
        end
        WRONG_DTYPE: part.dtype = part.dtype ^ 4'd1;
        OVER_COUNT: part.count = part.count + 15'd7;
        ERROR_STATUS: begin
          part.opcode = PART_ACK;
          part.length = 5'd0;
          part.aux = BAD_ADDRESS_STATUS;
        end
        default: ;
      endcase
    offset = asked.address[15:4] + (presum != 0 ? 12'd0 : 12'(61 * int'(entry_part[entry])));
  endtask

  task automatic configure;
    on = 1'b0;
    file = $fopen($sformatf("%s/responder%0d.cfg", dir, phase), "r");
    if (file != 0) begin
      got = $fscanf(file, "%d %d %d %d %d %d %d", presum, f32, delay_min, delay_max, reorder,
          unicast, seed);
      for (int i = 1; i < 8; i++) got = got + $fscanf(file, "%d", rate[i]);
      $fclose(file);
      file = $fopen($sformatf("%s/memory%0d_%0d.bin", dir, phase, port), "rb");
      if (got != 14 || file == 0 || $fread(memory, file) != 65536) begin
        $display("ERROR: port %0d: no whole configuration or memory of the responder", port);
        $fatal;
      end
      $fclose(file);
      on = 1'b1;
      random = 32'h9e3779b9 * (32'(port) + 32'd1) ^ (32'(seed) * 32'h85ebca6b) ^ 32'h5bd1e995;
      if (random == 32'h0) random = 32'h1;
    end
  endtask

  task automatic enqueue(input logic [127:0] flit);
    place = int'(destination(flit));
    asked = flit;
    if (released >= 0) begin
      entry = released;
      released = entry_next[entry];
    end else begin
      entry = fresh;
      fresh = fresh + 1;
    end
    if (entry >= CAPACITY || place >= PORTS) begin
      $display("ERROR: port %0d: the responder has no place for a request", port);
      $fatal;
    end
    random = random_pkg::xorshift(random);
    entry_header[entry] = flit;
    entry_due[entry] = cycle + delay_min + int'(random[30:8]) % (delay_max - delay_min + 1);
    entry_part[entry] = 15'd0;
    entry_extra[entry] = 1'b0;
    entry_fault[entry] = NO_FAULT;
    random = random_pkg::xorshift(random);
    draw = int'(random[30:8]) % 1000;
    if (asked.opcode[3:2] != UNICAST)
      for (int i = 1; i < 8; i++) begin
        if (draw >= 0 && draw < rate[i]) entry_fault[entry] = 3'(i);
        draw = draw - rate[i];
      end
    random = random_pkg::xorshift(random);
    entry_fault_part[entry] = presum != 0 || targets_of(flit) == 15'd0 ? 15'd0
        : 15'(int'(random[30:8]) % int'(targets_of(flit)));
    if (entry_fault[entry] == DROP) begin
      entry_next[entry] = released;
      released = entry;
    end else begin
      ahead = waiting[place] ? newest[place] : -1;
      if (reorder != 0 && waiting[place]) begin
        ahead = -1;
        after = oldest[place];
        while (after >= 0 && entry_due[after] <= entry_due[entry]) begin
          ahead = after;
          after = entry_next[after];
        end
      end
      if (ahead < 0) begin
        entry_next[entry] = waiting[place] ? oldest[place] : -1;
        if (!waiting[place]) newest[place] = entry;
        oldest[place] = entry;
      end else begin
        entry_next[entry] = entry_next[ahead];
        entry_next[ahead] = entry;
        if (newest[place] == ahead) newest[place] = entry;
      end
      waiting[place] = 1'b1;
    end
  endtask

  always_ff @(posedge clk) begin
    was_rst <= rst;
    if (rst) begin
      credits <= '0;
      chosen <= 1'b0;
      none <= 1'b1;
      waiting = '0;
      fresh = 0;
      released = -1;
      turn = 0;
    end else begin
      if (was_rst) configure;
      now = credits;
      if (credit != '0) begin
        for (int c = 0; c <= PORTS; c++) if (credit[c]) now[c] = now[c] + 16'd1;
      end
      if (pay) now[pays] = now[pays] - cost;
      if (begins) opened = request;
      if (sends) begin
        chosen <= !last;
        begun <= 1'b1;
        left <= left - 5'd1;
        if (begun) index <= index + 12'd1;
      end
      found = 1'b0;
      if (waiting != '0 && (!chosen || (sends && last))) begin
        for (int k = 0; k < PORTS && !found; k++) begin
          choice = turn + k < PORTS ? turn + k : turn + k - PORTS;
          if (waiting[choice]) begin
            entry = oldest[choice];
            if (cycle >= entry_due[entry]) begin
              compose;
              found = now[1+choice] >= 16'd1 + 16'(part.length);
            end
          end
        end
      end
      if (found) begin
        now[1+choice] = now[1+choice] - 16'd1 - 16'(part.length);
        turn = choice + 1 < PORTS ? choice + 1 : 0;
        chosen <= 1'b1;
        begun <= 1'b0;
        answer <= part;
        left <= part.length;
        index <= offset;
        if (!advance) entry_extra[entry] = 1'b1;
        else if (part.more) entry_part[entry] = entry_part[entry] + 15'd1;
        else begin
          oldest[choice] = entry_next[entry];
          waiting[choice] = oldest[choice] >= 0;
          entry_next[entry] = released;
          released = entry;
        end
      end
      if (on && ends && (arms(opened) || (unicast != 0 && to_one(opened)))) enqueue(opened);
      none <= waiting == '0;
      credits <= now;
    end
  end
endmodule
