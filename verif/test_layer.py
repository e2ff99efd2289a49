# SPDX-License-Identifier: Apache-2.0
"""Whole layers by ``run_layer``: modes, figures, dumps, and what it refuses."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dysharp.gen.traces import Trace, synthetic_trace
from dysharp.golden.moe import to_float
from dysharp.golden.moe_bounds import far_from_exact
from dysharp.rtl.flits import DType, Order
from dysharp.rtl.system import SYSTEM_PRESETS
from dysharp.verif.layer import make_layer, run_layer, system_for
from dysharp.verif.lib.run import SimulationError
from dysharp.verif.link_use import LinkUse, draw_link_use
from dysharp.verif.plan import ReplayError
from dysharp.verif.system.moe_run import Mode, MoeRun

TINY = SYSTEM_PRESETS["tiny"]
BUILD = Path(__file__).parents[1] / "build" / "sim"


def small_layer(tokens=40, top_k=6, hidden=512, **changes):
    trace = synthetic_trace("power", tokens=tokens, experts=16, top_k=top_k, seed=4)
    arguments = {"gpus": 4, "experts_per_gpu": 4, "hidden": hidden, "seed": 4}
    return make_layer(trace, **arguments | changes)


@pytest.mark.parametrize("mode", list(Mode))
def test_modes(mode):
    """Links carry exactly what was counted from the packet format."""
    posted = mode in (Mode.DISPATCH, Mode.TOGETHER)
    result = run_layer(
        small_layer(),
        folder=BUILD,
        seed=5,
        mode=mode,
        params=TINY,
        posted=posted,
        at_once=2,
        name=f"layer_{mode.value}",
    )
    for step, link in zip(result.steps, result.links, strict=True):
        assert [len(log.flits) for log in step.up] == link.up.tolist()
        assert [len(log.flits) for log in step.down] == link.down.tolist()
    figures = result.figures()
    assert figures["link_flits"] == figures["planned_link_flits"]
    assert 0 < figures["efficiency"] <= 1
    assert (
        figures["hub_hits"] + figures["hub_misses"] + figures["hub_merged"]
        == (figures["hub_lookups"])
    )
    allocations = 0 if mode is Mode.COMBINE else 40 * 6
    assert figures["hub_allocations"] == allocations
    uses = result.uses()
    assert [use.name for use in uses] == result.names
    for use, step in zip(uses, result.steps, strict=True):
        shares = use.shares(use.up, 10).mean(axis=1)
        assert shares * use.cycles == pytest.approx([len(log.flits) for log in step.up])


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16_ACC32], ids=lambda dtype: dtype.name)
def test_order_of_arrival_is_near_the_exact_sums(dtype):
    layer = small_layer(dtype=dtype, top_k=8)
    result = run_layer(
        layer, folder=BUILD, seed=6, order=Order.ARRIVAL, params=TINY, name=f"arrival_{dtype.name}"
    )
    assert result.sums.shape == layer.tokens.shape


def test_the_bound_of_sums_sees_what_is_wrong():
    layer = small_layer(dtype=DType.BF16)
    rng = np.random.default_rng(1)
    outputs = (rng.standard_normal((len(layer.token), 256)).astype(np.float32)).view(np.uint32)
    outputs = (outputs >> 16).astype(np.uint16)
    sums = layer.combine(outputs)
    assert not far_from_exact(layer, outputs, sums).any()
    wrong = sums.copy()
    wrong[3, 7] ^= 0x0100
    wrong[4, 8] = 0x7FC0  # NaN
    far = np.argwhere(far_from_exact(layer, outputs, wrong)).tolist()
    assert far == [[3, 7], [4, 8]]
    assert np.isfinite(to_float(DType.BF16, sums)).all()


@pytest.mark.parametrize("waves", [False, pytest.param(True, marks=pytest.mark.regress)])
def test_dump_keeps_images_sums_and_waves(tmp_path, waves):
    layer = small_layer(tokens=6, top_k=2, hidden=64)
    result = run_layer(
        layer,
        folder=BUILD,
        seed=7,
        params=TINY,
        name=f"layer_dump_{waves}",
        dump=tmp_path / "dump",
        waves=waves,
    )
    names = {path.name for path in (tmp_path / "dump").iterdir()}
    images = {f"memory_step{step}_gpu{gpu}.npz" for step in (0, 1) for gpu in range(4)}
    assert names == images | {"sums.npy"} | ({"waves.vcd"} if waves else set())
    assert np.array_equal(np.load(tmp_path / "dump" / "sums.npy"), result.sums)
    with np.load(tmp_path / "dump" / "memory_step1_gpu2.npz") as file:
        dumped = {int(name, 16): file[name] for name in file}
    kept = {address: content for address, content in result.steps[1].dumps[2] if len(content)}
    assert all(np.array_equal(dumped[address], kept[address]) for address in kept)


def test_a_difference_ends_the_run(monkeypatch):
    monkeypatch.setattr(MoeRun, "problems", lambda self, steps: ["dispatch: GPU 1: wrong", "b"])
    message = "2 differences from the golden model, the first: dispatch: GPU 1: wrong; seed 3, see"
    with pytest.raises(SimulationError, match=f"^{message}"):
        run_layer(
            small_layer(tokens=4, hidden=64), folder=BUILD, seed=3, params=TINY, name="layer_wrong"
        )


def test_masked_tokens_and_weights_of_the_trace():
    ids = np.array([[3, -1, 9], [-1, -1, -1], [15, 0, 1]])
    weights = np.array([[0.5, 7, 0.25], [1, 1, 1], [2, 3, 4]], np.float32)
    layer = make_layer(Trace(ids, {}, weights), gpus=4, experts_per_gpu=4, hidden=64)
    assert layer.counts.tolist() == [2, 0, 3]
    assert np.array_equal(layer.weights, weights)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": 24}, "`hidden` must be a multiple of 16 up to 1048576 bytes, not 24"),
        (
            {"hidden": 1 << 21},
            f"`hidden` must be a multiple of 16 up to 1048576 bytes, not {2**21}",
        ),
        ({"placement": "any"}, "`placement` must be one of interleaved, blocked, not 'any'"),
        ({"seed": -1}, "`seed` must be 0 or more, not -1"),
    ],
)
def test_wrong_layer(changes, message):
    with pytest.raises(ReplayError, match=f"^{re.escape(message)}$"):
        small_layer(**changes)


def test_wrong_run():
    layer = small_layer(tokens=4)
    with pytest.raises(ReplayError, match=r"^`at_once` must be 1 or more, not 0$"):
        run_layer(layer, folder=BUILD, seed=0, params=TINY, at_once=0)
    none = replace(layer, ids=np.full_like(layer.ids, -1))
    with pytest.raises(ReplayError, match=r"^the trace must have a token with an expert$"):
        run_layer(none, folder=BUILD, seed=0, params=TINY)
    with pytest.raises(ReplayError, match=r"^the layer does not fit `params`$"):
        run_layer(layer, folder=BUILD, seed=0, params=SYSTEM_PRESETS["default"])


def test_system_for():
    assert system_for(8, 8, 8) == SYSTEM_PRESETS["default"]
    params = system_for(4, 64, 8)
    assert (params.gpus, params.gpu.experts, params.gpu.gpus) == (4, 64, 4)
    with pytest.raises(ReplayError, match=r"^8 GPUs with 512 experts each: `experts` times `obj"):
        system_for(8, 512, 8)


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_picture(tmp_path, suffix):
    use = LinkUse("a", 300, [np.arange(0, 300, 2)] * 3, [np.arange(100)] * 3)
    short = LinkUse("b", 1, [np.zeros(1, np.int64)] * 3, [np.zeros(0, np.int64)] * 3)
    path = tmp_path / "new" / f"use.{suffix}"
    draw_link_use(path, [use, short])
    head = path.read_bytes()[:100]
    assert head.startswith(b"\x89PNG" if suffix == "png" else b"<?xml")
    assert use.shares(use.down, 3).tolist() == [[1, 0, 0]] * 3
