# SPDX-License-Identifier: Apache-2.0
"""Finds the object of an address, and the block in it by an exact division."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import any_of, one_hot_mux
from ..common.multiplier import Multiplier
from ..flits import Stage
from ..gpu_params import GpuParams
from .ports import Lookup, Space
from .translation_layouts import (
    INDEX_BITS,
    OBJECT_CONFIG,
    OFFSET_BITS,
    PLACE_BITS,
    REST_BITS,
    found_layout,
)

__all__ = ["PLACE_IN_OBJECT", "ObjectTable"]

_LOW = PLACE_BITS // 2
"""Wide comparisons and differences are made in two halves."""

PLACE_IN_OBJECT = data.StructLayout({"index": INDEX_BITS, "rest": REST_BITS, "fits": 1})
"""Number of the block, the flit in it, and whether the access ends in it."""


class ObjectTable(wiring.Component):
    """A pipeline that takes a lookup a cycle and never stops.

    Parameters
    ----------
    params : GpuParams
        The hub.

    Members
    -------
    valid, lookup : In
        A lookup.
    objects : In, one per object
        Registers of the objects.
    memory : In(44)
        Flits of memory that local lookups may use.
    found_valid, found : Out
        What is known before the division.
    place_valid, place : Out
        The block, of dynamic lookups; otherwise without meaning.

    Timing
    ------
    Both answers come after a fixed time, so in order; ``found`` is before ``place``.

    Notes
    -----
    The division is ``n // block == n * M >> 36 + shift`` with M = ceil(2**(36 + shift) / block) and
    shift = ceil(log2(block)). M * block = 2**(36 + shift) + e with 0 <= e < block <= 2**shift, so
    the product exceeds n / block by n * e / (block * 2**(36 + shift)), which is below 1 / block for
    every n < 2**36; the fraction of n / block is at most 1 - 1 / block. The quotient is exact.
    """

    LATENCY = 18
    """Cycles from a lookup to ``place``."""

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        super().__init__(
            {
                "valid": In(1),
                "lookup": In(Lookup),
                "objects": In(OBJECT_CONFIG).array(params.objects),
                "memory": In(PLACE_BITS),
                "found_valid": Out(1),
                "found": Out(found_layout(params)),
                "place_valid": Out(1),
                "place": Out(PLACE_IN_OBJECT),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        match, behind = self._match(m)
        self._divide(m, *self._offset(m, match, behind))
        return m

    def _delayed(self, m: Module, value: Value, cycles: int, name: str) -> Value:
        """Register `value` so many times."""
        for cycle in range(cycles):
            register = Signal(len(value), name=f"{name}_{cycle}")
            m.d.sync += register.eq(value)
            value = register
        return value

    def _match(self, m: Module) -> tuple[Value, dict[str, Value]]:
        """Compare the address with the bounds of all objects: one bit each, the last is memory."""
        valid = Signal(4)
        m.d.sync += valid.eq(Cat(self.valid, valid[:-1]))
        asked = Signal(Lookup)
        m.d.sync += asked.eq(self.lookup)
        start = asked.address[4:]
        end = Signal(PLACE_BITS + 1)
        m.d.sync += end.eq(start + asked.length)
        start2 = self._delayed(m, start, 1, "start")
        space3 = self._delayed(m, Cat(asked.space), 2, "space")

        bits = []
        bounds: list[tuple[Value, Value, Value]] = [
            (
                item.base,
                item.limit,
                ((space3 == Space.STATIC.value) & item.static)
                | ((space3 == Space.DYNAMIC.value) & item.dynamic),
            )
            for item in self.objects
        ]
        bounds.append((Const(0, PLACE_BITS), self.memory, space3 == Space.LOCAL.value))
        for number, (base, limit, fits) in enumerate(bounds):
            limit = Cat(limit, Const(0, 1))[: PLACE_BITS + 1]
            low_from = Signal(name=f"low_from{number}")
            high_from = Signal(2, name=f"high_from{number}")
            low_to = Signal(name=f"low_to{number}")
            high_to = Signal(2, name=f"high_to{number}")
            m.d.sync += [
                low_from.eq(start2[:_LOW] >= base[:_LOW]),
                high_from.eq(Cat(start2[_LOW:] > base[_LOW:], start2[_LOW:] == base[_LOW:])),
                low_to.eq(end[:_LOW] <= limit[:_LOW]),
                high_to.eq(Cat(end[_LOW:] < limit[_LOW:], end[_LOW:] == limit[_LOW:])),
            ]
            from_base = high_from[0] | (high_from[1] & low_from)
            to_limit = high_to[0] | (high_to[1] & low_to)
            bits.append(from_base & to_limit & fits)
        match = Signal(len(bits))
        m.d.sync += match.eq(Cat(bits))
        behind = {
            "valid": valid[3],
            "start": self._delayed(m, start2, 2, "start_at"),
            "space": self._delayed(m, space3, 1, "space_at"),
            "stage": self._delayed(m, Cat(asked.stage), 3, "stage"),
            "allocate": self._delayed(m, asked.allocate, 3, "allocate"),
            "target": self._delayed(m, asked.target, 3, "target"),
            "length": self._delayed(m, asked.length, 3, "length"),
        }
        return match, behind

    def _offset(
        self, m: Module, match: Value, behind: dict[str, Value]
    ) -> tuple[Value, Value, Value, Value, Value]:
        """Choose the object, and subtract its base and first expert."""
        params = self._params
        objects = match[: params.objects]

        def pick(name: str, bits: int) -> Value:
            picked = Signal(bits, name=f"picked_{name}")
            m.d.sync += picked.eq(one_hot_mux(objects, [item[name] for item in self.objects]))
            return picked

        found = found_layout(params)
        base = pick("base", PLACE_BITS)
        first = pick("first_expert", 16)
        experts = pick("experts", 10)
        stages = pick("stages", 2)
        block = pick("block", OBJECT_CONFIG["block"].width)
        reciprocal = pick("reciprocal", OFFSET_BITS + 1)
        shift = pick("shift", 5)
        first_row = Signal(found["row"].width)
        number = Signal(found["object"].width)
        known = Signal()
        m.d.sync += [
            number.eq(one_hot_mux(objects, [Const(n, len(number)) for n in range(params.objects)])),
            first_row.eq(
                one_hot_mux(
                    objects,
                    [Const(n * params.experts, len(first_row)) for n in range(params.objects)],
                )
            ),
            known.eq(any_of(match)),
        ]
        start = self._delayed(m, behind["start"], 1, "start_of")
        space = self._delayed(m, behind["space"], 1, "space_of")
        stage = self._delayed(m, behind["stage"], 1, "stage_of")
        allocate = self._delayed(m, behind["allocate"], 3, "allocate_of")
        target = self._delayed(m, behind["target"], 1, "target_of")
        valid = self._delayed(m, behind["valid"], 3, "valid_of")

        # The difference in two halves; the expert's number and its test likewise.
        low = Signal(_LOW + 1)
        high = Signal(PLACE_BITS - _LOW)
        base_high = Signal(PLACE_BITS - _LOW)
        expert = Signal(17)
        experts6 = Signal(10)
        right = Signal()
        dynamic = Signal(2)
        is_static = Signal(2)
        row6 = Signal(len(first_row))
        has_base = Mux(stage == Stage.COMBINE.value, stages[1], stages[0])
        m.d.sync += [
            low.eq(start[:_LOW] - base[:_LOW]),
            high.eq(start[_LOW:]),
            base_high.eq(base[_LOW:]),
            expert.eq(target - first),
            experts6.eq(experts),
            right.eq(known & ((space != Space.DYNAMIC.value) | has_base)),
            dynamic.eq(Cat(space == Space.DYNAMIC.value, dynamic[0])),
            is_static.eq(Cat(space == Space.STATIC.value, is_static[0])),
            row6.eq(first_row),
        ]
        row = Signal(len(first_row))
        good = Signal()
        offset = Signal(PLACE_BITS)
        m.d.sync += [
            offset.eq(Cat(low[:_LOW], high - base_high - low[_LOW])),
            row.eq(row6 + expert),
            good.eq(right & (~dynamic[0] | (expert < experts6))),  # a negative one is large
        ]
        m.d.comb += [
            self.found_valid.eq(valid),
            self.found.good.eq(good),
            self.found.dynamic.eq(dynamic[1]),
            self.found.static.eq(is_static[1]),
            self.found.allocate.eq(allocate),
            self.found.stage.eq(self._delayed(m, stage, 2, "stage_to")),
            self.found.object.eq(self._delayed(m, number, 2, "object_to")),
            self.found.row.eq(row),
            self.found.offset.eq(offset),
        ]
        block7 = self._delayed(m, block, 2, "block_to")
        reciprocal7 = self._delayed(m, reciprocal, 2, "reciprocal_to")
        shift7 = self._delayed(m, shift, 2, "shift_to")
        length7 = self._delayed(m, behind["length"], 3, "length_to")
        return offset, block7, reciprocal7, shift7, length7

    def _divide(
        self,
        m: Module,
        offset: Value,
        block: Value,
        reciprocal: Value,
        shift: Value,
        length: Value,
    ) -> None:
        """Quotient by the reciprocal, then what it leaves."""
        m.submodules.quotient = by_reciprocal = Multiplier(OFFSET_BITS, OFFSET_BITS + 1)
        m.submodules.rest = by_block = Multiplier(
            REST_BITS, REST_BITS, addend_bits=[REST_BITS], out_bits=REST_BITS
        )
        first, second = by_reciprocal.latency, by_block.latency
        index = Signal(INDEX_BITS)
        shifted = self._delayed(m, shift, first, "shift_by")
        to_rest = first + 1
        block2 = self._delayed(m, block, to_rest, "block_by")
        offset2 = self._delayed(m, offset[:REST_BITS], to_rest, "offset_by")
        m.d.comb += [by_reciprocal.a.eq(offset), by_reciprocal.b.eq(reciprocal)]
        m.d.sync += index.eq(by_reciprocal.out[OFFSET_BITS:] >> shifted)
        # n - q * block is ~(~n + q * block), and its low bits are enough.
        m.d.comb += [
            by_block.a.eq(index),
            by_block.b.eq(block2),
            by_block.addend0.eq(~offset2),
        ]
        rest = Signal(REST_BITS)
        m.d.comb += rest.eq(~by_block.out)
        block3 = self._delayed(m, block2, second, "block_at")
        length3 = self._delayed(m, length, to_rest + second, "length_at")
        m.d.sync += [
            self.place.index.eq(self._delayed(m, index, second, "index")),
            self.place.rest.eq(rest),
            self.place.fits.eq(rest + length3 <= block3),
        ]
        m.d.comb += self.place_valid.eq(
            self._delayed(m, self.found_valid, to_rest + second + 1, "place_valid")
        )
