# SPDX-License-Identifier: Apache-2.0
"""Measures the GPU side: the queue's rate, the TLB's hits and area, misses at once, the clock."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from dysharp.rtl.gpu_params import GPU_PRESETS, GpuParams
from dysharp.rtl.hub.translation_layouts import INDEX_BITS, tag_bits
from dysharp.synth.flow import EMBEDDED_LIB
from dysharp.synth.timing import sta_available
from dysharp.verif.console import make_console, make_table
from dysharp.verif.queue.measure import store_rate
from dysharp.verif.switch.bench import Results, clock, pdk_libraries, routing_trace
from rich.table import Table

from .measure import hit_stream, miss_overlap, tlb_stream
from .tlb_area import make_tlb, tlb_area
from .tlb_trace import hit_rates, hub_lookups

__all__ = ["CLOCKED", "FORMS", "SIZES", "bench", "rates", "sweep_table", "trace_hits"]

CLOCKED = ("queue", "hub")
"""Tops whose clock is measured."""
FORMS = ("cam", "sets")
SIZES = tuple(1 << bits for bits in range(4, 13))
"""Entries of a TLB."""
_LARGEST_CAM = 1024
"""Entries of the largest CAM that is mapped; twice as many take twice as long."""
_ENTRIES = 512
"""Those of the preset."""
_GPUS = 8
_EXPERTS_PER_GPU = 8
_BLOCK = 4096
_PAYLOAD = 128
_SMALL = replace(GPU_PRESETS["tiny"], queue_depth=32, entries=64, misses=16, lookups=64)
"""For short runs: what the rates depend on is as in the preset `default`."""


def bench(
    folder: Path, seed: int, quick: bool, progress: Callable[[str], None] = lambda text: None
) -> Results:
    """Measure the GPU side of preset `default`.

    Parameters
    ----------
    folder : Path
        For generated files and runs.
    seed : int
        Seed of a trace that is made where the real one is missing.
    quick : bool
        A smaller hub, fewer tokens, and neither area nor clock.
    progress : callable
        Told what is under way.

    Returns
    -------
    dict
        Plain values by name. A value is None when what it needs is not installed; then a key of the
        same name with ``_missing`` behind it tells what.
    """
    params = _SMALL if quick else GPU_PRESETS["default"]
    results: Results = rates(params, progress)
    progress("hits on a routing trace")
    results |= trace_hits(seed, 160 if quick else 2400)
    if not quick:
        results |= _areas(folder, progress)
    make_console().print(sweep_table(results))
    if not quick:
        for top in CLOCKED:
            results |= _clock(top, params, folder / top, progress)
    return results


def rates(params: GpuParams, progress: Callable[[str], None] = lambda text: None) -> Results:
    """Rates and latencies of queue, TLB and translator, all in Amaranth's simulator."""
    results: Results = {"simulator": "amaranth.sim"}
    progress("rate of the queue")
    results["queue_requests_per_cycle"] = store_rate(params)
    progress("rate of the queue on its link")
    results["queue_requests_per_cycle_link"] = store_rate(params, on_link=True)
    progress("rate of the TLB")
    streams = [
        tlb_stream(make_tlb(form, params.tlb_entries, tag_bits(params), INDEX_BITS))
        for form in FORMS
    ]
    results["tlb_lookups_per_cycle"] = min(rate for rate, _ in streams)
    results["tlb_hit_latency_cycles"] = max(latency for _, latency in streams)
    progress("hits in the translator")
    rate, latency = hit_stream(params)
    results["translator_hits_per_cycle"] = rate
    results["translator_hit_latency_cycles"] = latency
    progress("misses in the translator")
    results["miss_overlap"] = miss_overlap(params)
    return results


def trace_hits(seed: int, tokens: int) -> Results:
    """Hit rates of TLBs of all sizes on a routing trace."""
    trace, name = routing_trace(seed, tokens)
    lookups = hub_lookups(
        trace, gpus=_GPUS, experts_per_gpu=_EXPERTS_PER_GPU, packets=_BLOCK // _PAYLOAD
    )
    results: Results = {"tlb_trace": name, "tlb_lookups": sum(len(tags) for tags in lookups)}
    results |= _rates_of("512", lookups, _ENTRIES)
    results |= _rates_of("infinite", lookups, None)
    # Combine looks the same blocks up once more, when all of dispatch is over.
    twice = [np.concatenate([tags, tags]) for tags in lookups]
    results |= _rates_of("512_with_combine", twice, _ENTRIES)
    results |= _rates_of("infinite_with_combine", twice, None)
    for form in FORMS:
        for entries in SIZES:
            results |= _rates_of(f"{form}_{entries}", lookups, entries, form)
    return results


def _rates_of(
    name: str, lookups: list[npt.NDArray[np.int64]], entries: int | None, form: str = "cam"
) -> Results:
    mean, worst = hit_rates(lookups, entries, form)
    return {f"tlb_hit_rate_{name}": mean, f"tlb_hit_rate_{name}_worst_hub": worst}


def sweep_table(results: Results) -> Table:
    """Hit rate and area by size, for both forms."""
    columns = [f"{form}, {what}" for form in FORMS for what in ("hits", "kGE")]
    table = make_table("TLB: hit rate (mean of the hubs), area", "entries", *columns)
    for entries in SIZES:
        row = [str(entries)]
        for form in FORMS:
            area: Any = results.get(f"tlb_area_ge_{form}_{entries}")
            row.append(f"{results[f'tlb_hit_rate_{form}_{entries}']:.4f}")
            row.append("-" if area is None else f"{area / 1000:,.1f}")
        table.add_row(*row)
    return table


def _areas(folder: Path, progress: Callable[[str], None]) -> Results:
    """Area of both forms, with entries as in the paper."""
    nangate = pdk_libraries("nangate45/lib/*typ.lib*")
    libraries = nangate or [EMBEDDED_LIB]
    results: Results = {
        "tlb_area_library": libraries[0].name,
        "tlb_area_left_out": f"cam above {_LARGEST_CAM} entries",
    }
    for form in FORMS:
        for entries in SIZES:
            if form == "cam" and entries > _LARGEST_CAM:
                continue
            progress(f"area of a TLB, {form}, {entries} entries")
            area = tlb_area(form, entries, libraries, folder / "area")
            results[f"tlb_area_ge_{form}_{entries}"] = area.total
            if (form, entries) == ("cam", _ENTRIES) and nangate:
                results |= {
                    "cam_area_ge_per_entry": area.total / entries,
                    "cam_area_ge_per_entry_cells": area.cells / entries,
                    "cam_area_ge_per_entry_ram": area.ram / entries,
                }
    if not nangate:
        results |= _missing("cam_area_ge_per_entry", "library of nangate45")
    return results


def _clock(top: str, params: Any, folder: Path, progress: Callable[[str], None]) -> Results:
    """Measure how fast a top could be clocked."""
    name = f"fmax_asap7_tt_GHz_{top}"
    if not pdk_libraries("asap7/lib/*RVT_TT*.lib*"):
        return _missing(name, "library of asap7")
    if not sta_available():
        return _missing(name, "OpenSTA")
    progress(f"clock of the {top}")
    found = clock(top, params, folder, progress)
    return {name: found["fmax_asap7_tt_GHz"], f"area_asap7_um2_{top}": found["area_asap7_um2"]}


def _missing(name: str, what: str) -> Results:
    return {name: None, f"{name}_missing": f"{what}: not found"}
