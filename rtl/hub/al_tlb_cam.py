# SPDX-License-Identifier: Apache-2.0
"""AL TLB, fully associative: tags in flops with a comparator each."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import any_of
from ..common.check import check
from ..common.ram import Ram

__all__ = ["AlTlbCam"]


class AlTlbCam(wiring.Component):
    """A content-addressable memory that replaces its oldest entry (first in, first out).

    Parameters
    ----------
    tag_bits, data_bits : int
        Bits of a tag and of its data.
    entries : int
        Entries, a power of two.

    Members
    -------
    tag : In(tag_bits)
        Look it up. It should come out of a register.
    hit, data : Out
        Three cycles later: whether it is there, and its data; undefined if it is not.
    insert, insert_tag, insert_data : In
        Replace the oldest entry. The tag must not be there, and the next insert may come
        :attr:`SPACING` cycles later at the earliest.
    flush : In(1)
        Forget all entries, in one cycle. No insert may be under way.

    Timing
    ------
    One lookup a cycle. The tags are compared in the cycle of the lookup; the matches are encoded in
    the next; then the data is read. A tag inserted in cycle *t* is found by lookups from *t* +
    :attr:`DELAY` on, and the old tag by those before *t* + 2. Since lookups that found the old tag
    still have to read its data, the new data is written when they are through.

    Errors
    ------
    An insert of a tag that is there is an assertion failure.

    Area
    ----
    Per entry: the tag with its write multiplexers and comparator, two flops, and a word of RAM.
    """

    LATENCY = 3
    """Cycles from a lookup to its data."""
    DELAY = 3
    """Cycles from an insert to the first lookup that finds it."""
    SPACING = 4
    """Cycles from an insert to the next."""

    def __init__(self, *, tag_bits: int, data_bits: int, entries: int) -> None:
        if entries < 2 or entries & (entries - 1):
            raise ValueError(f"`entries` must be a power of two, 2 or more, not {entries!r}")
        self._entries = entries
        super().__init__(
            {
                "tag": In(tag_bits),
                "hit": Out(1),
                "data": Out(data_bits),
                "insert": In(1),
                "insert_tag": In(tag_bits),
                "insert_data": In(data_bits),
                "flush": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        entries = self._entries
        bits = (entries - 1).bit_length()
        m.submodules.words = words = Ram(width=len(self.data), depth=entries)

        # An insert: 1 the victim is gone, 2 the new tag is there, 4 its data is written.
        steps = Signal(self.SPACING)
        new_tag = Signal(len(self.tag))
        new_data = Signal(len(self.data))
        victim = Signal(bits)
        m.d.sync += steps.eq(Cat(self.insert, steps[:-1]))
        with m.If(self.insert):
            m.d.sync += [new_tag.eq(self.insert_tag), new_data.eq(self.insert_data)]
        with m.If(steps[-1]):
            m.d.sync += victim.eq(victim + 1)

        matched = Signal(entries)
        present = Signal(entries)
        same = Signal(entries)  # for the assertion
        for number in range(entries):
            tag = Signal(len(self.tag), name=f"tag{number}")
            chosen = Signal(name=f"chosen{number}")
            m.d.comb += chosen.eq(victim == number)
            with m.If(steps[1] & chosen):
                m.d.sync += tag.eq(new_tag)
            with m.If((steps[0] & chosen) | self.flush):
                m.d.sync += present[number].eq(0)
            with m.Elif(steps[1] & chosen):
                m.d.sync += present[number].eq(1)
            m.d.sync += matched[number].eq(present[number] & (tag == self.tag))
            if platform != "synthesis":
                m.d.comb += same[number].eq(present[number] & (tag == new_tag))
        check(m, platform, ~(steps[1] & same.any()), "the tag is in the TLB already")
        check(m, platform, ~(self.insert & steps[:-1].any()), "inserts must keep their distance")

        found = Signal()
        number = Signal(bits)
        m.d.sync += [
            found.eq(any_of(matched)),
            number.eq(
                Cat(
                    any_of(matched[i] for i in range(entries) if i >> bit & 1)
                    for bit in range(bits)
                )
            ),
            self.hit.eq(found),
        ]
        m.d.comb += [
            words.r_en.eq(found),
            words.r_addr.eq(number),
            self.data.eq(words.r_data),
            words.w_en.eq(steps[3]),
            words.w_addr.eq(victim),
            words.w_data.eq(new_data),
        ]
        return m
