# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dysharp.gen.traces import Trace
from dysharp.synth.flow import EMBEDDED_LIB
from dysharp.verif.commands import BENCHES
from dysharp.verif.hub import bench
from dysharp.verif.hub.tlb_area import tlb_area
from dysharp.verif.hub.tlb_trace import hit_rates, hub_lookups


def test_bench_gpu_quick(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All figures but area and clock, and the bars that do not depend on the size."""
    monkeypatch.setenv("DYSHARP_SHARED", str(tmp_path))
    assert BENCHES["gpu"] == bench.__name__
    told: list[str] = []
    results: dict[str, Any] = bench.bench(tmp_path, 1, True, told.append)
    assert results["queue_requests_per_cycle"] >= 0.95
    assert 0.79 < results["queue_requests_per_cycle_link"] <= 0.8
    assert results["tlb_lookups_per_cycle"] == 1
    assert results["tlb_hit_latency_cycles"] <= 3
    assert results["translator_hits_per_cycle"] == 1
    assert results["miss_overlap"] >= 8
    assert results["tlb_trace"] == "synthetic power law"
    assert results["tlb_lookups"] == 160 * 8 * 32
    assert results["tlb_hit_rate_infinite"] - results["tlb_hit_rate_512"] < 0.01
    sweep = [results[f"tlb_hit_rate_cam_{entries}"] for entries in bench.SIZES]
    assert sweep == sorted(sweep)
    assert sweep[bench.SIZES.index(512)] == results["tlb_hit_rate_512"]
    assert all(results[f"tlb_hit_rate_sets_{entries}"] <= 31 / 32 for entries in bench.SIZES)
    assert not [key for key in results if "area" in key or "fmax" in key]
    assert len(told) == len(set(told)) == 6
    printed = capsys.readouterr().out
    assert "4096" in printed
    assert f"{sweep[0]:.4f}" in printed


def test_bench_gpu_tells_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without libraries of others: areas on the embedded one, and a reason for each None."""
    monkeypatch.setenv("DYSHARP_SHARED", str(tmp_path))
    monkeypatch.delenv("DYSHARP_PDK_ROOT", raising=False)
    monkeypatch.setattr(bench, "SIZES", (16,))
    areas: dict[str, Any] = bench._areas(tmp_path, lambda text: None)
    assert areas["tlb_area_library"] == EMBEDDED_LIB.name
    assert 5_000 < areas["tlb_area_ge_cam_16"] < areas["tlb_area_ge_sets_16"] < 40_000
    assert areas["cam_area_ge_per_entry"] is None
    assert areas["cam_area_ge_per_entry_missing"] == "library of nangate45: not found"
    assert bench._clock("queue", None, tmp_path, lambda text: None) == {
        "fmax_asap7_tt_GHz_queue": None,
        "fmax_asap7_tt_GHz_queue_missing": "library of asap7: not found",
    }


def test_tlb_area_counts_ram_apart(tmp_path: Path) -> None:
    area = tlb_area("sets", 256, [EMBEDDED_LIB], tmp_path)
    assert area.ram == 0.75 * 256 * (48 + 31)
    assert area.total == area.cells + area.ram
    assert 0 < area.cells < area.ram


def test_hub_lookups_come_in_turns() -> None:
    """Two GPUs with two experts each; packets of both sources by turns, targets in list order."""
    trace = Trace(np.array([[0, 2], [1, 0], [3, 2], [2, 1], [1, 0]]))
    first, second = hub_lookups(trace, gpus=2, experts_per_gpu=2, packets=2)

    def tags(*pairs: tuple[int, int]) -> list[int]:
        return [local << 24 | token for local, token in pairs]

    # Tokens 0 and 4 of source 0 have targets here, 1 and 3 of source 1.
    one = [[(0, 0)], [(1, 1), (0, 1)]] * 2
    other = [[(1, 4), (0, 4)], [(1, 3)]] * 2
    assert first.tolist() == tags(*(pair for turn in one + other for pair in turn))
    assert second.tolist() == tags((0, 0), (0, 3), (0, 0), (0, 3), *[(1, 2), (0, 2)] * 2)
    mean, worst = hit_rates([first, second], None)
    assert (mean, worst) == (0.5, 0.5)
    assert hit_rates([first, second[:4]], 2)[1] < 0.5


def test_hub_lookups_of_an_idle_hub() -> None:
    lookups = hub_lookups(Trace(np.array([[0], [0]])), gpus=2, experts_per_gpu=1, packets=3)
    assert [len(tags) for tags in lookups] == [6, 0]
    assert hit_rates(lookups, None) == (4 / 6, 4 / 6)
