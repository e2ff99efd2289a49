# SPDX-License-Identifier: Apache-2.0
"""Routes: comparing with multiples is dividing, and pruned lists are what they should be."""

import numpy as np
import pytest
from dysharp.golden.route import (
    SATURATED,
    gpu_by_comparison,
    gpu_of,
    link_of,
    ports_of,
    prune,
    thresholds,
    wrong_boundaries,
    wrong_pairs,
)


def test_comparing_is_dividing_at_every_boundary() -> None:
    assert wrong_boundaries() == 0


def test_comparing_is_dividing_for_all_targets() -> None:
    rng = np.random.default_rng(11)
    structured = {e for k in range(17) for e in ((1 << k) - 1, 1 << k, (1 << k) + 1)}
    structured |= {3, 5, 6, 7, 9, 10, 12, 24, 48, 96, 1000, 1023, 1025, 21845, 43690}
    some = structured | set(rng.integers(1, 1 << 16, 400).tolist())
    assert wrong_pairs(sorted(e for e in some if 1 <= e <= 65535)) == 0
    assert wrong_pairs([1, 7, 100, 65535], gpus=2) == 0


def test_checks_would_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    def off_by_one(experts_per_gpu: int, gpus: int) -> np.ndarray:
        return thresholds(experts_per_gpu, gpus) + 1

    monkeypatch.setattr("dysharp.golden.route.thresholds", off_by_one)
    assert wrong_pairs([1000]) == 64
    monkeypatch.setattr("dysharp.golden.route.SATURATED", 65535)
    assert wrong_boundaries() > 0


@pytest.mark.parametrize("experts_per_gpu", [1, 2, 7, 1000, 1023, 1024, 2048, 32768, 65535])
def test_multiples_are_what_adding_with_saturation_gives(experts_per_gpu: int) -> None:
    total, wanted = 0, []
    for _ in range(64):
        total = min(total + experts_per_gpu, SATURATED)
        wanted.append(total)
    assert thresholds(experts_per_gpu, 64).tolist() == wanted


@pytest.mark.parametrize(("experts_per_gpu", "gpus"), [(1, 64), (3, 5), (1025, 64), (65535, 8)])
def test_comparators_name_one_gpu_or_none(experts_per_gpu: int, gpus: int) -> None:
    targets = np.arange(1 << 16)
    hits = gpu_by_comparison(targets, thresholds(experts_per_gpu, gpus))
    exists = targets < experts_per_gpu * gpus
    assert hits.sum(axis=1).tolist() == exists.astype(int).tolist()
    assert (hits.argmax(axis=1) == gpu_of(targets, experts_per_gpu))[exists].all()


@pytest.mark.parametrize("experts_per_gpu", [0, -1, 65536])
def test_experts_per_gpu_wrong(experts_per_gpu: int) -> None:
    message = rf"^`experts_per_gpu` must be 1 to 65535, not {experts_per_gpu}$"
    with pytest.raises(ValueError, match=message):
        thresholds(experts_per_gpu, 4)
    with pytest.raises(ValueError, match=message):
        gpu_of(np.array([1]), experts_per_gpu)


def test_prune_running_example() -> None:
    lists = np.array([0, 3, 4, 5, 5, 6])
    pruned = prune(lists, np.array([4, 2]), np.array([0, 128]), experts_per_gpu=2, gpus=4)
    assert pruned.packet.tolist() == [0, 0, 0, 1, 1]
    assert pruned.port.tolist() == [0, 1, 2, 2, 3]
    assert pruned.count.tolist() == [1, 1, 2, 1, 1]
    assert pruned.targets.tolist() == [0, 3, 4, 5, 5, 6]
    assert pruned.masks.tolist() == [[True, True, True, False], [False, False, True, True]]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("links", [1, 2, 4])
def test_prune_against_loops(seed: int, links: int) -> None:
    rng = np.random.default_rng([seed, links])
    gpus = int(rng.integers(2, 64 // links + 1))
    experts_per_gpu = int(rng.choice([1, 2, 3, 7, 32, 65535 // gpus]))
    counts = rng.integers(0, 20, 100)
    targets = rng.integers(0, experts_per_gpu * gpus, counts.sum())
    targets[rng.random(len(targets)) < 0.3] = 0  # duplicates
    addresses = rng.integers(0, 1 << 48, 100)
    pruned = prune(
        targets,
        counts,
        addresses,
        experts_per_gpu=experts_per_gpu,
        gpus=gpus,
        links_per_gpu=links,
    )
    wanted, at = [], 0
    masks = np.zeros((100, gpus * links), bool)
    for packet, count in enumerate(counts.tolist()):
        link = int(link_of(addresses[packet : packet + 1], links)[0])
        by_port: dict[int, list[int]] = {}
        for target in targets[at : at + count].tolist():
            by_port.setdefault(target // experts_per_gpu * links + link, []).append(target)
        at += count
        wanted += [(packet, port, by_port[port]) for port in sorted(by_port)]
        masks[packet, list(by_port)] = True
    assert pruned.packet.tolist() == [packet for packet, _, _ in wanted]
    assert pruned.port.tolist() == [port for _, port, _ in wanted]
    assert pruned.count.tolist() == [len(left) for _, _, left in wanted]
    assert pruned.targets.tolist() == [target for _, _, left in wanted for target in left]
    assert (pruned.masks == masks).all()


def test_prune_of_nothing() -> None:
    nothing = np.zeros(0, np.int64)
    pruned = prune(nothing, nothing, nothing, experts_per_gpu=1, gpus=2)
    assert len(pruned.packet) == 0
    assert pruned.masks.shape == (0, 2)


def test_prune_wrong() -> None:
    one = np.array([1])
    with pytest.raises(ValueError, match=r"^`targets` must be below 8, not 9$"):
        prune(np.array([7, 9]), np.array([2]), one, experts_per_gpu=2, gpus=4)
    with pytest.raises(ValueError, match=r"^`counts` must add up to 2, not 3$"):
        prune(np.array([7, 9]), np.array([3]), one, experts_per_gpu=2, gpus=4)


def test_ports_of_takes_the_hashed_link() -> None:
    addresses = 128 * np.arange(64)
    gpus = np.arange(64) % 16
    ports = ports_of(gpus, addresses, 4)
    assert (ports // 4 == gpus).all()
    assert (ports % 4 == link_of(addresses, 4)).all()


@pytest.mark.regress
def test_comparing_is_dividing_for_all_pairs() -> None:
    assert wrong_pairs() == 0
