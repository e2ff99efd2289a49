# SPDX-License-Identifier: Apache-2.0
"""The switch: ingresses, a matrix of queues, egresses with reducers, route units, registers."""

from amaranth.hdl import Array, Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..common.bus import BusSignature
from ..fp.vector import LATENCY
from ..params import SwitchParams
from ..reduce.reducer import Reducer
from ..register_map import COUNTERS
from .egress import Egress
from .ingress import Ingress
from .link import LinkSignature
from .registers import Registers
from .request_queue import RequestQueue
from .response_queue import ResponseQueue
from .route_unit import RouteUnit

__all__ = ["Switch"]


class Switch(wiring.Component):
    """Delivers packets by unicast, by static groups and by target lists, and adds the answers.

    Every (input, output) pair has queues of its own for requests and responses, so the outputs
    choose and send independently: a copy of a multicast leaves as soon as its output takes it, and
    a packet for an output that is free never waits in a pair's queue for one that is not. The
    answers to a multicast request are added at the requester's port (:class:`Reducer`).

    Parameters
    ----------
    params : SwitchParams
        Everything that is fixed at generation.

    Members
    -------
    rx : In, one per port
        Links into the switch (:class:`LinkSignature`), with a class of credits for the responses to
        each port.
    tx : Out, one per port
        Links out of the switch.
    bus : In
        Registers (:class:`BusSignature`; the map is ``rtl/register_map.py``).

    Timing
    ------
    A header on an idle input's link in cycle *t* is on an idle output's link in *t* + 6, with a
    list of up to 8 targets in *t* + 7. One flit per cycle and port in both directions. All outputs
    are registers; ``rx.flit`` passes two multiplexers before its first register.

    Ordering
    --------
    Requests of one input and output stay in order, and so do responses that are passed on. Refusals
    of a port's requests are in order among themselves.

    Reset
    -----
    Synchronous. All buffers are empty, no group is configured, all ports are in partition 0,
    ``experts_per_gpu`` is 1, there is no time-out; each side of a link starts without credits and
    gets the other's. No multicast request that wants an answer is answered before the entry tables
    are cleared, one entry a cycle.

    Errors
    ------
    A request that breaks a rule is consumed whole and answered with a status (``Status``); a
    response that does is dropped. Both are counted. See also :class:`Receiver` on broken links.

    Counters
    --------
    ``COUNTERS`` in ``rtl/register_map.py``, per port.

    Area
    ----
    Buffers: ``ports**2 * (request_depth + response_depth)`` entries and ``ports * (ingress_depth +
    result_depth + 8 * entries)`` flits of RAM. Logic: eight lanes and two ``ports``-way
    multiplexers of a flit at every output.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        super().__init__(
            {
                "rx": In(LinkSignature(1 + params.ports)).array(params.ports),
                "tx": Out(LinkSignature()).array(params.ports),
                "bus": In(BusSignature()),
            }
        )

    @property
    def params(self) -> SwitchParams:
        """Parameters of this switch."""
        return self._params

    @property
    def latency(self) -> int:
        """Cycles from header in to header out, idle, without a list."""
        return 6

    @property
    def response_latency(self) -> int:
        """Cycles from header in to header out of a response that is passed on, idle."""
        # To the head of its queue, looked up, into the lanes, through them, from there to the link.
        return 3 + 5 + 1 + LATENCY + 4

    @property
    def list_latency(self) -> int:
        """Cycles from header in to header out, idle, with a list of up to 8 targets."""
        return self.latency + 8 // self._params.lanes

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        ports = range(params.ports)
        m.submodules.registers = registers = Registers(params)
        connect(m, flipped(self.bus), registers.bus)

        ingresses = [Ingress(params, port) for port in ports]
        reducers = [Reducer(params) for _ in ports]
        egresses = [Egress(params) for _ in ports]
        blocks = zip(ingresses, reducers, egresses, strict=True)
        for port, (ingress, reducer, egress) in enumerate(blocks):
            m.submodules[f"ingress_{port}"] = ingress
            m.submodules[f"reducer_{port}"] = reducer
            m.submodules[f"egress_{port}"] = egress
            connect(m, flipped(self.rx[port]), ingress.rx)
            connect(m, flipped(self.tx[port]), egress.tx)
            connect(m, ingress.arm, reducer.arm)
            groups = Array(registers.groups)
            refusals = params.ports  # a reducer's source, and an egress' source of responses
            m.d.comb += [
                ingress.allowed.eq(registers.allowed[port]),
                ingress.group_gpus.eq(Mux(ingress.group < params.groups, groups[ingress.group], 0)),
                registers.faults[port].eq(ingress.fault),
                registers.armed[port].eq(reducer.armed),
                reducer.gpu.eq(port // params.links_per_gpu),
                reducer.time.eq(registers.time),
                reducer.timeout.eq(registers.timeout),
                reducer.valid[refusals].eq(ingress.answer.valid),
                reducer.flit[refusals].eq(ingress.answer.payload),
                reducer.last[refusals].eq(1),
                ingress.answer.ready.eq(reducer.take[refusals]),
                egress.nonempty[-1].eq(reducer.nonempty),
                egress.r_entry[refusals].flit.eq(reducer.o_flit),
                egress.r_entry[refusals].last.eq(reducer.o_last),
                reducer.pop.eq(egress.pop[-1]),
            ]
            events = {
                "rx_flits": ingress.got_flit,
                "rx_requests": ingress.got_request,
                "rx_responses": ingress.got_response,
                "tx_flits": egress.sent_flit,
                "tx_requests": egress.sent_request,
                "tx_responses": egress.sent_response,
                "refused": ingress.refused,
                "dropped": ingress.dropped,
                "late": reducer.late,
                "duplicates": reducer.duplicate,
                "wrong": reducer.wrong,
                "timeouts": reducer.timed_out,
                "replaced": reducer.replaced,
            }
            for index, counter in enumerate(COUNTERS):
                m.d.sync += registers.events[port][index].eq(events[counter.name])

        for i, ingress in enumerate(ingresses):
            for o, (reducer, egress) in enumerate(zip(reducers, egresses, strict=True)):
                m.submodules[f"requests_{i}_{o}"] = requests = RequestQueue(params)
                m.submodules[f"responses_{i}_{o}"] = responses = ResponseQueue(params)
                m.d.comb += [
                    requests.w_en.eq(ingress.w_en[o]),
                    requests.w_entry.eq(ingress.w_entry[o]),
                    requests.limit.eq(ingress.limit),
                    ingress.room[o].eq(requests.room),
                    egress.nonempty[i].eq(requests.nonempty),
                    requests.pop.eq(egress.pop[i]),
                    egress.r_entry[i].eq(requests.r_entry),
                    responses.w_en.eq(ingress.response_en[o]),
                    responses.w_flit.eq(ingress.response_flit),
                    responses.w_last.eq(ingress.response_last),
                    ingress.response_full[o].eq(responses.full),
                    reducer.valid[i].eq(responses.valid & ~ingress.response_hold[o]),
                    reducer.flit[i].eq(responses.flit),
                    reducer.last[i].eq(responses.last),
                    responses.take.eq(reducer.take[i]),
                    ingress.response_take[o].eq(reducer.take[i]),
                ]
                if params.dynamic:
                    m.d.comb += requests.back.eq(egress.back[i])

        for unit in range(params.route_units):
            first = unit * params.ports_per_route
            sharing = ingresses[first : first + params.ports_per_route]
            m.submodules[f"route_{unit}"] = route = RouteUnit(params, len(sharing))
            for multiple, value in zip(route.multiples, registers.multiples, strict=True):
                m.d.comb += multiple.eq(value)
            for index, ingress in enumerate(sharing):
                m.d.comb += [
                    route.request[index].eq(ingress.route.request),
                    route.flit[index].eq(ingress.offered_flit),
                    route.count[index].eq(ingress.route.count),
                    ingress.route.grant.eq(route.grant[index]),
                    ingress.route.done.eq(route.done[index]),
                    ingress.route.gpus.eq(route.gpus),
                    ingress.route.bad.eq(route.bad),
                    ingress.route.lanes.eq(route.lanes),
                ]
        return m
