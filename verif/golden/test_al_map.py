# SPDX-License-Identifier: Apache-2.0
import random

import numpy as np
import pytest
from dysharp.golden.al_map import (
    DYNAMIC,
    LOCAL,
    QUOTIENT_BITS,
    STATIC,
    AlMap,
    DynamicObject,
    Expert,
    StaticObject,
    lookup_array,
    reciprocal,
    set_of,
    tlb_hit_rate,
    tlb_hits,
)

BLOCK = 4
SIZE = BLOCK * 16
BASE = 1 << 30
BAD = 15


def objects(nactive: int = 8, blocks: int = 64) -> list[StaticObject | DynamicObject | None]:
    experts = tuple(
        Expert(table=4 * blocks * n, nactive=nactive, dispatch=(n + 1) << 32, combine=(n + 1) << 40)
        for n in range(2)
    )
    return [
        DynamicObject(base=BASE, blocks=blocks, block=BLOCK, first_expert=10, experts=experts),
        None,
        StaticObject(base=1 << 33, size=1024, memory=0x5000),
    ]


def al_map(nactive: int = 8, blocks: int = 64) -> AlMap:
    return AlMap(objects(nactive, blocks), np.zeros(8 * blocks, np.uint8), 4096)


def touch(block: int, expert: int = 0, allocate: bool = True, stage: int = 0):
    return (DYNAMIC, stage, allocate, 10 + expert, BASE + block * SIZE + 16, 2)


def translate(model: AlMap, *rows) -> list[tuple[int, int]]:
    places, status = model.translate(lookup_array(list(rows)))
    return list(zip(places.tolist(), status.tolist(), strict=True))


def test_blocks_get_places_in_order_of_first_touches() -> None:
    model = al_map()
    first = (1 << 32) + 16
    found = translate(model, touch(5), touch(3), touch(5, 1), touch(5), touch(5, stage=1))
    second = (1 << 40) + 16
    assert found == [
        (first, 0),
        (first + SIZE, 0),
        ((2 << 32) + 16, 0),
        (first, 0),
        (second, 0),
    ]
    assert model.used(0).tolist() == [2, 1]
    assert model.counters == {"lookups": 5, "allocations": 3, "refusals": 0}


def test_load_of_what_has_no_place() -> None:
    model = al_map()
    load = touch(1, allocate=False)
    found = translate(model, load, touch(1), load, touch(2, allocate=False))
    assert [status for _, status in found] == [BAD, 0, 0, BAD]
    assert [place for place, _ in found][::3] == [0, 0]
    assert model.used(0).tolist() == [1, 0]


def test_full_expert() -> None:
    model = al_map(nactive=2)
    found = translate(model, touch(0), touch(1), touch(2), touch(0), touch(2), touch(2, 1))
    assert [status for _, status in found] == [0, 0, BAD, 0, BAD, 0]


def test_batches_do_not_matter() -> None:
    """One by one, or all at once."""
    rng = random.Random(1)
    rows = []
    for _ in range(600):
        space = rng.choice([LOCAL, STATIC, DYNAMIC, DYNAMIC, DYNAMIC])
        base = {LOCAL: 0, STATIC: 1 << 33, DYNAMIC: BASE}[space]
        rows.append(
            (
                space,
                rng.randrange(2),
                rng.random() < 0.5,
                rng.randint(9, 12),
                max(0, base + 16 * rng.randint(-2, 300)),
                rng.randint(1, 5),
            )
        )
    one, all_at_once = al_map(nactive=12), al_map(nactive=12)
    wanted = [translate(one, row)[0] for row in rows]
    assert translate(all_at_once, *rows) == wanted
    assert one.counters == all_at_once.counters
    assert one.used(0).tolist() == all_at_once.used(0).tolist() == [12, 12]
    statuses = {status for _, status in wanted}
    assert statuses == {0, BAD}


@pytest.mark.parametrize(
    ("row", "good"),
    [
        ((LOCAL, 0, False, 0, 4096 - 32, 2), True),
        ((LOCAL, 0, False, 0, 4096 - 16, 2), False),
        ((STATIC, 0, False, 0, 1 << 33, 1), True),
        ((STATIC, 0, False, 0, (1 << 33) + 1024 - 32, 2), True),
        ((STATIC, 0, False, 0, (1 << 33) + 1024 - 16, 2), False),
        ((STATIC, 0, False, 0, (1 << 33) - 16, 1), False),
        ((DYNAMIC, 0, True, 10, 1 << 33, 1), False),
        ((STATIC, 0, True, 10, BASE, 1), False),
        ((DYNAMIC, 0, True, 9, BASE, 1), False),
        ((DYNAMIC, 0, True, 12, BASE, 1), False),
        ((DYNAMIC, 0, True, 11, BASE + 48, 1), True),
        ((DYNAMIC, 0, True, 11, BASE + 48, 2), False),
        ((DYNAMIC, 0, True, 11, BASE + 63 * SIZE, 4), True),
        ((DYNAMIC, 0, True, 11, BASE + 64 * SIZE, 1), False),
    ],
)
def test_bounds(row, good: bool) -> None:
    assert translate(al_map(), row)[0][1] == (0 if good else BAD)


def test_stage_without_a_base() -> None:
    item = DynamicObject(
        base=BASE,
        blocks=4,
        block=4,
        first_expert=0,
        experts=(Expert(table=0, nactive=4, combine=0),),
    )
    assert item.stages == 2
    model = AlMap([item], np.zeros(64, np.uint8))
    rows = [(DYNAMIC, stage, True, 0, BASE, 1) for stage in (0, 1)]
    assert translate(model, *rows) == [(0, BAD), (0, 0)]


def test_clear_and_epochs() -> None:
    image = np.zeros(512, np.uint8)
    model = AlMap(objects(), image, 4096)
    words = image.view("<u4")
    for epoch in range(1, 256):
        assert model.epoch(0) == epoch
        translate(model, touch(epoch % 64))
        assert words[epoch % 64] == epoch << 24
        assert translate(model, touch((epoch + 1) % 64, allocate=False))[0][1] == BAD
        if epoch < 255:
            model.clear(0)
            assert model.used(0).tolist() == [0, 0]
    assert words.any()
    model.clear(0)
    assert not words.any()
    assert model.epoch(0) == 1
    model.clear(1)  # nothing there
    model.clear(2)


@pytest.mark.parametrize("block", [1, 2, 3, 180, 448, 896, 65535, 65536])
def test_reciprocal(block: int) -> None:
    factor, shift = reciprocal(block)
    assert factor < 1 << QUOTIENT_BITS + 1
    assert shift <= 16
    rng = random.Random(block)
    last = (1 << QUOTIENT_BITS) - 1
    near = [0, block, last // block * block, *(rng.randrange(last) for _ in range(200))]
    for n in [m + step for m in near for step in (-1, 0, 1)] + [last]:
        if 0 <= n <= last:
            assert n * factor >> QUOTIENT_BITS + shift == n // block


@pytest.mark.parametrize("block", [0, 65537])
def test_reciprocal_refuses(block: int) -> None:
    with pytest.raises(ValueError, match=rf"^`block` must be from 1 to 65536, not {block}$"):
        reciprocal(block)


def test_every_block_size_has_a_reciprocal_that_fits() -> None:
    for block in range(1, 65537):
        factor, shift = reciprocal(block)
        # The excess stays below one part in `block` for every dividend.
        excess = factor * block - (1 << QUOTIENT_BITS + shift)
        assert 0 <= excess <= 1 << shift
        assert factor.bit_length() <= QUOTIENT_BITS + 1


def test_tlb_first_in_first_out() -> None:
    hits = tlb_hits([1, 2, 1, 3, 1, 2, 3], 2)
    assert hits.tolist() == [False, False, True, False, False, False, False]
    assert tlb_hits([1, 2, 1, 3, 2, 1], 2).tolist() == [False, False, True, False, True, False]
    assert tlb_hits([1, 2, 1, 3, 1], None).tolist() == [False, False, True, False, True]
    assert tlb_hit_rate([], 4) == 0


def test_tlb_forms() -> None:
    rng = np.random.default_rng(1)
    tags = rng.integers(0, 300, 20000)
    cam = tlb_hit_rate(tags, 256)
    sets = tlb_hit_rate(tags, 256, "sets", 8)
    direct = tlb_hit_rate(tags, 256, "sets", 1)
    assert 0.8 < cam < tlb_hit_rate(tags, None)
    assert abs(sets - cam) < 0.02
    assert direct < sets
    assert tlb_hit_rate(tags, 256, "sets", 256) == cam


def test_tlb_counts_each_set_alone() -> None:
    tags = [0, 2, 4, 0, 1]
    assert set_of(tags, 2).tolist() == [0, 1, 1, 0, 1]
    assert tlb_hits(tags, 4, "sets", 2).tolist() == [False, False, False, True, False]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, "none"), "`form` must be 'cam' or 'sets', not 'none'"),
        ((4, "sets", 3), "`ways` must divide `entries`, not 3"),
    ],
)
def test_tlb_refuses(arguments, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        tlb_hits([1], *arguments)
