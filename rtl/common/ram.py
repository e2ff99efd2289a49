# SPDX-License-Identifier: Apache-2.0
"""The one memory wrapper: whatever is stored in more than a few flops goes through it."""

from amaranth.hdl import Module
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Ram"]


class Ram(wiring.Component):
    """One write port, one synchronous read port.

    It is a module of its own with nothing else in it, so that the area flow can count it in bits
    or put a macro in its place.

    Parameters
    ----------
    width, depth : int
        Bits a word, words. `depth` need not be a power of two.

    Members
    -------
    w_en : In(1)
        Write ``w_data`` at ``w_addr``.
    w_addr, w_data : In
        Address and word to write.
    r_en : In(1)
        Read ``r_addr``.
    r_addr : In
        Address to read.
    r_data : Out(width)
        The word read by the last cycle with ``r_en``; held meanwhile.

    Timing
    ------
    A word written in cycle *t* can be read from cycle *t* + 1 on. ``r_data`` follows ``r_en`` by
    one cycle. Reading the address that is being written gives an undefined word: users must not.

    Reset
    -----
    The contents have no reset; users guard words that were never written.
    """

    def __init__(self, *, width: int, depth: int) -> None:
        if width < 1 or depth < 2:
            raise ValueError(f"a memory must be 1x2 or more, not {width!r}x{depth!r}")
        self._width = width
        self._depth = depth
        bits = (depth - 1).bit_length()
        super().__init__(
            {
                "w_en": In(1),
                "w_addr": In(bits),
                "w_data": In(width),
                "r_en": In(1),
                "r_addr": In(bits),
                "r_data": Out(width),
            }
        )

    @property
    def width(self) -> int:
        """Bits a word."""
        return self._width

    @property
    def depth(self) -> int:
        """Words."""
        return self._depth

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        m.submodules.words = words = memory.Memory(shape=self._width, depth=self._depth, init=[])
        w_port = words.write_port()
        r_port = words.read_port(domain="sync")
        m.d.comb += [
            w_port.en.eq(self.w_en),
            w_port.addr.eq(self.w_addr),
            w_port.data.eq(self.w_data),
            r_port.en.eq(self.r_en),
            r_port.addr.eq(self.r_addr),
            self.r_data.eq(r_port.data),
        ]
        return m
