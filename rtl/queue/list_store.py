# SPDX-License-Identifier: Apache-2.0
"""Takes the words of target lists as they come, and keeps them as the list flits of packets."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import any_of
from ..common.ram import Ram
from ..flits import FLIT_BITS, LANES, TARGET_BITS
from ..gpu_params import GpuParams
from .layouts import entry_bits, word_bits

__all__ = ["ListStore"]


class ListStore(wiring.Component):
    """Lists of all entries, and what is still missing of them.

    Each of the eight lanes has a RAM of its own. A word of memory is rotated by the lane at which
    its list begins, and written across two flits of the list: so it is read without shifting.

    Parameters
    ----------
    params : GpuParams
        The queue.

    Members
    -------
    opens, opens_id, opens_words, opens_rotation : In
        An entry waits for so many words; its list begins at this lane of the first.
    shared_reply, global_reply : In
        Streams of ``id`` (entry and, in the low bits, word), ``data`` and ``error``.
    look : In
        An entry.
    missing, wrong : Out(1)
        One cycle later: words of it have not come; all have, and one with an error.
    r_en, r_entry, r_flit : In
        Read a flit of an entry's list.
    r_data : Out(128)
        One cycle later. Lanes behind the end of the list have any value.

    Timing
    ------
    One word a cycle, of both memories together; they take turns. A word that comes in cycle *t* can
    be read from *t* + 5 on.

    Reset
    -----
    No entry waits. Replies to requests of before must not come any more.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        entry = entry_bits(params)
        word = word_bits(params)
        reply = data.StructLayout({"id": entry + word, "data": FLIT_BITS, "error": 1})
        super().__init__(
            {
                "opens": In(1),
                "opens_id": In(entry),
                "opens_words": In(word + 1),
                "opens_rotation": In(range(LANES)),
                "shared_reply": In(stream.Signature(reply)),
                "global_reply": In(stream.Signature(reply)),
                "look": In(entry),
                "missing": Out(1),
                "wrong": Out(1),
                "r_en": In(1),
                "r_entry": In(entry),
                "r_flit": In(word),
                "r_data": Out(FLIT_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        entry_width = entry_bits(params)
        word_width = word_bits(params)

        # Take turns when both have a reply.
        global_next = Signal()
        chooses_global = Signal()
        m.d.comb += [
            chooses_global.eq(self.global_reply.valid & (global_next | ~self.shared_reply.valid)),
            self.global_reply.ready.eq(global_next | ~self.shared_reply.valid),
            self.shared_reply.ready.eq(~global_next | ~self.global_reply.valid),
        ]
        came = Signal()
        came_id = Signal(entry_width + word_width, reset_less=True)
        came_error = Signal(reset_less=True)
        came_data = Signal(FLIT_BITS, reset_less=True)
        with m.If(self.shared_reply.valid | self.global_reply.valid):
            chosen = Mux(chooses_global, self.global_reply.payload, self.shared_reply.payload)
            chosen = data.View(self.global_reply.payload.shape(), chosen)
            m.d.sync += [
                came_id.eq(chosen.id),
                came_error.eq(chosen.error),
                came_data.eq(chosen.data),
                global_next.eq(~chooses_global),
            ]
        m.d.sync += came.eq(self.shared_reply.valid | self.global_reply.valid)

        # The entry's rotation, one cycle to read it and one to spread it.
        m.submodules.rotations = rotations = Ram(width=3, depth=params.queue_depth)
        m.d.comb += [
            rotations.w_en.eq(self.opens),
            rotations.w_addr.eq(self.opens_id),
            rotations.w_data.eq(self.opens_rotation),
            rotations.r_en.eq(came),
            rotations.r_addr.eq(came_id[word_width:]),
        ]
        read = Signal()
        read_id = Signal(entry_width + word_width, reset_less=True)
        read_error = Signal(reset_less=True)
        read_data = Signal(FLIT_BITS, reset_less=True)
        m.d.sync += [
            read.eq(came),
            read_id.eq(came_id),
            read_error.eq(came_error),
            read_data.eq(came_data),
        ]
        turns = Signal()
        turn = Signal(range(LANES), reset_less=True)
        turn_id = Signal(entry_width + word_width, reset_less=True)
        turn_error = Signal(reset_less=True)
        turn_data = Signal(FLIT_BITS, reset_less=True)
        m.d.sync += [
            turns.eq(read),
            turn.eq(rotations.r_data),
            turn_id.eq(read_id),
            turn_error.eq(read_error),
            turn_data.eq(read_data),
        ]

        # Lane `i` of the rotated word belongs to the flit of the same number, or to the one before
        # it if the lane was wrapped around; before the first flit there is none.
        word = turn_id[:word_width]
        rotated: Value = turn_data
        for bit in range(3):
            shift = TARGET_BITS << bit
            rotated = Mux(turn[bit], Cat(rotated[shift:], rotated[:shift]), rotated)
        wraps = [(turn + lane)[3] for lane in range(LANES)]
        before = Signal(word_width)
        m.d.comb += before.eq(word - 1)
        ends = Signal()  # a word is being written
        ends_entry = Signal(entry_width, reset_less=True)
        ends_error = Signal(reset_less=True)
        m.d.sync += [
            ends.eq(turns),
            ends_entry.eq(turn_id[word_width:]),
            ends_error.eq(turn_error),
        ]
        for lane in range(LANES):
            ram = Ram(width=TARGET_BITS, depth=1 << (entry_width + word_width))
            m.submodules[f"lane_{lane}"] = ram
            w_en = Signal(name=f"w_en_{lane}")
            w_addr = Signal(entry_width + word_width, name=f"w_addr_{lane}", reset_less=True)
            w_data = Signal(TARGET_BITS, name=f"w_data_{lane}", reset_less=True)
            m.d.sync += [
                w_en.eq(turns & (~wraps[lane] | any_of(word))),
                w_addr.eq(Cat(Mux(wraps[lane], before, word), turn_id[word_width:])),
                w_data.eq(rotated.word_select(lane, TARGET_BITS)),
            ]
            m.d.comb += [
                ram.w_en.eq(w_en),
                ram.w_addr.eq(w_addr),
                ram.w_data.eq(w_data),
                ram.r_en.eq(self.r_en),
                ram.r_addr.eq(Cat(self.r_flit, self.r_entry)),
                self.r_data.word_select(lane, TARGET_BITS).eq(ram.r_data),
            ]

        missing = Signal(params.queue_depth)
        wrong = Signal(params.queue_depth)
        for entry in range(params.queue_depth):
            left = Signal(word_width + 1, name=f"left_{entry}")
            with m.If(self.opens & (self.opens_id == entry)):
                m.d.sync += [
                    left.eq(self.opens_words),
                    missing[entry].eq(self.opens_words != 0),
                    wrong[entry].eq(0),
                ]
            with m.Elif(ends & (ends_entry == entry)):
                m.d.sync += [
                    left.eq(left - 1),
                    missing[entry].eq(left != 1),
                    wrong[entry].eq(wrong[entry] | ends_error),
                ]
        m.d.sync += [
            self.missing.eq(missing.bit_select(self.look, 1)),
            self.wrong.eq(wrong.bit_select(self.look, 1)),
        ]
        return m
