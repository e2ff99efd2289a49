# SPDX-License-Identifier: Apache-2.0
"""Amaranth's simulator behind one function each for clocked and for combinational circuits."""

import gc
import warnings
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any

from amaranth.hdl import Elaboratable, UnusedElaboratable
from amaranth.sim import Simulator

__all__ = ["Testbench", "evaluate", "pulse", "raises", "simulate", "ticks"]

Testbench = Callable[[Any], Coroutine[Any, Any, None]]
"""An ``async`` function of a simulator context."""

_PERIOD = 1e-6


def simulate(dut: Elaboratable, testbench: Testbench, *, cycles: int) -> None:
    """Run a testbench on a clocked circuit, from the first cycle after power-up.

    Parameters
    ----------
    dut : Elaboratable
        The circuit.
    testbench : callable
        Sets the inputs of a cycle, looks at the outputs of the same cycle, then awaits
        ``ctx.tick()``.
    cycles : int
        The testbench must have ended after so many cycles.

    Raises
    ------
    AssertionError
        If the testbench or an assertion of the circuit fails, or the bound is reached.
    """

    # Counted from inside: a second testbench would be left suspended, which Python warns about.
    @coroutine
    def count(running: Coroutine[Any, Any, None]) -> Generator[Any, Any, None]:
        awaited = 0
        result = None
        while True:
            try:
                trigger = running.send(result)
            except StopIteration:
                return
            awaited += 1
            if awaited > cycles:
                running.close()
                raise AssertionError(f"the testbench has not ended after {cycles} cycles")
            result = yield trigger

    async def bounded(ctx: Any) -> None:
        await count(testbench(ctx))

    simulator = Simulator(dut)
    simulator.add_clock(_PERIOD)
    simulator.add_testbench(bounded)
    simulator.run()


def evaluate(dut: Elaboratable, testbench: Testbench) -> None:
    """Run a testbench on a circuit without a clock; outputs follow ``ctx.set`` at once."""
    simulator = Simulator(dut)
    simulator.add_testbench(testbench)
    simulator.run()


async def ticks(ctx: Any, count: int) -> None:
    """Wait for `count` cycles.

    Not with ``repeat``: Python warns about its generator when a failure leaves it suspended.
    """
    for _ in range(count):
        await ctx.tick()


async def pulse(ctx: Any, signal: Any) -> None:
    """Hold a one-bit input high for one cycle."""
    ctx.set(signal, 1)
    await ctx.tick()
    ctx.set(signal, 0)


def raises(build: Callable[[], object], error: type[Exception], message: str) -> None:
    """Check that the constructor of a component refuses its arguments with this whole message."""
    with warnings.catch_warnings():
        # What was not built to the end was not used either; that is the point here.
        warnings.simplefilter("ignore", UnusedElaboratable)
        try:
            build()
        except error as caught:
            told = str(caught)
        else:
            raise AssertionError(f"no {error.__name__} was raised")
        gc.collect()
    assert told == message
