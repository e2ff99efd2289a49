# SPDX-License-Identifier: Apache-2.0
"""From multimem addresses to places in this GPU's memory, in order, with several misses at once."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..common.bus import BusSignature
from ..common.ram import Ram
from ..gpu_params import GpuParams, TlbForm
from ..hub_register_map import HUB_COUNTERS
from .al_clear import AlClear
from .al_tlb_cam import AlTlbCam
from .al_tlb_sets import AlTlbSets
from .al_walker import AlWalker
from .expert_table import ExpertTable
from .object_table import PLACE_IN_OBJECT, ObjectTable
from .place_stage import PlaceStage
from .ports import Lookup, TableSignature, Translation
from .registers import HubRegisters
from .ring_queue import RingQueue
from .translation_layouts import (
    INDEX_BITS,
    found_layout,
    outcome_layout,
    ring_size,
    tag_bits,
)

__all__ = ["Translator"]


class Translator(wiring.Component):
    """Translates lookups in order; hits go on behind misses, up to ``lookups`` of them.

    A lookup goes through the :class:`ObjectTable` to a ring, from there in order through the TLB to
    a decision: hit, or a miss of the :class:`AlWalker` that it waits for. The queue of decided
    lookups is read in order as soon as their misses have ended, and the :class:`PlaceStage` makes
    the address. If a lookup needs a miss and none is free, it and those behind it go through the
    TLB again.

    Parameters
    ----------
    params : GpuParams
        The hub.

    Members
    -------
    request : In
        Stream of :class:`Lookup`.
    result : Out
        Stream of :class:`Translation`, in the order of requests.
    table : Out
        AL tables in memory (:class:`TableSignature`).
    bus : In
        Register accesses (:class:`BusSignature`).
    presum : Out(1)
        The register of that name.
    request_event, refused_event : In(1)
        Count a request of the hub, and one that was refused.

    Timing
    ------
    One lookup a cycle; :attr:`latency` cycles for a hit.

    Ordering
    --------
    As if lookups were carried out one after the other.

    Reset
    -----
    For a cycle a row, no request is taken.

    Errors
    ------
    A refused lookup has the status BAD_ADDRESS and the address 0, and changes nothing.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        super().__init__(
            {
                "request": In(stream.Signature(Lookup)),
                "result": Out(stream.Signature(Translation)),
                "table": Out(TableSignature(params)),
                "bus": In(BusSignature()),
                "presum": Out(1),
                "request_event": In(1),
                "refused_event": In(1),
            }
        )

    @property
    def latency(self) -> int:
        """Cycles from the acceptance of a lookup that hits to its result, on an idle way."""
        return ObjectTable.LATENCY + 1 + (3 + 3) + 1 + 3 + PlaceStage.LATENCY

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        m.submodules.registers = registers = HubRegisters(params)
        m.submodules.objects = objects = ObjectTable(params)
        m.submodules.experts = experts = ExpertTable(params)
        m.submodules.walker = walker = AlWalker(params)
        m.submodules.clear = clear = AlClear(params)
        m.submodules.places = places = PlaceStage(params)
        tlb = self._tlb()
        m.submodules.tlb = tlb
        size = ring_size(params.lookups)
        m.submodules.decided = decided = RingQueue(width=outcome_layout(params).size, depth=size)
        connect(m, flipped(self.bus), registers.bus)
        connect(m, flipped(self.result), places.result)

        # Lookups between acceptance and the place stage.
        inside = Signal(range(params.lookups + 1))
        inside_next = Signal(range(params.lookups + 1))
        full = Signal()
        accepts = Signal()
        m.d.comb += [
            self.request.ready.eq(~full & ~clear.hold),
            accepts.eq(self.request.valid & self.request.ready),
            inside_next.eq(inside + accepts - decided.take),
            objects.valid.eq(accepts),
            objects.lookup.eq(self.request.payload),
            objects.memory.eq(registers.memory),
        ]
        m.d.sync += [inside.eq(inside_next), full.eq(inside_next == params.lookups)]
        events = self._look_up(m, objects, tlb, walker, decided)
        self._finish(m, decided, walker, experts, places, registers)

        # Tables and registers.
        for number in range(params.objects):
            m.d.comb += [
                objects.objects[number].eq(registers.objects[number]),
                places.objects[number].eq(registers.objects[number]),
                clear.objects[number].eq(registers.objects[number]),
                walker.epoch[number].eq(clear.epoch[number]),
                registers.epoch[number].eq(clear.epoch[number]),
            ]
        for name in ("base", "table", "nactive", "row", "place", "word", "count"):
            m.d.comb += getattr(experts, f"set_{name}").eq(getattr(registers, f"set_{name}"))
        events |= {
            "requests": self.request_event,
            "refused": self.refused_event,
            "misses": walker.created,
            "merged": walker.merged,
            "allocations": walker.allocated,
            "refusals": places.refused,
        }
        m.d.sync += registers.events.eq(Cat(events[counter.name] for counter in HUB_COUNTERS))
        m.d.comb += [
            self.presum.eq(registers.presum),
            registers.busy.eq(clear.busy),
            clear.clear.eq(registers.clear),
            clear.idle.eq((inside == 0) & walker.idle),
            tlb.flush.eq(clear.flush),
            tlb.insert.eq(walker.insert),
            tlb.insert_tag.eq(walker.insert_tag),
            tlb.insert_data.eq(walker.insert_data),
            # The walker has nothing to do while a clear goes on.
            experts.table_en.eq(walker.table_en | clear.table_en),
            experts.table_row.eq(Mux(clear.table_en, clear.table_row, walker.table_row)),
            walker.table_word.eq(experts.table),
            clear.table_word.eq(experts.table),
            experts.count_en.eq(walker.count_en),
            experts.count_row.eq(walker.count_row),
            walker.nactive.eq(experts.nactive),
            walker.used.eq(experts.used),
            experts.use.eq(walker.use | clear.use),
            experts.use_row.eq(Mux(clear.use, clear.use_row, walker.use_row)),
            experts.use_value.eq(
                Mux(clear.use, clear.use_value.as_value(), walker.use_value.as_value())
            ),
            experts.look.eq(registers.look),
            experts.look_row.eq(registers.look_row),
            registers.looked.eq(experts.looked),
            registers.look_used.eq(experts.look_used),
        ]
        self._table(m, walker, clear)
        return m

    def _tlb(self) -> AlTlbCam | AlTlbSets:
        """Make the TLB in the form that was asked for."""
        params = self._params
        tag = tag_bits(params)
        if params.tlb_form is TlbForm.CAM:
            return AlTlbCam(tag_bits=tag, data_bits=INDEX_BITS, entries=params.tlb_entries)
        return AlTlbSets(
            tag_bits=tag,
            data_bits=INDEX_BITS,
            entries=params.tlb_entries,
            ways=params.tlb_ways,
        )

    def _look_up(
        self,
        m: Module,
        objects: ObjectTable,
        tlb: AlTlbCam | AlTlbSets,
        walker: AlWalker,
        decided: RingQueue,
    ) -> dict[str, Value]:
        """From the ring through the TLB to the decision; gives events."""
        params = self._params
        size = ring_size(params.lookups)
        bits = (size - 1).bit_length()
        layout = found_layout(params)
        m.submodules.founds = founds = Ram(width=layout.size, depth=size)
        m.submodules.blocks = blocks = Ram(width=PLACE_IN_OBJECT.size, depth=size)
        # One bit more than an address tells full from empty.
        found_to = Signal(bits)
        block_to = Signal(bits + 1)
        next_one = Signal(bits + 1)
        waits = Signal()
        issues = Signal()
        m.d.comb += [
            founds.w_en.eq(objects.found_valid),
            founds.w_addr.eq(found_to),
            founds.w_data.eq(objects.found),
            blocks.w_en.eq(objects.place_valid),
            blocks.w_addr.eq(block_to[:bits]),
            blocks.w_data.eq(objects.place),
            issues.eq((next_one != block_to) & ~waits),
            founds.r_en.eq(issues),
            founds.r_addr.eq(next_one[:bits]),
            blocks.r_en.eq(issues),
            blocks.r_addr.eq(next_one[:bits]),
        ]
        m.d.sync += [
            found_to.eq(found_to + objects.found_valid),
            block_to.eq(block_to + objects.place_valid),
        ]

        # Stage 1 has the words; the TLB takes the tag from stage 2 and answers in stage 5; stage 6
        # decides.
        first, last = 1, 3 + tlb.LATENCY
        again = Signal()
        valid = {stage: Signal(name=f"valid{stage}") for stage in range(first, last + 1)}
        slot = {stage: Signal(bits + 1, name=f"slot{stage}") for stage in range(first, last + 1)}
        found = {stage: Signal(layout, name=f"found{stage}") for stage in range(2, last + 1)}
        block = {
            stage: Signal(PLACE_IN_OBJECT, name=f"block{stage}") for stage in range(2, last + 1)
        }
        m.d.sync += [
            valid[first].eq(issues & ~again),
            slot[first].eq(next_one),
            next_one.eq(Mux(again, slot[last], next_one + issues)),
            waits.eq((again | waits) & walker.full),
        ]
        for stage in range(2, last + 1):
            m.d.sync += [
                valid[stage].eq(valid[stage - 1] & ~again),
                slot[stage].eq(slot[stage - 1]),
                found[stage].eq(found[stage - 1] if stage > 2 else founds.r_data),
                block[stage].eq(block[stage - 1] if stage > 2 else blocks.r_data),
            ]

        def tag(stage: int) -> Value:
            return Cat(block[stage].index, found[stage].row)

        hit = Signal()
        index = Signal(INDEX_BITS)
        good = Signal()
        asks = Signal()
        before = last - 1
        fits = block[before].fits | ~found[before].dynamic
        m.d.comb += [
            tlb.tag.eq(tag(2)),
            walker.look.eq(valid[before] & found[before].dynamic),
            walker.look_tag.eq(tag(before)),
        ]
        m.d.sync += [
            hit.eq(tlb.hit),
            index.eq(tlb.data),
            good.eq(found[before].good & fits),
            asks.eq(valid[before] & ~again & found[before].good & fits & found[before].dynamic),
        ]
        now = found[last]
        m.d.comb += [
            walker.want.eq(asks & ~hit),
            walker.allocate.eq(now.allocate),
            walker.object.eq(now.object),
            again.eq(walker.blocked),
        ]
        outcome = Signal(outcome_layout(params))
        writes = Signal()
        m.d.sync += [
            writes.eq(valid[last] & ~again),
            outcome.good.eq(good),
            outcome.dynamic.eq(now.dynamic),
            outcome.static.eq(now.static),
            outcome.missed.eq(asks & ~hit),
            outcome.stage.eq(now.stage),
            outcome.object.eq(now.object),
            outcome.row.eq(now.row),
            outcome.index.eq(Mux(hit, index, walker.id)),
            outcome.rest.eq(Mux(now.dynamic, block[last].rest, now.offset)),
        ]
        m.d.comb += [decided.w_en.eq(writes), decided.w_data.eq(outcome)]
        return {"lookups": asks & ~again, "hits": asks & hit}

    def _finish(
        self,
        m: Module,
        decided: RingQueue,
        walker: AlWalker,
        experts: ExpertTable,
        places: PlaceStage,
        registers: HubRegisters,
    ) -> None:
        """Let lookups go on to the place stage when their misses have ended."""
        head: data.View = data.View(outcome_layout(self._params), decided.head)
        number = head.index[: len(walker.take_id)]
        goes_on = Signal()
        m.d.comb += [
            goes_on.eq(
                decided.valid & places.room & (~head.missed | Array(walker.resolved)[number])
            ),
            decided.take.eq(goes_on),
            walker.take.eq(goes_on & head.missed),
            walker.take_id.eq(number),
            experts.base_en.eq(goes_on),
            experts.base_row.eq(head.row),
            experts.base_stage.eq(head.stage),
            places.valid.eq(goes_on),
            places.outcome.eq(head),
            places.base.eq(experts.base),
            places.miss.eq(walker.result),
        ]

    def _table(self, m: Module, walker: AlWalker, clear: AlClear) -> None:
        """Share the port to the AL tables; the walker does not write while a clear does."""
        table = self.table
        connect(m, flipped(table.read), walker.table.read)
        m.d.comb += [
            walker.table.reply.eq(table.reply),
            walker.table.reply_id.eq(table.reply_id),
            walker.table.reply_data.eq(table.reply_data),
            walker.table.written.eq(table.written),
            clear.written.eq(table.written),
            table.write.valid.eq(walker.table.write.valid | clear.table_write),
            table.write.payload.address.eq(
                Mux(clear.table_write, clear.table_address, walker.table.write.payload.address)
            ),
            table.write.payload.data.eq(
                Mux(clear.table_write, Const(0, 32), walker.table.write.payload.data)
            ),
            walker.table.write.ready.eq(table.write.ready),
            clear.table_ready.eq(table.write.ready),
        ]
