# SPDX-License-Identifier: Apache-2.0
"""Measures the switch: throughput, latency, deadlock soak, area and clock."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from dysharp.gen.traces import Trace, read_trace, synthetic_trace
from dysharp.gen.writer import write_top
from dysharp.golden.arrays import value_of
from dysharp.golden.flits import pack_headers, unpack_field
from dysharp.golden.packets import Packets
from dysharp.golden.switch import SwitchConfig
from dysharp.rtl.flits import Opcode
from dysharp.rtl.params import PRESETS, SwitchParams
from dysharp.synth.flow import synthesise
from dysharp.synth.timing import analyse, sta_available
from dysharp.verif.lib.flit_files import FlitLog
from dysharp.verif.lib.shared import shared_folder
from dysharp.verif.replay import replay

from .environment import Phase, SwitchEnvironment
from .soak import soak

__all__ = ["Results", "bench", "clock", "pdk_libraries", "routing_trace"]

Results = dict[str, float | int | str | None]
_EXPERTS_PER_GPU = 8
_CLOCK_PS = 640.0
"""One 16-byte flit a cycle at a link's 25 GB/s."""
_NANGATE_CLOCK_PS = 1250.0
"""Clock at which the areas of the two switches are compared."""


def bench(
    folder: Path, seed: int, quick: bool, progress: Callable[[str], None] = lambda text: None
) -> Results:
    """Measure the `default` switch.

    Parameters
    ----------
    folder : Path
        For generated files and runs.
    seed : int
        Seed of all stimulus.
    quick : bool
        Shorter runs, and neither area nor clock.
    progress : callable
        Told what is being measured.

    Returns
    -------
    dict
        Plain values by name. A value is None when what it needs is not installed.
    """
    params = PRESETS["default"]
    environment = SwitchEnvironment(params, folder)
    results: Results = {}
    packets = 400 if quick else 4000
    progress("unicast, uniform random, saturated")
    ten, speed = unicast_throughput(environment, 10, packets, seed)
    results["unicast_uniform_10flit"] = ten
    results["unicast_uniform_1flit"] = unicast_throughput(environment, 1, packets * 4, seed)[0]
    results["sim_kcycles_per_s"] = speed
    progress("multicast, routing trace")
    trace, name = routing_trace(seed, 400 if quick else 2400)
    played = replay(
        trace,
        gpus=params.gpus,
        experts_per_gpu=_EXPERTS_PER_GPU,
        payload=128,
        packets_per_token=4,
        params=params,
        seed=seed,
        folder=folder,
    )
    results["multicast_efficiency"] = played.efficiency
    results["multicast_trace"] = name
    progress("latency")
    results |= latencies(environment, seed)
    progress("deadlock soak")
    soaked = soak(folder=folder, seed=seed, cycles=50_000 if quick else 1_000_000)
    results["deadlock_soak_hangs"] = soaked.hangs
    results["deadlock_soak_cycles"] = soaked.cycles
    if not quick:
        results |= area_and_clock(params, folder, progress)
    return results


def unicast_throughput(
    environment: SwitchEnvironment, flits: int, packets: int, seed: int
) -> tuple[float, float]:
    """Flits per port and cycle with saturated inputs, and thousands of cycles simulated a second.

    Measured from 500 cycles after the first flit until the first input runs dry.
    """
    params = environment.params
    rng = np.random.default_rng(seed)
    inputs = []
    for port in range(params.ports):
        headers = pack_headers(
            address=rng.integers(0, 1 << 41, packets) << 7,
            count=rng.integers(0, params.gpus, packets),
            opcode=value_of(Opcode.WRITE if flits > 1 else Opcode.READ),
            length=max(1, flits - 1),
            gpu=port,
        )
        data = rng.integers(0, 1 << 64, ((flits - 1) * packets, 2), dtype=np.uint64)
        inputs.append(Packets.build(headers, data=data))
    phase = Phase(inputs=inputs, config=_config(params), cycles=40 * flits * packets)
    began = time.perf_counter()
    result = environment.check(phase, name=f"unicast{flits}", seed=seed)
    elapsed = time.perf_counter() - began
    first = min(int(log.cycles[0]) for log in result.inputs) + 500
    last = min(int(log.cycles[-1]) for log in result.inputs)
    sent = sum(int(((log.cycles >= first) & (log.cycles < last)).sum()) for log in result.outputs)
    return sent / params.ports / (last - first), result.cycles / elapsed / 1000


def latencies(environment: SwitchEnvironment, seed: int) -> Results:
    """Header in to header out on an idle switch, in cycles."""
    params = environment.params
    gpus = range(params.gpus)
    rng = np.random.default_rng(seed)
    one_target = [[gpu] for gpu in gpus]
    fans = [
        sorted(int(gpu) for gpu in rng.choice(params.gpus, size, replace=False))
        for size in gpus[1:]
        if size > 1
    ] + [list(gpus)]
    dynamic = _header_latency(environment, one_target, seed, by_list=True)
    by_list = _header_latency(environment, fans, seed, by_list=True)
    by_group = _header_latency(environment, fans, seed, by_list=False)
    return {
        "low_load_latency_cycles": int(dynamic.max()),
        "static_latency_cycles": int(by_group.max()),
        "added_latency_cycles": int((by_list - by_group).max()),
    }


def _header_latency(
    environment: SwitchEnvironment, fans: list[list[int]], seed: int, *, by_list: bool
) -> np.ndarray:
    """Largest latency of any copy, for every fan-out, over all source ports."""
    params = environment.params
    config = replace(
        _config(params),
        groups=tuple(
            sum(1 << gpu for gpu in fans[group]) if group < len(fans) else 0
            for group in range(params.groups)
        ),
    )
    worst = np.zeros(len(fans), dtype=np.int64)
    gap = 100
    for source in range(params.ports):
        inputs = [Packets() for _ in range(params.ports)]
        address = np.arange(len(fans)) << 7
        if by_list:
            headers = pack_headers(
                address=address,
                count=np.array([len(fan) for fan in fans]),
                opcode=value_of(Opcode.DY_ST),
                length=8,
                gpu=source,
                posted=1,
            )
            targets = np.concatenate([np.array(fan) for fan in fans]) * config.experts_per_gpu
        else:
            headers = pack_headers(
                address=address,
                count=np.arange(len(fans)),
                opcode=value_of(Opcode.MM_ST),
                length=8,
                gpu=source,
                posted=1,
            )
            targets = np.zeros(0, dtype=np.int64)
        data = np.zeros((8 * len(fans), 2), dtype=np.uint64)
        inputs[source] = Packets.build(headers, targets=targets, data=data)
        gaps = [np.full(len(packets), gap) for packets in inputs]
        result = environment.check(
            Phase(inputs=inputs, config=config, gaps=gaps), name="latency", seed=seed
        )
        entered = _header_cycles(result.inputs[source])
        for log in result.outputs:
            for number, cycle in _header_cycles(log).items():
                worst[number] = max(worst[number], cycle - entered[number])
    return worst


def _header_cycles(log: FlitLog) -> dict[int, int]:
    """Cycle of every header, by the number in its address."""
    packets = log.packets
    numbers = unpack_field(packets.headers, "address") >> 7
    return dict(zip(numbers.tolist(), log.cycles[packets.starts].tolist(), strict=True))


def area_and_clock(params: SwitchParams, folder: Path, progress: Callable[[str], None]) -> Results:
    """Measure what lists cost in logic and flops, and how fast the switch could be clocked."""
    results: Results = {"prune_area_overhead": None}
    nangate = pdk_libraries("nangate45/lib/*typ.lib*")
    if nangate:
        areas = {}
        for dynamic in (True, False):
            progress(f"area on nangate45, {'with' if dynamic else 'without'} lists")
            design = write_top(
                "switch",
                replace(params, dynamic=dynamic),
                folder / f"area_{dynamic}",
                checks=False,
            )
            areas[dynamic] = synthesise(
                design,
                design.stem,
                libs=nangate,
                clock_ps=_NANGATE_CLOCK_PS,
                workdir=folder / f"area_{dynamic}",
                tree_levels=0,
            )
        results |= {
            "prune_area_overhead": areas[True].area / areas[False].area,
            "area_dynamic_ge": areas[True].area_ge,
            "area_static_ge": areas[False].area_ge,
            "memory_bits_dynamic": areas[True].memory_bits,
            "memory_bits_static": areas[False].memory_bits,
        }
    return results | clock("switch", params, folder, progress)


def clock(top: str, params: SwitchParams, folder: Path, progress: Callable[[str], None]) -> Results:
    """Measure how fast a top could be clocked on asap7, typical, before layout."""
    libraries = pdk_libraries("asap7/lib/*RVT_TT*.lib*")
    if not libraries or not sta_available():
        return {"fmax_asap7_tt_GHz": None}
    progress("clock on asap7")
    design = write_top(top, params, folder / "asap7", checks=False)
    mapped = synthesise(
        design,
        design.stem,
        libs=libraries,
        clock_ps=_CLOCK_PS,
        workdir=folder / "asap7",
        tree_levels=0,
    )
    timing = analyse(mapped, clock_ps=_CLOCK_PS)
    return {"fmax_asap7_tt_GHz": timing.fmax_ghz, "area_asap7_um2": mapped.area}


def _config(params: SwitchParams) -> SwitchConfig:
    return replace(SwitchConfig.at_reset(params), experts_per_gpu=_EXPERTS_PER_GPU)


def pdk_libraries(pattern: str) -> list[Path]:
    """Libraries of a PDK by pattern; none where there are no PDKs."""
    root = os.environ.get("DYSHARP_PDK_ROOT")
    return sorted((Path(root) if root else shared_folder() / "pdk").glob(pattern))


def routing_trace(seed: int, tokens: int) -> tuple[Trace, str]:
    """Read the OLMoE trace where it is there, else make one of the same shape."""
    found = sorted((shared_folder() / "data/moe_routes").glob("olmoe*.jsonl*"))
    if found:
        return read_trace(found[0], experts=64, tokens=tokens), found[0].name
    made = synthetic_trace("power", tokens=tokens, experts=64, top_k=8, seed=seed)
    return made, "synthetic power law"
