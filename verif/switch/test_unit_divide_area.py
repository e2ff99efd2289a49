# SPDX-License-Identifier: Apache-2.0
"""Comparing with multiples against multiplying with a reciprocal: same result, which is smaller."""

from pathlib import Path

import numpy as np
import pytest
from amaranth.back import rtlil
from amaranth.lib import wiring
from dysharp.rtl.flits import TARGET_BITS
from dysharp.synth.flow import synthesise

from .multiply_lane import CompareLanes, MultiplyLanes, reciprocal


def test_reciprocal_is_exact_for_every_target() -> None:
    targets = np.arange(1 << TARGET_BITS, dtype=np.uint64)
    rng = np.random.default_rng(5)
    chosen = {1, 2, 3, 7, 8, 9, 255, 256, 257, 32767, 32768, 65534, 65535}
    chosen |= {int(value) for value in rng.integers(1, 1 << TARGET_BITS, 500)}
    for experts in sorted(chosen):
        multiplier, shift = reciprocal(experts)
        assert multiplier < 1 << TARGET_BITS + 1
        got = targets * np.uint64(multiplier) >> np.uint64(TARGET_BITS + shift)
        assert np.array_equal(got, targets // np.uint64(experts)), experts


def _gates(component: wiring.Component, folder: Path) -> float:
    folder.mkdir()
    path = folder / "lanes.il"
    path.write_text(rtlil.convert(component, name="lanes", emit_src=False))
    return synthesise(path, "lanes", workdir=folder, tree_levels=0).area_ge


@pytest.mark.parametrize("gpus", [8, pytest.param(32, marks=pytest.mark.regress)])
def test_comparing_is_smaller_than_multiplying(gpus: int, tmp_path: Path) -> None:
    compared = _gates(CompareLanes(gpus, 1), tmp_path / "compare")
    multiplied = _gates(MultiplyLanes(gpus, 1), tmp_path / "multiply")
    print(f"{gpus} GPUs, one lane: comparing {compared:.0f}, multiplying {multiplied:.0f} gates")
    assert compared < multiplied
