# SPDX-License-Identifier: Apache-2.0
"""AL TLB, set-associative: tags and data in RAM."""

from amaranth.hdl import Array, Cat, Const, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import any_of, one_hot_mux, tree
from ..common.check import check
from ..common.ram import Ram

__all__ = ["AlTlbSets"]


class AlTlbSets(wiring.Component):
    """A set-associative memory that replaces the oldest entry of a set (first in, first out).

    The set of a tag is the tag folded by XOR.

    Parameters
    ----------
    tag_bits, data_bits : int
        Bits of a tag and of its data.
    entries : int
        Entries of all sets, a power of two.
    ways : int
        Entries of a set, a power of two.

    Members
    -------
    As those of :class:`AlTlbCam`.

    Timing
    ------
    One lookup a cycle: the set is computed, the words of all ways are read, the tags are compared.
    A tag inserted in cycle *t* is found by lookups from *t* + :attr:`DELAY` on. A lookup that would
    read the word that is being written finds neither the old tag nor the new one there.

    Errors
    ------
    A tag that is inserted twice is in the TLB twice: users must not.

    Area
    ----
    Per entry a flop and a word of RAM; per set a pointer; per way a comparator.
    """

    LATENCY = 3
    """Cycles from a lookup to its data."""
    DELAY = 3
    """Cycles from an insert to the first lookup that finds it."""
    SPACING = 4
    """Cycles from an insert to the next."""

    def __init__(self, *, tag_bits: int, data_bits: int, entries: int, ways: int) -> None:
        for name, value in (("entries", entries), ("ways", ways)):
            if value < 1 or value & (value - 1):
                raise ValueError(f"`{name}` must be a power of two, not {value!r}")
        if entries < 2 * ways:
            raise ValueError(f"`entries` must be twice `ways` or more, not {entries!r}")
        self._sets = entries // ways
        self._ways = ways
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

    def _set_of(self, tag: Value) -> Value:
        """Fold a tag to the number of its set."""
        bits = (self._sets - 1).bit_length()
        padded = Cat(tag, Const(0, -len(tag) % bits))
        return tree(
            [padded[low : low + bits] for low in range(0, len(padded), bits)], lambda a, b: a ^ b
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        sets, ways = self._sets, self._ways
        set_bits = (sets - 1).bit_length()
        word = data.StructLayout({"tag": len(self.tag), "data": len(self.data)})

        # An insert: 1 its set is computed, 2 the victim is looked up, 3 the word is written.
        steps = Signal(self.SPACING - 1)
        new = Signal(word)
        new_set = Signal(set_bits)
        victim = Signal(ways, init=1)
        m.d.sync += [steps.eq(Cat(self.insert, steps[:-1])), new_set.eq(self._set_of(new.tag))]
        with m.If(self.insert):
            m.d.sync += [new.tag.eq(self.insert_tag), new.data.eq(self.insert_data)]
        check(m, platform, ~(self.insert & steps.any()), "inserts must keep their distance")

        oldest = [Signal(ways, init=1, name=f"oldest{number}") for number in range(sets)]
        present = [Signal(ways, name=f"present{number}") for number in range(sets)]
        m.d.sync += victim.eq(Array(oldest)[new_set])
        for number in range(sets):
            writes = Signal(name=f"writes{number}")
            m.d.comb += writes.eq(steps[2] & (new_set == number))
            with m.If(self.flush):
                m.d.sync += present[number].eq(0)
            with m.Elif(writes):
                m.d.sync += present[number].eq(present[number] | victim)
                m.d.sync += oldest[number].eq(victim.rotate_left(1))

        # A lookup: 1 its set is known, 2 the words are there, 3 the answer.
        tag1 = Signal(len(self.tag))
        tag2 = Signal(len(self.tag))
        set1 = Signal(set_bits)
        present2 = Signal(ways)
        clash = Signal()
        written = Signal(ways)
        m.d.comb += [
            clash.eq(steps[2] & (set1 == new_set)),
            written.eq(victim & clash.replicate(ways)),
        ]
        m.d.sync += [
            tag1.eq(self.tag),
            set1.eq(self._set_of(self.tag)),
            tag2.eq(tag1),
            present2.eq(Array(present)[set1] & ~written),
        ]
        matches = []
        found = []
        for way in range(ways):
            words = Ram(width=word.size, depth=sets)
            m.submodules[f"way{way}"] = words
            m.d.comb += [
                words.w_en.eq(steps[2] & victim[way]),
                words.w_addr.eq(new_set),
                words.w_data.eq(new),
                words.r_en.eq(~written[way]),
                words.r_addr.eq(set1),
            ]
            read = Signal(word, name=f"read{way}")
            m.d.comb += read.eq(words.r_data)
            matches.append(present2[way] & (read.tag == tag2))
            found.append(read.data)
        match = Signal(ways)
        m.d.comb += match.eq(Cat(matches))
        m.d.sync += [self.hit.eq(any_of(match)), self.data.eq(one_hot_mux(match, found))]
        return m
