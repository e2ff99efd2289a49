# SPDX-License-Identifier: Apache-2.0
"""Figures of whole layers on a system of 8 GPUs: ``dysharp bench system``."""

from pathlib import Path
from typing import Any

import numpy as np
from dysharp.gen.loads import trace_of_loads
from dysharp.gen.traces import Trace, synthetic_trace
from dysharp.rtl.flits import DType
from dysharp.rtl.system import SYSTEM_PRESETS
from dysharp.verif.layer import LayerResult, make_layer, run_layer
from dysharp.verif.lib.progress import Progress
from dysharp.verif.lib.shared import shared_folder
from dysharp.verif.switch.bench import routing_trace

from .environment import Settings
from .harness import Sizes
from .moe_run import Mode

__all__ = ["bench"]

_LOADS = "data/expert_loads/prefill_in512.json.gz"
_GPUS = 8
_TOKENS, _TOKENS_QUICK = 256, 16
_SEEDS, _SEEDS_QUICK = 20, 2
_AT_ONCE = 2
_SIZES = Sizes(memory=1 << 26)
"""For all layers, so that one build is enough."""
_OPTIMISE = 2


def bench(folder: Path, seed: int, quick: bool, progress: Progress) -> dict[str, Any]:
    """Measure on Verilator.

    Parameters
    ----------
    folder : Path
        Generated files, builds and runs go there; builds are used again.
    seed : int
        Of all data and latencies.
    quick : bool
        Short runs.
    progress : Progress
        Told what is under way.

    Returns
    -------
    dict
        Figures by name, as ``bench/README.md`` describes them.
    """
    figures: dict[str, Any] = {}
    trace, name = routing_trace(seed, _TOKENS_QUICK if quick else _TOKENS)
    results = {
        mode: _run(trace, 4096, mode, folder, seed, f"bench_{mode.value}", progress)
        for mode in (Mode.TOGETHER, Mode.SERIAL)
    }
    together, serial = (results[mode].figures() for mode in (Mode.TOGETHER, Mode.SERIAL))
    figures |= {
        "together_efficiency": together["efficiency"],
        "dispatch_efficiency": serial["steps"][0]["efficiency"],
        "combine_efficiency": serial["steps"][1]["efficiency"],
        "speedup_together": serial["measured_cycles"] / together["measured_cycles"],
        "speedup_together_bound": serial["ideal_cycles"] / together["ideal_cycles"],
        "together_cycles": together["measured_cycles"],
        "serial_cycles": serial["measured_cycles"],
        "tlb_hit_rate_together": together["tlb_hit_rate"],
        "sim_flits_per_s": together["link_flits_per_s"],
        "system_trace": name,
        "system_tokens": trace.tokens,
    }
    figures["bit_exact"] = _bit_exact(folder, seed, _SEEDS_QUICK if quick else _SEEDS, progress)
    loads = shared_folder() / _LOADS
    figures["deepseek_loads"] = loads.name if loads.exists() else None
    if loads.exists() and not quick:
        trace = trace_of_loads(loads, layer=30, tokens=64 * _GPUS, top_k=8, seed=seed)
        result = _run(trace, 2 * 7168, Mode.SERIAL, folder, seed, "bench_deepseek", progress)
        shown = result.figures()
        figures |= {
            "deepseek_bit_exact": shown["bit_exact"],
            "deepseek_efficiency": shown["efficiency"],
            "deepseek_cycles": shown["measured_cycles"],
            "deepseek_seconds": result.seconds,
        }
    return figures


def _run(
    trace: Trace,
    hidden: int,
    mode: Mode,
    folder: Path,
    seed: int,
    name: str,
    progress: Progress,
    **options: Any,
) -> LayerResult:
    highest = int(trace.meta.get("num_experts", 64))
    layer = make_layer(
        trace,
        gpus=_GPUS,
        experts_per_gpu=highest // _GPUS,
        hidden=hidden,
        dtype=DType.BF16,
        seed=seed,
    )
    return run_layer(
        layer,
        folder=folder,
        seed=seed,
        mode=mode,
        posted=True,
        at_once=_AT_ONCE,
        sizes=_SIZES,
        params=SYSTEM_PRESETS["default"],
        optimise=_OPTIMISE,
        name=name,
        progress=progress,
        **options,
    )


def _bit_exact(folder: Path, seed: int, seeds: int, progress: Progress) -> bool:
    """Run one small layer with memories of other latencies each time.

    A run whose memories or sums differ from the golden model raises an error; what is left to
    compare is that all runs have the same sums.
    """
    trace = synthetic_trace("power", tokens=32, experts=64, top_k=8, seed=seed)
    rng = np.random.default_rng(seed)
    sums = []
    for number in range(seeds):
        names = ("read", "write", "table", "global")
        low = rng.integers(2, 300, len(names)).tolist()
        high = [least + int(rng.integers(0, 600)) for least in low]
        settings = Settings(
            **{f"{name}_min": value for name, value in zip(names, low, strict=True)},
            **{f"{name}_max": value for name, value in zip(names, high, strict=True)},
            memory_percent=int(rng.integers(30, 101)),
            result_percent=int(rng.integers(30, 101)),
        )
        result = _run(
            trace,
            512,
            Mode.SERIAL,
            folder,
            seed,
            "bench_delays",
            progress,
            settings=settings,
            latency_seed=seed + number,
        )
        assert result.sums is not None
        sums.append(result.sums)
    return all(np.array_equal(each, sums[0]) for each in sums)
