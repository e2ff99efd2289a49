# SPDX-License-Identifier: Apache-2.0
"""The bench inside the simulator: resets, programs registers, lets the players run, reads counters.

Everything that moves per cycle is in SystemVerilog; this only steps in between.
"""

import json
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, Timer

PERIOD_NS = 2


class Bus:
    """Register accesses."""

    def __init__(self, dut) -> None:
        self._dut = dut

    async def _access(self, address: int, data: int | None) -> tuple[int, bool]:
        dut = self._dut
        dut.bus__valid.value = 1
        dut.bus__write.value = data is not None
        dut.bus__address.value = address
        dut.bus__wdata.value = data or 0
        await RisingEdge(dut.clk)
        dut.bus__valid.value = 0
        for _ in range(8):
            await RisingEdge(dut.clk)
            if dut.bus__done.value == 1:
                return int(dut.bus__rdata.value), bool(dut.bus__error.value)
        raise AssertionError(f"no answer to an access at {address:#x}")

    async def write(self, address: int, data: int) -> bool:
        """Write a register; True when the access ended with an error."""
        return (await self._access(address, data))[1]

    async def read(self, address: int) -> tuple[int, bool]:
        """Read a register; its value and the error flag."""
        return await self._access(address, None)


@cocotb.test()
async def run(dut) -> None:
    """Play all phases of ``config.json`` and write ``state.json``."""
    config = json.loads(Path("config.json").read_text())
    dut.rst.value = 1
    dut.go.value = 0
    dut.phase.value = 0
    dut.bus__valid.value = 0
    dut.bus__write.value = 0
    dut.bus__address.value = 0
    dut.bus__wdata.value = 0
    Clock(dut.clk, PERIOD_NS, unit="ns").start()
    bus = Bus(dut)
    phases = []
    for number, phase in enumerate(config["phases"]):
        dut.phase.value = number
        dut.go.value = 0
        dut.rst.value = 1
        await ClockCycles(dut.clk, 4)
        dut.rst.value = 0
        await RisingEdge(dut.clk)
        errors = [await bus.write(address, data) for address, data in phase["writes"]]
        probes = []
        for address, data in phase["probes"]:
            if data is None:
                probes.append(await bus.read(address))
            else:
                probes.append((0, await bus.write(address, data)))
        await ClockCycles(dut.clk, phase["settle"])
        dut.go.value = 1
        start = int(dut.cycle.value)
        end = "cut"
        while int(dut.cycle.value) - start < phase["cycles"]:
            # No trigger on the design's outputs: look at them now and then.
            left = phase["cycles"] - (int(dut.cycle.value) - start)
            await Timer(PERIOD_NS * max(1, min(phase["poll"], left)), unit="ns")
            await RisingEdge(dut.clk)
            if dut.done.value == 1 and int(dut.quiet.value) > phase["quiet"]:
                end = "done"
                break
            if int(dut.quiet.value) > phase["hang"]:
                end = "hang"
                break
        values = {}
        for name, address in phase["reads"].items():
            value, error = await bus.read(address)
            values[name] = None if error else value
        phases.append(
            {
                "end": end,
                "start": start,
                "write_errors": errors,
                "probes": probes,
                "registers": values,
            }
        )
    state = {"phases": phases, "cycles": int(dut.cycle.value)}
    Path("state.json").write_text(json.dumps(state))
