# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements: which writes belong to which store."""

import random
from collections import deque
from typing import Any

import pytest
from dysharp.rtl.flits import Opcode, Status
from dysharp.rtl.hub.stores import Stores
from dysharp.verif.common.sim import simulate
from dysharp.verif.switch.units import field


@pytest.mark.parametrize(("seed", "ready"), [(1, 1.0), (2, 0.3)])
def test_hub_stores_random(seed: int, ready: float) -> None:
    """Errors of writes, of their data and of refused targets come to their own store only."""
    dut = Stores()
    rng = random.Random(seed)

    async def testbench(ctx: Any) -> None:
        expected: deque[tuple[int, int]] = deque()  # tag, status
        writes: deque[tuple[int, bool, bool]] = deque()  # to be sent: (store, mark, error)
        sent: deque[bool] = deque()
        status: dict[int, int] = {}
        refused = seen = store = left = 0
        for cycle in range(2500):
            # A target of a store.
            ctx.set(dut.record_en, 0)
            if cycle < 2000 and not ctx.get(dut.record_full) and rng.random() < 0.4:
                if not left:
                    store, left = store + 1, rng.randint(1, 3)
                    status[store] = 0
                count = rng.choice((0, 1, 1, 2, 5))
                silent = store % 5 == 0
                left -= 1
                ctx.set(dut.record_en, 1)
                for name, value in (("writes", count), ("last", not left), ("silent", silent)):
                    ctx.set(dut.record[name], value)
                ctx.set(dut.record.count, store % 1000)
                ctx.set(dut.record.answer.tag, store % 512)
                ctx.set(dut.record.answer.gpu, store % 4)
                ctx.set(dut.record.answer.unicast, store % 2)
                bad = not count
                for _ in range(count):
                    mark, error = rng.random() < 0.05, rng.random() < 0.05
                    writes.append((store, mark, error))
                    bad |= mark or error
                if bad:
                    status[store] = Status.BAD_ADDRESS.value
                if not left:
                    refused += status[store] != 0
                    if not silent:
                        expected.append((store, status[store]))
            # Writes are sent behind their target, and end later.
            ends = bool(sent) and rng.random() < 0.7
            ctx.set(dut.written, ends)
            ctx.set(dut.write_error, sent.popleft() if ends else rng.randrange(2))
            sends = bool(writes) and not ctx.get(dut.mark_full) and rng.random() < 0.8
            ctx.set(dut.mark_en, sends)
            if sends:
                _, mark, error = writes.popleft()
                ctx.set(dut.mark, mark)
                sent.append(error)
            takes = rng.random() < ready
            ctx.set(dut.answer.ready, takes)
            seen += ctx.get(dut.refused)
            if takes and ctx.get(dut.answer.valid):
                flit = ctx.get(dut.answer.payload.flit)
                number, told = expected.popleft()
                assert field(flit, "tag") == number % 512
                assert field(flit, "count") == number % 1000
                assert field(flit, "aux") == told
                opcode = Opcode.RSP_ACK if number % 2 else Opcode.PART_ACK
                assert field(flit, "opcode") == opcode.value
                assert ctx.get(dut.answer.payload.gpu) == number % 4
            await ctx.tick()
        assert len(expected) <= 1  # the last one may lack a target
        assert store > 150
        assert refused - 1 <= seen <= refused

    simulate(dut, testbench, cycles=2600)
