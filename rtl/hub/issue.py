# SPDX-License-Identifier: Apache-2.0
"""Memory issue: carries out segments as reads and writes of the memory, in order."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import tree
from ..common.ram import Ram
from ..flits import FLIT_BITS, FLIT_BYTES, MAX_BYTE_ENABLE_FLITS
from ..gpu_params import GpuParams
from .path_layouts import (
    MAX_PLACE_BITS,
    STREAMS,
    Segment,
    choose,
    lane_bits,
    rows_of,
    segment_layout,
)
from .ports import MemorySignature

__all__ = ["MemoryIssue"]

_BUCKET_BITS = 10


def _fold(value: Value, bits: int) -> Value:
    """Hash of an address: the XOR of its pieces."""
    return tree([value[at : at + bits] for at in range(0, len(value), bits)], lambda a, b: a ^ b)[
        :bits
    ]


def _less(a: Value, b: Value, one: Value) -> Value:
    """Subtract `b` and `one` from `a` in one adder."""
    return (Cat(1, a) + Cat(~one, ~b))[1 : 1 + len(a)]


class MemoryIssue(wiring.Component):
    """Splits segments into beats and sends one a cycle.

    Parameters
    ----------
    params : GpuParams
        The hub.

    Members
    -------
    segment : In
        Stream of segments (:func:`segment_layout`), carried out in order.
    w_en, w_flit : In
        Append a flit of data or byte enables; slots are filled in a ring.
    memory : Out
        The memory; replies are only counted here.
    mark_en, mark, mark_full : Out, Out, In
        For each write, in order, before it is sent: it stands for data that could not be read.
    order_en, order : Out
        For each read, in order, before it is sent: ``stream``, and the ``first`` and ``last`` flit
        of the beat that count.
    row_freed : In(4)
        A beat of this reply stream has left its buffer.
    copy_en, copy_flit, copy_strobe : Out
        A flit of data for the lanes.
    back_valid, back_flit, back_strobe, back_error, back_take : In, Out
        Flits that come back from the lanes.
    back_done : Out(1)
        A segment ``BACK`` is on its way; later segments to the same place wait for it.
    freed : Out(5)
        So many slots of data are free again.

    Timing
    ------
    Three cycles from a segment to its first beat. A beat a cycle, without gaps between segments.

    Ordering
    --------
    Beats are sent in order. A read is held until no write to its bucket, sent before it, is left
    that is not ``written``, a write until all reads of its bucket have their replies. A bucket is a
    hash of the beat's address, so that now and then a beat waits in vain, but none forever.
    For each bucket a RAM holds the number of the last read and the last write. A beat carries the
    distance from that number, and waits while more than that many are under way. A number so old
    that it comes round again, or a word that was never written, makes a beat wait for at most all
    that is under way.

    Reset
    -----
    Empty.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        lanes = lane_bits(params)
        super().__init__(
            {
                "segment": In(stream.Signature(segment_layout(params))),
                "w_en": In(1),
                "w_flit": In(FLIT_BITS),
                "memory": Out(MemorySignature(params.memory_flits)),
                "mark_en": Out(1),
                "mark": Out(1),
                "mark_full": In(1),
                "order_en": Out(1),
                "order": Out(
                    data.StructLayout(
                        {"stream": (STREAMS - 1).bit_length(), "first": lanes, "last": lanes}
                    )
                ),
                "row_freed": In(STREAMS),
                "copy_en": Out(1),
                "copy_flit": Out(FLIT_BITS),
                "copy_strobe": Out(FLIT_BYTES),
                "back_valid": In(1),
                "back_flit": In(FLIT_BITS),
                "back_strobe": In(FLIT_BYTES),
                "back_error": In(1),
                "back_take": Out(1),
                "back_done": Out(1),
                "freed": Out(5),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        flits = params.memory_flits
        lane = (flits - 1).bit_length()
        slot_bits = (params.hub_flits - 1).bit_length()
        rows = [rows_of(params, number) for number in range(STREAMS)]
        numbers = max(12, sum(rows).bit_length() + 2)
        memory = self.memory

        # Stage 0: the segment at work. `index`: which flit of it lane 0 of the beat is.
        have = Signal()
        now = Signal(segment_layout(params))
        line = Signal(MAX_PLACE_BITS - lane)
        lo = Signal(lane_bits(params))
        left = Signal(5)
        sigma = Signal(slot_bits)  # slot of lane 0
        index = Signal(5)
        kind = now.kind
        reads = Signal()
        writes = Signal()
        whole_beats = Signal()
        back = Signal()
        copies = Signal()
        fetches = Signal()
        last_step = Signal()
        go = Signal()
        moves1 = Signal()
        fill = Signal(6)  # behind the segment's last flit, as a lane
        m.d.comb += [
            reads.eq(kind == Segment.READ),
            back.eq(kind == Segment.BACK),
            writes.eq((kind == Segment.WRITE) | back),
            whole_beats.eq(reads | (kind == Segment.WRITE)),
            copies.eq(kind == Segment.COPY),
            fetches.eq(kind == Segment.ENABLES),
            fill.eq(lo + left),
            last_step.eq(Mux(whole_beats, fill <= flits, Mux(copies | back, left == 1, 1))),
        ]
        ends = Signal()
        taken = Signal()
        m.d.comb += [
            ends.eq(go & last_step),
            self.segment.ready.eq(~have | ends),
            taken.eq(self.segment.ready & self.segment.valid),
        ]
        new = self.segment.payload
        new_lo = new.place[:lane] if lane else Value.cast(0)
        beatwise = (new.kind == Segment.WRITE) | (new.kind == Segment.READ)
        shift = Mux(beatwise, new_lo, 0)
        with m.If(taken):
            m.d.sync += [
                have.eq(1),
                now.eq(new),
                line.eq(new.place[lane:]),
                lo.eq(new_lo),
                left.eq(new.length),
                sigma.eq(new.slot - shift),
                index.eq(0 - shift),
            ]
        with m.Elif(ends):
            m.d.sync += have.eq(0)
        with m.Elif(go):
            with m.If(whole_beats):
                m.d.sync += [
                    line.eq(line + 1),
                    lo.eq(0),
                    left.eq(left - flits + lo),
                    sigma.eq(sigma + flits),
                    index.eq(index + flits),
                ]
            with m.Else():
                m.d.sync += [left.eq(left - 1), sigma.eq(sigma + 1), index.eq(index + 1)]
                if lane:
                    m.d.sync += lo.eq(lo + 1)
                    with m.If(lo == flits - 1):
                        m.d.sync += line.eq(line + 1)
                else:
                    m.d.sync += line.eq(line + 1)

        mask = Signal(flits)
        m.d.comb += mask.eq(
            Cat(
                Mux(back, lo == n, (n >= lo) & (n < fill)) if flits > 1 else 1 for n in range(flits)
            )
        )

        # What holds the beat up.
        row_ok = Signal(STREAMS, init=-1)
        for number, most in enumerate(rows):
            count = Signal(range(most + 1), name=f"used_{number}")
            count_next = Signal(range(most + 2), name=f"used_next_{number}")
            sends = go & reads & (now.stream == number)
            m.d.comb += count_next.eq(count + sends - self.row_freed[number])
            m.d.sync += [count.eq(count_next), row_ok[number].eq(count_next < most)]
        m.d.comb += [
            go.eq(
                have
                & moves1
                & (~reads | choose(list(row_ok), now.stream))
                & (~writes | ~self.mark_full)
                & (~back | self.back_valid)
            ),
            self.mark_en.eq(go & writes),
            self.mark.eq(back & self.back_error),
            self.order_en.eq(go & reads),
            self.order.stream.eq(now.stream),
            self.order.first.eq(lo),
            self.order.last.eq(Mux(fill > flits, flits - 1, fill - 1)),
            self.back_take.eq(go & back),
        ]
        m.d.sync += [
            self.freed.eq(Mux(ends, now.free, 0)),
            self.back_done.eq(ends & back),
        ]

        # The data, a RAM for each lane; they turn against the lanes of the beat.
        w_slot = Signal(slot_bits)
        with m.If(self.w_en):
            m.d.sync += w_slot.eq(w_slot + 1)
        bank_words = []
        for number in range(flits):
            bank = Ram(width=FLIT_BITS, depth=params.hub_flits // flits)
            m.submodules[f"bank{number}"] = bank
            row = sigma[lane:]
            m.d.comb += [
                bank.w_en.eq(self.w_en & ((w_slot[:lane] == number) if lane else 1)),
                bank.w_addr.eq(w_slot[lane:]),
                bank.w_data.eq(self.w_flit),
                bank.r_en.eq(go),
                bank.r_addr.eq(row + (number < sigma[:lane]) if lane else row),
            ]
            bank_words.append(bank.r_data)

        # Numbers of the last read and write of each bucket.
        wrote = Signal()
        replied = Signal()
        m.d.sync += [wrote.eq(memory.written), replied.eq(memory.reply)]
        sent_writes = Signal(numbers)
        sent_reads = Signal(numbers)
        done_writes = Signal(numbers)
        done_reads = Signal(numbers)
        m.submodules.last_writes = last_writes = Ram(width=numbers, depth=1 << _BUCKET_BITS)
        m.submodules.last_reads = last_reads = Ram(width=numbers, depth=1 << _BUCKET_BITS)
        bucket = Signal(_BUCKET_BITS)
        m.d.comb += bucket.eq(_fold(line, _BUCKET_BITS))
        for table, mine, sent in (
            (last_writes, writes, sent_writes),
            (last_reads, reads, sent_reads),
        ):
            number = Signal(numbers, name=f"number_{'w' if sent is sent_writes else 'r'}")
            other = reads if table is last_writes else writes
            m.d.comb += [
                number.eq(sent + 1),
                table.w_en.eq(go & mine),
                table.w_addr.eq(bucket),
                table.w_data.eq(number),
                table.r_en.eq(go & other),
                table.r_addr.eq(bucket),
            ]
            with m.If(go & mine):
                m.d.sync += sent.eq(number)
        m.d.sync += [
            done_writes.eq(done_writes + wrote),
            done_reads.eq(done_reads + replied),
        ]

        # Stage 1: the RAMs have answered.
        control = data.StructLayout(
            {
                "reads": 1,
                "writes": 1,
                "copies": 1,
                "fetches": 1,
                "masked": 1,
                "line": len(line),
                "mask": flits,
                "index": 5,
            }
        )
        moves2 = Signal()
        valid1 = Signal()
        one = Signal(control)
        turn = Signal(max(1, lane))
        is_back = Signal()
        back_flit = Signal(FLIT_BITS)
        back_strobe = Signal(FLIT_BYTES)
        ahead = Signal(numbers)  # of the other kind, sent before
        m.d.comb += moves1.eq(~valid1 | moves2)
        with m.If(moves1):
            m.d.sync += valid1.eq(go)
        with m.If(go):
            m.d.sync += [
                one.reads.eq(reads),
                one.writes.eq(writes),
                one.copies.eq(copies),
                one.fetches.eq(fetches),
                one.masked.eq(now.masked),
                one.line.eq(line),
                one.mask.eq(mask & (~(back & self.back_error)).replicate(flits)),
                one.index.eq(index),
                turn.eq(sigma[:lane] if lane else 0),
                is_back.eq(back),
                back_flit.eq(self.back_flit),
                back_strobe.eq(self.back_strobe),
                ahead.eq(Mux(reads, sent_writes, sent_reads)),
            ]
        event = Mux(one.reads, wrote, replied)
        pending1 = _less(ahead, Mux(one.reads, done_writes, done_reads), event)
        age1 = ahead - Mux(one.reads, last_writes.r_data, last_reads.r_data)

        # Stage 2: data in their lanes, the distance known.
        moves3 = Signal()
        valid2 = Signal()
        two = Signal(control)
        flits2 = Signal(data.ArrayLayout(FLIT_BITS, flits))
        back2 = Signal()
        back_strobe2 = Signal(FLIT_BYTES)
        pending2 = Signal(numbers)
        age2 = Signal(numbers)
        enables = Signal(FLIT_BITS)
        m.d.comb += moves2.eq(~valid2 | moves3)
        pending2_next = pending2 - Mux(two.reads, wrote, replied)
        with m.If(moves2):
            m.d.sync += [
                valid2.eq(valid1),
                two.eq(one),
                back2.eq(is_back),
                back_strobe2.eq(back_strobe),
                pending2.eq(pending1),
                age2.eq(age1),
            ]
            for n in range(flits):
                turned = choose([bank_words[(n + by) % flits] for by in range(flits)], turn)
                m.d.sync += flits2[n].eq(Mux(is_back, back_flit, turned))
        with m.Else():
            m.d.sync += pending2.eq(pending2_next)
        enable_words = [enables.word_select(i, FLIT_BYTES) for i in range(MAX_BYTE_ENABLE_FLITS)]
        strobes = []
        for n in range(flits):
            place = Signal(range(MAX_BYTE_ENABLE_FLITS), name=f"enable_{n}")
            m.d.comb += place.eq(two.index + n)
            bits = choose(enable_words, place)
            strobe = Signal(FLIT_BYTES, name=f"strobe_{n}")
            m.d.comb += strobe.eq(
                Mux(back2, back_strobe2, bits | (~two.masked).replicate(FLIT_BYTES))
                & two.mask[n].replicate(FLIT_BYTES)
            )
            strobes.append(strobe)
        passes = moves3 & valid2
        copy_bits = choose(enable_words, two.index)
        m.d.sync += [
            self.copy_en.eq(passes & two.copies),
            self.copy_flit.eq(flits2[0]),
            self.copy_strobe.eq(copy_bits | (~two.masked).replicate(FLIT_BYTES)),
        ]
        with m.If(passes & two.fetches):
            m.d.sync += enables.eq(flits2[0])

        # Stage 3: the beat.
        valid3 = Signal()
        is_read = Signal()
        blocked = Signal()
        pending3 = Signal(numbers)
        age3 = Signal(numbers)
        pending3_next = pending3 - Mux(is_read, wrote, replied)
        m.d.comb += [
            memory.write.valid.eq(valid3 & ~is_read & ~blocked),
            memory.read.valid.eq(valid3 & is_read & ~blocked),
            moves3.eq(~valid3 | (~blocked & Mux(is_read, memory.read.ready, memory.write.ready))),
        ]
        with m.If(moves3):
            m.d.sync += [
                valid3.eq(valid2 & (two.reads | two.writes)),
                is_read.eq(two.reads),
                blocked.eq(pending2_next > age2),
                pending3.eq(pending2_next),
                age3.eq(age2),
                memory.write.payload.address.eq(two.line << (lane + 4)),
                memory.write.payload.data.eq(flits2),
                memory.write.payload.strobe.eq(Cat(strobes)),
                memory.read.payload.address.eq(two.line << (lane + 4)),
            ]
        with m.Else():
            m.d.sync += [blocked.eq(pending3_next > age3), pending3.eq(pending3_next)]
        return m
