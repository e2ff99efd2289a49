# SPDX-License-Identifier: Apache-2.0
"""Head of an input's request channel: checks requests and finds their outputs."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..address_hash import link_of
from ..common.bits import any_of, is_one_of
from ..flits import (
    FLIT_BITS,
    HEADER,
    LANES,
    MAX_BYTE_ENABLE_FLITS,
    MAX_DATA_FLITS,
    REDUCTIONS,
    SLOT_FLITS,
    TO_F32,
    WIDE,
    Addressing,
    Kind,
    Opcode,
    Status,
    Vc,
)
from ..params import SwitchParams
from .destination import gpu_one_hot, ports_of
from .list_reader import ListReader
from .receiver import data_flits, extension_flits
from .route_unit import RouteSignature, lane_layout

__all__ = ["RequestHead"]

_KNOWN = (Opcode.WRITE, Opcode.READ, Opcode.MM_ST, Opcode.MM_LD_REDUCE, Opcode.MM_RED)
_KNOWN_DYNAMIC = (Opcode.DY_ST, Opcode.DY_LD_REDUCE)


class RequestHead(wiring.Component):
    """Takes requests from their buffer and passes them on with their output ports or a status.

    Parameters
    ----------
    params : SwitchParams
        The switch.
    port : int
        The port that this head belongs to.

    Members
    -------
    r_valid, r_flit, r_last, take, mark, restart
        The reader's side of a :class:`VcBuffer`.
    allowed : In(ports)
        Ports in this port's partition.
    group_gpus : In(gpus)
        GPU mask of the group ``group``; 0 when there is none of that number.
    group : Out(15)
        Group number of the header at the head.
    route : Out
        This port's side of a route unit (:class:`RouteSignature`); the flit that it offers is
        ``r_flit``. Only with dynamic support.
    again, waiting : In
        From the :class:`CopyWriter`: start the packet again, for these ports.
    waits, drops : In(1)
        From the :class:`CopyWriter`: a header is held there; the packet under way is refused.
    o_valid, o_flit, o_last, o_first, o_ports, o_status, o_good, o_limit, o_list_next : Out
        The next flit, for the :class:`CopyWriter`.
    o_take : In(1)
        The flit is taken.
    lanes : Out
        The lanes of the list flit behind the flit that left last. Only with dynamic support.

    Timing
    ------
    A header that appears at ``r_flit`` in cycle *t* is passed on in *t* + 1, or, with a list of up
    to 8 targets and an idle route unit, in *t* + 2. A longer list is read through once before.

    Ordering
    --------
    Requests are finished one after the other.
    """

    def __init__(self, params: SwitchParams, port: int) -> None:
        self._params = params
        self._port = port
        members = {
            "r_valid": In(1),
            "r_flit": In(FLIT_BITS),
            "r_last": In(1),
            "take": Out(1),
            "mark": Out(1),
            "restart": Out(1),
            "allowed": In(params.ports),
            "group_gpus": In(params.gpus),
            "group": Out(15),
            "again": In(1),
            "waiting": In(params.ports),
            "waits": In(1),
            "drops": In(1),
            "o_valid": Out(1),
            "o_flit": Out(FLIT_BITS),
            "o_last": Out(1),
            "o_first": Out(1),
            "o_ports": Out(params.ports),
            "o_status": Out(Status),
            "o_good": Out(1),
            "o_limit": Out(range(params.request_depth)),
            "o_list_next": Out(1),
            "o_take": In(1),
        }
        if params.dynamic:
            members |= {
                "route": Out(RouteSignature(params)),
                "lanes": Out(data.ArrayLayout(lane_layout(params), LANES)),
            }
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        held = Signal()
        first = Signal(init=1)
        header = data.View(HEADER, self.o_flit)
        # The packet is started again, for the ports that the writer names.
        repeated = Signal()
        entry_status = self._entry_status(header)
        static_ports, static_status, static_good, list_good = self._checks(m, header, entry_status)

        m.d.comb += [
            self.o_first.eq(first),
            self.o_limit.eq(
                params.request_depth
                - params.queue_margin
                - (extension_flits(header)[: max(1, params.max_extensions.bit_length())] + 1)
                - (data_flits(header) + header.byte_enable)
            ),
        ]
        look_take = Signal()
        look_restart = Signal()
        if params.dynamic:
            m.submodules.lists = lists = ListReader(params)
            connect(m, lists.route, flipped(self.route))
            is_dynamic = header.opcode[2:4] == Addressing.DYNAMIC
            at_head = held & first
            m.d.comb += [
                lists.header.eq(self.o_flit),
                lists.at_head.eq(at_head),
                lists.has_list.eq(is_dynamic),
                lists.good.eq(list_good),
                lists.known.eq(repeated),
                lists.allowed.eq(self.allowed),
                lists.r_valid.eq(self.r_valid),
                lists.leave.eq(self.o_take),
                lists.passing.eq(held & ~first & ~self.drops),
                lists.waits.eq(self.waits),
                lists.flush.eq(self.again),
                look_take.eq(lists.take),
                look_restart.eq(lists.restart),
                self.o_list_next.eq(lists.list_next),
                self.lanes.eq(lists.lanes),
            ]
            ready = Mux(first, ~is_dynamic | ~list_good | lists.ready, ~lists.stall)
            m.d.comb += self.o_valid.eq(held & ready)
            with m.If(repeated):
                m.d.comb += [self.o_ports.eq(self.waiting), self.o_good.eq(1)]
            with m.Elif(is_dynamic & list_good):
                m.d.comb += [
                    self.o_ports.eq(lists.ports),
                    self.o_status.eq(Mux(lists.status == Status.OK, entry_status, lists.status)),
                    self.o_good.eq((lists.status == Status.OK) & (entry_status == Status.OK)),
                ]
            with m.Else():
                m.d.comb += [
                    self.o_ports.eq(static_ports),
                    self.o_status.eq(static_status),
                    self.o_good.eq(static_good),
                ]
        else:
            m.d.comb += [
                self.o_valid.eq(held),
                self.o_ports.eq(Mux(repeated, self.waiting, static_ports)),
                self.o_status.eq(static_status),
                self.o_good.eq(static_good),
            ]

        load = ~held | self.o_take
        m.d.comb += [
            self.take.eq(self.r_valid & (load | look_take)),
            self.restart.eq(self.again | look_restart),
            self.mark.eq(self.o_take),
        ]
        with m.If(self.again):
            m.d.sync += repeated.eq(1)
        with m.Elif(self.o_take & first):
            m.d.sync += repeated.eq(0)
        with m.If(load):
            m.d.sync += [
                held.eq(self.r_valid),
                self.o_flit.eq(self.r_flit),
                self.o_last.eq(self.r_last),
            ]
        with m.If(self.o_take):
            m.d.sync += first.eq(self.o_last)
        with m.If(self.restart):
            m.d.sync += [held.eq(0), first.eq(1)]
        return m

    def _checks(self, m: Module, header: data.View, entry_status):
        """Port mask and status of a request, as far as they stand in its header.

        Returns the ports, the status, whether it is OK, and whether it is when there is a list.
        """
        params = self._params
        is_unicast = header.opcode[2:4] == Addressing.UNICAST
        is_static = header.opcode[2:4] == Addressing.STATIC
        is_dynamic = header.opcode[2:4] == Addressing.DYNAMIC
        m.d.comb += self.group.eq(header.count)
        gpus = Mux(is_unicast, gpu_one_hot(header.count, params.gpus), self.group_gpus)
        ports = Signal(params.ports, name="static_ports")
        m.d.comb += ports.eq(ports_of(params, gpus, header))

        known = is_one_of(header.opcode, _KNOWN + (_KNOWN_DYNAMIC if params.dynamic else ()))
        gpu, link = divmod(self._port, params.links_per_gpu)
        bad_source = header.gpu != gpu
        if params.links_per_gpu > 1:
            bad_source = bad_source | (link_of(header.address, params.links_per_gpu) != link)
        is_load = header.opcode[:2] == Kind.LOAD
        bad_enable = header.byte_enable & (is_load | (header.length > MAX_BYTE_ENABLE_FLITS))
        longest = Mux(
            _is_sum(header) & is_one_of(header.dtype, TO_F32), MAX_DATA_FLITS // 2, MAX_DATA_FLITS
        )
        bad_length = (header.length == 0) | (header.length > longest) | bad_enable

        status = Signal(Status, name="static_status")
        tests = [
            (~known, Status.UNKNOWN_OPCODE),
            (header.vc != Vc.REQUEST, Status.BAD_VC),
            (bad_source, Status.BAD_SOURCE),
            (bad_length, Status.BAD_LENGTH),
        ]
        of_lists = []
        if params.dynamic:
            of_lists = [
                (is_dynamic & (header.count == 0), Status.COUNT_ZERO),
                (is_dynamic & (header.count > params.max_targets), Status.TOO_MANY_TARGETS),
            ]
        list_good = ~any_of(condition for condition, _ in tests + of_lists)
        tests += [
            *of_lists,
            (is_unicast & ~gpus.any(), Status.BAD_TARGET),
            (is_static & ~gpus.any(), Status.NO_GROUP),
            (~is_dynamic & (ports & ~self.allowed).any(), Status.PARTITION),
        ]
        chosen = entry_status
        for condition, value in reversed(tests):
            chosen = Mux(condition, value.value, chosen)
        m.d.comb += status.eq(chosen)
        # Not `status == OK`: the priority between the tests is not on this path.
        good = ~any_of(condition for condition, _ in tests) & (entry_status == Status.OK)
        return ports, status, good, list_good

    def _entry_status(self, header: data.View):
        """Status of the last tests: the tag, and the type and operation of a reduction."""
        is_multicast = header.opcode[2] ^ header.opcode[3]
        has_entry = is_multicast & ~(header.posted & header.opcode[0])
        beyond = header.tag[(self._params.entries - 1).bit_length() :].any()
        wide = is_one_of(header.dtype, WIDE)
        # The sum takes more than one entry; more than two.
        several = header.length > Mux(wide, SLOT_FLITS // 2, SLOT_FLITS)
        many = wide & (header.length > SLOT_FLITS)
        unaligned = _is_sum(header) & ((several & header.tag[0]) | (many & header.tag[1]))
        bad_tag = has_entry & (beyond | unaligned)

        operation = header.aux[:3]
        fits = any_of(
            (header.dtype == dtype) & is_one_of(operation, operations)
            for dtype, operations in REDUCTIONS.items()
        )
        reduces = _is_sum(header) | (header.opcode == Opcode.MM_RED)
        return Mux(
            bad_tag,
            Const(Status.BAD_TAG.value, 4),
            Mux(reduces & ~fits, Status.BAD_REDUCTION.value, Status.OK.value),
        )


def _is_sum(header: data.View):
    """Whether the request is a multicast load, whose answers are added."""
    return (header.opcode[2] ^ header.opcode[3]) & (header.opcode[:2] == Kind.LOAD)
