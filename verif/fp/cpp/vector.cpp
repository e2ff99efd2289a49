// SPDX-License-Identifier: Apache-2.0
// Plays a file through the reduction vector, one record a cycle, and writes what comes out.
//
// usage: vector STIMULUS RESULT LATENCY
// record in:  32-bit control {from_f32, half, first, op[2:0], dtype[3:0]}, flit (16 bytes), acc (32)
// record out: sum (32 bytes), result (16); little-endian, the one of a record in comes first
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "Vtop.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  FILE* in = fopen(argv[1], "rb");
  FILE* out = fopen(argv[2], "wb");
  const int latency = atoi(argv[3]);
  if (!in || !out) return 2;
  Vtop top;
  top.rst = 0;
  struct __attribute__((packed)) {
    uint32_t control, flit[4], acc[8];
  } record;
  int behind = 0;
  for (long cycle = 0; behind < latency; cycle++) {
    if (fread(&record, sizeof record, 1, in) == 1) {
      top.dtype = record.control & 15;
      top.op = record.control >> 4 & 7;
      top.first = record.control >> 7 & 1;
      top.half = record.control >> 8 & 1;
      top.from_f32 = record.control >> 9 & 1;
      memcpy(&top.flit, record.flit, 16);
      memcpy(&top.acc, record.acc, 32);
    } else {
      behind++;
    }
    top.clk = 0;
    top.eval();
    top.clk = 1;
    top.eval();
    // What was set before edge 1 stands behind edge `latency`.
    if (cycle + 1 >= latency && behind < latency) {
      fwrite(&top.sum, 32, 1, out);
      fwrite(&top.result, 16, 1, out);
    }
  }
  return fclose(out) ? 2 : 0;
}
