# SPDX-License-Identifier: Apache-2.0
"""List reader: sends the target list of the request at a head through the route unit."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from ..flits import FLIT_BITS, HEADER, LANES, Status
from ..params import SwitchParams
from .destination import ports_of
from .receiver import extension_flits
from .route_unit import lane_layout

__all__ = ["ListReader"]


class State(enum.Enum, shape=2):
    """What the list at the head is in for."""

    IDLE = 0
    ASKED = 1
    """A list of one flit is in the unit; it stays where it is."""
    LOOK = 2
    """A long list is being read through."""


class ListReader(wiring.Component):
    """Finds the ports of a list before its packet leaves, and the lanes of its flits while it does.

    A list of one extension flit is looked at while it waits behind its header, and then passes. A
    longer one is read through once, after which the packet is started again; in every pass its
    flits go through the unit once more, since only then their lanes are needed.

    Parameters
    ----------
    params : SwitchParams
        The switch.

    Members
    -------
    header : In(128)
        The header at the head.
    look : In(1)
        It is a request with a list whose ports are not known yet.
    allowed : In(ports)
        Ports in this port's partition.
    r_valid : In(1)
        The flit behind the one at the head is there; it is the one that is offered to the unit.
    take, restart : Out(1)
        Take that flit without bringing it to the head; start the packet again.
    ready : Out(1)
        In this cycle ``ports`` and ``status`` tell about the list.
    learned : Out(1)
        As ``ready``, or the look at a long list has ended. ``ports`` and ``status`` should be kept.
    ports, status : Out
        Where the targets live, and OK, BAD_TARGET or PARTITION.
    start : In(1)
        The header of a request with a list leaves the head: a pass begins.
    passing, leave : In(1)
        A pass is under way; a flit leaves the head.
    may_load : Out(1)
        The flit behind the head may be brought there.
    stall : Out(1)
        The flit at the head must wait for its lanes.
    list_flit, list_end : Out(1)
        The flit at the head is an extension flit; the last one.
    lanes, hit : Out
        The lanes of the extension flit that left the head a cycle ago, and the ports they belong to.
    route_* :
        This port's side of a :class:`RouteUnit`.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        lanes = data.ArrayLayout(lane_layout(params), LANES)
        super().__init__(
            {
                "header": In(FLIT_BITS),
                "look": In(1),
                "allowed": In(params.ports),
                "r_valid": In(1),
                "take": Out(1),
                "restart": Out(1),
                "ready": Out(1),
                "learned": Out(1),
                "ports": Out(params.ports),
                "status": Out(Status),
                "start": In(1),
                "passing": In(1),
                "leave": In(1),
                "may_load": Out(1),
                "stall": Out(1),
                "list_flit": Out(1),
                "list_end": Out(1),
                "lanes": Out(lanes),
                "hit": Out(params.ports),
                "route_request": Out(1),
                "route_count": Out(range(LANES + 1)),
                "route_grant": In(1),
                "route_done": In(1),
                "route_gpus": In(params.gpus),
                "route_bad": In(1),
                "route_lanes": In(lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        header = data.View(HEADER, self.header)
        state = Signal(State)
        short = header.count <= LANES
        bits = params.max_extensions.bit_length()
        list_flits = extension_flits(header)[:bits]
        unasked = Signal(bits)  # list flits that were not given to the unit yet
        unsent = Signal(bits)  # list flits that have not left the head in this pass
        targets = Signal(range(params.max_targets + 1))  # targets in the unasked flits
        asked = Signal()  # the unit works on a flit of ours

        # What is offered to the unit.
        first_look = self.look & (state == State.IDLE)
        more_look = (state == State.LOOK) & (unasked != 0)
        in_pass = self.passing & (unasked != 0) & (~asked | self.route_done)
        offered = Mux(first_look, header.count[: len(targets)], targets)
        m.d.comb += [
            self.route_request.eq(self.r_valid & (first_look | more_look | in_pass)),
            self.route_count.eq(Mux(offered >= LANES, LANES, offered[:4])),
            self.take.eq(self.route_grant & ((first_look & ~short) | more_look)),
        ]
        with m.If(self.route_grant):
            m.d.sync += [
                asked.eq(1),
                targets.eq(offered - LANES),
                unasked.eq(Mux(first_look, list_flits, unasked) - 1),
            ]
        with m.Elif(self.route_done):
            m.d.sync += asked.eq(0)

        # What comes back.
        ports = Signal(params.ports)
        found = Signal(params.ports)
        bad = Signal()
        m.d.comb += [
            ports.eq(ports_of(params, self.route_gpus, header)),
            self.ports.eq(found | ports),
        ]
        is_bad = bad | self.route_bad
        with m.If(is_bad):
            m.d.comb += self.status.eq(Status.BAD_TARGET)
        with m.Elif((self.ports & ~self.allowed).any()):
            m.d.comb += self.status.eq(Status.PARTITION)
        with m.If(self.route_done):
            m.d.sync += [self.lanes.eq(self.route_lanes), self.hit.eq(ports)]

        with m.Switch(state):
            with m.Case(State.IDLE):
                with m.If(first_look & self.route_grant):
                    m.d.sync += state.eq(Mux(short, State.ASKED, State.LOOK))
            with m.Case(State.ASKED):
                with m.If(self.route_done):
                    m.d.comb += [self.ready.eq(1), self.learned.eq(1)]
                    m.d.sync += state.eq(State.IDLE)
            with m.Case(State.LOOK):
                with m.If(self.route_done):
                    m.d.sync += [found.eq(self.ports), bad.eq(is_bad)]
                    with m.If(unasked == 0):
                        m.d.comb += [self.learned.eq(1), self.restart.eq(1)]
                        m.d.sync += [state.eq(State.IDLE), found.eq(0), bad.eq(0)]

        # While passing: count the list flits that leave, ask again for the lanes of a long list.
        with m.If(self.start):
            m.d.sync += [
                unsent.eq(list_flits),
                unasked.eq(Mux(short, 0, list_flits)),
                targets.eq(header.count),
            ]
        with m.Elif(self.leave & self.list_flit):
            m.d.sync += unsent.eq(unsent - 1)
        m.d.comb += [
            # The unit is not asked in the cycle in which a header leaves, to keep the path short.
            self.may_load.eq(Mux(self.start, short, (unasked == 0) | self.route_grant)),
            self.stall.eq(self.passing & asked & ~self.route_done),
            self.list_flit.eq(self.passing & (unsent != 0)),
            self.list_end.eq(self.passing & (unsent == 1)),
        ]
        return m
