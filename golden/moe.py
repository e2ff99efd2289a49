# SPDX-License-Identifier: Apache-2.0
"""A whole MoE layer: dispatch, experts, combine, and what it leaves in every GPU's memory.

A *pair* is a token and one of its experts; pairs stand in the order of the target lists, token by
token. Elements are bit patterns as in :mod:`.numerics`. What the experts compute for a pair does
not depend on where the pair lies or in which company, so results can be compared bit by bit
whatever the order in which tokens came in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..rtl.flits import (
    FLIT_BYTES,
    MAX_PRESUM_FLITS,
    MIN_PRESUM_TARGETS,
    TO_F32,
    WIDE,
    DType,
    ReduceOp,
    Stage,
)
from .arrays import IntArray, offsets
from .cuda import DyBinding
from .numerics import (
    Bits,
    Member,
    bf16_to_f32,
    f16_to_f32,
    f32_to_bf16,
    f32_to_f16,
    is_f16,
    reduce,
    reduce_ordered,
)
from .numerics import flits as to_flits

__all__ = ["MoeLayer", "Network", "Segment", "TwoGemms", "from_float", "to_float"]

Floats: TypeAlias = npt.NDArray[Any]
Segment: TypeAlias = tuple[int, npt.NDArray[np.uint8]]
"""Address in a GPU's memory, and the bytes there."""
Network: TypeAlias = Callable[[int, Floats], Floats]
"""Computes expert *e* on rows of numbers."""


def to_float(dtype: Member, bits: Bits) -> Floats:
    """Convert elements of `dtype` to f32, exactly."""
    if dtype is DType.F32:
        return bits.view(np.float32)
    wide = f16_to_f32(bits) if is_f16(dtype) else bf16_to_f32(bits)
    return wide.view(np.float32)


def from_float(dtype: Member, values: Floats) -> Bits:
    """Round f32 to elements of `dtype`."""
    bits: Bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    if dtype is DType.F32:
        return bits
    return f32_to_f16(bits) if is_f16(dtype) else f32_to_bf16(bits)


class TwoGemms:
    """The usual expert: two matrices and a ReLU between them, in the precision of its rows.

    Parameters
    ----------
    experts, hidden, inner : int
        How many experts, elements of a token, and elements between the matrices.
    seed : int
        Seed of the weights.
    """

    def __init__(self, experts: int, hidden: int, inner: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self._up = rng.standard_normal((experts, hidden, inner)).astype(np.float32)
        self._down = rng.standard_normal((experts, inner, hidden)).astype(np.float32)
        self._up /= np.float32(np.sqrt(hidden))
        self._down /= np.float32(np.sqrt(inner))

    def __call__(self, expert: int, rows: Floats) -> Floats:
        """Compute an expert on some rows."""
        up, down = (each[expert].astype(rows.dtype, copy=False) for each in (self._up, self._down))
        result: Floats = np.maximum(rows @ up, 0) @ down
        return result


@dataclass(frozen=True, kw_only=True, eq=False)
class MoeLayer:
    """The work of one layer.

    Parameters
    ----------
    gpus, experts_per_gpu : int
        Expert *e* is on GPU ``e // experts_per_gpu``.
    dtype : DType
        Of tokens, outputs and sums: ``F32``, ``F16``, ``BF16``, or ``F16_ACC32`` and
        ``BF16_ACC32`` for sums in f32 of 16-bit elements.
    tokens : ndarray
        Elements, shape ``(n, hidden)``; a token is a multiple of 16 B.
    sources : ndarray
        GPU of each token.
    ids : ndarray
        Experts of each token, shape ``(n, k)``, in any order; negative ones are none. An expert
        stands at most once.
    weights : ndarray
        What each expert's output is multiplied by, f32, shape ``(n, k)``.
    """

    gpus: int
    experts_per_gpu: int
    dtype: Member
    tokens: Bits
    sources: IntArray
    ids: IntArray
    weights: Floats

    def __post_init__(self) -> None:
        if self.dtype in TO_F32 or self.dtype in (DType.B32, DType.U32, DType.S32):
            raise ValueError(f"`dtype` must be a float type that keeps its size, not {self.dtype}")
        kind = np.dtype(np.uint32 if self.dtype is DType.F32 else np.uint16)
        if self.tokens.ndim != 2 or self.tokens.dtype != kind:
            raise ValueError(f"`tokens` must be a table of {kind}, not of {self.tokens.dtype}")
        if self.hsize == 0 or self.hsize % FLIT_BYTES:
            raise ValueError(f"a row of `tokens` must be a multiple of 16 B, not {self.hsize}")
        if self.ids.ndim != 2 or len(self.ids) != len(self.tokens):
            raise ValueError("`ids` must have a row for each token")
        if self.weights.shape != self.ids.shape or self.weights.dtype != np.float32:
            raise ValueError("`weights` must be f32 in the shape of `ids`")
        if self.ids.size and self.ids.max() >= self.experts:
            raise ValueError(f"`ids` must be below {self.experts}, not {int(self.ids.max())}")
        ordered = np.sort(np.where(self.ids < 0, -1 - np.arange(self.ids.shape[1]), self.ids))
        if (ordered[:, 1:] == ordered[:, :-1]).any():
            raise ValueError("`ids` must not have an expert twice in a row")
        if self.sources.shape != (len(self.tokens),) or (
            self.sources.size and not 0 <= self.sources.min() <= self.sources.max() < self.gpus
        ):
            raise ValueError(f"`sources` must be a GPU below {self.gpus} for each token")

    @property
    def experts(self) -> int:
        """Experts of all GPUs."""
        return self.gpus * self.experts_per_gpu

    @property
    def hsize(self) -> int:
        """Bytes of a token."""
        return int(self.tokens.shape[1] * self.tokens.dtype.itemsize)

    @cached_property
    def counts(self) -> IntArray:
        """Targets of each token."""
        counts: IntArray = (self.ids >= 0).sum(axis=1)
        return counts

    @cached_property
    def token(self) -> IntArray:
        """Token of each pair."""
        return np.repeat(np.arange(len(self.ids)), self.counts)

    @cached_property
    def expert(self) -> IntArray:
        """Expert of each pair: all target lists, end to end."""
        experts: IntArray = self.ids[self.ids >= 0]
        return experts

    @cached_property
    def gpu(self) -> IntArray:
        """GPU of each pair's expert."""
        return self.expert // self.experts_per_gpu

    @cached_property
    def nactive(self) -> IntArray:
        """Tokens that each expert gets."""
        return np.bincount(self.expert, minlength=self.experts)

    def layout(self, arrival: Sequence[IntArray] | None = None) -> IntArray:
        """Return the layout index of each pair: its row in its expert's memory.

        Parameters
        ----------
        arrival : Sequence[ndarray], optional
            Per GPU: its tokens in the order in which their first packets came in. A token that is
            told more than once counts at its first place. By ascending token without it.
        """
        place = np.zeros((self.gpus, max(1, len(self.ids))), np.int64)
        place[:] = np.arange(place.shape[1])
        if arrival is not None:
            for gpu, order in enumerate(arrival):
                wanted = np.unique(self.token[self.gpu == gpu])
                if not np.isin(wanted, order).all():
                    raise ValueError(f"`arrival` of GPU {gpu} must have all of its tokens")
                # Backwards, so that the first of several stays.
                place[gpu, order[::-1]] = np.arange(len(order))[::-1]
        by_expert = np.lexsort((place[self.gpu, self.token], self.expert))
        rows = np.empty(len(self.token), np.int64)
        rows[by_expert] = np.arange(len(rows)) - np.repeat(offsets(self.nactive), self.nactive)
        return rows

    def outputs(self, network: Network) -> Bits:
        """Return what the experts store: for each pair its output times its weight, rounded once.

        `network` computes in f32. Rows of an expert are always in the order of their tokens.
        """
        weights = self.weights[self.ids >= 0]
        result = np.zeros((len(self.token), self.tokens.shape[1]), self.tokens.dtype)
        for expert in np.flatnonzero(self.nactive).tolist():
            which = np.flatnonzero(self.expert == expert)
            rows = to_float(self.dtype, self.tokens[self.token[which]])
            values = network(expert, rows) * weights[which, None]
            result[which] = from_float(self.dtype, values)
        return result

    def exact(self, network: Network) -> Floats:
        """Return the layer's results in f64, without a rounding on the way, expert by expert."""
        result = np.zeros(self.tokens.shape, np.float64)
        tokens = to_float(self.dtype, self.tokens).astype(np.float64)
        weights = self.weights.astype(np.float64)
        for token, row in enumerate(self.ids.tolist()):
            for column, expert in enumerate(row):
                if expert >= 0:
                    output = network(expert, tokens[token : token + 1])[0]
                    result[token] += weights[token, column] * output
        return result

    def combine(
        self,
        outputs: Bits,
        *,
        presum: bool = True,
        lengths: IntArray | None = None,
        ranks: IntArray | None = None,
    ) -> Bits:
        """Return the sums, shape ``(n, hidden)``; zero for tokens without a target.

        Parameters
        ----------
        outputs : ndarray
            Of :meth:`outputs`.
        presum : bool
            Whether a hub adds up what its GPU has of a token before it answers (its register
            ``presum``). Of the types with sums in f32 it does from three targets on.
        lengths : ndarray, optional
            Flits of the packet that fetches each flit of each token, shape
            ``(n, hsize / 16)``: sums in f32 of more than 8 flits have no pre-sums. All have 8 or
            less without it.
        ranks : ndarray, optional
            Arrival order: for each pair, when its part came; parts are added in this order, a
            pre-sum at the place of its first pair. Canonical order without it.
        """
        plain = self._combine(outputs, presum, ranks)
        if lengths is None or not presum or self.dtype not in WIDE:
            return plain
        long = np.repeat(lengths > MAX_PRESUM_FLITS, FLIT_BYTES // 2, axis=1)
        if not long.any():
            return plain
        return np.where(long, self._combine(outputs, False, ranks), plain)

    def _combine(self, outputs: Bits, presum: bool, ranks: IntArray | None) -> Bits:
        wide = self.dtype in WIDE
        rows = to_float(self.dtype, outputs).view(np.uint32) if wide else outputs
        # Pairs of one GPU stay in the order of the list.
        order = np.lexsort((np.arange(len(self.token)), self.gpu, self.token))
        token, gpu, rows = self.token[order], self.gpu[order], rows[order]
        rank = gpu if ranks is None else ranks[order]
        if presum and len(token):
            begins = np.flatnonzero(np.r_[True, (token[1:] != token[:-1]) | (gpu[1:] != gpu[:-1])])
            sizes = np.diff(begins, append=len(token))
            summed = np.repeat(sizes >= (MIN_PRESUM_TARGETS if wide else 1), sizes)
            first = np.zeros(len(token), np.bool_)
            first[begins] = True
            parts = np.cumsum(first | ~summed) - 1
            begins = np.flatnonzero(first | ~summed)
            rows = self._fold(rows, parts)
            token, rank = token[begins], rank[begins]
        by_rank = np.lexsort((np.arange(len(token)), rank, token))
        sums = self._fold(rows[by_rank], token[by_rank])
        if wide:
            sums = f32_to_f16(sums) if is_f16(self.dtype) else f32_to_bf16(sums)
        result = np.zeros(self.tokens.shape, self.tokens.dtype)
        # A sum of one part has the canonical NaN, like all others.
        result[np.unique(token)] = sums
        return result

    def _fold(self, rows: Bits, groups: IntArray) -> Bits:
        """Reduce the rows of each group in their order; groups stand together and ascend."""
        if not len(groups):
            return rows
        begins = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
        sizes = np.diff(begins, append=len(groups))
        total = rows[begins]
        if self.dtype not in WIDE:
            # One part alone: as an entry takes its first.
            total = _first_parts(self.dtype, total)
        for step in range(1, int(sizes.max())):
            more = np.flatnonzero(sizes > step)
            total[more] = reduce(ReduceOp.ADD, self.dtype, total[more], rows[begins[more] + step])
        return total

    def images(
        self,
        bindings: Sequence[DyBinding],
        bsize: int,
        layout: IntArray,
        outputs: Bits | None = None,
    ) -> list[list[Segment]]:
        """Return what each GPU's memory holds after dispatch, or after the experts' work.

        Parameters
        ----------
        bindings : Sequence[DyBinding]
            Of each GPU (:meth:`.runtime.Runtime.binding`).
        bsize : int
            Bytes from one token to the next.
        layout : ndarray
            Of :meth:`layout`.
        outputs : ndarray, optional
            Of :meth:`outputs`; the regions of the combine stage are left out without it.

        Returns
        -------
        list[list[Segment]]
            Per GPU: rows of tokens, rows of outputs, then AL tables, for each of its experts.
        """
        room = np.array([count for binding in bindings for count in binding.nactive])
        if (self.nactive > room).any():
            expert = int(np.argmax(self.nactive > room))
            raise ValueError(
                f"`nactive` of expert {expert} must be {self.nactive[expert]} or more, "
                f"not {room[expert]}"
            )
        images: list[list[Segment]] = []
        for gpu, binding in enumerate(bindings):
            segments: list[Segment] = []
            for local in range(self.experts_per_gpu):
                which = np.flatnonzero(self.expert == gpu * self.experts_per_gpu + local)
                token, row = self.token[which], layout[which]
                stages = [(Stage.DISPATCH, self.tokens[token])]
                if outputs is not None:
                    stages.append((Stage.COMBINE, outputs[which]))
                for stage, values in stages:
                    block = np.zeros((len(which), bsize), np.uint8)
                    block[row, : self.hsize] = np.ascontiguousarray(values).view(np.uint8)
                    segments.append((binding.addresses[stage][local], block.reshape(-1)))
                table = np.zeros(binding.ntoken, "<u4")
                table[token] = binding.epoch << 24 | row
                segments.append((binding.tables[local], table.view(np.uint8)))
            images.append(segments)
        return images


def _first_parts(dtype: Member, rows: Bits) -> Bits:
    """Return rows with every NaN made canonical, of numbers that are not summed in f32."""
    parts = to_flits(rows)[None]
    result: Bits = reduce_ordered(ReduceOp.ADD, dtype, parts).view(np.uint8).view(rows.dtype)
    return result.reshape(rows.shape)
