# SPDX-License-Identifier: Apache-2.0
"""The machine of the time model: links, switch and SMs, with the constants of all runs."""

from dataclasses import dataclass

from ...rtl.param_checks import check_int

__all__ = ["Machine"]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """GPUs around switches. There is one set of values for all workloads and systems.

    Parameters
    ----------
    gpus, links, planes : int
        GPUs, links of a GPU, and switches that share the traffic. Addresses are hashed over the
        planes, so that only the sum of the links counts.
    link_rate : float
        Bytes a second of one link in one direction, headers included.
    latency : float
        Seconds from a GPU to another one.
    packet : int
        Bytes of payload of a packet.
    lists : str
        Which copies of a packet still carry a target list, and so an extension flit: ``stripped``
        (none that leaves the switch, as the paper's payload efficiency needs) or ``kept`` (all, as
        this project's switch does).
    switch_efficiency : float
        Measured / ideal rate of links that the switch computes on (``together_efficiency``
        of ``dysharp bench system``).
    software_efficiency : float
        The same of exchanges that thread blocks run without in-switch computing: what DeepEP
        reaches of the rate that it calls usable (153 of 160 GB/s).
    sms : int
        SMs of a GPU.
    flops : float
        Operations a second of a GPU at best (H200, FP8 dense).
    gemm_efficiency : float
        Part of it that the inner loop of a thread block reaches. Chosen once: with 0.9
        communication is 69.8 % of L-8 on DeepEP, quoted as 70.4 %.
    block_overhead : float
        Seconds that a thread block spends outside its inner loop: taking the task, filling
        the pipeline, writing the result.
    memory_rate : float
        Bytes a second of the GPU's memory, for passes that only move rows.
    sync : float
        Seconds of a barrier over all GPUs with the launch of the next kernel.
    """

    gpus: int = 32
    links: int = 18
    planes: int = 9
    link_rate: float = 25e9
    latency: float = 500e-9
    packet: int = 128
    lists: str = "stripped"
    switch_efficiency: float = 0.993
    software_efficiency: float = 0.956
    sms: int = 132
    flops: float = 1979e12
    gemm_efficiency: float = 0.9
    block_overhead: float = 0.3e-6
    memory_rate: float = 4.8e12
    sync: float = 8e-6

    def __post_init__(self) -> None:
        check_int("gpus", self.gpus, 2, 1024)
        check_int("links", self.links, 1, 1024)
        check_int("planes", self.planes, 1, 1024)
        check_int("packet", self.packet, 16, 256)
        check_int("sms", self.sms, 1, 1024)
        if self.lists not in ("stripped", "kept"):
            raise ValueError(f"`lists` must be 'stripped' or 'kept', not {self.lists!r}")
        for name in ("link_rate", "flops", "memory_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name}` must be above 0, not {getattr(self, name)!r}")
        for name in ("latency", "block_overhead", "sync"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"`{name}` must be 0 or more, not {getattr(self, name)!r}")
        for name in ("switch_efficiency", "software_efficiency", "gemm_efficiency"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(
                    f"`{name}` must be above 0 and 1 at most, not {getattr(self, name)!r}"
                )

    @property
    def rate(self) -> float:
        """Bytes a second of all links of a GPU in one direction."""
        return self.links * self.link_rate
