# SPDX-License-Identifier: Apache-2.0
"""Measures the combine half: rates, efficiency on a trace, latency, faults, area and clock."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from dysharp.gen.traces import Trace
from dysharp.gen.writer import write_component
from dysharp.golden.arrays import value_of
from dysharp.golden.flits import pack_headers, unpack_field
from dysharp.golden.packets import Packets
from dysharp.golden.switch import SwitchConfig
from dysharp.rtl.flits import DType, Opcode, Order, ReduceOp, Stage, Vc
from dysharp.rtl.fp.adder import Fp32Adder
from dysharp.rtl.params import PRESETS, SwitchParams
from dysharp.synth.flow import synthesise
from dysharp.verif.lib.responder import Responder, random_memories
from dysharp.verif.plan import Sums
from dysharp.verif.replay import ReplayResult, check_answered, replay
from dysharp.verif.switch.bench import Results, clock, pdk_libraries, routing_trace
from dysharp.verif.switch.environment import Phase, SwitchEnvironment

from .fault_soak import fault_soak
from .measure import result_latency

__all__ = ["bench"]

_EXPERTS_PER_GPU = 8
_DELAYS = (100, 1000)
"""Least and most cycles from a request at a GPU to its answer, where orders are compared."""
_MEMORY_CYCLES = 150
_RATES = {"f32": DType.F32, "bf16": DType.BF16, "f16": DType.F16, "bf16_acc32": DType.BF16_ACC32}


def bench(
    folder: Path, seed: int, quick: bool, progress: Callable[[str], None] = lambda text: None
) -> Results:
    """Measure the reduction of the `default` switch.

    Parameters
    ----------
    folder : Path
        For generated files and runs.
    seed : int
        Seed of all stimulus.
    quick : bool
        Shorter runs, and neither area nor clock.
    progress : callable
        Told what is under way.

    Returns
    -------
    dict
        Plain values by name. A value is None when what it needs is not installed.
    """
    params = PRESETS["default"]
    environment = SwitchEnvironment(params, folder)
    results: Results = {}
    requests = 200 if quick else 1500
    for name, dtype in _RATES.items():
        progress(f"rate of one port, {name}")
        rate = reduction_rate(environment, dtype, 8, requests, seed)
        results[f"reduce_flits_per_cycle_{name}"] = rate
    progress("rate of one port, packets of one flit")
    results["reduce_flits_per_cycle_1flit"] = reduction_rate(
        environment, DType.F32, 1, 4 * requests, seed
    )
    results |= _on_a_trace(params, folder, seed, 200 if quick else 1200, progress)
    progress("latency")
    latency, lanes = result_latency(params)
    results |= {"result_latency_cycles": latency, "fp_latency_cycles": lanes}
    results["allreduce_8bf16_4nodes_150cycles"] = all_reduce(folder, seed)
    progress("faults")
    soaked = fault_soak(folder, seed=seed, requests=20_000 if quick else 1_000_000)
    results |= {
        "leaked_entries": soaked.leaked,
        "unanswered_requests": soaked.unanswered,
        "fault_soak_requests": soaked.requests,
        "fault_soak_errors": soaked.errors,
    }
    if not quick:
        results["fp32_lane_area_um2"] = _adder_area(folder, progress)
        results |= clock("switch", params, folder, progress)
    return results


def reduction_rate(
    environment: SwitchEnvironment, dtype: Any, length: int, requests: int, seed: int
) -> float:
    """Flits a cycle that one port takes of responses, when all GPUs answer at once.

    Each request has one target on every GPU. From the first part on a link to the last flit of the
    last result.
    """
    params = environment.params
    experts = np.arange(params.gpus) * _EXPERTS_PER_GPU
    use = np.arange(requests)
    headers = pack_headers(
        address=use * length * 16 + (1 << 40),
        stage=value_of(Stage.COMBINE),
        count=params.gpus,
        opcode=value_of(Opcode.DY_LD_REDUCE),
        tag=use * 2 % params.entries,
        gen=use * 2 // params.entries % 4,
        aux=value_of(ReduceOp.ADD) | value_of(Order.CANONICAL) << 3,
        length=length,
        dtype=value_of(dtype),
    )
    inputs = [Packets() for _ in range(params.ports)]
    inputs[0] = Packets.build(headers, targets=np.tile(experts, requests))
    rng = np.random.default_rng(seed)
    phase = Phase(
        inputs=inputs,
        config=replace(SwitchConfig.at_reset(params), experts_per_gpu=_EXPERTS_PER_GPU),
        responder=Responder(memories=random_memories(params.ports, rng), presum=True),
        tags=True,
        checker=check_answered,
        cycles=200 * requests + 20_000,
    )
    result = environment.check(phase, name=f"rate_{dtype.name}_{length}", seed=seed)
    begins = []
    for log in result.inputs:
        packets = log.packets
        is_part = unpack_field(packets.headers, "vc") == value_of(Vc.RESPONSE)
        begins.append(int(log.cycles[packets.starts[is_part][0]]))
    taken = requests * params.gpus * (1 + length)
    return float(taken / (int(result.outputs[0].cycles[-1]) - min(begins) + 1))


def all_reduce(folder: Path, seed: int) -> int:
    """Cycles of a one-shot AllReduce of 8 bf16 elements over 4 GPUs, from first flit to last."""
    params = PRESETS["tiny"]
    inputs = [
        Packets.build(
            pack_headers(
                address=np.array([1 << 20]),
                opcode=value_of(Opcode.MM_LD_REDUCE),
                aux=value_of(ReduceOp.ADD) | value_of(Order.CANONICAL) << 3,
                length=1,
                gpu=gpu,
                dtype=value_of(DType.BF16),
            )
        )
        for gpu in range(params.gpus)
    ]
    rng = np.random.default_rng(seed)
    everyone = ((1 << params.gpus) - 1,) + (0,) * (params.groups - 1)
    phase = Phase(
        inputs=inputs,
        config=replace(SwitchConfig.at_reset(params), groups=everyone),
        responder=Responder(
            memories=random_memories(params.ports, rng),
            presum=True,
            delay_min=_MEMORY_CYCLES,
            delay_max=_MEMORY_CYCLES,
        ),
        tags=True,
        checker=check_answered,
    )
    return SwitchEnvironment(params, folder).check(phase, name="all_reduce", seed=seed).cycles


def _on_a_trace(
    params: SwitchParams, folder: Path, seed: int, tokens: int, progress: Callable[[str], None]
) -> Results:
    """Efficiency of combine, alone and together with dispatch, and what canonical order costs."""
    trace, name = routing_trace(seed, tokens)

    def run(
        what: str, *stages: Any, order: Any = Order.CANONICAL, delay: tuple[int, int] = (0, 0)
    ) -> ReplayResult:
        progress(f"routing trace, {what}")
        return _replay(trace, params, folder, seed, stages, order, delay)

    dispatch = run("dispatch", Stage.DISPATCH)
    combine = run("combine", Stage.COMBINE)
    both = run("both at once", Stage.DISPATCH, Stage.COMBINE)
    ordered = run("canonical order, random delays", Stage.COMBINE, delay=_DELAYS)
    arrival = run(
        "order of arrival, random delays", Stage.COMBINE, order=Order.ARRIVAL, delay=_DELAYS
    )
    return {
        "combine_efficiency": combine.efficiency,
        "both_efficiency": both.efficiency,
        "speedup_together": (dispatch.cycles + combine.cycles) / both.cycles,
        "speedup_together_bound": (dispatch.plan.ideal_cycles + combine.plan.ideal_cycles)
        / both.plan.ideal_cycles,
        "dispatch_cycles": dispatch.cycles,
        "combine_cycles": combine.cycles,
        "both_cycles": both.cycles,
        "canonical_slowdown": ordered.cycles / arrival.cycles,
        "reduce_trace": name,
    }


def _replay(
    trace: Trace,
    params: SwitchParams,
    folder: Path,
    seed: int,
    stages: tuple[Any, ...],
    order: Any,
    delay: tuple[int, int],
) -> ReplayResult:
    return replay(
        trace,
        gpus=params.gpus,
        experts_per_gpu=_EXPERTS_PER_GPU,
        payload=128,
        packets_per_token=4,
        stages=stages,
        sums=Sums(dtype=DType.BF16, order=order),
        delay=delay,
        params=params,
        seed=seed,
        folder=folder,
    )


def _adder_area(folder: Path, progress: Callable[[str], None]) -> float | None:
    """Area of the combinational f32 adder on IHP's library, typical, without a clock."""
    libraries = pdk_libraries("ihp-sg13g2/lib/*typ*.lib*")
    if not libraries:
        return None
    progress("area of the f32 adder")
    design = write_component(
        Fp32Adder(stages=0), name="fp32_adder", out=folder / "adder", checks=False
    )
    return synthesise(
        design, design.stem, libs=libraries[:1], workdir=folder / "adder", tree_levels=0
    ).area
