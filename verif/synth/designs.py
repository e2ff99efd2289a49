# SPDX-License-Identifier: Apache-2.0
"""Small designs for the tests of the flow."""

from pathlib import Path

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Array, Cat, Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from dysharp.verif.lib.shared import shared_folder

__all__ = ["AdderBetweenRegisters", "Buffers", "Crossbar", "Storage", "pdk_libs", "write"]

_LIBS = {
    "nangate45": "nangate45/lib/nangate45_typ.lib.gz",
    "sky130hd": "sky130hd/lib/*__tt_*.lib.gz",
    "asap7": "asap7/lib/*_TT_*.lib.gz",
    "gf180mcu7t": "gf180mcu7t/lib/*__tt_*.lib.gz",
    "ihp-sg13g2": "ihp-sg13g2/lib/*_typ_*.lib.gz",
}


def pdk_libs(name: str) -> list[Path]:
    """Typical libraries of a technology; skips the test when they are not there."""
    libs = sorted((shared_folder() / "pdk").glob(_LIBS[name]))
    if not libs:
        pytest.skip(f"no {name} libraries: set DYSHARP_SHARED to the folder that holds pdk/{name}")
    return libs


def write(component: wiring.Component, path: Path) -> Path:
    """Write a component as RTLIL with module `top`."""
    path.write_text(rtlil.convert(component, name="top", emit_src=False), encoding="utf-8")
    return path


class Storage(wiring.Component):
    """A RAM; `invert` puts logic into the same module, `comb` makes the read asynchronous."""

    def __init__(self, depth: int, width: int, *, invert: bool = False, comb: bool = False):
        self._depth, self._width, self._invert, self._comb = depth, width, invert, comb
        bits = (depth - 1).bit_length()
        super().__init__(
            {
                "w_en": In(1),
                "w_addr": In(bits),
                "w_data": In(width),
                "r_en": In(1),
                "r_addr": In(bits),
                "r_data": Out(width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        m.submodules.words = words = memory.Memory(shape=self._width, depth=self._depth, init=[])
        w_port = words.write_port()
        r_port = words.read_port(domain="comb" if self._comb else "sync")
        if not self._comb:
            m.d.comb += r_port.en.eq(self.r_en)
        m.d.comb += [
            w_port.en.eq(self.w_en),
            w_port.addr.eq(self.w_addr),
            w_port.data.eq(self.w_data),
            r_port.addr.eq(self.r_addr),
            self.r_data.eq(~r_port.data if self._invert else r_port.data),
        ]
        return m


class Buffers(wiring.Component):
    """Three RAMs of a kind whose words are added up in a register: two large ones, a small one."""

    def __init__(self, *, large: int = 256, small: int = 16, **options: bool):
        self._large, self._small, self._options = large, small, options
        super().__init__(
            {"a": In(8), "b": In(8), "d": In(16), "w": In(1), "r": In(1), "o": Out(16)}
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        words: list[Signal] = []
        for name, depth in (("q_0", self._large), ("q_1", self._large), ("s", self._small)):
            m.submodules[name] = ram = Storage(depth, 16, **self._options)
            m.d.comb += [
                ram.w_en.eq(self.w),
                ram.w_addr.eq(self.a),
                ram.w_data.eq(self.d ^ len(words)),
                ram.r_en.eq(self.r),
                ram.r_addr.eq(self.b),
            ]
            words.append(ram.r_data)
        m.d.sync += self.o.eq(sum(words))
        return m


class AdderBetweenRegisters(wiring.Component):
    """A 32-bit sum of two registers, in a register."""

    def __init__(self) -> None:
        super().__init__({"a": In(32), "b": In(32), "o": Out(32)})

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        left, right, total = (Signal(32, name=name) for name in ("left", "right", "total"))
        m.d.sync += [left.eq(self.a), right.eq(self.b), total.eq(left + right)]
        m.d.comb += self.o.eq(total)
        return m


class Crossbar(wiring.Component):
    """Ports with data, valid, target; each output has a round-robin arbiter and a register."""

    def __init__(self, ports: int = 8, width: int = 128):
        self._ports, self._width = ports, width
        members: dict[str, object] = {}
        for port in range(ports):
            members |= {
                f"i{port}": In(width),
                f"valid{port}": In(1),
                f"target{port}": In(range(ports)),
                f"o{port}": Out(width),
                f"o_valid{port}": Out(1),
            }
        super().__init__(members)

    def _array(self, name: str) -> list[Signal]:
        return [getattr(self, f"{name}{port}") for port in range(self._ports)]

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        number = self._ports
        valids, targets = self._array("valid"), self._array("target")
        for output in range(number):
            requests = Signal(number, name=f"requests{output}")
            last = Signal(range(number), name=f"last{output}")
            grant = Signal(range(number), name=f"grant{output}")
            pairs = zip(valids, targets, strict=True)
            m.d.comb += requests.eq(Cat(valid & (target == output) for valid, target in pairs))
            with m.Switch(last):
                for served in range(number):
                    with m.Case(served):
                        for step in reversed(range(1, number + 1)):
                            port = (served + step) % number
                            with m.If(requests[port]):
                                m.d.comb += grant.eq(port)
            m.d.sync += self._array("o_valid")[output].eq(requests.any())
            with m.If(requests.any()):
                m.d.sync += [
                    last.eq(grant),
                    self._array("o")[output].eq(Array(self._array("i"))[grant]),
                ]
        return m
