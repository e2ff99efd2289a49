// SPDX-License-Identifier: Apache-2.0
// The memory of a GPU: beats for the hub's data path, and words for its AL tables.
//
// Both see one image of BYTES bytes that begins as zeros. Reads see the memory as it is in the
// cycle that takes them; writes can be seen from the cycle of `written` on. So whoever reads
// without waiting for `written` gets the old contents.
//
// Latencies lie between the settings' bounds, from the cycle of a transfer to that of its reply.
// Beats are answered in order, table words in any order. Per direction a transfer is taken in
// so many percent of the cycles as the settings say. Beyond BYTES there is nothing: errors, and
// zeros for table words.
//
// At `load`, <dir>/load<step>_<gpu>.bin is written over the image, if there is such a file: pieces
// of {address[63:0], bytes[63:0]}, big-endian, and the bytes. At `dump`, the pieces that
// <dir>/dump<step>_<gpu>.list names by such headers are written to <dir>/dump<step>_<gpu>.bin, end
// to end, every 16 bytes backwards. All are multiples of 16 bytes.
module gpu_memory #(
    parameter int BYTES = 1 << 20,
    parameter int FLITS = 4,
    parameter int ID_BITS = 4
) (
    input  logic                          clk,
    input  logic                          rst,
    input  logic [7:0]                    gpu,
    input  logic [31:0]                   cycle,
    input  logic [7:0]                    step,
    input  logic                          load,
    input  logic                          dump,
    input  system_pkg::settings_t         settings,
    // Beats.
    input  logic                          write_valid,
    output logic                          write_ready,
    input  logic [48+144*FLITS-1:0]       write_payload,
    output logic                          written,
    output logic                          write_error,
    input  logic                          read_valid,
    output logic                          read_ready,
    input  logic [47:0]                   read_payload,
    output logic                          reply,
    output logic [128*FLITS-1:0]          reply_data,
    output logic                          reply_error,
    // Words.
    input  logic                          table_read_valid,
    output logic                          table_read_ready,
    input  logic [48+ID_BITS-1:0]         table_read_payload,
    output logic                          table_reply,
    output logic [ID_BITS-1:0]            table_reply_id,
    output logic [31:0]                   table_reply_data,
    input  logic                          table_write_valid,
    output logic                          table_write_ready,
    input  logic [79:0]                   table_write_payload,
    output logic                          table_written,
    output logic                          quiet
);
  // One copy of the code for all GPUs.
  /* verilator no_inline_module */
  localparam int DEPTH = 2048, WORDS = BYTES / 16, BEAT = 16 * FLITS;

  string dir;
  logic [127:0] image[WORDS];
  logic [31:0] random;

  function automatic logic [127:0] turned(input logic [127:0] word);
    turned = {<<8{word}};
  endfunction
  function automatic logic [31:0] pick(
      input logic [31:0] number, input logic [31:0] low, input logic [31:0] high);
    pick = low + (number >> 8) % (high - low + 1);
  endfunction

  // Files.
  integer file, list, got;
  logic [127:0] piece;

  initial begin
    if (!$value$plusargs("dir=%s", dir)) dir = ".";
    for (int i = 0; i < WORDS; i++) image[i] = '0;
  end

  task automatic load_image();
    file = $fopen($sformatf("%s/load%0d_%0d.bin", dir, step, gpu), "rb");
    if (file != 0) begin
      got = $fread(piece, file);
      while (got == 16) begin
        if (piece[127:64] + piece[63:0] > 64'(BYTES)) begin
          $display("ERROR: GPU %0d has no memory at %h", gpu, piece[127:64]);
          $fatal;
        end
        if (piece[63:0] != 0)
          got = $fread(image, file, int'(piece[127:64] >> 4), int'(piece[63:0] >> 4));
        got = $fread(piece, file);
      end
      $fclose(file);
    end
  endtask

  task automatic dump_image();
    list = $fopen($sformatf("%s/dump%0d_%0d.list", dir, step, gpu), "rb");
    if (list != 0) begin
      file = $fopen($sformatf("%s/dump%0d_%0d.bin", dir, step, gpu), "wb");
      got = $fread(piece, list);
      while (got == 16) begin
        for (int i = int'(piece[127:64] >> 4); i < int'((piece[127:64] + piece[63:0]) >> 4); i++)
          $fwrite(file, "%u", image[i]);
        got = $fread(piece, list);
      end
      $fclose(file);
      $fclose(list);
    end
  endtask

  // Reads of beats.
  logic [128*FLITS-1:0] r_data[DEPTH];
  logic [31:0] r_due[DEPTH];
  logic r_bad[DEPTH];
  integer r_head, r_tail, r_count;
  wire [47:0] r_address = read_payload;
  wire r_beyond = r_address > 48'(BYTES - BEAT);
  wire r_take = read_valid && read_ready;
  wire r_give = r_count != 0 && r_due[r_head] <= cycle + 32'd1;

  // Writes of beats.
  logic [48+144*FLITS-1:0] w_what[DEPTH];
  logic [31:0] w_due[DEPTH];
  integer w_head, w_tail, w_count;
  wire w_take = write_valid && write_ready;
  wire w_give = w_count != 0 && w_due[w_head] <= cycle + 32'd1;
  wire [47:0] w_address = w_what[w_head][47:0];
  wire w_beyond = w_address > 48'(BYTES - BEAT);

  // Writes of words.
  logic [79:0] t_what[DEPTH];
  logic [31:0] t_due[DEPTH];
  integer t_head, t_tail, t_count;
  wire t_take = table_write_valid && table_write_ready;
  wire t_give = t_count != 0 && t_due[t_head] <= cycle + 32'd1;
  wire [47:0] t_address = t_what[t_head][47:0];

  // Reads of words: at the place of the cycle in which they are answered.
  logic wheel_valid[DEPTH];
  logic [31:0] wheel_data[DEPTH];
  logic [ID_BITS-1:0] wheel_id[DEPTH];
  integer wheel_count, place;
  logic [10:0] now;
  logic l_give;
  wire [47:0] l_address = table_read_payload[47:0];
  wire l_take = table_read_valid && table_read_ready;

  wire any = r_take || w_take || t_take || l_take;
  assign quiet = !any && r_count == 0 && w_count == 0 && t_count == 0 && wheel_count == 0;

  logic [127:0] flit, mask;
  always_ff @(posedge clk) begin
    reply <= 1'b0;
    written <= 1'b0;
    table_reply <= 1'b0;
    table_written <= 1'b0;
    if (rst) begin
      r_head <= 0; r_tail <= 0; r_count <= 0;
      w_head <= 0; w_tail <= 0; w_count <= 0;
      t_head <= 0; t_tail <= 0; t_count <= 0;
      wheel_count <= 0;
      read_ready <= 1'b0;
      write_ready <= 1'b0;
      table_read_ready <= 1'b0;
      table_write_ready <= 1'b0;
      for (int i = 0; i < DEPTH; i++) wheel_valid[i] = 1'b0;
      random <= 32'h9e3779b9 * (32'(gpu) + 32'd1) ^ 32'h1;
    end else begin
      random <= random_pkg::xorshift(load ? random ^ settings.seed * 32'h85ebca6b | 32'h1 : random);
      read_ready <= int'(random[14:0]) % 100 < settings.memory_percent && r_count < DEPTH - 4;
      write_ready <= int'(random[30:16]) % 100 < settings.memory_percent && w_count < DEPTH - 4;
      table_read_ready <= int'(random[20:6]) % 100 < settings.table_percent
          && wheel_count < DEPTH / 2;
      table_write_ready <= int'(random[25:11]) % 100 < settings.table_percent
          && t_count < DEPTH - 4;
      r_count <= r_count + int'(r_take) - int'(r_give);
      w_count <= w_count + int'(w_take) - int'(w_give);
      t_count <= t_count + int'(t_take) - int'(t_give);

      if (r_take) begin
        for (int f = 0; f < FLITS; f++)
          r_data[r_tail][128*f+:128] = r_beyond ? '0 : turned(image[int'(r_address >> 4)+f]);
        r_bad[r_tail] = r_beyond;
        r_due[r_tail] = cycle + pick(random, settings.read_min, settings.read_max);
        r_tail <= (r_tail + 1) % DEPTH;
      end
      if (r_give) begin
        reply <= 1'b1;
        reply_data <= r_data[r_head];
        reply_error <= r_bad[r_head];
        r_head <= (r_head + 1) % DEPTH;
      end
      // Words are read before anything is written in this cycle, as are beats.
      now = 11'(cycle + 32'd1);
      if (l_take) begin
        place = int'(11'(cycle + pick(random, settings.table_min, settings.table_max)));
        while (wheel_valid[place]) place = (place + 1) % DEPTH;
        wheel_valid[place] = 1'b1;
        wheel_id[place] = table_read_payload[48+:ID_BITS];
        flit = l_address < 48'(BYTES) ? turned(image[int'(l_address >> 4)]) : '0;
        wheel_data[place] = flit[32*l_address[3:2]+:32];
      end
      l_give = wheel_valid[now];
      if (l_give) begin
        table_reply <= 1'b1;
        table_reply_id <= wheel_id[now];
        table_reply_data <= wheel_data[now];
        wheel_valid[now] = 1'b0;
      end
      wheel_count <= wheel_count + int'(l_take) - int'(l_give);
      if (w_take) begin
        w_what[w_tail] = write_payload;
        w_due[w_tail] = cycle + pick(random, settings.write_min, settings.write_max);
        w_tail <= (w_tail + 1) % DEPTH;
      end
      if (w_give) begin
        if (!w_beyond)
          for (int f = 0; f < FLITS; f++)
            if (w_what[w_head][48+128*FLITS+16*f+:16] != 16'h0) begin
              for (int b = 0; b < 16; b++)
                mask[8*b+:8] = {8{w_what[w_head][48+128*FLITS+16*f+b]}};
              image[int'(w_address >> 4)+f] = (image[int'(w_address >> 4)+f] & ~turned(mask))
                  | turned(w_what[w_head][48+128*f+:128] & mask);
            end
        written <= 1'b1;
        write_error <= w_beyond;
        w_head <= (w_head + 1) % DEPTH;
      end
      if (t_take) begin
        t_what[t_tail] = table_write_payload;
        t_due[t_tail] = cycle + pick(random, settings.table_min, settings.table_max);
        t_tail <= (t_tail + 1) % DEPTH;
      end
      if (t_give) begin
        if (t_address < 48'(BYTES)) begin
          flit = turned(image[int'(t_address >> 4)]);
          flit[32*t_address[3:2]+:32] = t_what[t_head][79:48];
          image[int'(t_address >> 4)] = turned(flit);
        end
        table_written <= 1'b1;
        t_head <= (t_head + 1) % DEPTH;
      end
      if (load) load_image();
      if (dump) dump_image();
    end
  end

endmodule
