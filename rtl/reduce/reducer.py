# SPDX-License-Identifier: Apache-2.0
"""Reducer of one port: from its column of response queues to its queue of results."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..flits import FLIT_BITS
from ..params import SwitchParams
from .accumulator import Accumulator
from .admission import Admission
from .arming import arm_layout
from .entry_table import EntryTable
from .layouts import GPU_BITS, TICK_BITS
from .result_queue import ResultQueue
from .taker import Taker

__all__ = ["Reducer"]


class Reducer(wiring.Component):
    """Adds what GPUs answer to this port's multicast requests, and passes other responses on.

    Every multicast request that wants an answer, a sum or acknowledgements, has an entry, its tag,
    which is armed before its copies can arrive anywhere. Parts count it down; the last one's data
    leave as the result while they are added. Sums are made in the order in which parts come, or in
    ascending order of GPUs; then a part waits at the head of its queue until those before it were
    taken. The lowest GPU that has not answered never waits, so sums in ascending order always make
    progress.

    Parameters
    ----------
    params : SwitchParams
        The switch.

    Members
    -------
    gpu : In(6)
        The GPU of this port.
    arm : In
        Orders to arm entries (stream of :func:`arm_layout`).
    valid, flit, last : In, one per source
        Heads of the response queues of this port's column, and last the refusals of this port's
        own requests.
    take : Out(ports + 1)
        Take the head of this source (one-hot).
    time, timeout : In(16)
        Time in ticks; time-out in ticks, 0 for none.
    nonempty, pop, o_flit, o_last :
        The read side of the queue of results (:class:`ResultQueue`).
    armed : Out
        Entries that are armed.
    late, duplicate, wrong, timed_out, replaced : Out(1)
        Events for the counters.

    Timing
    ------
    One flit a cycle in and out. A header in sight in cycle *t* is taken in *t* + 5. The last flit
    of the last part, taken in cycle *t*, is in the queue of results in *t* + 1 + ``latency`` of the
    lanes. Packets of one source follow each other after 5 cycles, of several without a gap. A part
    for the entry of a packet before it is taken ``latency`` + 1 cycles after that one's header at
    the earliest.

    Ordering
    --------
    Packets of one source stay in order.

    Errors
    ------
    Parts that do not fit are dropped and counted; the request ends with an error
    (``rtl/flits.py``, ``Status``), and so does one whose time is over or whose tag is used again.

    Reset
    -----
    No entry is armed; nothing is taken while the table is cleared, one entry a cycle. Sums need no
    reset.

    Area
    ----
    ``entries`` times 128 B of RAM, and eight lanes.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        self._accumulator = Accumulator(params)
        sources = params.ports + 1
        super().__init__(
            {
                "gpu": In(GPU_BITS),
                "arm": In(stream.Signature(arm_layout(params))),
                "valid": In(sources),
                "flit": In(FLIT_BITS).array(sources),
                "last": In(sources),
                "take": Out(sources),
                "time": In(TICK_BITS),
                "timeout": In(TICK_BITS),
                "nonempty": Out(1),
                "pop": In(1),
                "o_flit": Out(FLIT_BITS),
                "o_last": Out(1),
                "armed": Out(range(params.entries + 1)),
                "late": Out(1),
                "duplicate": Out(1),
                "wrong": Out(1),
                "timed_out": Out(1),
                "replaced": Out(1),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from taking the last part's flit to its result in the queue."""
        return 1 + self._accumulator.latency

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        m.submodules.admission = admission = Admission(params)
        m.submodules.table = table = EntryTable(params)
        m.submodules.taker = taker = Taker(params, latency=self._accumulator.latency)
        m.submodules.accumulator = accumulator = self._accumulator
        m.submodules.results = results = ResultQueue(params)
        connect(m, flipped(self.arm), admission.arm)

        for source in range(params.ports + 1):
            m.d.comb += [
                admission.flit[source].eq(self.flit[source]),
                taker.flit[source].eq(self.flit[source]),
            ]
        m.d.comb += [
            admission.valid.eq(self.valid),
            admission.packet_ends.eq(taker.packet_ends),
            admission.scans.eq(self.timeout != 0),
            admission.enable.eq(table.ready),
            admission.guarded.eq(taker.guarded),
            admission.ends.eq(table.ends),
            admission.accepted.eq(table.accepted),
            admission.waits.eq(table.waits),
            admission.commands.eq(table.commands),
            admission.slot_free.eq(taker.done),
            admission.release.eq(taker.release),
            admission.release_tag.eq(taker.release_tag),
            table.start.eq(admission.start),
            table.operation.eq(admission.operation),
            table.time.eq(self.time),
            table.timeout.eq(self.timeout),
            table.room.eq(results.room),
            table.may_reserve.eq(admission.may_reserve),
            table.can_report.eq(taker.can_report),
            taker.push.eq(table.commands),
            taker.command.eq(table.command),
            taker.command.source.eq(admission.end_source),
            taker.report.eq(table.report),
            taker.gpu.eq(self.gpu),
            taker.valid.eq(self.valid),
            taker.last.eq(self.last),
            taker.look_tag.eq(admission.operation.tag),
            self.take.eq(taker.take),
            accumulator.r_en.eq(taker.r_en),
            accumulator.r_row.eq(taker.r_row),
            accumulator.beat.eq(taker.beat),
            accumulator.flit.eq(taker.beat_flit),
            results.reserve.eq(table.reserve),
            results.w_en.eq(accumulator.w_en),
            results.w_flit.eq(accumulator.w_flit),
            results.w_last.eq(accumulator.w_last),
            results.pop.eq(self.pop),
            self.nonempty.eq(results.nonempty),
            self.o_flit.eq(results.flit),
            self.o_last.eq(results.last),
            self.armed.eq(table.armed),
        ]
        events = Cat(self.late, self.duplicate, self.wrong, self.timed_out, self.replaced)
        happened = Signal(len(events))
        m.d.sync += happened.eq(
            Cat(table.late, table.duplicate, table.wrong, table.timed_out, table.replaced)
        )
        m.d.comb += events.eq(happened)
        return m
