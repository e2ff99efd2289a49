# SPDX-License-Identifier: Apache-2.0
"""What the tests of the models have in place of a system: it does by itself what accesses name.

Each GPU carries out one access after the other:

- ``MM_ST``: writes `data` into the memory at `address` (under strobes of the access' size), and
  ends when it is written. Posted ones are written one a cycle, without a result.
- ``MM_LD_REDUCE``: reads 16 bytes there. With `last`, reads follow each other one a cycle.
- ``DY_LD_REDUCE``: fetches ``ceil(count / 8)`` words of a list; the result is their XOR.
- ``MM_RED``: reads `count` words of tables, four at most, from `address` on; the result holds the
  word of id *i* in bits 32 *i* + 31 : 32 *i*. With `op` 1, it writes the word `data` instead.

An access that is taken is a flit on the link up (its `data`), and comes down two cycles later. Of
ordinary packets, the header is answered by an ``RSP_ACK`` with the same tag. Each bus has four
registers; the last is read-only, and counts down from 20 after reset while it is read.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from dysharp.gen.writer import write_component
from dysharp.rtl.common.bus import BusSignature
from dysharp.rtl.endpoint.endpoint import core_members
from dysharp.rtl.flits import FLIT_BITS, HEADER, Opcode, ReduceOp, Status
from dysharp.rtl.gpu_params import GpuParams
from dysharp.rtl.queue.ports import Access

__all__ = ["StubParams", "write_stub"]


@dataclass(frozen=True)
class StubParams:
    """As much of a system's parameters as the models depend on."""

    gpu: GpuParams


def write_stub(params: StubParams, out: Path) -> Path:
    """Write the stub as SystemVerilog."""
    return write_component(_Stub(params.gpu), name="stub_system", out=out)


def _members(gpu: GpuParams) -> dict[str, Any]:
    return {
        **core_members(gpu),
        "up_valid": Out(1),
        "up_flit": Out(FLIT_BITS),
        "down_valid": Out(1),
        "down_flit": Out(FLIT_BITS),
    }


class _Stub(wiring.Component):
    def __init__(self, gpu: GpuParams) -> None:
        self._gpu = gpu
        each = {name: member.array(gpu.gpus) for name, member in _members(gpu).items()}
        super().__init__({**each, "switch_bus": In(BusSignature()), "fault": Out(gpu.gpus)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.registers = registers = _Registers()
        connect(m, flipped(self.switch_bus), registers.bus)
        for number in range(self._gpu.gpus):
            m.submodules[f"gpu_{number}"] = gpu = _StubGpu(self._gpu)
            for name, member in _members(self._gpu).items():
                outer, inner = getattr(self, name)[number], getattr(gpu, name)
                if member.is_port:
                    m.d.comb += outer.eq(inner)
                elif member.flow is In:
                    connect(m, flipped(outer), inner)
                else:
                    connect(m, inner, flipped(outer))
        return m


class _Registers(wiring.Component):
    bus: In(BusSignature())

    def elaborate(self, platform: object) -> Module:
        m = Module()
        words = Array(Signal(32, name=f"word_{i}") for i in range(3))
        left = Signal(32, init=20)
        index = self.bus.address[2:4]
        m.d.sync += [
            self.bus.done.eq(self.bus.valid),
            self.bus.rdata.eq(0),
            self.bus.error.eq(self.bus.address[4:].any() | (self.bus.write & (index == 3))),
        ]
        with m.If(self.bus.valid & ~self.bus.address[4:].any()):
            with m.If(index == 3):
                m.d.sync += self.bus.rdata.eq(left)
                m.d.sync += left.eq(left - (left != 0))
            with m.Elif(self.bus.write):
                m.d.sync += words[index].eq(self.bus.wdata)
            with m.Else():
                m.d.sync += self.bus.rdata.eq(words[index])
        return m


class _StubGpu(wiring.Component):
    def __init__(self, gpu: GpuParams) -> None:
        self._gpu = gpu
        super().__init__(_members(gpu))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.registers = registers = _Registers()
        connect(m, flipped(self.bus), registers.bus)
        flits = self._gpu.memory_flits
        now = data.View(Access, self.access.payload)
        access = Signal(Access)
        answer = Signal(FLIT_BITS)
        bad = Signal()
        left = Signal(8)
        asked = Signal(8)
        lane = Signal(range(max(2, flits)))
        result = self.result.payload
        memory, table = self.memory, self.table
        beat = (flits * 16 - 1).bit_length()

        def lane_of(address: Any) -> Any:
            return address[4:beat] if flits > 1 else 0

        posted = Signal()
        flowing = Signal()
        waiting = Signal(16)
        m.d.comb += [
            posted.eq((now.opcode == Opcode.MM_ST) & now.posted),
            flowing.eq((now.opcode == Opcode.MM_LD_REDUCE) & now.last),
        ]
        write = Signal(Access)
        m.d.comb += [
            write.eq(access),
            memory.write.payload.address.eq(write.address >> beat << beat),
            memory.write.payload.data.eq(write.data << Cat(Const(0, 3), write.address[:beat])),
            memory.write.payload.strobe.eq(_ones(write.size) << write.address[:beat]),
            memory.read.payload.address.eq(now.address >> beat << beat),
            result.rd.eq(access.rd),
            result.accesses.eq(1),
            result.load.eq(access.opcode.as_value()[1] & ~access.opcode.as_value()[0]),
            result.status.eq(Status.OK),
            result.data.eq(answer),
        ]
        with m.If(bad):
            m.d.comb += result.status.eq(Status.BAD_ADDRESS)
        for port in (self.shared_list, self.global_list):
            m.d.comb += [
                port.request.payload.address.eq((access.list >> 4 << 4) + (asked << 4)),
                port.request.payload.id.eq(asked),
                port.reply.ready.eq(1),
            ]
        m.d.comb += [
            table.read.payload.address.eq(access.address + (asked << 2)),
            table.read.payload.id.eq(asked),
            table.write.payload.address.eq(access.address),
            table.write.payload.data.eq(access.data),
        ]
        words = (access.count + 7) >> 3
        data_of = Array(memory.reply_data[128 * i : 128 * (i + 1)] for i in range(flits))
        with m.FSM():
            with m.State("Idle"):
                with m.If(posted):
                    m.d.comb += [
                        write.eq(now),
                        memory.write.valid.eq(self.access.valid),
                        self.access.ready.eq(memory.write.ready),
                    ]
                with m.Elif(flowing):
                    m.d.comb += [
                        memory.read.valid.eq(self.access.valid),
                        self.access.ready.eq(memory.read.ready),
                    ]
                with m.Else():
                    m.d.comb += self.access.ready.eq(waiting == 0)
                m.d.sync += waiting.eq(
                    waiting + (memory.read.valid & memory.read.ready) - memory.reply
                )
                with m.If(memory.reply):
                    m.d.comb += [
                        self.result.valid.eq(1),
                        result.rd.eq(0),
                        result.load.eq(1),
                        result.data.eq(memory.reply_data),
                        result.status.eq(Status.OK),
                    ]
                with m.If(self.access.valid & self.access.ready & ~posted & ~flowing):
                    m.d.sync += [
                        access.eq(now),
                        answer.eq(0),
                        bad.eq(0),
                        left.eq(0),
                        asked.eq(0),
                        lane.eq(lane_of(now.address)),
                    ]
                    with m.Switch(now.opcode.as_value()):
                        with m.Case(Opcode.MM_ST):
                            m.next = "Write"
                        with m.Case(Opcode.MM_LD_REDUCE):
                            m.next = "Read"
                        with m.Case(Opcode.DY_LD_REDUCE):
                            m.d.sync += left.eq((now.count + 7) >> 3)
                            m.next = "List"
                        with m.Default():
                            m.d.sync += left.eq(now.count)
                            m.next = "Table"
            with m.State("Write"):
                m.d.comb += memory.write.valid.eq(1)
                with m.If(memory.write.ready):
                    m.next = "Written"
            with m.State("Written"):
                with m.If(memory.written):
                    m.d.sync += bad.eq(memory.write_error)
                    m.next = "Result"
            with m.State("Read"):
                m.d.comb += memory.read.valid.eq(1)
                m.d.comb += memory.read.payload.address.eq(access.address >> beat << beat)
                with m.If(memory.read.ready):
                    m.next = "Reply"
            with m.State("Reply"):
                with m.If(memory.reply):
                    m.d.sync += [answer.eq(data_of[lane]), bad.eq(memory.reply_error)]
                    m.next = "Result"
            with m.State("List"):
                for port, chosen in (
                    (self.shared_list, access.shared),
                    (self.global_list, ~access.shared),
                ):
                    m.d.comb += port.request.valid.eq(chosen & (asked != words))
                    with m.If(port.request.valid & port.request.ready):
                        m.d.sync += asked.eq(asked + 1)
                    with m.If(port.reply.valid):
                        m.d.sync += [
                            answer.eq(answer ^ port.reply.payload.data),
                            left.eq(left - 1),
                        ]
                        with m.If(port.reply.payload.error):
                            m.d.sync += bad.eq(1)
                with m.If(left == 0):
                    m.next = "Result"
            with m.State("Table"):
                with m.If(access.op == ReduceOp.MIN):
                    m.d.comb += table.write.valid.eq(left != 0)
                    with m.If(table.write.ready):
                        m.d.sync += left.eq(0)
                    with m.If(table.written):
                        m.next = "Result"
                with m.Else():
                    m.d.comb += table.read.valid.eq(asked != access.count)
                    with m.If(table.read.valid & table.read.ready):
                        m.d.sync += asked.eq(asked + 1)
                    with m.If(table.reply):
                        m.d.sync += [
                            answer.word_select(table.reply_id, 32).eq(table.reply_data),
                            left.eq(left - 1),
                        ]
                    with m.If(left == 0):
                        m.next = "Result"
            with m.State("Result"):
                m.d.comb += self.result.valid.eq(1)
                with m.If(self.result.ready):
                    m.next = "Idle"

        up = Signal()
        m.d.comb += [
            self.up_valid.eq(self.access.valid & self.access.ready),
            self.up_flit.eq(now.data),
        ]
        passing = Signal(FLIT_BITS)
        m.d.sync += [
            up.eq(self.up_valid),
            passing.eq(self.up_flit),
            self.down_valid.eq(up),
            self.down_flit.eq(passing),
        ]
        # Ordinary packets.
        inside = Signal()
        held = Signal()
        flit = data.View(HEADER, self.ordinary.payload.flit)
        reply = data.View(HEADER, self.ordinary_flit)
        m.d.comb += self.ordinary.ready.eq(~held)
        m.d.sync += [held.eq(~held & self.ordinary.valid), self.ordinary_valid.eq(0)]
        with m.If(self.ordinary.valid & self.ordinary.ready):
            m.d.sync += inside.eq(~self.ordinary.payload.last)
            with m.If(~inside):
                m.d.sync += [
                    self.ordinary_valid.eq(1),
                    reply.as_value().eq(0),
                    reply.opcode.eq(Opcode.RSP_ACK),
                    reply.tag.eq(flit.tag),
                ]
        return m


def _ones(size: Any) -> Any:
    """Return the strobes of an access at offset 0."""
    return Cat(Const(0xF, 4), (size != 0).replicate(4), (size >= 2).replicate(8))
