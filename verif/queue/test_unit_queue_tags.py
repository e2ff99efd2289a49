# SPDX-License-Identifier: Apache-2.0
import random
from dataclasses import replace

import pytest
from dysharp.rtl.queue.tag_allocator import TagAllocator
from dysharp.verif.common.sim import simulate
from dysharp.verif.queue.units import ODD, TINY

WIDE = replace(TINY, entries=128, ordinary_tags=12)  # 116 tags: groups of 32 that are not full


@pytest.mark.parametrize("hurry", [0.03, 0.5])
@pytest.mark.parametrize("params", [ODD, TINY, WIDE], ids=["row", "tiny", "wide"])
def test_queue_tags_against_a_ring(params, hurry: float) -> None:
    """The tags of a ring, never one that is out; `in_use` only from the use to the release."""
    rng = random.Random(f"{params} {hurry}")
    dut = TagAllocator(params)
    granted = 0

    async def testbench(ctx):
        nonlocal granted
        position = 0
        uses = [0] * params.tags
        out: dict[int, int] = {}  # entry to tag
        slots_of: dict[int, int] = {}
        to_use: list[int] = []
        since: dict[int, int] = {}  # tag to the cycle of its use
        until: dict[int, int] = {}  # tag to the cycle of its release
        looks: list[tuple[int, int]] = []
        want = 0
        for cycle in range(1500):
            if not want and rng.random() < 0.7:
                want = rng.choice([1, 1, 1, 2, 4])
            ctx.set(dut.request, bool(want))
            ctx.set(dut.slots, want)
            use = to_use.pop(0) if to_use and rng.random() < 0.5 else None
            ctx.set(dut.use, use is not None)
            ctx.set(dut.use_tag, use or 0)
            free = [tag for tag in since if cycle > since[tag] + 3]
            release = rng.choice(free) if free and rng.random() < hurry else None
            ctx.set(dut.release, release is not None)
            ctx.set(dut.release_tag, release or 0)
            ctx.set(dut.release_slots, slots_of.get(release, 0) if release is not None else 0)
            look = rng.randrange(params.tags)
            ctx.set(dut.look_tag, look)
            if len(looks) == 2:
                seen = ctx.get(dut.in_use)
                tag, at = looks.pop(0)
                # Two cycles after a change it is sure to be seen, before it is sure not to be.
                if tag in since and since[tag] + 2 <= at:
                    assert seen
                elif tag not in since and until.get(tag, -9) + 2 <= at:
                    assert not seen
            looks.append((look, cycle))
            if want and ctx.get(dut.grant):
                tag = ctx.get(dut.tag)
                position = -(-position // want) * want % params.tags
                assert tag == position
                assert ctx.get(dut.gen) == uses[tag] % 4
                uses[tag] += 1
                position = (tag + want) % params.tags
                for entry in range(tag, tag + want):
                    assert entry not in out
                    out[entry] = tag
                slots_of[tag] = want
                to_use.append(tag)
                want = 0
                granted += 1
            await ctx.tick()
            if use is not None:
                since[use] = cycle
            if release is not None:
                del since[release]
                until[release] = cycle
                out = {entry: tag for entry, tag in out.items() if tag != release}

    simulate(dut, testbench, cycles=1501)
    assert granted > 1500 * hurry * 0.2
