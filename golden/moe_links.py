# SPDX-License-Identifier: Apache-2.0
"""What every link carries for a layer, counted from the packet format."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..rtl.flits import (
    FLIT_BYTES,
    LANES,
    MAX_PRESUM_FLITS,
    MIN_PRESUM_TARGETS,
    WIDE,
    Stage,
)
from .arrays import IntArray
from .moe import MoeLayer

__all__ = ["LinkFlits", "link_flits", "packet_lengths"]


@dataclass(frozen=True, eq=False)
class LinkFlits:
    """Flits of each GPU's two directed links.

    Parameters
    ----------
    up, down : ndarray
        To the switch, and from it.
    """

    up: IntArray
    down: IntArray

    def __add__(self, other: "LinkFlits") -> "LinkFlits":
        """Both together."""
        return LinkFlits(self.up + other.up, self.down + other.down)

    @property
    def ideal_cycles(self) -> int:
        """The bound: flits of the link that has to carry most, one a cycle."""
        return int(max(self.up.max(), self.down.max()))


def packet_lengths(
    tokens: npt.NDArray[np.int64], hsize: int, bsize: int, packet_flits: int
) -> IntArray:
    """Return the data flits of each token's packets, shape ``(n, most)``, 0 for none.

    A packet ends where its token does and at multiples of its greatest size in multimem space.

    Parameters
    ----------
    tokens : ndarray
        Numbers of the tokens in their object.
    hsize, bsize : int
        Bytes of a token, and from one token to the next.
    packet_flits : int
        Data flits that a packet has at most.
    """
    size = packet_flits * FLIT_BYTES
    begin = tokens * bsize
    first = begin // size
    most = -(-hsize // size) + 1
    edges = (first[:, None] + np.arange(1, most + 1)) * size
    ends = np.minimum(edges, (begin + hsize)[:, None])
    starts = np.concatenate([begin[:, None], ends[:, :-1]], axis=1)
    lengths: IntArray = (ends - starts) // FLIT_BYTES
    return lengths


def link_flits(
    layer: MoeLayer,
    stage: Stage,
    *,
    bsize: int,
    packet_flits: int,
    presum: bool = True,
    posted: bool = False,
) -> LinkFlits:
    """Count the flits of one stage of a layer.

    Parameters
    ----------
    layer : MoeLayer
        The layer; tokens without a target send nothing.
    stage : Stage
        Dispatch (stores and their acknowledgements) or combine (loads, parts and sums).
    bsize, packet_flits
        As in :func:`packet_lengths`.
    presum : bool
        As in :meth:`.MoeLayer.combine`.
    posted : bool
        Stores are not acknowledged.
    """
    tokens = np.flatnonzero(layer.counts > 0)
    lengths = packet_lengths(tokens, layer.hsize, bsize, packet_flits)
    is_packet = lengths > 0
    packets = is_packet.sum(axis=1)
    data = lengths.sum(axis=1)
    source = layer.sources[tokens]
    # Targets of each token on each GPU.
    targets = np.zeros((len(layer.ids), layer.gpus), np.int64)
    np.add.at(targets, (layer.token, layer.gpu), 1)
    targets = targets[tokens]
    copied = targets > 0
    lists = -(-layer.counts[tokens] // LANES)
    pruned = -(-targets // LANES)
    is_store = stage is Stage.DISPATCH
    carried = data if is_store else np.zeros_like(data)
    requests = (1 + lists) * packets + carried
    copies = np.where(copied, (1 + pruned) * packets[:, None] + carried[:, None], 0)
    if is_store:
        answers = np.where(copied, 0 if posted else packets[:, None], 0)
        results = np.zeros_like(packets) if posted else packets
    else:
        answers = _part_flits(layer, lengths, targets, presum)
        results = packets + data
    up = answers.sum(axis=0) + np.bincount(source, requests, layer.gpus)
    down = copies.sum(axis=0) + np.bincount(source, results, layer.gpus)
    return LinkFlits(up.astype(np.int64), down.astype(np.int64))


def _part_flits(
    layer: MoeLayer, lengths: IntArray, targets: IntArray, presum: bool
) -> npt.NDArray[np.int64]:
    """Flits of all parts of each token from each GPU."""
    length = lengths[:, :, None]
    count = targets[:, None, :]
    each = count * (1 + length)
    if not presum:
        flits = each
    elif layer.dtype in WIDE:
        added = (count >= MIN_PRESUM_TARGETS) & (length <= MAX_PRESUM_FLITS)
        flits = np.where(added, 1 + 2 * length, each)
    else:
        flits = np.where(count > 0, 1 + length, 0)
    total: npt.NDArray[np.int64] = np.where(length > 0, flits, 0).sum(axis=1)
    return total
