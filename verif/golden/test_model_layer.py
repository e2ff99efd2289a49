# SPDX-License-Identifier: Apache-2.0
"""Tests the time model: the engine by hand, loads by closed forms, layers by bounds."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from dysharp.golden.model.layer import link_loads, simulate_layer
from dysharp.golden.model.machine import Machine
from dysharp.golden.model.paper import ablation, compare
from dysharp.golden.model.sweeps import run_sweep
from dysharp.golden.model.systems import SYSTEMS
from dysharp.golden.model.timeline import Step, run_timeline
from dysharp.golden.model.workload import WORKLOADS, Workload

MACHINE = Machine()
SMALL = replace(WORKLOADS["S-8"], tokens=512)


def even(name: str, server: int, work: float, tiles: int = 4, **more: Any) -> Step:
    return Step(name=name, server=server, work=np.full(tiles, work), **more)


def test_pipeline_by_hand() -> None:
    first, second = run_timeline((even("a", 0, 1.0), even("b", 1, 2.0)))
    assert first.end.tolist() == [1, 2, 3, 4]
    assert second.begin.tolist() == [1, 3, 5, 7]
    assert second.end.max() == 9
    assert second.busy == 8


def test_whole_group_and_wait() -> None:
    group = np.zeros(4, np.int64)
    _, second = run_timeline((even("a", 0, 1.0), even("b", 1, 2.0, group=group, wait=0.5)))
    assert second.begin.tolist() == [4.5, 6.5, 8.5, 10.5]


def test_server_is_shared_in_turns() -> None:
    first, second, third = run_timeline((even("a", 0, 1.0), even("b", 1, 0.5), even("c", 0, 1.0)))
    assert third.end.max() == 8
    assert third.begin.min() < first.end.max()
    assert second.busy == 2


def test_steps_of_other_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^`steps` must all have the same number of tiles$"):
        run_timeline((even("a", 0, 1.0), even("b", 1, 1.0, tiles=3)))


@pytest.mark.parametrize(("gpus", "experts", "top_k"), [(2, 4, 2), (3, 6, 3), (4, 8, 2)])
def test_distinct_by_enumeration(gpus: int, experts: int, top_k: int) -> None:
    load = Workload(hidden=16, inner=16, tokens=8, experts=experts, top_k=top_k, spread="uniform")
    lists = list(combinations(range(experts), top_k))
    mean = np.mean([len({e // (experts // gpus) for e in ids}) for ids in lists])
    assert load.distinct(gpus).sum() == pytest.approx(mean)


def test_distinct_of_the_paper() -> None:
    load = replace(WORKLOADS["L-8"], spread="uniform")
    assert load.distinct(32).sum() == pytest.approx(7.267, abs=1e-3)


@pytest.mark.parametrize("width", [0.5, 1.5, 2.5])
def test_popularity_is_a_share(width: float) -> None:
    part = replace(WORKLOADS["S-8"], spread="power", width=width).popularity()
    assert part.sum() == pytest.approx(8)
    assert part.max() <= 1 + 1e-9
    assert part.min() >= 0


def test_cut_directions() -> None:
    plain = link_loads(SMALL, MACHINE, "gpu")
    cut = link_loads(SMALL, MACHINE, "dynamic")
    assert cut[0].up < 0.3 * plain[0].up
    assert cut[1].down < 0.3 * plain[1].down
    assert cut[0].down > 0.85 * plain[0].down
    kept = link_loads(SMALL, replace(MACHINE, lists="kept"), "dynamic")
    assert kept[0].down > cut[0].down
    assert kept[1].down > cut[1].down


@pytest.mark.parametrize("name", list(SYSTEMS))
def test_time_is_within_bounds(name: str) -> None:
    time = simulate_layer(SMALL, MACHINE, name)
    least = max(time.up_seconds, time.down_seconds, time.compute_seconds)
    most = time.dispatch_seconds + time.combine_seconds + time.compute_seconds
    assert least <= time.seconds
    if name in ("DeepEP", "NVLS", "DySHARP-Basic"):
        assert time.seconds >= most
    assert time.tiles == SMALL.tiles(32)


@pytest.mark.parametrize("name", list(SYSTEMS))
def test_faster_links_never_hurt(name: str) -> None:
    slow = simulate_layer(SMALL, MACHINE, name).seconds
    fast = simulate_layer(SMALL, replace(MACHINE, link_rate=50e9), name).seconds
    assert fast <= slow * (1 + 1e-9)


def test_equal_runs_are_equal() -> None:
    a, b = (simulate_layer(SMALL, MACHINE) for _ in range(2))
    assert a.seconds == b.seconds


def test_paper() -> None:
    for figure in compare():
        if "geomean" in figure.name:
            assert abs(figure.difference) < 0.1, figure


def test_ablation() -> None:
    found = ablation()
    assert found.cut_gains_little
    assert found.full_is_best
    # The paper has none; the model leaves it the fill and drain of two exchanges.
    assert found.fusion_over_comet < 1.03


def test_sweep_of_top_k() -> None:
    points = run_sweep("top-k", SMALL, MACHINE, ("DySHARP",))
    by_value = {point.value: point.speedup for point in points}
    assert by_value[8] > by_value[4] > by_value[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"top_k": 65}, r"^`top_k` must be 1 to 64, not 65$"),
        ({"spread": "flat"}, r"^`spread` must be one of .*, not 'flat'$"),
        ({"width": -1.0}, r"^`width` must be 0 to 8, not -1.0$"),
        ({"matrices": 4}, r"^`matrices` must be one of \(2, 3\), not 4$"),
    ],
)
def test_workload_wrong(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(WORKLOADS["S-8"], **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lists": "short"}, r"^`lists` must be 'stripped' or 'kept', not 'short'$"),
        ({"flops": 0.0}, r"^`flops` must be above 0, not 0.0$"),
        ({"sync": -1.0}, r"^`sync` must be 0 or more, not -1.0$"),
        ({"gemm_efficiency": 1.1}, r"^`gemm_efficiency` must be above 0 and 1 at most, not 1.1$"),
    ],
)
def test_machine_wrong(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(MACHINE, **change)


def test_names_and_counts_wrong() -> None:
    with pytest.raises(ValueError, match=r"^`system` must be one of .*, not 'COMETS'$"):
        simulate_layer(SMALL, MACHINE, "COMETS")
    with pytest.raises(ValueError, match=r"^`gpus` must divide the 64 experts, not 24$"):
        SMALL.rows(24)
    with pytest.raises(ValueError, match=r"^`traffic` must be .*, not 'none'$"):
        link_loads(SMALL, MACHINE, "none")
