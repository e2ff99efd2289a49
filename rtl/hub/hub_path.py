# SPDX-License-Identifier: Apache-2.0
"""Data path of the hub: requests to memory, answers back."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..common.check import check
from ..common.flit_stream import flit_stream
from ..common.ram_fifo import RamFifo
from ..flits import FLIT_BITS, FLIT_BYTES, MAX_DATA_FLITS
from ..gpu_params import GpuParams
from .answer_queues import AnswerQueues
from .issue import MemoryIssue
from .loads import Loads
from .path_layouts import JOB, MAX_REDS, STREAMS, rows_of
from .places import Places
from .ports import Lookup, MemorySignature, Translation
from .receiver import HubReceiver
from .reply_stream import ReplyStream
from .sequencer import Sequencer
from .splitter import Splitter
from .stores import Stores

__all__ = ["HubPath"]


class HubPath(wiring.Component):
    """Everything of the hub but translation.

    Parameters
    ----------
    params : GpuParams
        The hub.

    Members
    -------
    valid, flit : In
        Flits of requests from the switch.
    credit : Out(1)
        One more slot for them.
    answer : Out
        Stream of flits (:func:`flit_stream`): answers, by whole packets.
    answer_credit : In(gpus)
        One more slot for a response to this GPU.
    memory : Out
        The GPU's memory (:class:`MemorySignature`).
    lookup, translation : Out, In
        Streams of :class:`Lookup` and, in the same order, :class:`Translation`.
    presum : In(1)
        Add up the targets of a load.
    request_event, refused_event : Out(1)
        For the counters.

    Timing
    ------
    See ``docs/hub.md``.

    Ordering
    --------
    Requests have their effect on the memory in the order of their arrival, as far as the same
    address is concerned. Answers to one requester keep the order of its stores, of its loads and of
    its ``MM_RED``; between these kinds there is no order.

    Reset
    -----
    Synchronous. Hands out ``hub_flits`` slots, has no credits.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        super().__init__(
            {
                "valid": In(1),
                "flit": In(FLIT_BITS),
                "credit": Out(1),
                "answer": Out(flit_stream()),
                "answer_credit": In(params.gpus),
                "memory": Out(MemorySignature(params.memory_flits)),
                "lookup": Out(stream.Signature(Lookup)),
                "translation": In(stream.Signature(Translation)),
                "presum": In(1, init=1),
                "request_event": Out(1),
                "refused_event": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        memory = self.memory
        m.submodules.receiver = receiver = HubReceiver(params)
        m.submodules.splitter = splitter = Splitter(params)
        m.submodules.jobs = jobs = RamFifo(JOB.size, max(8, params.lookups))
        m.submodules.places = places = Places(params)
        m.submodules.sequencer = sequencer = Sequencer(params)
        m.submodules.issue = issue = MemoryIssue(params)
        m.submodules.stores = stores = Stores()
        rows = [rows_of(params, number) for number in range(STREAMS)]
        m.submodules.order = order = RamFifo(
            width=issue.order.shape().size, depth=1 << (sum(rows) - 1).bit_length()
        )
        streams = [ReplyStream(params, most) for most in rows]
        m.submodules.loads = loads = Loads(params)
        red_flits = MAX_REDS * MAX_DATA_FLITS
        m.submodules.red_data = red_data = RamFifo(FLIT_BITS + FLIT_BYTES, red_flits)
        m.submodules.backs = backs = RamFifo(FLIT_BITS + FLIT_BYTES + 1, red_flits)
        m.submodules.answers = answers = AnswerQueues(params)

        # Requests come in.
        m.d.comb += [
            receiver.valid.eq(self.valid),
            receiver.flit.eq(self.flit),
            splitter.w_en.eq(receiver.is_head),
            splitter.w_flit.eq(receiver.o_flit),
            issue.w_en.eq(receiver.is_data),
            issue.w_flit.eq(receiver.o_flit),
            jobs.w_en.eq(splitter.job_en),
            jobs.w_data.eq(splitter.job),
            splitter.job_full.eq(jobs.full),
            places.mark.eq(splitter.mark),
            places.mark_en.eq(splitter.mark_en),
            splitter.mark_full.eq(places.mark_full),
        ]
        connect(m, splitter.lookup, flipped(self.lookup))
        connect(m, flipped(self.translation), places.translation)

        # They are carried out.
        m.d.comb += [
            sequencer.presum.eq(self.presum),
            sequencer.job.eq(jobs.o.payload),
            sequencer.job_valid.eq(jobs.o.valid),
            jobs.o.ready.eq(sequencer.job_take),
            sequencer.whole.eq(receiver.whole),
            sequencer.verdict_valid.eq(places.verdict_valid),
            sequencer.verdict_bad.eq(places.verdict_bad),
            places.verdict_take.eq(sequencer.verdict_take),
            sequencer.place.eq(places.place),
            sequencer.good.eq(places.good),
            places.take.eq(sequencer.place_take),
            stores.record.eq(sequencer.store),
            stores.record_en.eq(sequencer.store_en),
            sequencer.store_full.eq(stores.record_full),
            loads.record.eq(sequencer.load),
            loads.record_en.eq(sequencer.load_en),
            sequencer.load_full.eq(loads.record_full),
            sequencer.red_done.eq(loads.red_done),
            sequencer.back_done.eq(issue.back_done),
        ]
        connect(m, sequencer.segment, issue.segment)
        connect(m, issue.memory, flipped(memory))

        # The memory answers.
        m.d.comb += [
            stores.mark.eq(issue.mark),
            stores.mark_en.eq(issue.mark_en),
            issue.mark_full.eq(stores.mark_full),
            stores.written.eq(memory.written),
            stores.write_error.eq(memory.write_error),
            order.w_en.eq(issue.order_en),
            order.w_data.eq(issue.order),
            order.o.ready.eq(memory.reply),
        ]
        of_reply = data.View(issue.order.shape(), order.o.payload)
        for number, replies in enumerate(streams):
            m.submodules[f"stream{number}"] = replies
            m.d.comb += [
                replies.w_en.eq(memory.reply & (of_reply.stream == number)),
                replies.w_data.eq(memory.reply_data),
                replies.w_error.eq(memory.reply_error),
                replies.w_first.eq(of_reply.first),
                replies.w_last.eq(of_reply.last),
                loads.some[number].eq(replies.some),
                replies.claim.eq(loads.claim[number]),
                loads.flit[number].eq(replies.flit),
                loads.error[number].eq(replies.error),
                replies.take.eq(loads.take[number]),
                issue.row_freed[number].eq(replies.freed),
            ]
        m.d.comb += [
            red_data.w_en.eq(issue.copy_en),
            red_data.w_data.eq(Cat(issue.copy_flit, issue.copy_strobe)),
            loads.red_en.eq(issue.copy_en),
            Cat(loads.red_flit, loads.red_strobe).eq(red_data.o.payload),
            red_data.o.ready.eq(loads.red_take),
            backs.w_en.eq(loads.back_en),
            backs.w_data.eq(Cat(loads.back_flit, loads.back_strobe, loads.back_error)),
            issue.back_valid.eq(backs.o.valid),
            Cat(issue.back_flit, issue.back_strobe, issue.back_error).eq(backs.o.payload),
            backs.o.ready.eq(issue.back_take),
        ]

        check(m, platform, ~loads.red_take | red_data.o.valid, "hub path: no data for the lanes")

        # Answers go out.
        m.d.comb += [
            loads.room.eq(answers.room),
            answers.reserve.eq(loads.reserve),
            answers.reserve_gpu.eq(loads.reserve_gpu),
            answers.reserve_flits.eq(loads.reserve_flits),
            answers.part_en.eq(loads.part_en),
            answers.part.eq(loads.part),
            answers.answer_credit.eq(self.answer_credit),
        ]
        connect(m, stores.answer, answers.ack)
        connect(m, answers.answer, flipped(self.answer))

        # Slots that are not handed out: all at first.
        owed = Signal(range(params.hub_flits + 1), init=params.hub_flits)
        gives = Signal()
        m.d.comb += gives.eq(owed != 0)
        m.d.sync += [
            self.credit.eq(gives),
            owed.eq(owed + splitter.freed + receiver.dropped + issue.freed - gives),
        ]
        # Up to three requests may end with an error in one cycle.
        refused = Signal(16)
        m.d.comb += self.refused_event.eq(refused != 0)
        m.d.sync += [
            refused.eq(
                refused + receiver.refused + stores.refused + loads.refused - self.refused_event
            ),
            self.request_event.eq(receiver.taken),
        ]
        return m
