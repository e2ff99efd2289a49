# SPDX-License-Identifier: Apache-2.0
"""Where packets go: the port of a target, and the pruned target list of every copy.

The port of a target is ``(target // experts_per_gpu) * links_per_gpu + link(address)``. The switch
does not divide. It holds the multiples of ``experts_per_gpu`` and compares: a target belongs to GPU
``g`` if ``g * experts_per_gpu <= target < (g + 1) * experts_per_gpu``, which is what the floor of a
quotient means. :func:`wrong_pairs` and :func:`wrong_boundaries` test that on numbers.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..rtl.address_hash import HASH_MASKS
from ..rtl.flits import TARGET_BITS
from .arrays import IntArray, Mask

__all__ = [
    "SATURATED",
    "Pruned",
    "gpu_by_comparison",
    "gpu_of",
    "link_of",
    "ports_of",
    "prune",
    "thresholds",
    "wrong_boundaries",
    "wrong_pairs",
]

SATURATED = (1 << (TARGET_BITS + 1)) - 1
"""Where multiples stop growing: above every target, in 17 bits."""

_ALL_TARGETS = np.arange(1 << TARGET_BITS)
_ALL_EXPERTS = range(1, 1 << TARGET_BITS)
_MAX_GPUS = 64


def _check_experts(experts_per_gpu: int) -> None:
    if not 1 <= experts_per_gpu < 1 << TARGET_BITS:
        raise ValueError(
            f"`experts_per_gpu` must be 1 to {(1 << TARGET_BITS) - 1}, not {experts_per_gpu!r}"
        )


def link_of(addresses: IntArray, links_per_gpu: int) -> IntArray:
    """Which of its GPU's links a packet uses; see :mod:`dysharp.rtl.address_hash`.

    Raises
    ------
    ValueError
        If `links_per_gpu` is not 1, 2 or 4.
    """
    if links_per_gpu not in (1, 2, 4):
        raise ValueError(f"`links_per_gpu` must be one of (1, 2, 4), not {links_per_gpu!r}")
    link = np.zeros(len(addresses), np.int64)
    for bit, mask in enumerate(HASH_MASKS[: links_per_gpu.bit_length() - 1]):
        parity = addresses & mask
        for half in (32, 16, 8, 4, 2, 1):
            parity ^= parity >> half
        link |= (parity & 1) << bit
    return link


def gpu_of(targets: IntArray, experts_per_gpu: int) -> IntArray:
    """GPU that each target lives on.

    Raises
    ------
    ValueError
        If `experts_per_gpu` is not 1 to 65535.
    """
    _check_experts(experts_per_gpu)
    return targets // experts_per_gpu


def ports_of(gpus: IntArray, addresses: IntArray, links_per_gpu: int) -> IntArray:
    """Port by which a packet with this address reaches this GPU, or comes from it."""
    return gpus * links_per_gpu + link_of(addresses, links_per_gpu)


def thresholds(experts_per_gpu: int, gpus: int) -> IntArray:
    """Multiples 1 to `gpus` of `experts_per_gpu`, saturated to 17 bits, as the switch holds them.

    A saturated multiple is above every target, so GPUs beyond it have none.

    Raises
    ------
    ValueError
        If `experts_per_gpu` is not 1 to 65535.
    """
    _check_experts(experts_per_gpu)
    return np.minimum(np.arange(1, gpus + 1) * experts_per_gpu, SATURATED)


def gpu_by_comparison(targets: IntArray, multiples: IntArray) -> Mask:
    """Compare as the switch does.

    Parameters
    ----------
    targets : ndarray
        Shape ``(n,)``.
    multiples : ndarray
        From :func:`thresholds`.

    Returns
    -------
    ndarray
        Shape ``(n, gpus)``, true where the target belongs to the GPU. A row without a true element
        is a target beyond the last GPU.
    """
    below = targets[:, None] < multiples
    below[:, 1:] &= ~below[:, :-1]  # not below multiple g: at or above the lower end of GPU g
    return below


def wrong_pairs(experts: Iterable[int] = _ALL_EXPERTS, gpus: int = _MAX_GPUS) -> int:
    """Count the (target, experts_per_gpu) pairs for which comparing differs from dividing.

    Compares all 65536 targets for each of `experts`; by default that is every one of the 2**32
    pairs that exist (0 experts aside), in some 20 seconds.

    That none differs can be seen without running it. For ``E >= 1`` every integer ``t >= 0`` lies
    in exactly one of the intervals ``[g * E, (g + 1) * E)``, and ``t // E`` is that ``g``. The
    comparators test these intervals with exact multiples; one that would not fit 17 bits is
    replaced by a number above every target, which no target can tell from the multiple itself.
    """
    wrong = 0
    for experts_per_gpu in experts:
        # The number of multiples at or below a target is the index of the interval it is in.
        found = np.searchsorted(thresholds(experts_per_gpu, gpus), _ALL_TARGETS, side="right")
        exact = np.minimum(_ALL_TARGETS // experts_per_gpu, gpus)
        wrong += int(np.count_nonzero(found != exact))
    return wrong


def wrong_boundaries(gpus: int = _MAX_GPUS, chunk: int = 2048) -> int:
    """Count the wrong answers at the ends of all intervals, for every ``experts_per_gpu``.

    Tests the comparators themselves with targets ``kE - 1``, ``kE`` and ``kE + 1`` for ``k`` from 0
    to `gpus`, and 65535. Comparing with increasing multiples gives a GPU number that never falls
    while the target rises. So if it is right at both ends of an interval, it is right all through
    it, and a result of 0 covers all pairs.
    """
    wrong = 0
    for first in range(1, 1 << TARGET_BITS, chunk):
        experts = np.arange(first, min(first + chunk, 1 << TARGET_BITS))
        multiples = np.minimum(experts[:, None] * np.arange(1, gpus + 1), SATURATED)
        ends = experts[:, None] * np.arange(gpus + 1)
        targets = np.concatenate([ends - 1, ends, ends + 1], axis=1)
        targets = np.clip(targets, 0, (1 << TARGET_BITS) - 1)  # also brings in 65535
        targets[:, -1] = (1 << TARGET_BITS) - 1
        found = np.zeros_like(targets)
        for column in range(gpus):
            found += targets >= multiples[:, column, None]
        exact = np.minimum(targets // experts[:, None], gpus)
        wrong += int(np.count_nonzero(found != exact))
    return wrong


@dataclass(frozen=True, eq=False)
class Pruned:
    """The copies that a batch of target lists makes, by packet and then by port.

    Parameters
    ----------
    packet, port : ndarray
        Which packet each copy is of, and by which port it leaves.
    count : ndarray
        How many targets are left in each copy.
    targets : ndarray
        The pruned lists of all copies, end to end.
    masks : ndarray
        Shape ``(packets, ports)``, true where a packet has a copy.
    """

    packet: IntArray
    port: IntArray
    count: IntArray
    targets: IntArray
    masks: Mask


def prune(
    targets: IntArray,
    counts: IntArray,
    addresses: IntArray,
    *,
    experts_per_gpu: int,
    gpus: int,
    links_per_gpu: int = 1,
) -> Pruned:
    """Prune target lists for every port that they reach.

    A copy's list holds the targets of its port in their original order. A target that stands
    twice in a list stays twice in the copy.

    Parameters
    ----------
    targets : ndarray
        All lists end to end.
    counts, addresses : ndarray
        Length of the list and address of each packet.
    experts_per_gpu, gpus, links_per_gpu : int
        Placement of the experts and shape of the switch.

    Raises
    ------
    ValueError
        If a target is beyond the last GPU, or `counts` does not add up to the number of targets.
    """
    if counts.sum() != len(targets):
        raise ValueError(f"`counts` must add up to {len(targets)}, not {int(counts.sum())!r}")
    gpu = gpu_of(targets, experts_per_gpu)
    if (gpu >= gpus).any():
        first = int(targets[gpu >= gpus][0])
        raise ValueError(f"`targets` must be below {experts_per_gpu * gpus}, not {first!r}")
    ports = gpus * links_per_gpu
    packet = np.repeat(np.arange(len(counts)), counts)
    port = gpu * links_per_gpu + np.repeat(link_of(addresses, links_per_gpu), counts)
    copy_of = packet * ports + port
    order = np.argsort(copy_of, kind="stable")  # stable: original order inside a list
    population = np.bincount(copy_of, minlength=len(counts) * ports)
    copies = np.flatnonzero(population)
    masks = (population > 0).reshape(len(counts), ports)
    return Pruned(copies // ports, copies % ports, population[copies], targets[order], masks)
