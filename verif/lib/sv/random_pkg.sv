// SPDX-License-Identifier: Apache-2.0
// Random numbers that every simulator makes alike.
package random_pkg;
  function automatic logic [31:0] xorshift(input logic [31:0] value);
    xorshift = value ^ (value << 13);
    xorshift = xorshift ^ (xorshift >> 17);
    xorshift = xorshift ^ (xorshift << 5);
  endfunction
endpackage
