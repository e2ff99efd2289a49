# SPDX-License-Identifier: Apache-2.0
"""What a mixture-of-experts layer asks of one GPU: sizes, and how tokens spread over experts."""

from dataclasses import dataclass, replace
from math import ceil, comb
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from ...rtl.param_checks import check_choice, check_int

__all__ = ["SPREADS", "WORKLOADS", "Workload"]

SPREADS = ("uniform", "normal", "power")
"""How the load of experts differs: not at all, by a bell curve, by a power law."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One layer; every GPU holds `tokens` tokens, and an equal part of the experts.

    Parameters
    ----------
    hidden, inner : int
        Elements of a token, and between the two matrices of an expert.
    tokens : int
        Tokens that one GPU has at the start.
    experts, top_k : int
        Experts of the layer, and experts of one token.
    dispatch_bytes, combine_bytes : int
        Bytes of an element on the way to the experts and on the way back.
    matrices : int
        2, or 3 if the first one is gated.
    spread : str
        One of :data:`SPREADS`.
    width : float
        Of ``normal``: standard deviation of an expert's load, as a part of the mean load. Of
        ``power``: the exponent.
    tile : int
        Tokens of a tile.
    seed : int
        Which experts are the popular ones.
    """

    hidden: int
    inner: int
    tokens: int
    experts: int
    top_k: int
    dispatch_bytes: int = 2
    combine_bytes: int = 2
    matrices: int = 2
    spread: str = "normal"
    width: float = 0.032
    tile: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("hidden", "inner", "tokens"):
            check_int(name, getattr(self, name), 1, 1 << 24)
        check_int("experts", self.experts, 1, 65536)
        check_int("top_k", self.top_k, 1, self.experts)
        for name in ("dispatch_bytes", "combine_bytes"):
            check_choice(name, getattr(self, name), (1, 2, 4))
        check_choice("matrices", self.matrices, (2, 3))
        if self.spread not in SPREADS:
            raise ValueError(f"`spread` must be one of {SPREADS}, not {self.spread!r}")
        if not 0 <= self.width <= 8:
            raise ValueError(f"`width` must be 0 to 8, not {self.width!r}")
        check_int("tile", self.tile, 8, 4096)
        check_int("seed", self.seed, 0, (1 << 32) - 1)

    def popularity(self) -> Array:
        """Return the expected part of all tokens that each expert gets; the sum is `top_k`.

        Nothing is drawn but the order: the bell curve is taken at its quantiles. No expert gets
        a token twice, so that no part is above 1; what is over goes to the others.
        """
        rank = np.arange(self.experts)
        if self.spread == "normal":
            bell = NormalDist()
            at = [bell.inv_cdf((i + 0.5) / self.experts) for i in range(self.experts)]
            share = np.maximum(1 + self.width * np.array(at), 0.0)
        elif self.spread == "power":
            share = (rank + 1.0) ** -self.width
        else:
            share = np.ones(self.experts)
        share = np.random.default_rng(self.seed).permutation(share)
        full = np.zeros(self.experts, np.bool_)
        part = np.zeros(self.experts)
        for _ in rank:
            left = self.top_k - full.sum()
            part = np.where(full, 1.0, share * left / share[~full].sum() if left else 0.0)
            if not (part > 1 + 1e-12).any():
                break
            full |= part >= 1
        return part

    def distinct(self, gpus: int) -> Array:
        """Return, for each GPU, the expected part of all tokens that it gets at least once.

        For equal loads this is exact. Else the chance to be missed is raised to the power of the
        GPU's load over the mean one.
        """
        self._check(gpus)
        own = self.experts // gpus
        missed = comb(self.experts - own, self.top_k) / comb(self.experts, self.top_k)
        load = self.popularity().reshape(gpus, own).sum(axis=1) / (self.top_k / gpus)
        return np.asarray(1 - missed**load)

    def rows(self, gpus: int) -> npt.NDArray[np.int64]:
        """Return the rows, a token of an expert each, of the experts of each GPU."""
        self._check(gpus)
        return np.rint(self.popularity() * self.tokens * gpus).astype(np.int64).reshape(gpus, -1)

    def tiles(self, gpus: int) -> int:
        """Return how many tiles the GPU with most rows has."""
        busiest = self.rows(gpus)[int(self.rows(gpus).sum(axis=1).argmax())]
        return sum(ceil(int(rows) / self.tile) for rows in busiest)

    def _check(self, gpus: int) -> None:
        check_int("gpus", gpus, 1, self.experts)
        if self.experts % gpus:
            raise ValueError(f"`gpus` must divide the {self.experts} experts, not {gpus!r}")


_SHAPES = {
    "S": Workload(hidden=2048, inner=512, tokens=2048, experts=64, top_k=8),
    "M": Workload(hidden=4096, inner=1024, tokens=4096, experts=128, top_k=8),
    "L": Workload(hidden=7168, inner=2048, tokens=8192, experts=256, top_k=8),
}

WORKLOADS: dict[str, Workload] = {
    **{
        f"{name}-{top_k}": replace(shape, top_k=top_k)
        for name, shape in _SHAPES.items()
        for top_k in (8, 16, 32)
    },
    "gpt-oss": Workload(hidden=2880, inner=2880, tokens=4096, experts=64, top_k=4),
    "qwen3": Workload(hidden=4096, inner=1536, tokens=4096, experts=128, top_k=8),
}
"""The workloads of the paper (section IV): name to layer."""
