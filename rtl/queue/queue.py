# SPDX-License-Identifier: Apache-2.0
"""The MultimemQ: multimem and dymultimem accesses become packets, and responses their results."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..common.ram_fifo import RamFifo
from ..flits import FLIT_BITS, HEADER, Status
from ..gpu_params import GpuParams
from .access_check import AccessCheck
from .entry_head import EntryHead
from .layouts import entry_layout
from .list_fetcher import ListFetcher
from .list_store import ListStore
from .merger import Merger
from .packet_sender import PacketSender
from .ports import Access, Beat, FetchSignature, Result
from .response_taker import ResponseTaker
from .result_unit import ResultUnit
from .tag_allocator import TagAllocator

__all__ = ["COUNTERS", "MultimemQ"]

COUNTERS = ("accesses", "merged", "packets", "results", "errors", "stale")
"""Bits of ``events``: an access was taken; it went into the packet of the one before; a packet was
sent; a result was given out; ... with a status other than OK; a response was dropped that nobody
waits for."""


class MultimemQ(wiring.Component):
    """Queue of a GPU for accesses that go to many GPUs, beside the one for ordinary accesses.

    Accesses that follow on each other are merged (:class:`Merger`) into entries, each of which
    becomes a packet. Its target list is fetched from when the entry is opened
    (:class:`ListFetcher`, :class:`ListStore`); it leaves when it is closed, its list has come and a
    tag is free (:class:`EntryHead`, :class:`TagAllocator`, :class:`PacketSender`). Responses are
    matched by their tags (:class:`ResponseTaker`) and become results (:class:`ResultUnit`).

    Parameters
    ----------
    params : GpuParams
        Everything that is fixed at generation.

    Members
    -------
    access : In
        Stream of :class:`Access`.
    result : Out
        Stream of :class:`Result`; none for a posted store, unless it is in error.
    beats : Out
        Stream of :class:`Beat`: the packets.
    shared_list, global_list : Out
        Memories of target lists (:class:`FetchSignature`).
    valid, flit : In
        Responses from the link with tags below ``params.tags``; they are always taken.
    gpu : In(6)
        Number of this GPU.
    events : Out(6)
        Bit *i*: one more of what ``COUNTERS[i]`` counts.

    Timing
    ------
    One access a cycle, as long as fewer than ``queue_depth`` entries are under way and the link
    takes a beat a cycle. ``docs/queue.md`` has the measured latencies.

    Ordering
    --------
    Packets and errors leave in the order of their first accesses. Results come as the responses do;
    those of a load by ascending address.

    Reset
    -----
    Synchronous. Forgets all accesses; replies of list memories and responses to requests of before
    the reset must not come after it.

    Errors
    ------
    An access that cannot become a packet ends with a result that tells why (:class:`AccessCheck`);
    one whose list cannot be read with BAD_ADDRESS. They keep their place among the packets.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        super().__init__(
            {
                "access": In(stream.Signature(Access)),
                "result": Out(stream.Signature(Result)),
                "beats": Out(stream.Signature(Beat)),
                "shared_list": Out(FetchSignature(params)),
                "global_list": Out(FetchSignature(params)),
                "valid": In(1),
                "flit": In(FLIT_BITS),
                "gpu": In(HEADER["gpu"].width),
                "events": Out(len(COUNTERS)),
            }
        )

    @property
    def params(self) -> GpuParams:
        """Parameters of this queue."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        depth = params.queue_depth
        layout = entry_layout(params)
        m.submodules.checker = checker = AccessCheck(params)
        m.submodules.merger = merger = Merger(params)
        m.submodules.fetcher = fetcher = ListFetcher(params)
        m.submodules.store = store = ListStore(params)
        m.submodules.entries = entries = RamFifo(layout.size, depth, head_in_flops=True)
        m.submodules.flits = flits = RamFifo(
            FLIT_BITS, depth * params.packet_flits, head_in_flops=True
        )
        m.submodules.head = head = EntryHead(params)
        m.submodules.tags = tags = TagAllocator(params)
        m.submodules.sender = sender = PacketSender(params)
        m.submodules.taker = taker = ResponseTaker(params)
        m.submodules.results = results = ResultUnit(params)

        # An access takes an entry when it is accepted, and gives it back if it is merged.
        taken = Signal(range(depth + 1))
        full = Signal()
        one = Signal()
        accepted = Signal()
        gone = Signal(range(3))
        level = Signal.like(taken)
        m.d.comb += [
            self.access.ready.eq(~full),
            accepted.eq(self.access.valid & ~full),
            gone.eq(merger.merged + sender.freed),
            level.eq(taken + accepted - gone),
        ]
        m.d.sync += [taken.eq(level), full.eq(level == depth), one.eq(level == 1)]

        # In.
        m.d.comb += [
            checker.i_valid.eq(accepted),
            checker.i_access.eq(self.access.payload),
            merger.i_valid.eq(checker.o_valid),
            merger.i.eq(checker.o),
            # An entry is given back when its last beat is offered.
            merger.alone.eq(one & ~sender.o.valid & ~self.access.valid),
            fetcher.w_en.eq(merger.fetch_en),
            fetcher.fetch.eq(merger.fetch),
            store.opens.eq(merger.opens),
            store.opens_id.eq(merger.id),
            store.opens_words.eq(merger.words),
            store.opens_rotation.eq(merger.rotation),
            entries.w_en.eq(merger.closes),
            entries.w_data.eq(merger.entry),
            flits.w_en.eq(merger.flit_en),
            flits.w_data.eq(merger.flit),
        ]
        for port, request, reply in (
            (self.shared_list, fetcher.shared_request, store.shared_reply),
            (self.global_list, fetcher.global_request, store.global_reply),
        ):
            connect(m, request, flipped(port.request))
            connect(m, flipped(port.reply), reply)

        # Out.
        m.d.comb += [
            head.i.valid.eq(entries.o.valid),
            head.i.payload.eq(entries.o.payload),
            entries.o.ready.eq(head.i.ready),
            head.gpu.eq(self.gpu),
            store.look.eq(head.look),
            head.missing.eq(store.missing),
            head.wrong.eq(store.wrong),
            head.roomy.eq(results.roomy),
            tags.request.eq(head.tag_request),
            tags.slots.eq(head.tag_slots),
            head.tag_grant.eq(tags.grant),
            head.tag.eq(tags.tag),
            head.gen.eq(tags.gen),
            store.r_en.eq(sender.r_en),
            store.r_entry.eq(sender.r_entry),
            store.r_flit.eq(sender.r_flit),
            sender.r_data.eq(store.r_data),
        ]
        connect(m, head.packet, sender.packet)
        connect(m, flits.o, sender.data)
        connect(m, sender.o, flipped(self.beats))

        # Back.
        m.d.comb += [
            taker.valid.eq(self.valid),
            taker.flit.eq(self.flit),
            taker.ticket_en.eq(head.ticket_en),
            taker.ticket.eq(head.ticket),
            taker.tag.eq(head.packet_tag),
            taker.gen.eq(head.packet_gen),
            taker.slots.eq(head.packet_slots),
            tags.use.eq(head.ticket_en),
            tags.use_tag.eq(head.packet_tag),
            tags.look_tag.eq(taker.look_tag),
            taker.in_use.eq(tags.in_use),
            tags.release.eq(taker.release),
            tags.release_tag.eq(taker.release_tag),
            tags.release_slots.eq(taker.release_slots),
            results.reserve.eq(head.granted),
            results.reserve_flits.eq(head.granted_flits),
            results.end_en.eq(taker.end_en),
            results.end.eq(taker.end),
            results.data_en.eq(taker.data_en),
            results.data.eq(taker.data),
        ]
        connect(m, head.fault, results.fault)
        connect(m, results.result, flipped(self.result))

        given = self.result.valid & self.result.ready
        for bit, event in enumerate(
            (
                accepted,
                merger.merged,
                sender.sent,
                given,
                given & (self.result.payload.status != Status.OK),
                taker.stale,
            )
        ):
            m.d.sync += self.events[bit].eq(event)
        return m
