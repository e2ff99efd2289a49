# SPDX-License-Identifier: Apache-2.0
"""Sends the tokens of an expert-routing trace through the generated switch, and their sums back."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from dysharp.gen.traces import Trace, read_trace
from dysharp.golden.arrays import FlitArray, IntArray, value_of
from dysharp.golden.flits import unpack_field
from dysharp.golden.switch import SwitchConfig
from dysharp.rtl.flits import DType, Order, Stage, Vc
from dysharp.rtl.params import PRESETS, SwitchParams

from .lib.progress import Progress, nothing, watched
from .lib.responder import MEMORY_FLITS, Responder
from .lib.run import SimulationError
from .plan import Placement, Plan, ReplayError, Sums, check_int, experts_of, plan_replay
from .switch.environment import Pace, Phase, PhaseResult, SwitchEnvironment
from .switch.scoreboard import Scoreboard

__all__ = ["ReplayResult", "check_answered", "load_trace", "replay", "switch_for"]

_DEPTH = PRESETS["default"].ingress_depth
_MOST = 4096
_SMALL = 3
"""Numbers of at most this size have a sum that every type holds exactly, in any order."""


@dataclass(frozen=True, eq=False)
class ReplayResult:
    """What a replay showed. Every delivered packet and every result was as the golden model says.

    Parameters
    ----------
    plan : Plan
        What was sent.
    params : SwitchParams
        The switch.
    cycles : int
        From the first flit that went in to the last that came out, both included.
    flits_in, flits_out : ndarray
        Flits that the monitors saw on each port's two directed links.
    copies, results : int
        Copies of requests, and results, that they saw leave the switch.
    """

    plan: Plan
    params: SwitchParams
    cycles: int
    flits_in: IntArray
    flits_out: IntArray
    copies: int
    results: int

    @property
    def efficiency(self) -> float:
        """Ideal cycles over measured cycles."""
        return self.plan.ideal_cycles / self.cycles

    def figures(self) -> dict[str, Any]:
        """All figures as plain data; what they mean is in ``docs/run.md``."""
        plan = self.plan
        per_expert = plan.packets * plan.top_k
        return {
            "efficiency": self.efficiency,
            "ideal_cycles": plan.ideal_cycles,
            "measured_cycles": self.cycles,
            "packets": plan.packets,
            "stages": [stage.name.lower() for stage in plan.stages],
            "copies": self.copies,
            "results": self.results,
            "mean_fan_out": self.copies / plan.packets,
            "packets_per_expert_unicast": per_expert,
            "packets_per_gpu_unicast": self.copies,
            "packets_saved_against_expert_unicast": 1 - plan.packets / per_expert,
            "packets_saved_against_gpu_unicast": 1 - plan.packets / self.copies,
            "copies_saved_against_expert_unicast": 1 - self.copies / per_expert,
            "flits_in": int(self.flits_in.sum()),
            "flits_out": int(self.flits_out.sum()),
            "request_flits": plan.request_flits,
            "request_flits_expert_unicast": plan.expert_flits,
            "request_flits_gpu_unicast": plan.copy_flits,
            "links": [
                {
                    "port": port,
                    "flits_in": int(into),
                    "flits_out": int(out),
                    "utilisation_in": float(into) / self.cycles,
                    "utilisation_out": float(out) / self.cycles,
                }
                for port, (into, out) in enumerate(zip(self.flits_in, self.flits_out, strict=True))
            ],
            "fan_out": {
                str(gpus): int(packets) for gpus, packets in enumerate(plan.fan_out) if packets
            },
        }


def switch_for(gpus: int, links_per_gpu: int = 1, top_k: int = 1) -> SwitchParams:
    """Return the preset ``default`` with other ports, and longer lists where `top_k` asks for them.

    Raises
    ------
    ReplayError
        There is no such switch.
    """
    check_int("gpus", gpus, 2)
    check_int("links_per_gpu", links_per_gpu, 1)
    default = PRESETS["default"]
    try:
        params = replace(
            default,
            ports=gpus * links_per_gpu,
            links_per_gpu=links_per_gpu,
            max_targets=max(default.max_targets, top_k),
            ingress_depth=_MOST,
            request_depth=_MOST,
        )
        return replace(
            params,
            ingress_depth=max(default.ingress_depth, _power_of_two(params.max_request_flits)),
            request_depth=max(
                default.request_depth,
                _power_of_two(params.max_request_flits + params.queue_margin),
            ),
        )
    except ValueError as error:
        raise ReplayError(f"{gpus} GPUs with {links_per_gpu} links each: {error}") from error


def load_trace(
    path: Path,
    *,
    gpus: int,
    experts_per_gpu: int,
    tokens: int | None = None,
    masked: bool = False,
) -> Trace:
    """Read a trace for a replay, :func:`dysharp.gen.traces.read_trace` with its arguments checked.

    Raises
    ------
    ReplayError
        A value is out of its range.
    TraceError
        The file cannot be used; the message names file and line.
    """
    check_int("gpus", gpus, 2)
    if tokens is not None:
        check_int("tokens", tokens, 1)
    return read_trace(path, experts_of(gpus, experts_per_gpu), tokens, masked=masked)


def replay(
    trace: Trace,
    *,
    gpus: int,
    experts_per_gpu: int,
    payload: int,
    packets_per_token: int,
    folder: Path,
    seed: int,
    stages: tuple[Any, ...] = (Stage.DISPATCH,),
    sums: Sums | None = None,
    acknowledge: bool = False,
    delay: tuple[int, int] = (0, 0),
    params: SwitchParams | None = None,
    links_per_gpu: int = 1,
    placement: Placement | str = "interleaved",
    ready: int = 100,
    name: str = "replay",
    progress: Progress | None = None,
) -> ReplayResult:
    """Run a trace through the generated Verilog and check what comes out.

    In a combine, models of the GPUs answer the requests from memories of random numbers. With sums
    in order of arrival these are small whole numbers, whose sum does not depend on the order.

    Parameters
    ----------
    trace : Trace
        Experts of each token.
    gpus, experts_per_gpu, links_per_gpu : int
        GPUs at the switch, experts that each holds, ports that each has.
    payload : int
        Bytes of data in a packet, a multiple of 16 up to 256.
    packets_per_token : int
        Packets that a token is made of.
    folder : Path
        Generated files, builds and runs go there; builds are used again.
    seed : int
        Seed of the data and of the receivers' pace.
    stages : tuple of Stage
        Dispatch, combine, or both at once.
    sums : Sums, optional
        How a combine adds.
    acknowledge : bool
        Whether stores are acknowledged, instead of posted.
    delay : tuple of int
        Least and most cycles from a request at a GPU to its answer.
    params : SwitchParams, optional
        The switch. By default :func:`switch_for` the trace.
    placement : str
        Which GPU a token belongs to, see :func:`plan_replay`.
    ready : int
        Percent of cycles in which a receiver may give a credit back.
    name : str
        Name of the run's folder, ``<folder>/runs/<name>``.
    progress : Progress, optional
        Told what is under way.

    Raises
    ------
    ReplayError
        A value is out of its range, or the trace does not fit.
    SimulationError
        The simulator failed, or the switch did not do what the golden model says.
    """
    tell = progress or nothing
    sums = sums or Sums()
    check_int("ready", ready, 1, 100)
    check_int("delay", delay[0], 0, delay[1])
    check_int("delay", delay[1], 0, 1 << 20)
    params = params or switch_for(gpus, links_per_gpu, trace.top_k)
    if (params.gpus, params.links_per_gpu) != (gpus, links_per_gpu):
        raise ReplayError(
            f"`gpus` and `links_per_gpu` must be those of the switch "
            f"({params.gpus} and {params.links_per_gpu}), not {gpus!r} and {links_per_gpu!r}"
        )
    tell("making packets")
    plan = plan_replay(
        trace,
        params,
        experts_per_gpu=experts_per_gpu,
        payload=payload,
        packets_per_token=packets_per_token,
        stages=stages,
        sums=sums,
        acknowledge=acknowledge,
        placement=placement,
        seed=seed,
    )
    tell("generating and building the switch")
    environment = SwitchEnvironment(params, folder)
    config = replace(SwitchConfig.at_reset(params), experts_per_gpu=experts_per_gpu)
    waits = acknowledge or Stage.COMBINE in stages
    phase = Phase(
        inputs=plan.inputs,
        config=config,
        cycles=100_000 + 10 * (plan.ideal_cycles + delay[1]) * 100 // ready,
        responder=_responder(params, sums, delay, seed) if waits else None,
        tags=waits,
        checker=check_answered if waits else None,
    )
    where = environment.where(name)
    # A receiver needs room for the longest packet and 4 flits more.
    pace = Pace(depth=max(_DEPTH, _power_of_two(params.max_request_flits + 4)), ready=ready)
    with watched(where, "out0_*.log", int(plan.flits_out.sum()), tell):
        (result,) = environment.run([phase], name=name, seed=seed, pace=pace)
    tell("checking every packet")
    problems = result.problems()
    if problems:
        raise SimulationError(
            f"{len(problems)} differences from the golden model, the first: {problems[0]}; "
            f"seed {seed}, see {where}"
        )
    channels = [unpack_field(log.packets.headers, "vc") for log in result.outputs]
    return ReplayResult(
        plan=plan,
        params=params,
        cycles=result.cycles,
        flits_in=np.array([len(log.flits) for log in result.inputs]),
        flits_out=np.array([len(log.flits) for log in result.outputs]),
        copies=sum(int((channel == value_of(Vc.REQUEST)).sum()) for channel in channels),
        results=sum(int((channel == value_of(Vc.RESPONSE)).sum()) for channel in channels),
    )


def check_answered(result: PhaseResult) -> list[str]:
    """Differences from the model of a run in which every request is answered as it should be."""
    board = Scoreboard(result.params, result.phase.config, result.received, answered=True)
    found = board.mismatches([log.flits for log in result.outputs])
    return found + board.counter_mismatches(result.registers)


def _responder(params: SwitchParams, sums: Sums, delay: tuple[int, int], seed: int) -> Responder:
    rng = np.random.default_rng([seed, 1])
    exact = sums.order is Order.ARRIVAL
    make = _small_numbers if exact else _any_numbers
    return Responder(
        memories=[make(sums.dtype, rng) for _ in range(params.ports)],
        presum=sums.presum,
        delay_min=delay[0],
        delay_max=delay[1],
    )


def _any_numbers(dtype: DType, rng: np.random.Generator) -> FlitArray:
    """Bits of any kind: every exponent, subnormals, infinities and NaNs."""
    return rng.integers(0, 1 << 64, (MEMORY_FLITS, 2), dtype=np.uint64)


def _small_numbers(dtype: DType, rng: np.random.Generator) -> FlitArray:
    values = rng.integers(-_SMALL, _SMALL + 1, MEMORY_FLITS * 8)
    floats = values.astype(np.float32)
    if dtype in (DType.B32, DType.U32, DType.S32):
        words = values.astype(np.int32).view(np.uint8)
    elif dtype is DType.F32:
        words = floats.view(np.uint8)
    elif dtype.name.startswith("F16"):
        words = floats.astype(np.float16).view(np.uint8)
    else:
        words = (floats.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    return words[: MEMORY_FLITS * 16].copy().view(np.uint64).reshape(MEMORY_FLITS, 2)


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()
