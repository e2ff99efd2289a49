# SPDX-License-Identifier: Apache-2.0
"""Whole MoE layers on the RTL: memories, AL tables and sums, bit by bit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dysharp.golden.arrays import value_of
from dysharp.golden.moe import MoeLayer, TwoGemms, from_float, to_float
from dysharp.rtl.flits import DType, Order, Status
from dysharp.rtl.system import SYSTEM_PRESETS
from dysharp.verif.system.environment import Settings, StepResult, SystemEnvironment
from dysharp.verif.system.harness import Sizes
from dysharp.verif.system.moe_run import MoeRun

BUILD = Path(__file__).parents[2] / "build" / "sim"
PARAMS = SYSTEM_PRESETS["tiny"]
MEMORY = 1 << 20

QUICK = Settings(read_min=2, read_max=4, write_min=2, write_max=3, table_min=1, table_max=3)
SLOW = Settings(
    read_min=100,
    read_max=600,
    write_min=50,
    write_max=300,
    memory_percent=40,
    table_min=200,
    table_max=1000,
    table_percent=50,
    global_max=400,
    list_percent=60,
    result_percent=30,
)


def layer(
    dtype: Any, *, tokens: int = 24, hidden: int = 96, k: int = 6, masked: float = 0.25, seed: int
) -> MoeLayer:
    rng = np.random.default_rng(seed)
    experts = PARAMS.gpus * PARAMS.gpu.experts
    ids = np.array([rng.permutation(experts)[:k] for _ in range(tokens)])
    ids[rng.random(ids.shape) < masked] = -1
    ids[3] = -1
    return MoeLayer(
        gpus=PARAMS.gpus,
        experts_per_gpu=PARAMS.gpu.experts,
        dtype=dtype,
        tokens=from_float(dtype, rng.standard_normal((tokens, hidden))),
        sources=rng.integers(0, PARAMS.gpus, tokens),
        ids=ids,
        weights=rng.random(ids.shape).astype(np.float32),
    )


def made(moe: MoeLayer, **options: Any) -> MoeRun:
    outputs = moe.outputs(TwoGemms(moe.experts, moe.tokens.shape[1], 16))
    return MoeRun(moe, outputs, PARAMS, memory=MEMORY, **options)


def play(run: MoeRun, name: str, seed: int) -> list[StepResult]:
    bench = SystemEnvironment(PARAMS, BUILD, sizes=Sizes(memory=MEMORY))
    return bench.run(run.steps(), name=f"moe-{name}", seed=seed)


CASES: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "bf16": (DType.BF16, {}, {}),
    "f32-quick": (DType.F32, {"hidden": 48}, {"settings": QUICK}),
    "f16-slow": (DType.F16, {"tokens": 12}, {"settings": SLOW, "shared": False}),
    "acc32": (DType.BF16_ACC32, {"k": 12}, {}),
    "acc32-parts": (DType.F16_ACC32, {"k": 12}, {"presum": False}),
    "odd-block": (DType.BF16, {"hidden": 72}, {"bsize": 2880}),
    "misaligned-lists": (DType.BF16, {"k": 16, "masked": 0.1}, {"alignment": 2}),
    "posted": (DType.BF16, {}, {"posted": True}),
    "top-1": (DType.F16, {"k": 1, "masked": 0.0}, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_layer(name: str) -> None:
    dtype, shape, options = CASES[name]
    run = made(layer(dtype, seed=len(name), **shape), **options)
    assert run.problems(play(run, name, seed=len(name))) == []


def test_sums_in_order_of_arrival() -> None:
    """Not the canonical bits, but near the exact sums."""
    moe = layer(DType.F32, seed=5)
    run = made(moe, order=Order.ARRIVAL)
    results = play(run, "arrival", 5)
    assert run.problems(results) == []
    network = TwoGemms(moe.experts, moe.tokens.shape[1], 16)
    exact = moe.exact(network)
    assert np.abs(to_float(moe.dtype, run.sums(results)) - exact).max() < 1e-4


def test_same_sums_whatever_the_timing() -> None:
    moe = layer(DType.BF16, seed=6)
    sums = []
    for number, settings in enumerate((QUICK, SLOW)):
        run = made(moe, settings=settings)
        results = play(run, f"timing{number}", seed=number)
        assert run.problems(results) == []
        sums.append(run.sums(results))
    assert np.array_equal(sums[0], sums[1])


def test_the_check_sees_what_is_wrong() -> None:
    run = made(layer(DType.BF16, seed=7))
    dispatch, combine = play(run, "wrong", 7)
    assert run.problems([dispatch, combine]) == []
    assert run.problems([replace(dispatch, end="hang"), combine]) == [
        "step 0 ended with hang, fault False"
    ]
    log = [part.copy() for part in combine.results]
    log[1]["data"][0, 0] ^= np.uint64(1)
    assert "1 elements" in run.problems([dispatch, replace(combine, results=log)])[0]
    log = [part.copy() for part in dispatch.results]
    log[2]["status"][0] = value_of(Status.TIMEOUT)
    assert run.problems([replace(dispatch, results=log), combine]) == [
        "dispatch: GPU 2: 1 results with TIMEOUT or others"
    ]
    assert (
        "accesses have ended"
        in run.problems(
            [dispatch, replace(combine, results=[part[1:] for part in combine.results])]
        )[0]
    )
    dumps = [[(a, c.copy()) for a, c in dump] for dump in dispatch.dumps]
    dumps[3][0][1][5] ^= 1
    assert (
        "dispatch: GPU 3: 1 wrong bytes from"
        in run.problems([replace(dispatch, dumps=dumps), combine])[0]
    )
    swapped = [dispatch.down[1], dispatch.down[0], *dispatch.down[2:]]
    with pytest.raises(ValueError, match="`arrival` of GPU"):
        run.problems([replace(dispatch, down=swapped), combine])
