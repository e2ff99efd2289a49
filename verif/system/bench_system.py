# SPDX-License-Identifier: Apache-2.0
"""The bench inside the simulator: resets, then goes from step to step.

Everything that moves per cycle is in SystemVerilog; this only steps in between.
"""

import json
from importlib import import_module
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, Timer

PERIOD_NS = 2


async def pulse(dut, signal) -> None:
    signal.value = 1
    await RisingEdge(dut.clk)
    signal.value = 0
    await RisingEdge(dut.clk)


async def registers(dut, part: int, limit: int) -> None:
    """Let the register accesses of one part of a step run."""
    dut.part.value = part
    await pulse(dut, dut.start)
    waited = 0
    while dut.bus_ended.value != 1:
        await ClockCycles(dut.clk, 64)
        waited += 64
        if waited > limit:
            raise AssertionError("a register access has no end")


@cocotb.test()
async def run(dut) -> None:
    """Play all steps of ``config.json`` and write ``state.json``."""
    config = json.loads(Path("config.json").read_text())
    for name in ("go", "step", "load", "dump", "part", "start"):
        getattr(dut, name).value = 0
    dut.rst.value = 1
    Clock(dut.clk, PERIOD_NS, unit="ns").start()
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    await ClockCycles(dut.clk, config["settle"])
    steps = []
    for number, step in enumerate(config["steps"]):
        if step["prepare"]:
            module, _, function = step["prepare"].partition(":")
            getattr(import_module(module), function)(Path.cwd(), number)
        dut.step.value = number
        await RisingEdge(dut.clk)
        await pulse(dut, dut.load)
        await registers(dut, 0, step["cycles"])
        dut.go.value = 1
        await RisingEdge(dut.clk)
        start = int(dut.cycle.value)
        end = "cut"
        while int(dut.cycle.value) - start < step["cycles"]:
            # No trigger on the design's outputs: look at them now and then.
            left = step["cycles"] - (int(dut.cycle.value) - start)
            await Timer(PERIOD_NS * max(1, min(step["poll"], left)), unit="ns")
            await RisingEdge(dut.clk)
            if dut.done.value == 1 and int(dut.quiet.value) > step["quiet"]:
                end = "done"
                break
            if int(dut.quiet.value) > step["hang"]:
                end = "hang"
                break
        stop = int(dut.cycle.value)
        dut.go.value = 0
        await registers(dut, 1, step["cycles"])
        await pulse(dut, dut.dump)
        steps.append({"end": end, "start": start, "stop": stop, "fault": int(dut.fault.value)})
        if end == "hang":
            break
    Path("state.json").write_text(json.dumps({"steps": steps}))
