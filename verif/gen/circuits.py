# SPDX-License-Identifier: Apache-2.0
"""Small circuits with all that the writer has to cope with."""

from dataclasses import dataclass
from enum import Enum as PlainEnum

from amaranth.hdl import Array, Assert, Module, ResetInserter, ResetSignal, Signal
from amaranth.lib import data, enum, memory, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["PRESETS", "Grid", "GridParams", "Leaf", "Leaky", "Queue", "Resetting"]


class Colour(enum.Enum, shape=2):
    """Enumeration that a port carries."""

    RED = 0
    GREEN = 1
    BLUE = 2


class Word(data.Struct):
    """Structure that a port carries."""

    colour: Colour
    value: 8
    parts: data.ArrayLayout(3, 2)


class Corner(PlainEnum):
    """Parameter of a kind of its own."""

    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True, kw_only=True)
class GridParams:
    """Parameters of :class:`Grid`."""

    columns: int = 2
    depth: int = 4
    counter: bool = True
    label: str = "grid"
    corner: Corner = Corner.LEFT

    def __post_init__(self) -> None:
        """Validate."""
        if self.columns < 1:
            raise ValueError(f"`columns` must be 1 or more, not {self.columns!r}")


PRESETS = {"small": GridParams(), "wide": GridParams(columns=3)}


class Queue(wiring.Component):
    """Queue with a state machine, a memory and a check."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        super().__init__({"i": In(stream.Signature(Word)), "o": Out(stream.Signature(Word))})

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        m.submodules.mem = mem = memory.Memory(shape=Word, depth=self._depth, init=[])
        write, read = mem.write_port(), mem.read_port()
        head, tail = Signal(range(self._depth)), Signal(range(self._depth))
        count = Signal(range(self._depth + 1))
        m.d.comb += [
            self.i.ready.eq(count < self._depth - 1),
            write.addr.eq(tail),
            write.data.eq(self.i.payload),
            write.en.eq(self.i.valid & self.i.ready),
            read.addr.eq(head),
            self.o.payload.eq(read.data),
        ]
        with m.If(write.en):
            m.d.sync += tail.eq(tail + 1)
        with m.FSM():
            with m.State("IDLE"), m.If(count != 0):
                m.d.sync += head.eq(head + 1)
                m.next = "FULL"
            with m.State("FULL"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "IDLE"
        m.d.sync += count.eq(count + write.en - (self.o.valid & self.o.ready))
        if platform != "synthesis":
            with m.If(~ResetSignal()):
                m.d.comb += Assert(count <= self._depth, "too many words")
        return m


class Grid(wiring.Component):
    """Two queues in a row per column, and names that are none in SystemVerilog."""

    latency = 2

    def __init__(self, params: GridParams) -> None:
        self._params = params
        super().__init__(
            {
                "i": In(stream.Signature(Word)).array(params.columns),
                "o": Out(stream.Signature(Word)).array(params.columns),
                "pick": In(3),
                "colour": Out(Colour),
                "Total": Out(4),
                "total": Out(4, init=9),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        for column in range(self._params.columns):
            m.submodules[f"first{column}"] = first = Queue(self._params.depth)
            m.submodules[f"last{column}"] = last = Queue(self._params.depth)
            wiring.connect(m, wiring.flipped(self.i[column]), first.i)
            wiring.connect(m, first.o, last.i)
            wiring.connect(m, last.o, wiring.flipped(self.o[column]))
        counters = Array(Signal(4, name="module") for _ in range(4))
        chosen = Signal(4, name="wire")
        m.d.comb += [chosen.eq(counters[self.pick[:2]]), self.Total.eq(chosen)]
        with m.Switch(self.pick):
            with m.Case(1, 2):
                m.d.comb += self.colour.eq(Colour.GREEN)
            with m.Case("1-1"):
                m.d.comb += self.colour.eq(Colour.BLUE)
        with m.If(self.pick[2]):
            with m.If(self.pick[0]):
                m.d.sync += counters[0].eq(counters[0] + 1)
            with m.Elif(self.pick[1]):
                m.d.sync += counters[1].eq(counters[0] - chosen)
        with m.Else():
            m.d.sync += counters[self.pick[:2]][1:3].eq(self.pick[1:])
        return m


class Leaf(wiring.Component):
    """Register."""

    def __init__(self, width: int, tag: object = None) -> None:
        self._tag = tag
        super().__init__({"a": In(width), "q": Out(width)})

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        m.d.sync += self.q.eq(self.a + 1)
        return m


class Leaky(wiring.Component):
    """Component with a signal beside its ports, which a parent may read."""

    def __init__(self) -> None:
        self.inner = Signal(4)
        super().__init__({"a": In(4)})

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        m.d.sync += self.inner.eq(self.a)
        return m


class Resetting(wiring.Component):
    """Leaves of which one has a reset of its own, a leaky one, and one in another domain."""

    def __init__(self) -> None:
        super().__init__({"a": In(4), "clear": In(1), "q": Out(4).array(4)})

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        m.submodules.plain = plain = Leaf(4)
        m.submodules.twin = twin = Leaf(4)
        cleared, leaky = Leaf(4), Leaky()
        m.submodules.cleared = ResetInserter(self.clear)(cleared)
        m.submodules.leaky = leaky
        m.d.comb += [
            plain.a.eq(self.a),
            twin.a.eq(plain.q),
            cleared.a.eq(self.a),
            leaky.a.eq(self.a),
            self.q[0].eq(plain.q),
            self.q[1].eq(twin.q),
            self.q[2].eq(cleared.q),
            self.q[3].eq(leaky.inner),
        ]
        return m
