# SPDX-License-Identifier: Apache-2.0
"""What a GPU computes between dispatch and combine, and how long that takes."""

from dataclasses import dataclass
from math import ceil

from ...rtl.param_checks import check_int

__all__ = ["COLUMNS", "ComputeModel"]

COLUMNS = 128
"""Columns of the result that one thread block computes."""

_MOST = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ComputeModel:
    """The four groups of SMs of one GPU, and the times of their tasks in cycles.

    A *row* is a tile of tokens of one expert. GEMM-1 of a row has `blocks1` thread blocks, GEMM-2
    has `blocks2`. A row may begin when the token tracker has called it ready; rows of a GEMM are
    taken in the order in which they became ready, and the blocks of a row one after the other, each
    by one SM, which it keeps for `cycles1` or `cycles2` cycles. A short row takes as long as
    a whole one, since a thread block computes a tile whatever part of it is in use. An SM that is
    free takes a block of its own GEMM; if there is none and the groups are `shared`, of the other.

    Parameters
    ----------
    tile : int
        Tokens of a row.
    blocks1, blocks2 : int
        Thread blocks of a row.
    cycles1, cycles2 : int
        Cycles of one block.
    sms1, sms2 : int
        SMs of the two groups; together 64 at most.
    shared : bool
        An SM without work of its own GEMM takes a block of the other one.
    dispatch_sms, combine_sms : int
        Tokens that are dispatched in turns, packet by packet, and tokens whose sums are under way
        at once.
    """

    tile: int = 128
    blocks1: int = 4
    blocks2: int = 4
    cycles1: int = 1000
    cycles2: int = 1000
    sms1: int = 4
    sms2: int = 4
    shared: bool = True
    dispatch_sms: int = 2
    combine_sms: int = 16

    def __post_init__(self) -> None:
        check_int("tile", self.tile, 1, 4096)
        for name in ("blocks1", "blocks2"):
            check_int(name, getattr(self, name), 1, 255)
        for name in ("cycles1", "cycles2"):
            check_int(name, getattr(self, name), 1, _MOST)
        for name in ("sms1", "sms2"):
            check_int(name, getattr(self, name), 1, 63)
        if self.sms1 + self.sms2 > 64:
            raise ValueError(
                f"`sms1` and `sms2` must be 64 together at most, not {self.sms1 + self.sms2!r}"
            )
        if not isinstance(self.shared, bool):
            raise TypeError(f"`shared` must be True or False, not {self.shared!r}")
        check_int("dispatch_sms", self.dispatch_sms, 1, 64)
        check_int("combine_sms", self.combine_sms, 1, 64)

    @classmethod
    def from_flops(
        cls,
        *,
        hidden: int,
        inner: int,
        flops_per_cycle: float,
        efficiency: float = 0.8,
        tile: int = 128,
        sms1: int = 4,
        sms2: int = 4,
        shared: bool = True,
        dispatch_sms: int = 2,
        combine_sms: int = 16,
    ) -> "ComputeModel":
        """Derive blocks and times from the sizes of the matrices.

        Parameters
        ----------
        hidden, inner : int
            Elements of a token, and between the two matrices.
        flops_per_cycle : float
            What one SM does at best, an addition and a multiplication counted as two.
        efficiency : float
            Part of it that is reached.
        tile, sms1, sms2, shared, dispatch_sms, combine_sms
            As in the class.
        """
        if not flops_per_cycle > 0 or not 0 < efficiency <= 1:
            raise ValueError(
                f"`flops_per_cycle` must be above 0 and `efficiency` above 0 and 1 at most, "
                f"not {flops_per_cycle!r} and {efficiency!r}"
            )
        rate = flops_per_cycle * efficiency
        return cls(
            tile=tile,
            blocks1=ceil(inner / COLUMNS),
            blocks2=ceil(hidden / COLUMNS),
            cycles1=ceil(2 * tile * min(inner, COLUMNS) * hidden / rate),
            cycles2=ceil(2 * tile * min(hidden, COLUMNS) * inner / rate),
            sms1=sms1,
            sms2=sms2,
            shared=shared,
            dispatch_sms=dispatch_sms,
            combine_sms=combine_sms,
        )
