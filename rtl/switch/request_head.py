# SPDX-License-Identifier: Apache-2.0
"""Head of an input's request channel: checks a request, finds its outputs, and offers its copies."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..address_hash import link_of
from ..common.bits import any_of
from ..flits import (
    FLIT_BITS,
    HEADER,
    LANES,
    MAX_BYTE_ENABLE_FLITS,
    MAX_DATA_FLITS,
    Addressing,
    Kind,
    Opcode,
    Status,
    Vc,
)
from ..params import SwitchParams
from .destination import gpu_one_hot, ports_of, room_for
from .receiver import data_flits, extension_flits
from .list_reader import ListReader
from .route_unit import lane_layout

__all__ = ["RequestHead", "refusal"]

_KNOWN = (Opcode.WRITE, Opcode.READ, Opcode.MM_ST, Opcode.MM_LD_REDUCE, Opcode.MM_RED)
_KNOWN_DYNAMIC = (Opcode.DY_ST, Opcode.DY_LD_REDUCE)


def refusal(header: data.View, status) -> data.View:
    """Header of the answer to a refused request: the request's own, turned into an answer."""
    answer = {name: header[name] for name in HEADER.members} | {
        "opcode": Const(Opcode.RSP_ACK.value, 4),
        "aux": status,
        "length": Const(0, 5),
        "byte_enable": Const(0, 1),
        "vc": Const(Vc.RESPONSE.value, 2),
    }
    return data.View(HEADER, Cat(answer.values()))


class RequestHead(wiring.Component):
    """Takes requests from their buffer, one at a time, and writes their copies to the row.

    A request goes to the row as soon as one of its outputs has room for all of it. The copies for
    outputs that have no room yet are written in further passes over the same packet, so that no copy
    waits for another one's output. A request that breaks a rule is answered and consumed.

    Parameters
    ----------
    params : SwitchParams
        The switch.
    port : int
        The port that this head belongs to.

    Members
    -------
    r_valid, r_flit, r_last, take, restart, commit
        The reader's side of a :class:`VcBuffer`.
    used : In, one per port
        Entries of each pair's request queue.
    own_response_used : In
        Entries of the response queue from this port to itself, where refusals go.
    allowed : In(ports)
        Ports in this port's partition.
    group_gpus : In(gpus)
        GPU mask of the group ``group``; 0 when there is none of that number.
    group : Out(15)
        Group number of the header at the head.
    route_request, route_count, route_grant, route_done, route_gpus, route_bad, route_lanes
        This port's side of a :class:`RouteUnit`; the flit offered is ``r_flit``. Only with
        dynamic support.
    request : Out(1)
        A packet, or a refusal, waits and there is room for it.
    grant : In(1)
        The row takes it, from this cycle on.
    valid, flit, last, select, to_response : Out
        The flits for the row, the pairs to write, and whether to their response queues.
    list_next : Out(1)
        A list flit follows the flit.
    lanes : Out
        Registered, so one cycle behind ``valid``: the GPU of every lane of that list flit.
    refused : Out(1)
        A request was refused.

    Timing
    ------
    A header that appears at ``r_flit`` in cycle *t* is granted in *t* + 1 at the earliest, in
    *t* + 2 with a list of up to 8 targets and an idle route unit. A longer list is read through
    once before (one cycle an extension flit and two for going back). A further pass starts
    three cycles after the pass before.

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
            "restart": Out(1),
            "commit": Out(1),
            "used": In(range(params.request_depth + 1)).array(params.ports),
            "own_response_used": In(range(params.response_depth + 1)),
            "allowed": In(params.ports),
            "group_gpus": In(params.gpus),
            "group": Out(15),
            "request": Out(1),
            "grant": In(1),
            "valid": Out(1),
            "flit": Out(FLIT_BITS),
            "last": Out(1),
            "select": Out(params.ports),
            "to_response": Out(1),
            "refused": Out(1),
        }
        if params.dynamic:
            lanes = data.ArrayLayout(lane_layout(params), LANES)
            members |= {
                "route_request": Out(1),
                "route_count": Out(range(LANES + 1)),
                "route_grant": In(1),
                "route_done": In(1),
                "route_gpus": In(params.gpus),
                "route_bad": In(1),
                "route_lanes": In(lanes),
                "list_next": Out(1),
                "lanes": Out(lanes),
            }
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params

        # The flit at the head. A header stays until its first pass starts.
        held = Signal()
        flit = Signal(FLIT_BITS)
        last = Signal()
        first = Signal(init=1)  # the flit at the head is a header
        header = data.View(HEADER, flit)
        passing = Signal()  # behind the header of a pass
        dropping = Signal()  # behind the header of a refused request
        # What is known of the packet at the head from a pass, or a look at its list, before.
        known = Signal()
        waiting = Signal(params.ports)  # ports whose copies are still to be written
        selected = Signal(params.ports)  # ports of the pass under way
        at_head = held & first
        static_ports, static_status, static_ok = self._static_destination(m, header)
        ports = Signal(params.ports)
        status = Signal(Status)
        good = Signal()  # `status` is OK
        ready = Signal()  # `ports` and `status` hold
        stall = Signal()  # the flit at the head must not leave
        look_take = Signal()  # the flit behind the head is taken without coming to the head
        look_restart = Signal()
        m.d.comb += ports.eq(Mux(known, waiting, static_ports))
        if params.dynamic:
            is_dynamic = header.opcode[2:4] == Addressing.DYNAMIC
            m.submodules.lists = lists = ListReader(params)
            for name in ("request", "count", "grant", "done", "gpus", "bad", "lanes"):
                inner, outer = getattr(lists, f"route_{name}"), getattr(self, f"route_{name}")
                is_output = name in ("request", "count")
                m.d.comb += outer.eq(inner) if is_output else inner.eq(outer)
            m.d.comb += [
                lists.header.eq(flit),
                lists.at_head.eq(at_head),
                lists.has_list.eq(is_dynamic),
                lists.good.eq(static_ok),
                lists.known.eq(known),
                lists.allowed.eq(self.allowed),
                lists.r_valid.eq(self.r_valid),
                lists.leave.eq(self.valid),
                lists.start.eq(self.grant & is_dynamic & good),
                lists.passing.eq(held & passing),
                self.list_next.eq(lists.list_next & ~self.to_response),
                self.lanes.eq(lists.lanes),
                # A refusal needs no lanes.
                ready.eq(~is_dynamic | ~static_ok | lists.ready | (known & ~good)),
                stall.eq(lists.stall),
                look_take.eq(lists.take),
                look_restart.eq(lists.restart),
            ]
            list_status = Signal(Status)
            with m.If(is_dynamic & ~known):
                m.d.comb += ports.eq(lists.ports)
            list_good = Mux(known, list_status == Status.OK, lists.status == Status.OK)
            m.d.comb += good.eq(static_ok & (~is_dynamic | list_good))
            with m.If(~static_ok):
                m.d.comb += status.eq(static_status)
            with m.Elif(known):
                m.d.comb += status.eq(list_status)
            with m.Elif(is_dynamic):
                m.d.comb += status.eq(lists.status)
            with m.If(lists.learned):
                m.d.sync += [known.eq(1), waiting.eq(lists.ports), list_status.eq(lists.status)]
        else:
            m.d.comb += [
                status.eq(static_status),
                good.eq(static_ok),
                ready.eq(1),
            ]

        # Who has room: a pass writes all copies that have, a refusal needs one slot.
        flits = Signal(range(params.max_request_flits + 1))
        m.d.comb += flits.eq(
            extension_flits(header)[: max(1, params.max_extensions.bit_length())]
            + data_flits(header)
            + header.byte_enable
            + 1
        )
        room = Cat(
            room_for(used, flits, params.request_depth, params.queue_margin) for used in self.used
        )
        fitting = Signal(params.ports)
        m.d.comb += fitting.eq(ports & room)
        answer_room = room_for(self.own_response_used, Const(1), params.response_depth, 1)
        m.d.comb += [
            self.request.eq(at_head & ready & Mux(good, any_of(fitting), answer_room)),
            self.to_response.eq(first & ~good),
            self.refused.eq(self.grant & ~good),
            self.valid.eq(self.grant | (held & passing & ~stall)),
            self.flit.eq(Mux(self.to_response, refusal(header, status).as_value(), flit)),
            self.last.eq(last | self.to_response),
            self.select.eq(
                Mux(first, Mux(good, fitting, 1 << self._port), selected),
            ),
        ]
        with m.If(self.grant):
            m.d.sync += [
                selected.eq(fitting),
                waiting.eq(ports & ~fitting),
                known.eq(1),
                passing.eq(good & ~last),
                dropping.eq(~good & ~last),
            ]

        # The end of a pass: next packet, or the same one again for the copies that are left.
        left = Mux(first, ports & ~fitting, waiting)
        ends = self.valid & self.last
        again = ends & ~self.to_response & left.any()
        drops = held & dropping
        leaves = self.valid | drops
        done = leaves & last & ~again
        with m.If(ends):
            m.d.sync += passing.eq(0)
        with m.If(done):
            m.d.sync += [dropping.eq(0), known.eq(0)]
        m.d.comb += [
            self.restart.eq(again | look_restart),
            # Flits of a refused request are given back one by one: it may be longer than the buffer.
            self.commit.eq(done | drops),
        ]

        # Bring flits to the head.
        load = ~held | leaves
        m.d.comb += self.take.eq(self.r_valid & (load | look_take))
        with m.If(self.restart):
            m.d.sync += [held.eq(0), first.eq(1)]
        with m.Elif(load):
            m.d.sync += [held.eq(self.r_valid), flit.eq(self.r_flit), last.eq(self.r_last)]
            with m.If(leaves):
                m.d.sync += first.eq(last)
        return m

    def _static_destination(self, m: Module, header: data.View):
        """Port mask and status of a request, as far as they stand in its header."""
        params = self._params
        is_unicast = header.opcode[2:4] == Addressing.UNICAST
        is_static = header.opcode[2:4] == Addressing.STATIC
        is_dynamic = header.opcode[2:4] == Addressing.DYNAMIC
        m.d.comb += self.group.eq(header.count)
        gpus = Mux(is_unicast, gpu_one_hot(header.count, params.gpus), self.group_gpus)
        ports = Signal(params.ports, name="static_ports")
        m.d.comb += ports.eq(ports_of(params, gpus, header))

        known = any_of(
            header.opcode == code for code in _KNOWN + (_KNOWN_DYNAMIC if params.dynamic else ())
        )
        gpu, link = divmod(self._port, params.links_per_gpu)
        bad_source = header.gpu != gpu
        if params.links_per_gpu > 1:
            bad_source = bad_source | (link_of(header.address, params.links_per_gpu) != link)
        is_load = header.opcode[:2] == Kind.LOAD
        bad_enable = header.byte_enable & (is_load | (header.length > MAX_BYTE_ENABLE_FLITS))
        bad_length = (header.length == 0) | (header.length > MAX_DATA_FLITS) | bad_enable

        status = Signal(Status, name="static_status")
        tests = [
            (~known, Status.UNKNOWN_OPCODE),
            (header.vc != Vc.REQUEST, Status.BAD_VC),
            (bad_source, Status.BAD_SOURCE),
            (bad_length, Status.BAD_LENGTH),
        ]
        if params.dynamic:
            tests += [
                (is_dynamic & (header.count == 0), Status.COUNT_ZERO),
                (is_dynamic & (header.count > params.max_targets), Status.TOO_MANY_TARGETS),
            ]
        tests += [
            (is_unicast & ~gpus.any(), Status.BAD_TARGET),
            (is_static & ~gpus.any(), Status.NO_GROUP),
            (~is_dynamic & (ports & ~self.allowed).any(), Status.PARTITION),
        ]
        chosen = Const(Status.OK.value, 4)
        for condition, value in reversed(tests):
            chosen = Mux(condition, value.value, chosen)
        m.d.comb += status.eq(chosen)
        # Not `status == OK`: the priority between the tests is not on this path.
        return ports, status, ~any_of(condition for condition, _ in tests)
