# SPDX-License-Identifier: Apache-2.0
"""The switch: ingresses, a matrix of pair queues, egresses, route units and registers."""

from amaranth.hdl import Array, Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..params import SwitchParams
from ..register_map import COUNTERS
from .egress import Egress
from .ingress import Ingress
from .link import LinkSignature
from .pair_queue import PairQueue
from .registers import BusSignature, Registers
from .route_unit import RouteUnit

__all__ = ["Switch"]


class Switch(wiring.Component):
    """Delivers packets by unicast, by static groups and by target lists.

    Every (input, output) pair has a queue of its own, so the outputs choose and send independently:
    a copy of a multicast leaves as soon as its output takes it, and a packet for an output that is
    free never waits in a pair queue for one that is not.

    Parameters
    ----------
    params : SwitchParams
        Everything that is fixed at generation.

    Members
    -------
    rx : In, one per port
        Links into the switch (:class:`LinkSignature`).
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
    Packets of one input, output and channel stay in order. Refusals of a port's requests are in
    order among themselves.

    Reset
    -----
    Synchronous. All buffers are empty, no group is configured, all ports are in partition 0,
    ``experts_per_gpu`` is 1; each side of a link starts without credits and gets the other's.

    Errors
    ------
    A request that breaks a rule is consumed whole and answered with a status (``Status``); a
    response that does is dropped. Both are counted. See also :class:`Receiver` on broken links.

    Counters
    --------
    ``COUNTERS`` in ``rtl/register_map.py``, per port.

    Area
    ----
    Buffers: ``ports**2 * (request_depth + response_depth)`` entries and ``2 * ports *
    ingress_depth`` flits of RAM. Logic: a ``ports``-way multiplexer of a flit at every output.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        super().__init__(
            {
                "rx": In(LinkSignature()).array(params.ports),
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
        egresses = [Egress(params) for _ in ports]
        for port, (ingress, egress) in enumerate(zip(ingresses, egresses, strict=True)):
            m.submodules[f"ingress_{port}"] = ingress
            m.submodules[f"egress_{port}"] = egress
            connect(m, flipped(self.rx[port]), ingress.rx)
            connect(m, flipped(self.tx[port]), egress.tx)
            groups = Array(registers.groups)
            m.d.comb += [
                ingress.allowed.eq(registers.allowed[port]),
                ingress.group_gpus.eq(Mux(ingress.group < params.groups, groups[ingress.group], 0)),
                registers.faults[port].eq(ingress.fault),
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
            }
            for index, counter in enumerate(COUNTERS):
                m.d.sync += registers.events[port][index].eq(events[counter.name])

        for i, ingress in enumerate(ingresses):
            for o, egress in enumerate(egresses):
                m.submodules[f"pair_{i}_{o}"] = pair = PairQueue(params)
                m.d.comb += [
                    pair.w_en.eq(ingress.w_en[o]),
                    pair.w_vc.eq(ingress.w_vc),
                    pair.w_entry.eq(ingress.w_entry[o]),
                    pair.limit_request.eq(ingress.limit_request),
                    pair.limit_response.eq(ingress.limit_response),
                    ingress.room_request[o].eq(pair.room_request),
                    ingress.room_response[o].eq(pair.room_response),
                    egress.nonempty[i].eq(pair.nonempty),
                    pair.pop.eq(egress.pop[i]),
                    pair.pop_vc.eq(egress.pop_vc[i]),
                    egress.r_entry[i].eq(pair.r_entry),
                ]
                if i == o:
                    m.d.comb += ingress.answer_room.eq(~pair.full_response)
                if params.dynamic:
                    m.d.comb += pair.back.eq(egress.back[i])

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
