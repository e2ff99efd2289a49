# SPDX-License-Identifier: Apache-2.0
"""Misses under way: reads AL tables, gives blocks their places, and fills the TLB."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import any_of, one_hot_mux
from ..common.check import check
from ..common.ram import Ram
from ..gpu_params import GpuParams
from .expert_table import USED
from .ports import TableSignature
from .translation_layouts import (
    EPOCH_BITS,
    INDEX_BITS,
    USED_BITS,
    WORD_BITS,
    object_bits,
    ring_size,
    row_bits,
    tag_bits,
)

__all__ = ["MISS_RESULT", "AlWalker"]

MISS_RESULT = data.StructLayout({"index": INDEX_BITS, "good": 1})
"""Place of the block, if it has one."""

_SETTLE = 8
"""Cycles from the end of a miss until every lookup that is decided has seen the insert."""
_LOW = 24
"""An address is added up in two halves."""


class AlWalker(wiring.Component):
    """A ring of misses. They are read in any order and ended in theirs.

    A miss is that of a lookup that may allocate, or of one that may not. Lookups that come later
    join the newest miss of the same block; but one that may allocate does not join one that may
    not: it gets a miss of its own behind it. So every lookup ends as if it were alone, and blocks
    get their places in the order in which lookups that may allocate came.

    A miss is kept, and can be joined, until all that wait for it are through, its insert can be
    seen by lookups, and the word that it wrote can be seen by reads.

    Parameters
    ----------
    params : GpuParams
        The hub.

    Members
    -------
    look, look_tag : In
        A lookup is decided in the next cycle, and its tag.
    want, allocate, object : In
        The lookup of ``look_tag`` a cycle ago is not in the TLB; what it may, and its object.
    blocked : Out(1)
        ... but it needs a miss and all are in use. It has to come again, and all behind it.
    full : Out(1)
        All misses are in use.
    id : Out
        Otherwise: the miss that it waits for.
    created, merged, allocated : Out(1)
        Events.
    resolved : Out
        Misses that ended, a bit each.
    take, take_id : In
        A lookup that waited for the miss goes on.
    result : Out
        A cycle later: how the miss ended.
    insert, insert_tag, insert_data : Out
        To the TLB. They keep a distance of 4 cycles or more.
    epoch : In(8), one per object
        Entries of the AL map are valid if they have it.
    table : Out
        AL tables in memory.
    table_en, table_row, table_word, count_en, count_row, nactive, used, use, use_row, use_value
        The :class:`ExpertTable`.
    idle : Out(1)
        No miss is kept.

    Timing
    ------
    A read every 5 cycles at most, an end every 6.

    Ordering
    --------
    Misses end in the order in which they began.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        size = ring_size(params.misses)
        ids = (size - 1).bit_length()
        rows = row_bits(params)
        super().__init__(
            {
                "look": In(1),
                "look_tag": In(tag_bits(params)),
                "want": In(1),
                "allocate": In(1),
                "object": In(object_bits(params)),
                "blocked": Out(1),
                "full": Out(1),
                "id": Out(ids),
                "created": Out(1),
                "merged": Out(1),
                "allocated": Out(1),
                "resolved": Out(size),
                "take": In(1),
                "take_id": In(ids),
                "result": Out(MISS_RESULT),
                "insert": Out(1),
                "insert_tag": Out(tag_bits(params)),
                "insert_data": Out(INDEX_BITS),
                "epoch": In(EPOCH_BITS).array(params.objects),
                "table": Out(TableSignature(params)),
                "table_en": Out(1),
                "table_row": Out(rows),
                "table_word": In(WORD_BITS),
                "count_en": Out(1),
                "count_row": Out(rows),
                "nactive": In(USED_BITS),
                "used": In(USED),
                "use": Out(1),
                "use_row": Out(rows),
                "use_value": Out(USED),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        size = len(self.resolved)
        # All flops of the misses; each is written by one of the parts below.
        tags = [Signal(len(self.look_tag), name=f"tag{n}") for n in range(size)]
        objects = [Signal(len(self.object), name=f"object{n}") for n in range(size)]
        allocs = Signal(size)
        seconds = Signal(size)
        created = Signal(size)
        head = Signal(size, init=1)  # oldest miss that is kept
        matched, tail = self._decide(m, platform, tags, objects, allocs, seconds, created, head)
        arrived = self._issue(m, tags, tail, created)
        settled, wrote = self._resolve(m, tags, objects, allocs, seconds, created, arrived)
        self._release(m, platform, head, settled, wrote, matched)
        return m

    def _decide(
        self,
        m: Module,
        platform: object,
        tags: list[Signal],
        objects: list[Signal],
        allocs: Signal,
        seconds: Signal,
        created: Signal,
        head: Signal,
    ) -> tuple[Value, Signal]:
        """Join a miss or begin one."""
        size = len(tags)
        self._valid = valid = Signal(size)
        self._freed = freed = Signal(size)
        tag = Signal(len(self.look_tag))
        matched = Signal(size)
        same = Signal()
        m.d.sync += [
            tag.eq(self.look_tag),
            matched.eq(Cat(t == self.look_tag for t in tags) & valid & self.look.replicate(size)),
            same.eq(tag == self.look_tag),
        ]
        # The lookup before began a miss, which the comparison could not see yet.
        last = Signal(size)
        last_allocates = Signal()
        m.d.sync += [last.eq(created), last_allocates.eq(self.allocate)]
        forward = Signal()
        m.d.comb += forward.eq(same & last.any())

        older = matched & valid
        old_alloc = Signal(size)
        old_load = Signal(size)
        m.d.comb += [old_alloc.eq(older & allocs), old_load.eq(older & ~allocs)]
        joins = Signal()
        with m.If(forward):
            m.d.comb += joins.eq(last_allocates | ~self.allocate)
        with m.Else():
            m.d.comb += joins.eq(any_of(old_alloc) | (any_of(old_load) & ~self.allocate))
        tail = Signal(size, init=1)
        begins = Signal()
        m.d.comb += [
            begins.eq(self.want & ~joins & ~self.full),
            self.blocked.eq(self.want & ~joins & self.full),
            self.created.eq(begins),
            self.merged.eq(self.want & joins),
            created.eq(tail & begins.replicate(size)),
        ]
        joined = Signal(size)
        with m.If(forward):
            m.d.comb += joined.eq(last)
        with m.Elif(any_of(old_alloc)):
            m.d.comb += joined.eq(old_alloc)
        with m.Else():
            m.d.comb += joined.eq(old_load)
        target = Signal(size)
        m.d.comb += [
            target.eq(Mux(joins, joined, tail)),
            self.id.eq(_encoded(target)),
        ]
        with m.If(begins):
            m.d.sync += tail.eq(tail.rotate_left(1))

        self._waits = waits = Signal(size)  # somebody waits for it
        takes = Signal(size)
        goes_on = self.want & (joins | ~self.full)
        for number in range(size):
            m.d.comb += takes[number].eq(self.take & (self.take_id == number))
            count = Signal(range(self._params.lookups + 1), name=f"waiting{number}")
            comes = Signal(name=f"comes{number}")
            m.d.comb += [waits[number].eq(count != 0), comes.eq(goes_on & target[number])]
            with m.If(comes & ~takes[number]):
                m.d.sync += count.eq(count + 1)
            with m.Elif(takes[number] & ~comes):
                m.d.sync += count.eq(count - 1)
            with m.If(created[number]):
                m.d.sync += [
                    tags[number].eq(tag),
                    objects[number].eq(self.object),
                    allocs[number].eq(self.allocate),
                    seconds[number].eq(forward | any_of(older)),
                ]
        m.d.sync += valid.eq((valid | created) & ~freed)
        kept = Signal(range(self._params.misses + 1))
        kept_next = Signal(range(self._params.misses + 1))
        m.d.comb += kept_next.eq(kept + begins - any_of(freed))
        m.d.sync += [kept.eq(kept_next), self.full.eq(kept_next == self._params.misses)]
        m.d.comb += self.idle.eq(kept == 0)
        check(m, platform, ~(created & valid).any(), "a miss that is kept must not be begun")
        return matched, tail

    def _issue(self, m: Module, tags: list[Signal], tail: Signal, created: Signal) -> Signal:
        """Read the word of each miss, in order."""
        size = len(tags)
        m.submodules.addresses = self._addresses = addresses = Ram(width=WORD_BITS, depth=size)
        m.submodules.words = self._words = words = Ram(width=32, depth=size)
        arrived = Signal(size)
        reply = Signal(size)
        for number in range(size):
            m.d.comb += reply[number].eq(self.table.reply & (self.table.reply_id == number))
        m.d.sync += arrived.eq((arrived | reply) & ~created)
        m.d.comb += [
            words.w_en.eq(self.table.reply),
            words.w_addr.eq(self.table.reply_id),
            words.w_data.eq(self.table.reply_data),
        ]

        next_one = Signal(range(size))
        behind = Signal(range(self._params.misses + 1))  # begun and not read yet
        asks = Signal()
        m.d.sync += behind.eq(behind + self.created - asks)
        tag = Signal(len(self.look_tag))
        low = Signal(_LOW + 1)
        high = Signal(WORD_BITS - _LOW)
        address = Signal(WORD_BITS)
        m.d.comb += [
            self.table_row.eq(tag[INDEX_BITS:]),
            addresses.w_addr.eq(next_one),
            addresses.w_data.eq(address),
            self.table.read.payload.address.eq(Cat(Const(0, 2), address)),
            self.table.read.payload.id.eq(next_one),
        ]
        with m.FSM(name="issue"):
            with m.State("IDLE"):
                m.d.sync += tag.eq(Array(tags)[next_one])
                with m.If(behind != 0):
                    m.next = "ROW"
            with m.State("ROW"):
                m.d.comb += self.table_en.eq(1)
                m.next = "LOW"
            with m.State("LOW"):
                m.d.sync += [
                    low.eq(self.table_word[:_LOW] + tag[:INDEX_BITS]),
                    high.eq(self.table_word[_LOW:]),
                ]
                m.next = "HIGH"
            with m.State("HIGH"):
                m.d.sync += address.eq(Cat(low[:_LOW], high + low[_LOW]))
                m.next = "READ"
            with m.State("READ"):
                m.d.comb += [
                    addresses.w_en.eq(self.table.read.ready),
                    self.table.read.valid.eq(1),
                    asks.eq(self.table.read.ready),
                ]
                with m.If(self.table.read.ready):
                    m.d.sync += next_one.eq(next_one + 1)
                    m.next = "IDLE"
        return arrived

    def _resolve(
        self,
        m: Module,
        tags: list[Signal],
        objects: list[Signal],
        allocs: Signal,
        seconds: Signal,
        created: Signal,
        arrived: Signal,
    ) -> tuple[Signal, Signal]:
        """End the misses, in order."""
        size = len(tags)
        addresses, words = self._addresses, self._words
        m.submodules.results = results = Ram(width=MISS_RESULT.size, depth=size)
        current = Signal(range(size))
        here = Signal(size, init=1)
        tag = Signal(len(self.look_tag))
        epoch = Signal(EPOCH_BITS)
        number = Signal(len(self.object))
        allocates = Signal()
        second = Signal()
        word = Signal(32)
        valid = Signal()
        room = Signal()
        count = Signal(USED_BITS)
        used = Signal(USED)
        nactive = Signal(USED_BITS)
        wrote = Signal(size)
        ends = Signal()
        write = Signal()
        gets_place = Signal()
        result = Signal(MISS_RESULT)
        more = Signal(USED_BITS)
        m.d.comb += [
            self.count_row.eq(tag[INDEX_BITS:]),
            words.r_addr.eq(current),
            addresses.r_addr.eq(current),
            gets_place.eq(allocates & ~valid & room),
            result.index.eq(Mux(valid, word[:INDEX_BITS], count[:INDEX_BITS])),
            result.good.eq(valid | gets_place),
            results.w_en.eq(ends),
            results.w_addr.eq(current),
            results.w_data.eq(result),
            results.r_en.eq(self.take),
            results.r_addr.eq(self.take_id),
            self.result.eq(results.r_data),
            self.allocated.eq(ends & gets_place),
            self.use.eq(ends & gets_place),
            self.use_row.eq(tag[INDEX_BITS:]),
            self.use_value.count.eq(more),
            self.use_value.epoch.eq(epoch),
            self.table.write.valid.eq(write),
        ]
        with m.FSM(name="resolve"):
            with m.State("IDLE"):
                m.d.comb += [
                    words.r_en.eq(any_of(here & arrived & ~self.resolved)),
                    addresses.r_en.eq(words.r_en),
                ]
                m.d.sync += [
                    tag.eq(one_hot_mux(here, tags)),
                    number.eq(one_hot_mux(here, objects)),
                    allocates.eq(any_of(here & allocs)),
                    second.eq(any_of(here & seconds)),
                ]
                with m.If(words.r_en & ~write):
                    m.next = "COUNT"
            with m.State("COUNT"):
                m.d.comb += self.count_en.eq(1)
                m.d.sync += [word.eq(words.r_data), epoch.eq(Array(self.epoch)[number])]
                m.next = "USED"
            with m.State("USED"):
                m.d.sync += [
                    used.eq(self.used),
                    nactive.eq(self.nactive),
                    valid.eq(word[INDEX_BITS:] == epoch),
                ]
                m.next = "EPOCH"
            with m.State("EPOCH"):
                m.d.sync += count.eq(Mux(used.epoch == epoch, used.count, 0))
                m.next = "ROOM"
            with m.State("ROOM"):
                m.d.sync += [room.eq(count != nactive), more.eq(count + 1)]
                m.next = "END"
            with m.State("END"):
                m.d.comb += ends.eq(1)
                m.d.sync += [current.eq(current + 1), here.eq(here.rotate_left(1))]
                m.next = "IDLE"
        m.d.sync += [
            self.resolved.eq((self.resolved | (here & ends.replicate(size))) & ~created),
            # A miss behind another one of its block finds in memory only what that one found.
            self.insert.eq(ends & (gets_place | (valid & ~second))),
        ]
        with m.If(ends):
            m.d.sync += [self.insert_tag.eq(tag), self.insert_data.eq(result.index)]
        with m.If(ends & gets_place):
            m.d.sync += [
                write.eq(1),
                self.table.write.payload.address.eq(Cat(Const(0, 2), addresses.r_data)),
                self.table.write.payload.data.eq(Cat(count[:INDEX_BITS], epoch)),
            ]
        with m.Elif(self.table.write.ready):
            m.d.sync += write.eq(0)
        m.d.sync += wrote.eq((wrote | (here & (ends & gets_place).replicate(size))) & ~created)

        later = Signal(_SETTLE)
        settled = Signal(size)
        oldest = Signal(size, init=1)
        m.d.sync += later.eq(Cat(ends, later[:-1]))
        with m.If(later[-1]):
            m.d.sync += oldest.eq(oldest.rotate_left(1))
        m.d.sync += settled.eq((settled | (oldest & later[-1].replicate(size))) & ~created)
        return settled, wrote

    def _release(
        self,
        m: Module,
        platform: object,
        head: Signal,
        settled: Signal,
        wrote: Signal,
        matched: Value,
    ) -> None:
        """Let misses go, in order."""
        size = len(head)
        visible = Signal(range(size + 1))  # words that were written, of misses that are kept
        freed = self._freed
        ready = Signal(size)
        m.d.comb += [
            ready.eq(self._valid & settled & ~self._waits & ~matched),
            freed.eq(head & ready & (~wrote | (visible != 0).replicate(size))),
        ]
        with m.If(any_of(freed)):
            m.d.sync += head.eq(head.rotate_left(1))
        own = Signal()
        m.d.comb += own.eq(self.table.written & ~self.idle)  # otherwise it is that of a clear
        m.d.sync += visible.eq(visible + own - any_of(freed & wrote))
        check(m, platform, ~(self.table.written & (visible == size)), "more words than misses")


def _encoded(one_hot: Signal) -> Value:
    """Give the number of the bit that is set."""
    bits = max(1, (len(one_hot) - 1).bit_length())
    return Cat(
        any_of(one_hot[i] for i in range(len(one_hot)) if i >> bit & 1) for bit in range(bits)
    )
