# SPDX-License-Identifier: Apache-2.0
"""Entry table: the state of a port's reduction entries, and what each response does to it."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import any_of, is_one_of, prefix_or
from ..common.check import check
from ..common.ram import Ram
from ..flits import HEADER, TO_F32, WIDE, DType, Status
from ..params import SwitchParams
from .layouts import TICK_BITS, Op, command_layout, operation_layout, report_layout

__all__ = ["EntryTable", "state_layout"]


def state_layout(params: SwitchParams) -> data.StructLayout:
    """Return the layout of an entry: the request, and what has come of its answers.

    ``fresh``: nothing was added yet. ``left``: targets that no part has covered.
    """
    return data.StructLayout(
        {
            "armed": 1,
            "fresh": 1,
            "load": 1,
            "gen": HEADER["gen"].width,
            "aux": HEADER["aux"].width,
            "dtype": HEADER["dtype"].width,
            "length": HEADER["length"].width,
            "total": params.count_bits,
            "left": params.count_bits,
            "expected": params.gpus,
            "done": params.gpus,
            "faulty": params.gpus,
            "status": HEADER["aux"].width,
            "since": TICK_BITS,
        }
    )


class EntryTable(wiring.Component):
    """Reads the entry of an operation, decides what is to be done, and writes the entry back.

    The user must not start an operation on an entry while another one is under way.

    Parameters
    ----------
    params : SwitchParams
        ``entries``, ``gpus`` and ``count_bits`` are used.

    Members
    -------
    ready : Out(1)
        The table was cleared after reset; before, no operation may be started.
    start, operation : In
        Look at the entry of ``operation`` (:func:`operation_layout`), whose tag has been on
        ``operation`` in this cycle; without ``start`` nothing happens.
    time, timeout : In(16)
        Ticks, and after how many of them an entry's time is over; 0: never.
    room : In
        Free flits in the queue of results.
    may_reserve : In(1)
        No other source waits for room before the operation that ends.
    can_report : In(1)
        The report register is free.
    ends : Out(1)
        The operation that was started three cycles before is decided; then:
    accepted : Out(1)
        It is done; otherwise it must be started again, without having had an effect,
    waits : Out(1)
        because a GPU with a lower number has to answer before (otherwise for want of room).
    command : Out
        What to do with the packet (:func:`command_layout`), without ``source``.
    commands : Out(1)
        There is something to do with a packet, or a report to be sent.
    reserve : Out
        Flits to be kept free in the queue of results.
    report : Out
        Content of the error result (:func:`report_layout`), with ``command.report``.
    armed : Out
        Entries that are armed.
    late, duplicate, wrong, timed_out, replaced : Out(1)
        Events for the counters.

    Timing
    ------
    Start in cycle *t*, decision in *t* + 3, the entry can be looked at again from *t* + 5 on.

    Reset
    -----
    One entry a cycle is cleared after reset.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        super().__init__(
            {
                "ready": Out(1),
                "start": In(1),
                "operation": In(operation_layout(params)),
                "time": In(TICK_BITS),
                "timeout": In(TICK_BITS),
                "room": In(range(params.result_depth + 1)),
                "may_reserve": In(1),
                "can_report": In(1),
                "ends": Out(1),
                "accepted": Out(1),
                "waits": Out(1),
                "command": Out(command_layout(params)),
                "commands": Out(1),
                "reserve": Out(range(params.max_response_flits + 1)),
                "report": Out(report_layout(params)),
                "armed": Out(range(params.entries + 1)),
                "late": Out(1),
                "duplicate": Out(1),
                "wrong": Out(1),
                "timed_out": Out(1),
                "replaced": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        layout = state_layout(params)
        tag_bits = (params.entries - 1).bit_length()
        m.submodules.ram = ram = Ram(width=layout.size, depth=params.entries)

        # Read; the second cycle only holds the RAM's output.
        valid = Signal(3)
        read, compare, decide = (Signal(operation_layout(params), name=n) for n in _STAGES)
        before = Signal(layout)
        m.d.sync += [
            valid.eq(Cat(self.start, valid)),
            read.eq(self.operation),
            compare.eq(read),
            before.as_value().eq(ram.r_data),
        ]
        m.d.comb += [ram.r_en.eq(self.start), ram.r_addr.eq(self.operation.tag[:tag_bits])]

        facts = Signal(_facts_layout(params))
        was = Signal(layout)
        m.d.sync += [
            decide.eq(compare),
            was.eq(before),
            facts.eq(self._compare(m, compare, before)),
        ]
        after, stores = self._decide(m, decide, was, facts, valid[2])

        # Write, or clear after reset.
        clearing = Signal(range(params.entries + 1))
        written = Signal(layout)
        w_en = Signal()
        w_tag = Signal(tag_bits)
        m.d.comb += [
            self.ready.eq(clearing[-1]),
            ram.w_en.eq(w_en | ~self.ready),
            ram.w_addr.eq(Mux(self.ready, w_tag, clearing)),
            ram.w_data.eq(written),
        ]
        with m.If(~self.ready):
            m.d.sync += clearing.eq(clearing + 1)
        m.d.sync += w_en.eq(stores)
        with m.If(stores):  # until then `written` is 0, and clears
            m.d.sync += [w_tag.eq(decide.tag), written.eq(after)]
        rises, falls = stores & ~was.armed, stores & was.armed & ~after.armed
        with m.If(rises):
            m.d.sync += self.armed.eq(self.armed + 1)
        with m.Elif(falls):
            m.d.sync += self.armed.eq(self.armed - 1)
        check(m, platform, ~self.start | self.ready, "entry table: started before it is ready")
        return m

    def _compare(self, m: Module, op: data.View, entry: data.View):
        """Third cycle: everything that needs comparators."""
        params = self._params
        facts = Signal(_facts_layout(params), name="facts_next")
        pending = Signal(params.gpus)
        below = ~prefix_or(op.gpus)
        wide = is_one_of(entry.dtype, WIDE)
        to_f32 = is_one_of(entry.dtype, TO_F32)
        is_error = op.aux != Status.OK.value
        presum = wide & (op.dtype == DType.F32) & (op.length == Cat(0, entry.length))
        same = (op.dtype == entry.dtype) & (op.length == entry.length)
        shape_fits = Mux(entry.load, is_error | (op.data & (same | presum)), ~op.data)
        covered = op.count[: params.count_bits]
        in_range = (op.count[params.count_bits :] == 0) & (covered != 0) & (covered <= entry.left)
        length = Mux(to_f32, Cat(0, entry.length), Cat(entry.length, 0))
        canonical = entry.load & entry.aux[3]
        m.d.comb += [
            pending.eq(entry.expected & ~entry.done),
            facts.live.eq(
                entry.armed
                & (entry.gen == op.gen)
                & ~any_of(op.tag[(params.entries - 1).bit_length() :])
            ),
            facts.mine.eq((pending & op.gpus).any()),
            facts.turn.eq(~(canonical & (pending & below).any())),
            facts.alone.eq(~(pending & ~op.gpus).any()),
            facts.fits.eq(shape_fits & in_range),
            facts.is_error.eq(is_error),
            facts.left.eq(entry.left - covered),
            facts.covers.eq(covered == entry.left),
            facts.presum.eq(op.dtype != entry.dtype),
            facts.wide.eq(wide),
            facts.to_f32.eq(to_f32),
            facts.length.eq(length),
            facts.worse.eq(op.aux > entry.status),
            facts.over.eq(
                entry.armed
                & (self.timeout != 0)
                & ((self.time - entry.since)[:TICK_BITS] >= self.timeout)
            ),
        ]
        passes = op.op == Op.PASS
        carried = Mux(passes, Mux(op.data, op.length, 0), Mux(entry.load, length, 1))
        m.d.comb += facts.needs.eq(carried[: len(op.length)] + 1)
        return facts

    def _decide(self, m: Module, op: data.View, entry: data.View, facts: data.View, valid):
        """Fourth cycle: what happens, and the entry afterwards."""
        after = Signal(state_layout(self._params), name="after")
        command, report = self.command, self.report
        part, passes = op.op == Op.PART, op.op == Op.PASS
        arms, scans = op.op == Op.ARM, op.op == Op.SCAN

        late = part & ~facts.live
        duplicate = part & facts.live & ~facts.mine
        waits = part & facts.live & facts.mine & ~facts.turn
        taken = part & facts.live & facts.mine & facts.turn
        good = facts.fits & ~facts.is_error
        gpu_done = ~facts.fits | ~op.more
        final = taken & gpu_done & facts.alone
        unfit = ~facts.fits | (final & ~facts.covers)  # the answers do not fit the request
        was_ok = entry.status == Status.OK
        ends_ok = was_ok & good & facts.covers

        # The greatest of the statuses so far. `_greatest` knows that BAD_RESPONSE beats the ones
        # that targets tell, but BAD_ADDRESS.
        told = Mux(facts.is_error & facts.fits & facts.worse, op.aux, entry.status)
        ends_by = Mux(scans, Status.TIMEOUT.value, Status.REPLACED.value)
        floor = Mux(part, Mux(unfit, Status.BAD_RESPONSE.value, 0), ends_by)
        status = Signal(HEADER["aux"].width)
        current = Mux(part, told, entry.status)
        m.d.comb += status.eq(Mux(floor > current, floor, current))

        reports = (final & ~ends_ok) | (arms & entry.armed) | (scans & facts.over)
        needs_room = passes | final | reports
        fits_room = (self.room >= facts.needs) & self.may_reserve
        resources = (~needs_room | fits_room) & (~reports | self.can_report)
        accepted = ~waits & resources
        goes = valid & accepted
        acts = taken | arms | (scans & facts.over)
        m.d.comb += [
            self.ends.eq(valid),
            self.accepted.eq(accepted),
            self.waits.eq(waits),
            self.commands.eq(goes & (part | passes | reports)),
            self.reserve.eq(
                Mux(goes & needs_room, Mux(reports, 2, Mux(final & ~entry.load, 1, facts.needs)), 0)
            ),
            command.passes.eq(passes),
            command.adds.eq(taken & good & was_ok & entry.load & ~(final & ~ends_ok)),
            command.first.eq(entry.fresh),
            command.final.eq(final & ends_ok),
            command.report.eq(reports),
            command.guards.eq(~passes),
            command.wide.eq(facts.wide),
            command.presum.eq(facts.presum),
            command.to_f32.eq(facts.to_f32 & entry.load),
            command.tag.eq(op.tag),
            command.dtype.eq(entry.dtype),
            command.op.eq(entry.aux[:3]),
            command.load.eq(entry.load),
            command.total.eq(entry.total),
            command.length.eq(Mux(entry.load, facts.length, 0)),
        ]
        seen = entry.done | Mux(part & gpu_done, op.gpus, 0)
        blamed = entry.faulty | Mux(part & (~facts.fits | facts.is_error), op.gpus, 0)
        m.d.comb += [
            report.tag.eq(op.tag),
            report.gen.eq(entry.gen),
            report.dtype.eq(entry.dtype),
            report.total.eq(entry.total),
            report.status.eq(status),
            report.missing.eq(entry.expected & ~seen),
            report.faulty.eq(blamed),
            self.late.eq(goes & late),
            self.duplicate.eq(goes & duplicate),
            self.wrong.eq(goes & taken & ~facts.fits),
            self.timed_out.eq(goes & scans & facts.over),
            self.replaced.eq(goes & arms & entry.armed),
        ]

        m.d.comb += after.eq(entry)
        with m.If(arms):
            m.d.comb += [
                after.armed.eq(1),
                after.fresh.eq(1),
                after.load.eq(op.data),
                after.gen.eq(op.gen),
                after.aux.eq(op.aux),
                after.dtype.eq(op.dtype),
                after.length.eq(op.length),
                after.total.eq(op.count),
                after.left.eq(op.count),
                after.expected.eq(op.gpus),
                after.done.eq(0),
                after.faulty.eq(0),
                after.status.eq(Status.OK.value),
                after.since.eq(self.time),
            ]
        with m.Else():
            m.d.comb += [
                after.armed.eq(~final & ~scans),
                after.fresh.eq(entry.fresh & ~command.adds),
                after.left.eq(Mux(facts.fits, facts.left, entry.left)),
                after.done.eq(seen),
                after.faulty.eq(blamed),
                after.status.eq(status),
            ]
        return after, goes & acts


_STAGES = ("read", "compare", "decide")


def _facts_layout(params: SwitchParams) -> data.StructLayout:
    """Return the layout of what a part is to its entry.

    ``live``: it is of the request that the entry is armed for. ``mine``: its GPU still has to
    answer; ``turn``: it may, now; ``alone``: no other has to. ``fits``: as the request wants it;
    ``covers``: all targets that were left. ``worse``: its status, than the entry's. ``over``: the
    entry's time. ``needs``: flits of the result, if this is the last part.
    """
    flags = "live mine turn alone fits is_error covers presum wide to_f32 worse over".split()
    return data.StructLayout(
        {
            **dict.fromkeys(flags, 1),
            "left": params.count_bits,
            "length": HEADER["length"].width,
            "needs": range(params.max_response_flits + 1),
        }
    )
