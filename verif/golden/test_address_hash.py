# SPDX-License-Identifier: Apache-2.0
"""The address hash: same in RTL and golden, and even over the strides that matter."""

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator
from dysharp.golden.arrays import IntArray
from dysharp.golden.route import link_of as golden_link_of
from dysharp.rtl.address_hash import GRANULE_BITS, HASH_MASKS, link_of

GRANULE = 1 << GRANULE_BITS
NAMED_STRIDES = (128, 4096, 7168, 14336)


def worst_imbalance(strides: IntArray, links: int, blocks: int, bases: IntArray) -> IntArray:
    """Largest relative deviation of a link from its even share, for each stride."""
    worst = []
    for stride in strides.tolist():
        addresses = bases[:, None] + stride * np.arange(blocks)
        link = golden_link_of(addresses.reshape(-1) & ((1 << 48) - 1), links)
        row = np.repeat(np.arange(len(bases)), blocks)
        shares = np.bincount(row * links + link, minlength=len(bases) * links)
        worst.append(np.abs(shares * links / blocks - 1).max())
    return np.array(worst)


def bases(seed: int, number: int) -> IntArray:
    rng = np.random.default_rng(seed)
    near = rng.integers(0, 1 << 24, number // 2) * GRANULE
    far = rng.integers(0, 1 << 41, number // 2) * GRANULE
    return np.concatenate([[0], near, far])


def test_masks_are_linear_hashes_of_whole_granules() -> None:
    first, second = HASH_MASKS
    for mask in (first, second, first ^ second):
        assert mask > 0
        assert mask % GRANULE == 0
        assert mask < 1 << 48
    assert max(mask.bit_count() for mask in HASH_MASKS) <= 12


@pytest.mark.parametrize("links", [2, 4])
@pytest.mark.parametrize(("blocks", "limit"), [(1024, 0.024), (4096, 0.008)])
def test_named_strides_are_even(links: int, blocks: int, limit: float) -> None:
    strides = np.array(NAMED_STRIDES)
    assert worst_imbalance(strides, links, blocks, bases(1, 60)).max() <= limit


@pytest.mark.parametrize("links", [2, 4])
def test_powers_of_two_are_even(links: int) -> None:
    strides = 1 << np.arange(GRANULE_BITS, 41)
    assert worst_imbalance(strides, links, 1024, bases(2, 12)).max() <= 0.125


def test_no_multiple_of_a_granule_resonates() -> None:
    worst = worst_imbalance(GRANULE * np.arange(1, 513), 4, 1024, bases(3, 4))
    assert worst.max() <= 0.44
    assert np.count_nonzero(worst > 0.125) <= 79
    worst = worst_imbalance(GRANULE * np.arange(1, 513), 4, 4096, bases(3, 4))
    assert worst.max() <= 0.23
    assert np.count_nonzero(worst > 0.125) <= 10


def test_four_neighbours_use_four_links() -> None:
    assert sorted(golden_link_of(GRANULE * np.arange(4), 4).tolist()) == [0, 1, 2, 3]
    assert sorted(golden_link_of(GRANULE * np.arange(2), 2).tolist()) == [0, 1]


@pytest.mark.parametrize("links", [1, 2, 4])
def test_rtl_and_golden_agree(links: int) -> None:
    rng = np.random.default_rng(4)
    words = np.concatenate([[0, (1 << 48) - 1], 1 << np.arange(48), rng.integers(0, 1 << 48, 300)])
    address = Signal(48)
    module = Module()
    expression = link_of(address, links)
    assert len(expression) == links.bit_length() - 1
    link = Signal(2)
    module.d.comb += link.eq(expression)
    found = []

    async def bench(context) -> None:
        for word in words.tolist():
            context.set(address, word)
            found.append(context.get(link))

    simulator = Simulator(module)
    simulator.add_testbench(bench)
    simulator.run()
    assert found == golden_link_of(words, links).tolist()


@pytest.mark.parametrize("links", [0, 3, 8, True])
def test_links_wrong(links: int) -> None:
    with pytest.raises(ValueError, match=rf"^`links` must be one of \(1, 2, 4\), not {links!r}$"):
        link_of(Signal(48), links)


def test_golden_links_wrong() -> None:
    with pytest.raises(ValueError, match=r"^`links_per_gpu` must be one of \(1, 2, 4\), not 3$"):
        golden_link_of(np.zeros(1, np.int64), 3)
