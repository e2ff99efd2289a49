# SPDX-License-Identifier: Apache-2.0
"""The comparators of the route unit divide, for every target and every ``experts_per_gpu``."""

from typing import Any

from amaranth.hdl import Assert, Assume, Module, Mux, Signal
from dysharp.rtl.flits import TARGET_BITS
from dysharp.rtl.params import SwitchParams
from dysharp.rtl.switch.route_unit import RouteUnit

__all__ = ["ASSUMPTIONS", "route_unit_spec"]

ASSUMPTIONS = 1


def route_unit_spec(gpus: int, lane: int, *, limit: int = 0) -> tuple[Module, list[Any]]:
    """Give a lane the GPU whose interval of expert numbers its target lies in.

    There is a property for each GPU and one for a target beyond all of them.

    Parameters
    ----------
    gpus : int
        GPUs.
    lane : int
        The lane that is looked at.
    limit : int
        Where multiples saturate; 0 for 2**16, below a target must fail.
    """
    m = Module()
    m.submodules.dut = dut = RouteUnit(SwitchParams(ports=gpus, lanes=8), 1)
    experts, target = Signal(TARGET_BITS), Signal(TARGET_BITS)
    saturated = limit or 1 << TARGET_BITS
    for gpu, multiple in enumerate(dut.multiples):
        exact = experts * (gpu + 1)
        m.d.comb += multiple.eq(Mux(exact > saturated, saturated, exact))
    held = Signal(TARGET_BITS)  # the target that the result is about
    with m.If(dut.grant):
        m.d.sync += held.eq(target)
    m.d.comb += [
        Assume(experts != 0),
        dut.flit[0].eq(target << TARGET_BITS * lane),
        dut.count[0].eq(lane + 1),
    ]
    entry = dut.lanes[lane]
    for gpu in range(gpus):
        inside = (experts * gpu <= held) & (held < experts * (gpu + 1))
        # All other lanes hold target 0, which lives on GPU 0.
        others = int(gpu == 0 and lane > 0)
        m.d.comb += Assert(
            ~dut.done
            | (
                (dut.gpus[gpu] == (inside | others))
                & (~inside | (entry.valid & (entry.gpu == gpu)))
            )
        )
    m.d.comb += Assert(~dut.done | (dut.bad == (held >= experts * gpus)))
    return m, [experts, target, dut.request]
