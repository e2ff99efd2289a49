# SPDX-License-Identifier: Apache-2.0
"""Answers on their way to the switch: a queue for each GPU that they go to."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import any_of, one_hot_mux
from ..common.check import check
from ..common.flit_stream import flit_stream
from ..common.ram import Ram
from ..common.round_robin import RoundRobin
from ..flits import FLIT_BITS, HEADER
from ..gpu_params import GpuParams
from ..switch.link import CREDIT_BITS
from .loads import part_layout
from .path_layouts import LONGEST_ANSWER

__all__ = ["AnswerQueue", "AnswerQueues"]


class AnswerQueue(wiring.Component):
    """Answers to one GPU. A packet's flits may be written in any order until it is committed.

    Parameters
    ----------
    depth : int
        Flits, a power of two.

    Members
    -------
    w_en, w_offset, w_flit, w_last : In
        Write a flit of the packet that is being made.
    commit, flits : In
        It is complete, with this flit, and has so many.
    valid, flit, last : Out
        The oldest flit of the packets that are complete.
    take : In(1)
        Step over it.

    Timing
    ------
    A packet is in sight three cycles after its commit. A flit a cycle.

    Reset
    -----
    Empty.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        super().__init__(
            {
                "w_en": In(1),
                "w_offset": In(5),
                "w_flit": In(FLIT_BITS),
                "w_last": In(1),
                "commit": In(1),
                "flits": In(5),
                "valid": Out(1),
                "flit": Out(FLIT_BITS),
                "last": Out(1),
                "take": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        m.submodules.ram = ram = Ram(width=FLIT_BITS + 1, depth=self._depth)
        bits = (self._depth - 1).bit_length()
        w_ptr = Signal(bits + 1)
        r_ptr = Signal(bits + 1)
        fetch = Signal()
        m.d.comb += [
            fetch.eq((w_ptr != r_ptr) & (~self.valid | self.take)),
            ram.w_en.eq(self.w_en),
            ram.w_addr.eq(w_ptr + self.w_offset),
            ram.w_data.eq(Cat(self.w_flit, self.w_last)),
            ram.r_en.eq(fetch),
            ram.r_addr.eq(r_ptr),
            Cat(self.flit, self.last).eq(ram.r_data),
        ]
        with m.If(self.commit):
            m.d.sync += w_ptr.eq(w_ptr + self.flits)
        with m.If(fetch):
            m.d.sync += [r_ptr.eq(r_ptr + 1), self.valid.eq(1)]
        with m.Elif(self.take):
            m.d.sync += self.valid.eq(0)
        return m


class AnswerQueues(wiring.Component):
    """Takes answers, and sends them by whole packets.

    Parameters
    ----------
    params : GpuParams
        The hub.

    Members
    -------
    room : Out(gpus)
        There is room for the longest packet in this GPU's queue.
    reserve, reserve_gpu, reserve_flits : In
        A part of so many flits comes; only where there is ``room``.
    part_en, part : In
        A flit of it (:func:`part_layout`).
    ack : In
        Stream of ``gpu`` and ``flit``: answers of one flit.
    answer : Out
        Stream of flits (:func:`flit_stream`): packets without gaps between their flits, while
        ``ready`` is high.
    answer_credit : In(gpus)
        The switch hands out one more slot for responses to this GPU.

    Timing
    ------
    A packet leaves six cycles after its last flit was given at the earliest. A flit a cycle, also
    from one packet to the next.

    Ordering
    --------
    Answers to one GPU stay in order. GPUs take turns by packets; one without credits is passed by.
    A packet is begun with credits for all of it.

    Reset
    -----
    Empty, no credits.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        super().__init__(
            {
                "room": Out(params.gpus),
                "reserve": In(1),
                "reserve_gpu": In(6),
                "reserve_flits": In(5),
                "part_en": In(1),
                "part": In(part_layout()),
                "ack": In(stream.Signature(data.StructLayout({"gpu": 6, "flit": FLIT_BITS}))),
                "answer": Out(flit_stream()),
                "answer_credit": In(params.gpus),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        gpus, depth = params.gpus, params.response_flits
        queues = [AnswerQueue(depth) for _ in range(gpus)]

        # One flit a cycle is written. An acknowledgement goes between parts, or into the middle of
        # a part to another GPU.
        ack = self.ack
        part = self.part
        is_open = Signal()
        open_gpu = Signal(6)
        ack_to = Cat(ack.payload.gpu == n for n in range(gpus))
        may_ack = Signal()
        acks = Signal()
        m.d.comb += [
            may_ack.eq(any_of(ack_to & self.room)),
            ack.ready.eq(may_ack & ~self.part_en & ~(is_open & (open_gpu == ack.payload.gpu))),
            acks.eq(ack.ready & ack.valid),
        ]
        with m.If(self.part_en):
            m.d.sync += [is_open.eq(~part.commit), open_gpu.eq(part.gpu)]
        written = Signal(part_layout())
        select = Signal(gpus)
        m.d.sync += [
            select.eq(
                Mux(
                    self.part_en,
                    Cat(part.gpu == n for n in range(gpus)),
                    ack_to & acks.replicate(gpus),
                )
            ),
            written.eq(part),
        ]
        with m.If(~self.part_en):
            m.d.sync += [
                written.flit.eq(ack.payload.flit),
                written.offset.eq(0),
                written.last.eq(1),
                written.commit.eq(1),
                written.flits.eq(1),
                written.unused.eq(0),
            ]

        # Sending. The owner goes on with its next packet unless another one is ready.
        m.submodules.turns = turns = RoundRobin(gpus)
        owner = Signal(gpus, init=1)
        following = Signal(gpus)
        has_following = Signal()
        is_open_out = Signal()
        ready = Signal(gpus)  # the packet in sight may begin
        takes = Signal(gpus)
        moves = Signal()
        ends = Signal()
        changes = Signal()
        free = Signal()
        valid = Cat(queue.valid for queue in queues)
        m.d.comb += [
            free.eq(~self.answer.valid | self.answer.ready),
            moves.eq(free & any_of(owner & valid & (ready | is_open_out.replicate(gpus)))),
            takes.eq(owner & moves.replicate(gpus)),
            ends.eq(moves & any_of(owner & Cat(queue.last for queue in queues))),
            changes.eq(has_following & (ends | (~is_open_out & ~moves))),
            turns.request.eq(valid & ready & ~owner),
            turns.advance.eq(~has_following & ~changes),
        ]
        with m.If(changes):
            m.d.sync += [owner.eq(following), has_following.eq(0)]
        with m.Elif(~has_following):
            m.d.sync += [following.eq(turns.grant), has_following.eq(turns.grant != 0)]
        with m.If(moves):
            m.d.sync += [
                is_open_out.eq(~ends),
                self.answer.valid.eq(1),
                self.answer.payload.flit.eq(one_hot_mux(owner, [q.flit for q in queues])),
                self.answer.payload.last.eq(ends),
            ]
        with m.Elif(self.answer.ready):
            m.d.sync += self.answer.valid.eq(0)

        reserve_to = Cat(self.reserve_gpu == n for n in range(gpus))
        for number, queue in enumerate(queues):
            m.submodules[f"queue{number}"] = queue
            m.d.comb += [
                queue.w_en.eq(select[number]),
                queue.w_offset.eq(written.offset),
                queue.w_flit.eq(written.flit),
                queue.w_last.eq(written.last),
                queue.commit.eq(select[number] & written.commit),
                queue.flits.eq(written.flits),
                queue.take.eq(takes[number]),
            ]
            # Room. What is reserved or given back counts a cycle later.
            space = Signal(range(depth + 1), init=depth, name=f"space{number}")
            less = Signal(5, name=f"less{number}")
            more = Signal(6, name=f"more{number}")
            space_next = Signal.like(space, init=depth, name=f"space_next{number}")
            m.d.comb += space_next.eq(space + more - less)
            m.d.sync += [
                less.eq(Mux(self.reserve & reserve_to[number], self.reserve_flits, 0)),
                more.eq(Mux(select[number] & written.commit, written.unused, 0) + takes[number]),
                space.eq(space_next - (acks & ack_to[number])),
                # An acknowledgement and a part may come before this tells of the last ones.
                self.room[number].eq(space_next >= LONGEST_ANSWER + 4),
            ]

            # Credits. A packet in sight may begin with credits for the longest one, or after a
            # look at its length.
            credits = Signal(CREDIT_BITS, name=f"credits{number}")
            credits_next = Signal.like(credits, name=f"credits_next{number}")
            plenty = Signal(name=f"plenty{number}")
            enough = Signal(name=f"enough{number}")
            header = data.View(HEADER, queue.flit)
            m.d.comb += [
                credits_next.eq(credits + self.answer_credit[number] - takes[number]),
                ready[number].eq(plenty | enough),
            ]
            m.d.sync += [
                credits.eq(credits_next),
                plenty.eq(credits_next >= LONGEST_ANSWER),
                enough.eq(
                    queue.valid
                    & ~takes[number]
                    & ~(owner[number] & is_open_out)
                    & (credits > header.length)
                ),
            ]
            check(m, platform, ~takes[number] | (credits != 0), "answer queues: no credit")
            check(m, platform, space <= depth, "answer queues: overflow")
        return m
