# SPDX-License-Identifier: Apache-2.0
import random

import pytest
from dysharp.rtl.flits import Status
from dysharp.rtl.gpu_params import GpuParams
from dysharp.verif.common.pressure import PRESSURES, pressure
from dysharp.verif.queue.units import ODD, TINY, Bench, Lists, random_accesses, random_lists

FAULTS = {
    Status.UNKNOWN_OPCODE,
    Status.BAD_LENGTH,
    Status.BAD_ADDRESS,
    Status.COUNT_ZERO,
    Status.TOO_MANY_TARGETS,
    Status.BAD_REDUCTION,
}


@pytest.mark.parametrize("level", PRESSURES)
@pytest.mark.parametrize("params", [TINY, ODD], ids=["tiny", "odd"])
def test_queue_random_against_the_model(params: GpuParams, level: str) -> None:
    """Accesses, lists, responses, errors and stale responses of all kinds."""
    rng = random.Random(f"{level} {params}")
    memories = random_lists(rng)
    bench = Bench(
        params,
        random_accesses(rng, params, 400),
        memories,
        rng,
        gaps=pressure(rng.choice(PRESSURES), rng),
        link=level,
        results_level=rng.choice(PRESSURES),
        lists=Lists(memories, rng, busy=0.0 if level == "none" else 0.3),
    )
    bench.run()
    entries = bench.check()
    assert bench.counts["merged"] > 50
    assert bench.counts["stale"] > 10
    assert 0 < (entries.status != 0).sum() < len(entries.status)


@pytest.mark.parametrize("params", [TINY, ODD], ids=["tiny", "odd"])
def test_queue_tells_every_fault(params: GpuParams) -> None:
    """Mostly faults, and packets in between that keep their place."""
    rng = random.Random(7)
    memories = random_lists(rng)
    accesses = random_accesses(rng, params, 800, faults=0.8)
    bench = Bench(params, accesses, memories, rng)
    bench.run()
    entries = bench.check()
    assert set(entries.status.tolist()) == {0, *(status.value for status in FAULTS)}
