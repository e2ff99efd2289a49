// SPDX-License-Identifier: Apache-2.0
// Compares sums of all pairs of f16 numbers, of a range of first operands, with exact ones.
//
// usage: half_adder FIRST LAST (of the first operand, inclusive)
// The exact sum is an integer in units of 2**-24; it is rounded once.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "Vtop.h"

static int64_t value(uint32_t bits) {
  const int exponent = bits >> 10 & 31;
  const int64_t fraction = bits & 1023;
  const int64_t size = exponent ? (fraction | 1024) << (exponent - 1) : fraction;
  return bits & 0x8000 ? -size : size;
}

static uint32_t rounded(int64_t exact, bool negative) {
  if (exact) negative = exact < 0;
  const uint64_t size = exact < 0 ? -exact : exact;
  const int length = size ? 64 - __builtin_clzll(size) : 0;
  const int drop = length > 11 ? length - 11 : 0;
  uint64_t kept = size >> drop;
  const uint64_t rest = size - (kept << drop), half = drop ? 1ull << (drop - 1) : 0;
  if (drop && (rest > half || (rest == half && (kept & 1)))) kept++;
  uint64_t bits = kept + ((uint64_t)drop << 10);
  if (bits > 0x7c00) bits = 0x7c00;
  return bits | negative << 15;
}

static uint32_t sum(uint32_t a, uint32_t b) {
  const uint32_t infinity = 0x7c00, size_a = a & 0x7fff, size_b = b & 0x7fff;
  if (size_a > infinity || size_b > infinity) return 0x7e00;
  if (size_a == infinity && size_b == infinity) return a == b ? a : 0x7e00;
  if (size_a == infinity) return a;
  if (size_b == infinity) return b;
  return rounded(value(a) + value(b), a >> 15 && b >> 15);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const uint32_t first = strtoul(argv[1], nullptr, 0), last = strtoul(argv[2], nullptr, 0);
  Vtop top;
  uint64_t pairs = 0;
  for (uint32_t a = first; a <= last; a++) {
    top.a = a;
    for (uint32_t b = 0; b < 65536; b++, pairs++) {
      top.b = b;
      top.eval();
      if (top.sum != sum(a, b)) {
        printf("%04x + %04x: %04x, not %04x\n", a, b, top.sum, sum(a, b));
        return 1;
      }
    }
  }
  printf("%llu pairs\n", (unsigned long long)pairs);
  return 0;
}
