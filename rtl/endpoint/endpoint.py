# SPDX-License-Identifier: Apache-2.0
"""Everything of a GPU between its cores, its memory and the link to the switch."""

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..common.bus import BusSignature
from ..common.flit_stream import flit_stream
from ..flits import FLIT_BITS, HEADER
from ..gpu_params import GpuParams
from ..hub.hub import Hub
from ..hub.ports import MemorySignature, TableSignature
from ..queue.ports import Access, FetchSignature, Result
from ..queue.queue import MultimemQ
from ..switch.link import LinkSignature
from ..switch.receiver import Receiver
from .link_sender import LinkSender
from .packet_buffer import PacketBuffer
from .serializer import Serializer

__all__ = ["Endpoint", "core_members"]

RESPONSE_CREDITS = 64
"""Slots for responses that the switch may use; every flit is taken in the cycle that it comes."""
_SENDER_TIMEOUT = 4096


def core_members(params: GpuParams) -> dict[str, Any]:
    """Members towards cores and memory, as :class:`Endpoint` describes them."""
    return {
        "access": In(stream.Signature(Access)),
        "result": Out(stream.Signature(Result)),
        "shared_list": Out(FetchSignature(params)),
        "global_list": Out(FetchSignature(params)),
        "ordinary": In(flit_stream()),
        "ordinary_valid": Out(1),
        "ordinary_flit": Out(FLIT_BITS),
        "memory": Out(MemorySignature(params.memory_flits)),
        "table": Out(TableSignature(params)),
        "bus": In(BusSignature()),
    }


class Endpoint(wiring.Component):
    """Queue, hub and link of one GPU.

    Requests that come down the link go to the hub, responses to the queue, or past it if their tag
    is one of the ordinary accesses. Up the link go the queue's packets, ordinary packets and the
    hub's answers, in turns by whole packets: none of them waits for another's credits.

    Parameters
    ----------
    params : GpuParams
        Everything that is fixed at generation.

    Members
    -------
    gpu : In(6)
        Number of this GPU.
    access, result : In, Out
        Accesses of the cores and their ends (streams of :class:`Access`, :class:`Result`).
    shared_list, global_list : Out
        Memories of target lists (:class:`FetchSignature`).
    ordinary : In
        Packets of ordinary loads and stores (:func:`flit_stream`), ``READ`` and ``WRITE`` with tags
        from ``params.tags`` on.
    ordinary_valid, ordinary_flit : Out
        Flits of the answers to them; they cannot be held up.
    memory, table : Out
        This GPU's memory (:class:`MemorySignature`), and the AL tables in it
        (:class:`TableSignature`).
    bus : In
        Registers of the hub (:class:`BusSignature`; the map is ``rtl/hub_register_map.py``).
    rx : In
        Link from the switch.
    tx : Out
        Link to the switch.
    fault : Out(1)
        The switch broke the link's rules and was cut off (:class:`Receiver`).

    Timing
    ------
    One flit a cycle each way. ``tx`` is registered; a flit of ``rx`` reaches hub or queue in the
    same cycle.

    Ordering
    --------
    The queue's packets stay in order, and so do ordinary ones; between the two there is no order.

    Reset
    -----
    Synchronous. Hands out the hub's buffer and :data:`RESPONSE_CREDITS` slots for responses.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        super().__init__(
            {
                "gpu": In(6),
                **core_members(params),
                "rx": In(LinkSignature()),
                "tx": Out(LinkSignature(1 + params.gpus)),
                "fault": Out(1),
            }
        )

    @property
    def params(self) -> GpuParams:
        """Parameters of this endpoint."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        longest = params.max_request_flits
        depth = 1 << (2 * longest - 1).bit_length()
        m.submodules.queue = queue = MultimemQ(params)
        m.submodules.hub = hub = Hub(params)
        m.submodules.serializer = serializer = Serializer()
        m.submodules.packets = packets = PacketBuffer(depth)
        m.submodules.ordinary_packets = ordinary_packets = PacketBuffer(depth)
        m.submodules.sender = sender = LinkSender(longest)
        m.submodules.receiver = receiver = Receiver(_SENDER_TIMEOUT)

        # Up.
        connect(m, queue.beats, serializer.i)
        connect(m, serializer.o, packets.i)
        connect(m, packets.o, sender.requests)
        connect(m, flipped(self.ordinary), ordinary_packets.i)
        connect(m, ordinary_packets.o, sender.ordinary)
        connect(m, hub.answer, sender.answers)
        m.d.comb += [
            self.tx.valid.eq(sender.valid),
            self.tx.flit.eq(sender.flit),
            sender.credit.eq(self.tx.credit[0]),
            hub.answer_credit.eq(self.tx.credit[1:]),
        ]

        # Down.
        header = data.View(HEADER, receiver.w_flit)
        inside = Signal()  # a response has begun
        is_ordinary = Signal()
        goes_past = Signal()
        owed = Signal(range(RESPONSE_CREDITS + 1), init=RESPONSE_CREDITS)
        response = receiver.w_en[1]
        m.d.comb += [
            receiver.valid.eq(self.rx.valid),
            receiver.flit.eq(self.rx.flit),
            receiver.spent.eq(1),  # of no matter here: the hub's buffer may fill up
            self.fault.eq(receiver.fault),
            hub.valid.eq(receiver.w_en[0]),
            hub.flit.eq(receiver.w_flit),
            goes_past.eq(is_ordinary),
            queue.valid.eq(response & ~goes_past),
            queue.flit.eq(receiver.w_flit),
            self.ordinary_valid.eq(response & goes_past),
            self.ordinary_flit.eq(receiver.w_flit),
            self.rx.credit[0].eq(hub.credit),
        ]
        with m.If(~inside):
            m.d.comb += goes_past.eq(header.tag >= params.tags)
        with m.If(response):
            m.d.sync += [inside.eq(~receiver.w_last), is_ordinary.eq(goes_past)]
        # A credit in every cycle that one is owed: for the slots at first, then for what came in.
        m.d.comb += self.rx.credit[1].eq(owed != 0)
        m.d.sync += owed.eq(owed + response - self.rx.credit[1])

        connect(m, flipped(self.access), queue.access)
        connect(m, queue.result, flipped(self.result))
        connect(m, queue.shared_list, flipped(self.shared_list))
        connect(m, queue.global_list, flipped(self.global_list))
        connect(m, hub.memory, flipped(self.memory))
        connect(m, hub.table, flipped(self.table))
        connect(m, flipped(self.bus), hub.bus)
        m.d.comb += queue.gpu.eq(self.gpu)
        return m
