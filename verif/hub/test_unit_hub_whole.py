# SPDX-License-Identifier: Apache-2.0
"""The whole hub: registers, translation with AL tables in memory, and data path."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dysharp.golden.al_map import AlMap, DynamicObject, Expert, StaticObject
from dysharp.golden.hub import HubModel
from dysharp.golden.packets import Packets
from dysharp.rtl.flits import REDUCTIONS
from dysharp.rtl.gpu_params import GPU_PRESETS, GpuParams
from dysharp.rtl.hub.hub import Hub
from dysharp.verif.common.sim import simulate
from dysharp.verif.hub.path_bench import MEMORY, PathBench, Timing, make_request
from dysharp.verif.hub.translation_units import Bus, TableMemory, settings

PARAMS = GPU_PRESETS["tiny"]
_TABLES = MEMORY - 0x1000
_BLOCK = 6  # of 16 B: not a power of two
_BLOCKS = 12
_EXPERTS = tuple(
    Expert(
        table=_TABLES + 0x100 * n,
        nactive=10,
        dispatch=0x400 * n + 0x10,
        combine=0x400 * n + 0x10,
    )
    for n in range(4)
)
OBJECTS: list[Any] = [
    DynamicObject(base=1 << 20, blocks=_BLOCKS, block=_BLOCK, first_expert=5, experts=_EXPERTS),
    StaticObject(base=1 << 30, size=0x800, memory=0x2000),
]


class HubBench(PathBench):
    """Adds the port of the AL tables, which lie in the same memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.image[_TABLES:] = 0
        self.memory = self.image.copy()

    def _model(self) -> HubModel:
        memory = self.image.copy()
        mapping = AlMap(list(OBJECTS), memory, _TABLES)
        return HubModel(self.params, memory, mapping.translate, presum=self.presum)

    async def _tick(self, ctx: Any) -> None:
        if self.setting_up:
            self.given += ctx.get(self.dut.credit)
        await self.table.cycle(ctx)

    def run(self) -> "HubBench":
        """Set the registers, carry out the requests, and read the counters."""
        self.dut = dut = Hub(self.params)
        self.setting_up = True

        async def testbench(ctx: Any) -> None:
            self.table = TableMemory(dut.table, self.memory, random.Random(self.seed), (2, 30))
            bus = Bus(dut.bus, self.params, self._tick)
            for name, value in settings(list(OBJECTS), _TABLES):
                await bus.write(ctx, name, value)
            await bus.write(ctx, "presum", self.presum)
            self.setting_up = False
            await self._drive(ctx, dut, 20000)
            counters = await bus.counters(ctx)
            self.requests, self.refused = counters["requests"], counters["refused"]

        simulate(dut, testbench, cycles=30000)
        return self


def requests(rng: random.Random, count: int) -> Packets:
    """Make requests to objects and to the memory."""
    packets = []
    for index in range(count):
        opcode = rng.choice((0x1, 0x2, 0x5, 0x6, 0x7, 0x9, 0x9, 0x9, 0xA, 0xA))
        dtype: Any = rng.choice(tuple(REDUCTIONS))
        fields: dict[str, Any] = {"opcode": opcode, "dtype": dtype, "gpu": rng.randrange(4)}
        fields["aux"] = rng.choice(REDUCTIONS[dtype])
        fields["length"] = rng.randint(1, 6)
        if opcode >> 2 == 0:
            fields["address"] = rng.choice((0x2000, 0x400, _TABLES - 32)) + 16 * rng.randrange(4)
        elif opcode >> 2 == 1:
            fields["address"] = (1 << 30) + 16 * rng.randrange(8)
        else:
            fields["length"] = rng.randint(1, 3)
            fields["targets"] = [5 + rng.randrange(4) for _ in range(rng.randint(1, 5))]
            offset = rng.randrange(_BLOCK - fields["length"] + (rng.random() < 0.9))
            block = rng.randrange(_BLOCKS)
            fields["address"] = (1 << 20) + 16 * (_BLOCK * block + offset)
        packets.append(make_request(index, **fields))
    return Packets.concatenate(*packets)


@pytest.mark.parametrize(
    ("seed", "params", "timing", "presum"),
    [
        (1, PARAMS, Timing(), True),
        pytest.param(
            2,
            replace(PARAMS, memory_flits=4),
            Timing(memory="light", read_latency=(1, 20)),
            False,
            marks=pytest.mark.regress,
        ),
    ],
    ids=["fast", "slow"],
)
def test_hub_random(seed: int, params: GpuParams, timing: Timing, presum: bool) -> None:
    """Memory with its AL tables, answers and counters as the models say."""
    bench = HubBench(params, requests(random.Random(seed), 70), timing, seed, presum)
    assert np.count_nonzero(bench.image[_TABLES:]) == 0
    bench.run().check()
    assert bench.table.writes > 10
