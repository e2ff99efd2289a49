# SPDX-License-Identifier: Apache-2.0
"""The systems that are compared: what each one sends, and what it overlaps with what, as data."""

from dataclasses import dataclass

__all__ = ["SYSTEMS", "System"]


@dataclass(frozen=True, kw_only=True)
class System:
    """One way to run a layer.

    A *grain* says when a stage may work on what the stage before has done: 0, at its end only;
    -1, tile by tile; *n*, in *n* equal chunks, with a barrier after each.

    Parameters
    ----------
    traffic : str
        ``gpu`` (a copy for each GPU, partial sums back), ``expert`` (a copy for each expert),
        ``nvls`` (AllGather and ReduceScatter in the switch) or ``dynamic`` (DySHARP).
    dispatch_gemm1, gemm1_gemm2, gemm2_combine : int
        Grains of the three edges.
    together : bool
        Dispatch and combine may be on the links at once: needed for a `gemm1_gemm2` of -1. Chunks
        of the two may meet as well.
    reserved : int
        SMs that move data and do not compute.
    barriers : int
        Barriers of a layer besides those of chunks.
    passes : int
        Times that all rows are read and written again in memory, to bring them in order, with
        nothing else going on.
    overlap_next : bool
        Communication also overlaps with the computing of another micro-batch (DualPipe).
    """

    traffic: str
    dispatch_gemm1: int
    gemm1_gemm2: int
    gemm2_combine: int
    together: bool
    reserved: int
    barriers: int
    passes: int
    overlap_next: bool = False


SYSTEMS: dict[str, System] = {
    "DeepEP": System(
        traffic="gpu",
        dispatch_gemm1=0,
        gemm1_gemm2=0,
        gemm2_combine=0,
        together=False,
        reserved=0,
        barriers=3,
        passes=1,
    ),
    "NVLS": System(
        traffic="nvls",
        dispatch_gemm1=0,
        gemm1_gemm2=0,
        gemm2_combine=0,
        together=False,
        reserved=0,
        barriers=3,
        passes=1,
    ),
    "FasterMoE": System(
        traffic="gpu",
        dispatch_gemm1=2,
        gemm1_gemm2=0,
        gemm2_combine=2,
        together=False,
        reserved=20,
        barriers=1,
        passes=2,
    ),
    "Tutel": System(
        traffic="gpu",
        dispatch_gemm1=2,
        gemm1_gemm2=2,
        gemm2_combine=2,
        together=False,
        reserved=20,
        barriers=1,
        passes=2,
    ),
    "CCFuser": System(
        traffic="gpu",
        dispatch_gemm1=-1,
        gemm1_gemm2=0,
        gemm2_combine=-1,
        together=False,
        reserved=24,
        barriers=2,
        passes=0,
    ),
    "COMET": System(
        traffic="gpu",
        dispatch_gemm1=-1,
        gemm1_gemm2=0,
        gemm2_combine=-1,
        together=False,
        reserved=20,
        barriers=1,
        passes=0,
    ),
    "DualPipe": System(
        traffic="gpu",
        dispatch_gemm1=0,
        gemm1_gemm2=0,
        gemm2_combine=0,
        together=False,
        reserved=20,
        barriers=3,
        passes=1,
        overlap_next=True,
    ),
    "DySHARP-Basic": System(
        traffic="dynamic",
        dispatch_gemm1=0,
        gemm1_gemm2=0,
        gemm2_combine=0,
        together=False,
        reserved=0,
        barriers=3,
        passes=0,
    ),
    "DySHARP-COMET": System(
        traffic="dynamic",
        dispatch_gemm1=-1,
        gemm1_gemm2=0,
        gemm2_combine=-1,
        together=False,
        reserved=20,
        barriers=1,
        passes=0,
    ),
    "fusion-only": System(
        traffic="gpu",
        dispatch_gemm1=-1,
        gemm1_gemm2=-1,
        gemm2_combine=-1,
        together=True,
        reserved=40,
        barriers=1,
        passes=0,
    ),
    "DySHARP": System(
        traffic="dynamic",
        dispatch_gemm1=-1,
        gemm1_gemm2=-1,
        gemm2_combine=-1,
        together=True,
        reserved=20,
        barriers=1,
        passes=0,
    ),
}
"""Name to system: the paper's baselines, its ablation, and itself (section IV, VI-A)."""
