# SPDX-License-Identifier: Apache-2.0
"""Admission: chooses which response of a column is taken next, and looks its entry up."""

from itertools import pairwise

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import any_of, one_hot_mux
from ..common.round_robin import RoundRobin
from ..flits import FLIT_BITS, HEADER
from ..params import SwitchParams
from .arming import arm_layout
from .layouts import Op, operation_layout

__all__ = ["Admission"]

_SCAN_PERIOD = 16


class Admission(wiring.Component):
    """Starts operations on the entry table: one a cycle, never two on one entry.

    Headers at the heads of the response queues are looked up in round robin, while the packets
    that were looked up before are taken. A part that has to let another GPU go first stays where
    it is and is looked up again when a packet of its entry was taken. One whose entry is in use
    is looked up again later. One that lacks room for its result is looked up again and again, and
    no other source before it, so that the turns stay fair when the link is what is scarce.

    Orders to arm an entry go first. In every sixteenth cycle one entry's age is looked at.

    Parameters
    ----------
    params : SwitchParams
        The switch.
    slots : int
        Operations and packets that may be under way.

    Members
    -------
    valid, flit : In, one per source
        Heads of the response queues; the last source is for refusals.
    packet_ends : In(ports + 1)
        One-hot: the last flit of the source's packet is taken.
    arm : In
        Orders to arm entries (stream of :func:`arm_layout`).
    scans : In(1)
        Ages are to be looked at.
    enable : In(1)
        The table is ready.
    start, operation, source : Out
        An operation for the table, and the packet that it is for (one-hot).
    guarded : In(1)
        ``operation.tag`` is in use by a packet that is yet to be taken, or is being taken.
    ends, accepted, waits, commands : In(1)
        From the table, three cycles after ``start``.
    end_source : Out(ports + 1)
        What ``source`` was for the operation that ends.
    may_reserve : Out(1)
        No other source waits for room before it.
    slot_free : In(1)
        A packet is through.
    release, release_tag : In
        A packet of this entry was taken: those that wait for it may be looked up again.

    Timing
    ------
    A header in sight in cycle *t* is started in *t* + 1 at the earliest.

    Ordering
    --------
    Within a source, packets are started in order, each when the one before was taken.

    Reset
    -----
    Nothing is under way.
    """

    def __init__(self, params: SwitchParams, *, slots: int = 6) -> None:
        self._params = params
        self._slots = slots
        sources = params.ports + 1
        super().__init__(
            {
                "valid": In(sources),
                "flit": In(FLIT_BITS).array(sources),
                "packet_ends": In(sources),
                "arm": In(stream.Signature(arm_layout(params))),
                "scans": In(1),
                "enable": In(1),
                "start": Out(1),
                "operation": Out(operation_layout(params)),
                "source": Out(sources),
                "guarded": In(1),
                "ends": In(1),
                "accepted": In(1),
                "waits": In(1),
                "commands": In(1),
                "end_source": Out(sources),
                "may_reserve": Out(1),
                "slot_free": In(1),
                "release": In(1),
                "release_tag": In(HEADER["tag"].width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        sources = len(self.valid)
        m.submodules.arbiter = arbiter = RoundRobin(sources)
        headers = [data.View(HEADER, flit) for flit in self.flit]

        # Sources whose head is under way; whose head waits for another GPU's; the one that lacks
        # room.
        busy = Signal(sources)
        for_turn = Signal(sources)
        for_room = Signal(sources)
        arming = Signal()  # the order to arm is under way
        free = Signal(range(self._slots + 1), init=self._slots)
        timer = Signal(range(_SCAN_PERIOD))
        due = Signal()  # an entry's age is to be looked at
        m.d.sync += timer.eq(timer + 1)

        # First cycle: choose.
        may_issue = self.enable & (free != 0)
        arms = self.arm.valid & ~arming
        scans = self.scans & due & ~arms
        m.d.comb += [
            arbiter.request.eq(
                self.valid & ~busy & ~for_turn & (for_room | (for_room == 0).replicate(sources))
            ),
            arbiter.advance.eq(may_issue & ~arms & ~scans),
        ]
        issues = may_issue & (arms | scans | arbiter.request.any())
        granted = arbiter.grant & arbiter.advance.replicate(sources)

        chosen = Signal(operation_layout(params))
        scan_tag = Signal(HEADER["tag"].width)
        picked = data.View(
            HEADER, one_hot_mux(arbiter.grant, [header.as_value() for header in headers])
        )
        order = self.arm.payload
        # Opcodes of parts have equal bits 1:0; bit 1 tells which responses have data.
        passes = picked.opcode[0] ^ picked.opcode[1]
        gpus = Cat(
            arbiter.grant[gpu * params.links_per_gpu : (gpu + 1) * params.links_per_gpu].any()
            for gpu in range(params.gpus)
        )
        for name in ("gen", "aux", "length", "dtype"):
            m.d.comb += chosen[name].eq(Mux(arms, order[name], picked[name]))
        m.d.comb += [
            chosen.op.eq(Mux(arms, Op.ARM, Mux(scans, Op.SCAN, Mux(passes, Op.PASS, Op.PART)))),
            chosen.tag.eq(Mux(arms, order.tag, Mux(scans, scan_tag, picked.tag))),
            chosen.count.eq(Mux(arms, order.total, picked.count)),
            chosen.more.eq(picked.more),
            chosen.data.eq(Mux(arms, order.load, picked.opcode[1])),
            chosen.gpus.eq(Mux(arms, order.expected, gpus)),
        ]
        started = Signal()  # an operation is in the second cycle
        m.d.sync += started.eq(issues)
        with m.If(timer == 0):
            m.d.sync += due.eq(1)
        with m.Elif(issues & scans):
            m.d.sync += due.eq(0)
        with m.If(issues):
            m.d.sync += [self.operation.eq(chosen), self.source.eq(granted)]
            with m.If(scans):
                m.d.sync += scan_tag.eq(Mux(scan_tag == params.entries - 1, 0, scan_tag + 1))

        # Second cycle: unless its entry is in use, it starts. The entry is, until it was written.
        tags = [Signal(HEADER["tag"].width + 1, name=f"tag{n}") for n in range(4)]
        uses_entry = self.operation.op != Op.PASS
        collides = any_of([self.guarded, *(tag == Cat(self.operation.tag, 1) for tag in tags)])
        m.d.comb += self.start.eq(started & ~(uses_entry & collides))
        collided = started & ~self.start
        whose = [Signal(sources + 1, name=f"whose{n}") for n in range(3)]
        is_arm = self.operation.op == Op.ARM
        m.d.sync += tags[0].eq(Cat(self.operation.tag, self.start & uses_entry))
        m.d.sync += [later.eq(earlier) for earlier, later in pairwise(tags)]
        m.d.sync += whose[0].eq(Cat(self.source, is_arm))
        m.d.sync += [later.eq(earlier) for earlier, later in pairwise(whose)]

        # Its end, three cycles later. What was not accepted is started again.
        was_arm = whose[-1][-1]
        m.d.comb += self.end_source.eq(whose[-1])
        refused = self.ends & ~self.accepted
        again = Mux(collided, self.source, 0) | Mux(refused, self.end_source, 0)
        m.d.sync += busy.eq((busy | granted) & ~again & ~self.packet_ends)
        # Orders to arm and looks at ages, which have no source, do not wait behind it.
        turn = (for_room == 0) | (for_room & self.end_source).any()
        sourced = self.end_source != 0
        m.d.comb += self.may_reserve.eq(turn | ~sourced)
        lacks_room = refused & ~self.waits
        with m.If(self.ends & turn & sourced):
            m.d.sync += for_room.eq(Mux(lacks_room, self.end_source, 0))
        woken = Cat(self.release & (header.tag == self.release_tag) for header in headers)
        m.d.sync += for_turn.eq((for_turn & ~woken) | Mux(refused & self.waits, self.end_source, 0))
        m.d.comb += self.arm.ready.eq(self.ends & was_arm & self.accepted)
        with m.If(issues & arms):
            m.d.sync += arming.eq(1)
        with m.Elif((collided & is_arm) | (self.ends & was_arm)):
            m.d.sync += arming.eq(0)

        ended = collided + (self.ends & ~self.commands) + self.slot_free
        m.d.sync += free.eq(free - issues + ended)
        return m
