// SPDX-License-Identifier: Apache-2.0
// Plays register accesses on one of several buses, and logs their ends.
//
// At `start`, <dir>/bus<step>_<part>.bin is played: 8 bytes an access, big-endian: {operation[7:0],
// bus[7:0], address[15:0], data[31:0]}. Operations: 0 write, 1 read, 2 read until it reads 0.
// Log, <dir>/bus<step>_<part>.log: one line an access, "<error> <data read, 8 hex digits>".
module bus_player #(
    parameter int BUSES = 2
) (
    input  logic                   clk,
    input  logic                   rst,
    input  logic [7:0]             step,
    input  logic                   part,
    input  logic                   start,
    output logic                   done,
    output logic [BUSES-1:0]       bus_valid,
    output logic                   bus_write,
    output logic [15:0]            bus_address,
    output logic [31:0]            bus_wdata,
    input  logic [BUSES-1:0]       bus_done,
    input  logic [BUSES-1:0][31:0] bus_rdata,
    input  logic [BUSES-1:0]       bus_error
);
  string dir;
  integer source, got, log_file;
  logic [63:0] word;
  logic waits;

  initial begin
    source = 0;
    log_file = 0;
    if (!$value$plusargs("dir=%s", dir)) dir = ".";
  end

  wire [7:0] bus = word[55:48];

  task automatic fetch();
    got = source == 0 ? 0 : $fread(word, source);
    if (got == 8) begin
      bus_valid <= BUSES'(1) << word[55:48];
      bus_write <= word[63:56] == 8'd0;
      bus_address <= word[47:32];
      bus_wdata <= word[31:0];
      waits <= 1'b1;
    end else begin
      waits <= 1'b0;
      done <= 1'b1;
      if (source != 0) $fclose(source);
      if (log_file != 0) $fclose(log_file);
      source = 0;
      log_file = 0;
    end
  endtask

  always_ff @(posedge clk) begin
    bus_valid <= '0;
    if (rst) begin
      waits <= 1'b0;
      done <= 1'b1;
    end else if (start) begin
      source = $fopen($sformatf("%s/bus%0d_%0d.bin", dir, step, part), "rb");
      log_file = $fopen($sformatf("%s/bus%0d_%0d.log", dir, step, part), "w");
      done <= 1'b0;
      fetch();
    end else if (waits && bus_done[bus]) begin
      if (word[63:56] == 8'd2 && !bus_error[bus] && bus_rdata[bus] != 32'd0)
        bus_valid <= BUSES'(1) << bus;
      else begin
        $fwrite(log_file, "%01x %08x\n", bus_error[bus], bus_rdata[bus]);
        fetch();
      end
    end
  end
endmodule
