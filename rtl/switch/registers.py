# SPDX-License-Identifier: Apache-2.0
"""Registers of the switch behind a simple bus, and the event counters."""

from itertools import pairwise

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import tree
from ..common.bus import ADDRESS_BITS, BusSignature
from ..common.counter import event_counter
from ..flits import TARGET_BITS
from ..params import SwitchParams
from ..reduce.layouts import TICK_BITS, TICK_CYCLES
from ..register_map import COUNTERS, register_map
from .route_unit import MULTIPLE_BITS

__all__ = ["Registers"]


class Registers(wiring.Component):
    """Configuration and counters, as ``rtl/register_map.py`` lists them.

    Parameters
    ----------
    params : SwitchParams
        The switch.

    Members
    -------
    bus : In
        Register accesses (:class:`BusSignature`).
    multiples : Out(17), one per GPU
        ``(g + 1) * experts_per_gpu``, saturated to 2**16. Only with dynamic support.
    groups : Out(gpus), one per group
        GPU masks.
    allowed : Out(ports), one per port
        Ports in the same partition.
    events : In, one per port
        Bit *k*: counter *k* of ``COUNTERS`` counts one.
    faults : In(ports)
        Ports that were cut off.
    armed : In, one per port
        Reduction entries in use.
    timeout, time : Out(16)
        Time-out in ticks, and the time.

    Timing
    ------
    ``done`` three cycles after ``valid``. The upper half of a counter follows its lower half by a
    cycle. After a write to ``experts_per_gpu`` the multiples are computed one a cycle; ``busy``
    reads 1 meanwhile.

    Errors
    ------
    An access to no register, or a write to one that is read-only, ends with ``error`` and changes
    nothing. A write of 0 or of more than 65535 to ``experts_per_gpu`` changes nothing.
    """

    def __init__(self, params: SwitchParams) -> None:
        self._params = params
        members = {
            "bus": In(BusSignature()),
            "groups": Out(params.gpus).array(params.groups),
            "allowed": Out(params.ports).array(params.ports),
            "events": In(len(COUNTERS)).array(params.ports),
            "faults": In(params.ports),
            "armed": In(range(params.entries + 1)).array(params.ports),
            "timeout": Out(TICK_BITS),
            "time": Out(TICK_BITS),
        }
        if params.dynamic:
            members["multiples"] = Out(MULTIPLE_BITS).array(params.gpus)
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params

        # The access, registered: address and data reach all decoders in the second cycle.
        valid = Signal()
        write = Signal()
        address = Signal(ADDRESS_BITS)
        wdata = Signal(32)
        m.d.sync += [valid.eq(self.bus.valid), write.eq(self.bus.write & self.bus.valid)]
        with m.If(self.bus.valid):
            m.d.sync += [address.eq(self.bus.address), wdata.eq(self.bus.wdata)]

        def select(name: str):
            return address == addresses[name]

        def writes(name: str):
            return write & select(name)

        addresses = {register.name: register.address for register in register_map(params)}
        values = {
            register.name: Const(register.reset, 32)
            for register in register_map(params)
            if register.access == "ro"
        }
        for word in range(-(-params.ports // 32)):
            values[f"fault{word}"] = self.faults[32 * word : 32 * word + 32]

        partition_bits = (params.ports - 1).bit_length()
        partitions = []
        for port in range(params.ports):
            partition = Signal(partition_bits, name=f"partition{port}")
            with m.If(writes(f"partition{port}")):
                m.d.sync += partition.eq(wdata)
            partitions.append(partition)
            values[f"partition{port}"] = partition
        for port in range(params.ports):
            m.d.comb += self.allowed[port].eq(
                Cat(partitions[other] == partitions[port] for other in range(params.ports))
            )
        for group in range(params.groups):
            for word in range(-(-params.gpus // 32)):
                name = f"group{group}_{word}"
                mask = self.groups[group][32 * word : 32 * word + 32]
                with m.If(writes(name)):
                    m.d.sync += mask.eq(wdata)
                values[name] = mask
        prescaler = Signal(range(TICK_CYCLES))
        m.d.sync += prescaler.eq(prescaler + 1)
        with m.If(prescaler.all()):
            m.d.sync += self.time.eq(self.time + 1)
        with m.If(writes("timeout")):
            m.d.sync += self.timeout.eq(wdata)
        values["timeout"] = self.timeout
        for port in range(params.ports):
            values[f"armed{port}"] = self.armed[port]
        if params.dynamic:
            values |= self._multiples(m, writes("experts_per_gpu"), wdata)

        # Counters are read port by port: one multiplexer a port, then one between the ports.
        counter_select = Signal(range(len(COUNTERS)))
        m.d.comb += counter_select.eq(address[2:])
        for port in range(params.ports):
            counts = []
            for index, counter in enumerate(COUNTERS):
                name = f"{counter.name}{port}"
                counts.append(event_counter(m, name, self.events[port][index]))
                del values[name]
            picked = Signal(32, name=f"picked{port}")
            m.d.sync += picked.eq(Array(counts)[counter_select])
            values[f"{COUNTERS[0].name}{port}"] = picked

        # Second cycle: decode. Third: choose. A counter's port is decoded without its low bits.
        block = 2 + (len(COUNTERS) - 1).bit_length()
        is_counter = address[2:block] < len(COUNTERS)
        chosen, hits = [], []
        for name, value in values.items():
            hit = Signal(name=f"hit_{name}")
            if name.rstrip("0123456789") == COUNTERS[0].name:
                wanted = addresses[name] >> block
                in_block = (address[block:] == wanted) & is_counter
                m.d.sync += hit.eq(valid & in_block & (address[:2] == 0))
            else:
                m.d.sync += hit.eq(valid & select(name))
            hits.append(hit)
            chosen.append(Mux(hit, value, 0))
        read_only = Signal()
        writable = [r.name for r in register_map(params) if r.access == "rw"]
        m.d.sync += read_only.eq(write & ~Cat(select(name) for name in writable).any())
        ended = Signal()
        m.d.sync += [
            ended.eq(valid),
            self.bus.done.eq(ended),
            self.bus.rdata.eq(tree(chosen)),
            self.bus.error.eq(ended & (read_only | ~Cat(hits).any())),
        ]
        return m

    def _multiples(self, m: Module, written, wdata):
        """Compute the multiples of ``experts_per_gpu`` after it was written."""
        gpus = self._params.gpus
        experts = Signal(TARGET_BITS, init=1)
        left = Signal(range(gpus + 1))
        registers = [
            Signal(MULTIPLE_BITS, init=gpu + 1, name=f"multiple{gpu}") for gpu in range(gpus)
        ]
        for multiple, register in zip(self.multiples, registers, strict=True):
            m.d.comb += multiple.eq(register)
        with m.If(written & (wdata != 0) & (wdata < 1 << TARGET_BITS)):
            m.d.sync += [experts.eq(wdata), left.eq(gpus)]
        with m.Elif(left != 0):
            # The registers shift down; the sum of the last one and `experts` comes in on top.
            above = Mux(left == gpus, 0, registers[-1]) + experts
            m.d.sync += left.eq(left - 1)
            m.d.sync += registers[-1].eq(Mux(above[TARGET_BITS:] != 0, 1 << TARGET_BITS, above))
            for low, high in pairwise(registers):
                m.d.sync += low.eq(high)
        return {"experts_per_gpu": experts, "busy": left != 0}
