# SPDX-License-Identifier: Apache-2.0
"""Tags of packets that want an answer: the reduction entries of the switch's port."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import any_of
from ..common.ram import Ram
from ..flits import HEADER
from ..gpu_params import GpuParams

__all__ = ["TagAllocator"]

ROW = 4
"""Tags of a row: as many as the longest sum takes."""
_SETTLE = 2  # cycles from a step to the next row until its bits are in `taken`
_TAG_BITS = HEADER["tag"].width
_GEN_BITS = HEADER["gen"].width


class TagAllocator(wiring.Component):
    """Hands out tags in a ring, from 0 to ``params.tags`` - 1, and waits for the one that is next.

    A sum takes 1, 2 or 4 entries, and its tag is a multiple of their number; tags before it are
    passed over.

    Parameters
    ----------
    params : GpuParams
        The queue.

    Members
    -------
    request : In(1)
        A tag is wanted. Held until ``grant``.
    slots : In(3)
        One-hot: for 1, 2 or 4 entries.
    grant, tag, gen : Out
        In this cycle: this one, and the generation for this use of it.
    use, use_tag : In
        The packet of a tag that was handed out is ready: from now on there may be a response.
    release, release_tag, release_slots : In
        A tag that was handed out is free again.
    look_tag : In(9)
        A tag.
    in_use : Out(1)
        Two cycles later: there may be a response (not to an entry behind a tag).

    Timing
    ------
    Four tags of one entry each in six cycles; two a cycle apart within a row of four. A tag that is
    released in cycle *t* can be handed out from *t* + 3 on.

    Ordering
    --------
    By ascending tag; after the last one, 0 again.

    Reset
    -----
    All are free and have generation 0, which counts up with every use.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        super().__init__(
            {
                "request": In(1),
                "slots": In(3),
                "grant": Out(1),
                "tag": Out(_TAG_BITS),
                "gen": Out(_GEN_BITS),
                "use": In(1),
                "use_tag": In(_TAG_BITS),
                "release": In(1),
                "release_tag": In(_TAG_BITS),
                "release_slots": In(3),
                "look_tag": In(_TAG_BITS),
                "in_use": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        rows = self._params.tags // ROW
        row = Signal(range(max(2, rows)))
        place = Signal(range(ROW))  # the next tag of the row
        settle = Signal(range(_SETTLE + 1), init=_SETTLE - 1)
        settled = Signal()
        taken = Signal(ROW)  # entries of the row; one that was just given back may still be in it

        # The first place that fits, and the places that are needed for it.
        at = Signal(range(ROW))
        over = Signal()  # it is in the next row
        needs = Signal(ROW)
        m.d.comb += at.eq(place)
        with m.If(self.slots[1]):
            m.d.comb += [at.eq(Cat(Const(0, 1), place[1] | place[0])), over.eq(place == 3)]
        with m.If(self.slots[2]):
            m.d.comb += [at.eq(0), over.eq(place != 0)]
        for entry in range(ROW):
            alone = self.slots[0] & (at == entry)
            pair = self.slots[1] & (at[1] == entry >> 1)
            m.d.comb += needs[entry].eq(alone | pair | self.slots[2])
        fits = ~any_of(needs & taken)
        after = Signal(range(ROW + 1))
        m.d.comb += after.eq(at + self.slots)
        steps = Signal()  # to the next row
        m.d.comb += [
            self.grant.eq(self.request & settled & ~over & fits),
            self.tag.eq(Cat(at, row)),
            steps.eq(self.request & settled & (over | (fits & after[2]))),
        ]
        with m.If(self.grant):
            m.d.sync += place.eq(after)
        with m.If(steps):
            m.d.sync += [
                row.eq(Mux(row == rows - 1, 0, row + 1)),
                place.eq(0),
                settle.eq(_SETTLE),
                settled.eq(0),
            ]
        with m.Elif(settle != 0):
            m.d.sync += [settle.eq(settle - 1), settled.eq(settle == 1)]
        self._entries(m, row, needs, taken)
        self._generations(m, row, at, steps, settle)
        return m

    def _entries(self, m: Module, row: Signal, needs: Signal, taken: Signal) -> None:
        """Which entries are taken, which tags are in use."""
        rows = self._params.tags // ROW
        gives = Signal()
        gives_row = Signal.like(row)
        gives_entries = Signal(ROW)
        uses = Signal()
        uses_row = Signal.like(row)
        uses_tag = Signal(ROW)
        frees = Signal()
        frees_row = Signal.like(row)
        frees_entries = Signal(ROW)
        place = self.release_tag[:2]
        m.d.sync += [
            gives.eq(self.grant),
            gives_row.eq(row),
            gives_entries.eq(needs),
            uses.eq(self.use),
            uses_row.eq(self.use_tag[2:]),
            uses_tag.eq(1 << self.use_tag[:2]),
            frees.eq(self.release),
            frees_row.eq(self.release_tag[2:]),
        ]
        for entry in range(ROW):
            alone = self.release_slots[0] & (place == entry)
            pair = self.release_slots[1] & (place[1] == entry >> 1)
            m.d.sync += frees_entries[entry].eq(alone | pair | self.release_slots[2])
        entries = [Signal(ROW, name=f"entries_{number}") for number in range(rows)]
        tags = [Signal(ROW, name=f"tags_{number}") for number in range(rows)]
        for number in range(rows):
            given = gives & (gives_row == number)
            used = uses & (uses_row == number)
            freed = frees & (frees_row == number)
            gone = frees_entries & freed.replicate(ROW)
            m.d.sync += [
                entries[number].eq(
                    (entries[number] & ~gone) | (gives_entries & given.replicate(ROW))
                ),
                tags[number].eq((tags[number] & ~gone) | (uses_tag & used.replicate(ROW))),
            ]
        m.d.sync += taken.eq(Cat(*entries).word_select(row, ROW))

        # The bit of any tag, in two steps: of each group of 32 tags, then the group.
        flat = Cat(*tags)
        low = self.look_tag[:5]
        groups = Signal((len(flat) + 31) // 32)
        high = Signal(_TAG_BITS - 5)
        m.d.sync += high.eq(self.look_tag[5:])
        for group in range(len(groups)):
            m.d.sync += groups[group].eq(flat[32 * group : 32 * group + 32].bit_select(low, 1))
        m.d.sync += self.in_use.eq(groups.bit_select(high, 1))

    def _generations(
        self, m: Module, row: Signal, at: Signal, steps: Signal, settle: Signal
    ) -> None:
        """Keep the generations of the row's tags; those of the other rows are in a RAM."""
        rows = self._params.tags // ROW
        gens = [Signal(_GEN_BITS, name=f"gen_{entry}") for entry in range(ROW)]
        uses = [self.grant & (at == entry) for entry in range(ROW)]
        m.d.comb += self.gen.eq(Cat(*gens).word_select(at, _GEN_BITS))
        for gen, used in zip(gens, uses, strict=True):
            with m.If(used):
                m.d.sync += gen.eq(gen + 1)
        if rows == 1:
            return
        # After the step: write back the row that was left, then read the one that is next. In the
        # first round the RAM holds nothing yet.
        m.submodules.ram = ram = Ram(width=ROW * _GEN_BITS, depth=rows)
        left = Signal.like(row)
        first_round = Signal(init=1)
        with m.If(steps):
            m.d.sync += left.eq(row)
            with m.If(row == rows - 1):
                m.d.sync += first_round.eq(0)
        m.d.comb += [
            ram.w_en.eq(settle == _SETTLE),
            ram.w_addr.eq(left),
            ram.w_data.eq(Cat(*gens)),
            ram.r_en.eq(settle == _SETTLE),
            ram.r_addr.eq(row),
        ]
        with m.If(settle == _SETTLE - 1):
            fetched = ram.r_data & (~first_round).replicate(ROW * _GEN_BITS)
            m.d.sync += Cat(*gens).eq(fetched)
