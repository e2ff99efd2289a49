# SPDX-License-Identifier: Apache-2.0
"""List reader: sends the target list of the request at a head through the route unit."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..flits import FLIT_BITS, HEADER, LANES, Status
from ..params import SwitchParams
from .destination import ports_of
from .receiver import extension_flits
from .route_unit import RouteSignature, lane_layout

__all__ = ["ListReader"]


class ListReader(wiring.Component):
    """Finds the ports of a list before its packet leaves, and the lanes of its flits while it does.

    A flit leaves the head together with what is known of the list flit behind it, so a list flit is
    mapped while it waits behind the head. For a list of one extension flit that gives the ports of
    the packet as well. A longer list is read through once, then the packet is started again.

    Parameters
    ----------
    params : SwitchParams
        The switch.

    Members
    -------
    header : In(128)
        The flit at the head.
    at_head, has_list, good, known : In(1)
        It is a header; its opcode has a list; nothing else is wrong with it; its ports are known
        from a pass before.
    allowed : In(ports)
        Ports in this port's partition.
    r_valid : In(1)
        The flit behind the head is there. It is the one that is offered to the unit.
    take, restart : Out(1)
        Take that flit without bringing it to the head; start the packet again, ``ports`` and
        ``status`` tell about the whole list.
    ready : Out(1)
        The header may leave: its destinations are in ``ports`` or known, and the lanes of its first
        list flit are there.
    ports, status : Out
        Where the targets live, and OK, BAD_TARGET or PARTITION.
    leave : In(1)
        The flit at the head leaves.
    waits : In(1)
        A header that left the head still needs ``lanes``, and its packet may be started again.
    flush : In(1)
        The packet before is started again: what is known here is about nothing.
    passing : In(1)
        The flit at the head is behind the header of a packet that is not refused.
    stall : Out(1)
        It must wait for the lanes of the list flit behind it.
    list_next : Out(1)
        The flit behind the head is a list flit.
    lanes : Out
        Registered: the lanes of the list flit that was behind the head when the last flit left.
    route : Out
        This port's side of a route unit (:class:`RouteSignature`).

    Timing
    ------
    The unit is asked before it is known that the header is good and that the flit is there, to keep
    the path to the unit short; an answer for nothing is ignored. A list flit takes
    ``1 + 8 / lanes`` cycles.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        super().__init__(
            {
                "header": In(FLIT_BITS),
                "at_head": In(1),
                "has_list": In(1),
                "good": In(1),
                "known": In(1),
                "allowed": In(params.ports),
                "r_valid": In(1),
                "take": Out(1),
                "restart": Out(1),
                "ready": Out(1),
                "ports": Out(params.ports),
                "status": Out(Status),
                "leave": In(1),
                "waits": In(1),
                "flush": In(1),
                "passing": In(1),
                "stall": Out(1),
                "list_next": Out(1),
                "lanes": Out(data.ArrayLayout(lane_layout(params), LANES)),
                "route": Out(RouteSignature(params)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        header = data.View(HEADER, self.header)
        at_list = self.at_head & self.has_list  # a header with a list is at the head
        short = header.count <= LANES
        bits = params.max_extensions.bit_length()
        list_flits = extension_flits(header)[:bits]

        scanning = Signal()  # a long list is read through, its first flit is done
        looked = Signal()  # it was read through; the packet was started again since
        left = Signal(bits)  # list flits behind the head, while scanning or passing
        targets = Signal(range(params.max_targets + 1))  # targets in them
        asked = Signal()  # the unit works on a flit of ours
        asked_well = Signal()  # and it is the one behind the head
        have = Signal()  # `lanes` is about the flit behind the head
        found = Signal(params.ports)
        bad = Signal()

        # The list flit behind the head goes to the unit.
        passing_list = self.passing & (left != 0)
        targets_now = Mux(self.at_head & ~scanning, header.count[: len(targets)], targets)
        m.d.comb += [
            self.route.request.eq((at_list | passing_list) & ~self.waits & ~asked & ~have),
            self.route.count.eq(Mux(targets_now >= LANES, LANES, targets_now[:4])),
            self.list_next.eq(Mux(self.at_head, self.has_list, left != 0)),
        ]
        answered = self.route.done & asked_well
        with m.If(self.route.grant):
            m.d.sync += [asked.eq(1), asked_well.eq(self.r_valid)]
        with m.Elif(self.route.done):
            m.d.sync += [asked.eq(0), asked_well.eq(0)]
        with m.If(answered):
            m.d.sync += self.lanes.eq(self.route.lanes)

        # What comes back. After a look at a long list it stands in `found` and `bad`.
        known = self.known | looked
        is_bad = bad | (self.route.bad & ~looked)
        answer = ports_of(params, self.route.gpus, header)
        m.d.comb += self.ports.eq(found | Mux(looked, 0, answer))
        with m.If(is_bad):
            m.d.comb += self.status.eq(Status.BAD_TARGET)
        with m.Elif((self.ports & ~self.allowed).any()):
            m.d.comb += self.status.eq(Status.PARTITION)
        # A flit that came past the RAM is not there again for a cycle; then it is asked for anew.
        scan = answered & at_list & self.good & ~known & ~short & self.r_valid
        scan_end = scan & scanning & (left == 1)
        m.d.comb += [
            self.ready.eq(Mux(known, have | answered, answered & short)),
            self.stall.eq(passing_list & ~have & ~answered),
            self.take.eq(scan),
            self.restart.eq(scan_end),
        ]
        with m.If(scan):
            m.d.sync += [
                scanning.eq(~scan_end),
                looked.eq(scan_end),
                found.eq(self.ports),
                bad.eq(is_bad),
                left.eq(Mux(scanning, left, list_flits) - 1),
                targets.eq(targets_now - LANES),
            ]

        with m.If(self.leave):
            # `asked_well`: an answer that is still to come is about a flit that is not asked for.
            m.d.sync += [have.eq(0), asked_well.eq(0), targets.eq(targets_now - LANES)]
            with m.If(self.at_head):
                m.d.sync += left.eq(Mux(self.has_list, list_flits - 1, 0))
            with m.Elif(left != 0):
                m.d.sync += left.eq(left - 1)
        with m.Elif(answered & (known | short | self.passing)):
            m.d.sync += have.eq(1)
        with m.If(self.flush):
            m.d.sync += [have.eq(0), asked_well.eq(0), left.eq(0)]
        with m.If(self.flush | (self.leave & self.at_head)):
            m.d.sync += [scanning.eq(0), looked.eq(0), found.eq(0), bad.eq(0)]
        return m
