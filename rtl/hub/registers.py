# SPDX-License-Identifier: Apache-2.0
"""Registers of the hub behind the register bus, and its event counters."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import any_of, tree
from ..common.bus import ADDRESS_BITS, BusSignature
from ..common.counter import event_counter
from ..gpu_params import GpuParams
from ..hub_register_map import HUB_COUNTERS, OBJECT_MODES, hub_address_of, hub_register_map
from .expert_table import USED
from .translation_layouts import (
    EPOCH_BITS,
    OBJECT_CONFIG,
    OFFSET_BITS,
    PLACE_BITS,
    USED_BITS,
    WORD_BITS,
    row_bits,
)

__all__ = ["HubRegisters"]

_LOW = 23
"""Sums are made in two halves."""


class HubRegisters(wiring.Component):
    """Configuration and counters, as ``rtl/hub_register_map.py`` lists them.

    Parameters
    ----------
    params : GpuParams
        The hub.

    Members
    -------
    bus : In
        Register accesses (:class:`BusSignature`).
    presum : Out(1)
        A load gets one part with the sum over the targets.
    memory : Out(44)
        Flits of memory that local accesses may use.
    objects : Out, one per object
        Their registers (``OBJECT_CONFIG``).
    clear : Out(objects)
        Clear the AL map of these objects; for one cycle.
    busy : In(1)
        A clear is not through.
    epoch : In(8), one per object
        Their epochs: the blocks in use of another one are none.
    events : In
        Bit *k*: counter *k* of ``HUB_COUNTERS`` counts one.
    set_base, set_table, set_nactive, set_row, set_place, set_word, set_count : Out
        Writes to the :class:`ExpertTable`.
    look, look_row, looked, look_used : Out, Out, In, In
        Reads the blocks in use there.

    Timing
    ------
    ``done`` three cycles after ``valid``, later only for a register of blocks in use. The upper
    half of a counter follows its lower half by a cycle. The end of an object, base plus size,
    follows its registers by two cycles.

    Errors
    ------
    An access to no register, or a write to one that is read-only, ends with ``error`` and changes
    nothing. Registers that can only be written read as 0.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        rows = row_bits(params)
        super().__init__(
            {
                "bus": In(BusSignature()),
                "presum": Out(1, init=1),
                "memory": Out(PLACE_BITS),
                "objects": Out(OBJECT_CONFIG).array(params.objects),
                "clear": Out(params.objects),
                "busy": In(1),
                "epoch": In(EPOCH_BITS).array(params.objects),
                "events": In(len(HUB_COUNTERS)),
                "set_base": Out(2),
                "set_table": Out(1),
                "set_nactive": Out(1),
                "set_row": Out(rows),
                "set_place": Out(PLACE_BITS),
                "set_word": Out(WORD_BITS),
                "set_count": Out(USED_BITS),
                "look": Out(1),
                "look_row": Out(rows),
                "looked": In(1),
                "look_used": In(USED),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        addresses = {r.name: r.address for r in hub_register_map(params)}

        # The access, registered: address and data reach all decoders in the second cycle.
        valid = Signal()
        write = Signal()
        address = Signal(ADDRESS_BITS)
        wdata = Signal(32)
        m.d.sync += [valid.eq(self.bus.valid), write.eq(self.bus.valid & self.bus.write)]
        with m.If(self.bus.valid):
            m.d.sync += [address.eq(self.bus.address), wdata.eq(self.bus.wdata)]

        # Second cycle: decode. Third: write, or choose. Then the access is done.
        reads: list[tuple[Value, Value]] = []
        writable: list[Value] = []

        def register(name: str, value: Value) -> Value:
            """Read `value` there; give the strobe of a write."""
            hit = Signal(name=f"hit_{name}")
            written = Signal(name=f"write_{name}")
            m.d.sync += [
                hit.eq(valid & (address == addresses[name])),
                written.eq(write & (address == addresses[name])),
            ]
            reads.append((hit, value))
            return written

        def read_write(name: str, value: Value) -> None:
            """Make a register of the bits of `value`."""
            written = register(name, value)
            writable.append(written)
            with m.If(written):
                m.d.sync += value.eq(wdata)

        resets = {r.name: Const(r.reset, 32) for r in hub_register_map(params)[:2]}
        for name, value in resets.items():
            register(name, value)
        read_write("presum", self.presum)
        clears = register("clear", Const(0, 1))
        writable.append(clears)
        m.d.comb += self.clear.eq(wdata[: params.objects] & clears.replicate(params.objects))
        register("busy", self.busy)
        low = Signal(32)
        high = Signal(16)
        read_write("memory_lo", low)
        read_write("memory_hi", high)
        m.d.comb += self.memory.eq(Cat(low[4:], high))
        for index, counter in enumerate(HUB_COUNTERS):
            register(counter.name, event_counter(m, counter.name, self.events[index]))
        chosen = [Mux(hit, value, 0) for hit, value in reads]
        hits = [hit for hit, _ in reads]
        for number in range(params.objects):
            hit, value, wrote = self._object(m, number, valid, write, address, wdata)
            hits.append(hit)
            chosen.append(value)
            writable.append(wrote)
        row_hit, row_write, row_look = self._expert(m, valid, write, address, wdata)
        hits.append(row_hit)
        writable.append(row_write)

        # An access to the blocks in use waits for its turn.
        ends = Signal()
        is_write = Signal()
        waits = Signal()
        m.d.sync += [
            ends.eq(valid),
            is_write.eq(write),
            self.bus.done.eq(ends & ~row_look),
            self.bus.rdata.eq(tree(chosen)),
            self.bus.error.eq(~Mux(is_write, any_of(writable), any_of(hits))),
        ]
        with m.If(ends & row_look):
            m.d.sync += waits.eq(1)
        looked = Signal()
        used = Signal(USED)
        m.d.comb += self.look.eq(waits)
        m.d.sync += [looked.eq(self.looked & waits), used.eq(self.look_used)]
        with m.If(self.looked):
            m.d.sync += waits.eq(0)
        current = self._is_current(m, used)
        with m.If(looked):
            m.d.sync += [
                self.bus.done.eq(1),
                self.bus.error.eq(0),
                self.bus.rdata.eq(Mux(current, used.count, 0)),
            ]
        return m

    def _object(
        self, m: Module, number: int, valid: Value, write: Value, address: Value, wdata: Value
    ) -> tuple[Value, Value, Value]:
        """Make the registers of an object; tell if one was hit, its value, if one was written."""
        params = self._params
        first = hub_address_of(params, f"object{number}_mode")
        config = self.objects[number]
        values = {
            name: Signal(bits, name=f"object{number}_{name}")
            for name, bits in (
                ("mode", 2),
                ("base_lo", 28),
                ("base_hi", 16),
                ("blocks", USED_BITS),
                ("block", OBJECT_CONFIG["block"].width),
                ("reciprocal_lo", 32),
                ("reciprocal_hi", OFFSET_BITS + 1 - 32),
                ("shift", OBJECT_CONFIG["shift"].width),
                ("size_lo", 28),
                ("size_hi", 9),
                ("first_expert", 16),
                ("experts", 10),
                ("memory_lo", 28),
                ("memory_hi", 16),
                ("stages", 2),
            )
        }
        # Addresses and sizes are kept without the bits below a flit.
        words = {
            name: Cat(Const(0, 4), value) if len(value) == 28 else value
            for name, value in values.items()
        }
        field = address[2:6]
        here = (address[6:] == first >> 6) & (address[:2] == 0)
        hit = Signal(name=f"hit_object{number}")
        wrote = Signal(name=f"write_object{number}")
        value = Signal(32, name=f"read_object{number}")
        m.d.sync += [
            hit.eq(valid & here & (field != 15)),
            wrote.eq(write & here & (field != 15)),
            value.eq(Array([*words.values(), Const(0, 32)])[field]),
        ]
        for place, name in enumerate(values):
            low = 32 - len(values[name]) if name.endswith("_lo") else 0
            with m.If(wrote & (address[2:6] == place)):
                m.d.sync += values[name].eq(wdata[low:])
        base = Cat(values["base_lo"], values["base_hi"])
        size = Cat(values["size_lo"], values["size_hi"])
        low_sum = Signal(_LOW + 1, name=f"object{number}_low_sum")
        limit = Signal(PLACE_BITS + 1, name=f"object{number}_limit")
        experts = Signal(10, name=f"object{number}_experts_made")
        m.d.sync += [
            low_sum.eq(base[:_LOW] + size[:_LOW]),
            limit.eq(Cat(low_sum[:_LOW], base[_LOW:] + size[_LOW:] + low_sum[_LOW])),
            experts.eq(Mux(values["experts"] > params.experts, params.experts, values["experts"])),
        ]
        m.d.comb += [
            config.static.eq(values["mode"] == OBJECT_MODES["static"]),
            config.dynamic.eq(values["mode"] == OBJECT_MODES["dynamic"]),
            config.base.eq(base),
            config.limit.eq(limit),
            config.blocks.eq(values["blocks"]),
            config.block.eq(values["block"]),
            config.reciprocal.eq(Cat(values["reciprocal_lo"], values["reciprocal_hi"])),
            config.shift.eq(values["shift"]),
            config.first_expert.eq(values["first_expert"]),
            config.experts.eq(experts),
            config.memory.eq(Cat(values["memory_lo"], values["memory_hi"])),
            config.stages.eq(values["stages"]),
        ]
        return hit, Mux(hit, value, 0), wrote

    def _expert(
        self, m: Module, valid: Value, write: Value, address: Value, wdata: Value
    ) -> tuple[Value, Value, Value]:
        """Pass writes on; tell hits, writes, and reads of the blocks in use."""
        params = self._params
        row = address[5:15]
        field = address[2:5]
        here = address[15] & (row < params.objects * params.experts) & (address[:2] == 0)
        hit = Signal(name="hit_expert")
        wrote = Signal(name="write_expert")
        look = Signal(name="look_expert")
        m.d.sync += [
            hit.eq(valid & here),
            wrote.eq(write & here & (field != 7)),
            look.eq(valid & ~write & here & (field == 7)),
        ]
        # The upper half of an address takes the lower one with it.
        lows = [Signal(32, name=f"{name}_low") for name in ("dispatch", "combine", "table")]
        for place, low in enumerate(lows):
            with m.If(wrote & (field == 2 * place)):
                m.d.sync += low.eq(wdata)
        bases = [Cat(low[4:], wdata[:16]) for low in lows[:2]]
        m.d.comb += [
            self.set_base.eq(Cat(wrote & (field == 1), wrote & (field == 3))),
            self.set_table.eq(wrote & (field == 5)),
            self.set_nactive.eq(wrote & (field == 6)),
            self.set_row.eq(row),
            self.set_place.eq(Mux(field[1], bases[1], bases[0])),
            self.set_word.eq(Cat(lows[2][2:], wdata[:16])),
            self.set_count.eq(wdata),
            self.look_row.eq(row),
        ]
        return hit, wrote, look

    def _is_current(self, m: Module, used: data.View) -> Value:
        """Tell whether blocks in use were counted in the epoch of the object of the row."""
        params = self._params
        above = Signal(max(1, params.objects - 1))
        for number in range(1, params.objects):
            m.d.sync += above[number - 1].eq(self.look_row >= number * params.experts)
        epoch = Signal(EPOCH_BITS)
        m.d.sync += epoch.eq(self.epoch[0])
        for number in range(1, params.objects):
            with m.If(above[number - 1]):
                m.d.sync += epoch.eq(self.epoch[number])
        return used.epoch == epoch
