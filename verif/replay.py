# SPDX-License-Identifier: Apache-2.0
"""Sends the tokens of an expert-routing trace through the generated switch, dispatch direction."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Thread
from typing import Any, Literal, Protocol

import numpy as np
from dysharp.gen.errors import UserError
from dysharp.gen.traces import Trace, read_trace
from dysharp.golden.arrays import IntArray, value_of
from dysharp.golden.flits import extension_flits, pack_headers
from dysharp.golden.packets import Packets
from dysharp.golden.route import link_of, prune
from dysharp.golden.switch import SwitchConfig
from dysharp.rtl.flits import FLIT_BYTES, MAX_DATA_FLITS, TARGET_BITS, Opcode, Stage, Vc
from dysharp.rtl.params import PRESETS, SwitchParams

from .lib.run import SimulationError
from .switch.environment import Pace, Phase, SwitchEnvironment

__all__ = [
    "ORDERS",
    "Order",
    "Plan",
    "Progress",
    "ReplayError",
    "ReplayResult",
    "load_trace",
    "plan_replay",
    "replay",
    "switch_for",
]

Order = Literal["interleaved", "blocked"]
ORDERS: tuple[Order, ...] = ("interleaved", "blocked")

_BASE = 1 << 40
_DEPTH = PRESETS["default"].ingress_depth
_TAGS = 512
_MOST = 4096
_EXPERTS = 1 << TARGET_BITS
_LOG_LINE = 42  # bytes of a flit in a log of `sv/link_sink.sv`


class Progress(Protocol):
    """Told what is under way."""

    def __call__(self, what: str, part: float = 0.0) -> None:
        """Take what is under way, and which part of it is done, 0 to 1; 0 if nobody knows."""


class ReplayError(UserError):
    """A replay that was asked for cannot be made."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Packets of a replay, and what every link has to carry.

    Parameters
    ----------
    inputs : tuple of Packets
        What each port sends, in order.
    flits_in, flits_out : ndarray
        Flits of each port's two directed links, into the switch and out of it.
    copies_out : ndarray
        Packets that leave by each port.
    fan_out : ndarray
        Element *n*: packets that go to *n* GPUs.
    top_k, data_flits : int
        Targets and data flits of each packet.
    """

    inputs: tuple[Packets, ...]
    flits_in: IntArray
    flits_out: IntArray
    copies_out: IntArray
    fan_out: IntArray
    top_k: int
    data_flits: int

    @property
    def packets(self) -> int:
        """Packets that the sources send."""
        return int(self.fan_out.sum())

    @property
    def copies(self) -> int:
        """Packets that leave the switch."""
        return int(self.copies_out.sum())

    @property
    def ideal_cycles(self) -> int:
        """The bound: flits of the directed link that has to carry most, one a cycle."""
        return int(max(self.flits_in.max(), self.flits_out.max()))


@dataclass(frozen=True, eq=False)
class ReplayResult:
    """What a replay showed. Every delivered packet was as the golden model says.

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
    copies : int
        Packets that they saw leave the switch.
    """

    plan: Plan
    params: SwitchParams
    cycles: int
    flits_in: IntArray
    flits_out: IntArray
    copies: int

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
            "copies": self.copies,
            "mean_fan_out": self.copies / plan.packets,
            "packets_per_expert_unicast": per_expert,
            "packets_per_gpu_unicast": self.copies,
            "packets_saved_against_expert_unicast": 1 - plan.packets / per_expert,
            "packets_saved_against_gpu_unicast": 1 - plan.packets / self.copies,
            "copies_saved_against_expert_unicast": 1 - self.copies / per_expert,
            "flits_in": int(self.flits_in.sum()),
            "flits_out": int(self.flits_out.sum()),
            "flits_in_expert_unicast": per_expert * (2 + plan.data_flits),
            "flits_in_gpu_unicast": int(plan.flits_out.sum()),
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
    _check("gpus", gpus, 2)
    _check("links_per_gpu", links_per_gpu, 1)
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


def load_trace(path: Path, *, gpus: int, experts_per_gpu: int, tokens: int | None = None) -> Trace:
    """Read a trace for a replay, :func:`dysharp.gen.traces.read_trace` with its arguments checked.

    Raises
    ------
    ReplayError
        A value is out of its range.
    TraceError
        The file cannot be used; the message names file and line.
    """
    _check("gpus", gpus, 2)
    if tokens is not None:
        _check("tokens", tokens, 1)
    return read_trace(path, _experts(gpus, experts_per_gpu), tokens)


def plan_replay(
    trace: Trace,
    params: SwitchParams,
    *,
    experts_per_gpu: int,
    payload: int,
    packets_per_token: int,
    order: Order | str = "interleaved",
    seed: int = 0,
) -> Plan:
    """Make the packets of a replay.

    Token *t* belongs to GPU *t* mod N (``interleaved``), or each GPU has a run of neighbouring
    tokens (``blocked``). It makes M = `packets_per_token` ``dymultimem.st`` packets with the
    token's list; packet *m* has the address base + (*t* M + *m*) `payload`. A GPU sends its packets
    in the order of tokens, on the link that the address hash says.

    Parameters
    ----------
    trace : Trace
        Experts of each token.
    params : SwitchParams
        The switch.
    experts_per_gpu, payload, packets_per_token, order, seed
        As in :func:`replay`.

    Raises
    ------
    ReplayError
        A value is out of its range, or the trace does not fit the switch.
    """
    experts = _experts(params.gpus, experts_per_gpu)
    _check("packets_per_token", packets_per_token, 1)
    _check("seed", seed, 0)
    most = MAX_DATA_FLITS * FLIT_BYTES
    if not _is_int(payload) or not 0 < payload <= most or payload % FLIT_BYTES:
        raise ReplayError(
            f"`payload` must be a multiple of {FLIT_BYTES} up to {most} bytes, not {payload!r}"
        )
    if order not in ORDERS:
        raise ReplayError(f"`order` must be one of {', '.join(ORDERS)}, not {order!r}")
    highest = int(trace.ids.max())
    if highest >= experts:
        raise ReplayError(f"an expert of the trace must be 0 to {experts - 1}, not {highest!r}")
    if not params.dynamic or trace.top_k > params.max_targets:
        limit = params.max_targets if params.dynamic else 0
        raise ReplayError(
            f"tokens of the trace must have up to {limit} experts on this switch, "
            f"not {trace.top_k!r}"
        )

    tokens = np.arange(trace.tokens)
    owner = tokens % params.gpus if order == "interleaved" else tokens * params.gpus // trace.tokens
    gpu = np.repeat(owner, packets_per_token)
    address = _BASE + np.arange(trace.tokens * packets_per_token) * payload
    port = gpu * params.links_per_gpu + link_of(address.copy(), params.links_per_gpu)
    lists = np.repeat(trace.ids, packets_per_token, axis=0)
    counts = np.full(len(address), trace.top_k)
    data_flits = payload // FLIT_BYTES

    rng = np.random.default_rng(seed)
    inputs, flits_in = [], []
    for number in range(params.ports):
        mine = np.flatnonzero(port == number)
        headers = pack_headers(
            address=address[mine],
            stage=value_of(Stage.DISPATCH),
            count=counts[mine],
            opcode=value_of(Opcode.DY_ST),
            tag=np.arange(len(mine)) % _TAGS,
            length=data_flits,
            gpu=gpu[mine],
            vc=value_of(Vc.REQUEST),
        )[: len(mine)]
        data = rng.integers(0, 1 << 64, (len(mine) * data_flits, 2), dtype=np.uint64)
        packets = Packets.build(headers, targets=lists[mine].reshape(-1), data=data)
        inputs.append(packets)
        flits_in.append(len(packets.flits))

    pruned = prune(
        lists.reshape(-1),
        counts,
        address,
        experts_per_gpu=experts_per_gpu,
        gpus=params.gpus,
        links_per_gpu=params.links_per_gpu,
    )
    sizes = 1 + extension_flits(pruned.count) + data_flits
    return Plan(
        inputs=tuple(inputs),
        flits_in=np.array(flits_in),
        flits_out=np.bincount(pruned.port, sizes, params.ports).astype(np.int64),
        copies_out=np.bincount(pruned.port, minlength=params.ports),
        fan_out=np.bincount(pruned.masks.sum(axis=1)),
        top_k=trace.top_k,
        data_flits=data_flits,
    )


def replay(
    trace: Trace,
    *,
    gpus: int,
    experts_per_gpu: int,
    payload: int,
    packets_per_token: int,
    folder: Path,
    seed: int,
    params: SwitchParams | None = None,
    links_per_gpu: int = 1,
    order: Order | str = "interleaved",
    ready: int = 100,
    name: str = "replay",
    progress: Progress | None = None,
) -> ReplayResult:
    """Run a trace through the generated Verilog and check what comes out.

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
    params : SwitchParams, optional
        The switch. By default :func:`switch_for` the trace.
    order : str
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
    tell = progress or _nothing
    _check("ready", ready, 1, 100)
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
        order=order,
        seed=seed,
    )
    tell("generating and building the switch")
    environment = SwitchEnvironment(params, folder)
    config = replace(SwitchConfig.at_reset(params), experts_per_gpu=experts_per_gpu)
    phase = Phase(
        inputs=plan.inputs,
        config=config,
        cycles=100_000 + 10 * plan.ideal_cycles * 100 // ready,
    )
    where = folder / "runs" / name
    shutil.rmtree(where, ignore_errors=True)
    # A receiver needs room for the longest packet and 4 flits more.
    pace = Pace(depth=max(_DEPTH, _power_of_two(params.max_request_flits + 4)), ready=ready)
    with _watched(where, int(plan.flits_out.sum()), tell):
        (result,) = environment.run([phase], name=name, seed=seed, pace=pace)
    tell("checking every packet")
    problems = result.problems()
    if problems:
        raise SimulationError(
            f"{len(problems)} differences from the golden model, the first: {problems[0]}; "
            f"seed {seed}, see {where}"
        )
    return ReplayResult(
        plan=plan,
        params=params,
        cycles=result.cycles,
        flits_in=np.array([len(log.flits) for log in result.inputs]),
        flits_out=np.array([len(log.flits) for log in result.outputs]),
        copies=sum(len(log.packets) for log in result.outputs),
    )


def _nothing(what: str, part: float = 0.0) -> None:
    pass


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _experts(gpus: int, experts_per_gpu: int) -> int:
    _check("experts_per_gpu", experts_per_gpu, 1, _EXPERTS - 1)
    return min(gpus * experts_per_gpu, _EXPERTS)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check(name: str, value: int, low: int, high: int | None = None) -> None:
    if not _is_int(value) or value < low or (high is not None and value > high):
        wanted = f"{low} or more" if high is None else f"{low} to {high}"
        raise ReplayError(f"`{name}` must be {wanted}, not {value!r}")


@contextmanager
def _watched(where: Path, flits: int, tell: Progress) -> Iterator[None]:
    """Tell from the growth of the output logs how far a run is."""
    ended = Event()

    def watch() -> None:
        while not ended.wait(0.3):
            seen = sum(path.stat().st_size for path in where.glob("out0_*.log"))
            tell("simulating", min(1.0, seen / _LOG_LINE / flits))

    thread = Thread(target=watch, daemon=True)
    tell("simulating")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
