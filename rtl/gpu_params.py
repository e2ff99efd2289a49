# SPDX-License-Identifier: Apache-2.0
"""Parameters of the GPU side of a link, validated at construction, and its presets."""

from dataclasses import dataclass
from enum import Enum
from math import ceil

from .flits import LANES, MAX_DATA_FLITS
from .param_checks import check_choice, check_int, check_power
from .params import MAX_PORTS, MAX_TARGETS_LIMIT

__all__ = ["GPU_PRESETS", "GpuParams", "TlbForm"]

MAX_ROWS = 1024
"""Rows of the hub's table of experts, so that they fit its register map."""


class TlbForm(Enum):
    """How the AL TLB is built."""

    CAM = "cam"
    """Fully associative: tags in flops, each with a comparator."""
    SETS = "sets"
    """Set-associative: tags in RAM."""


@dataclass(frozen=True, kw_only=True)
class GpuParams:
    """Everything that is fixed when the GPU side of one link is generated.

    Parameters
    ----------
    gpus : int
        GPUs at the switch, 2 to 64: destinations of this one's answers.
    entries : int
        Reduction entries of the switch's port. Tags below ``entries - ordinary_tags`` are those of
        multicast requests.
    ordinary_tags : int
        Tags that are left to the ordinary loads and stores, a multiple of 4.
    queue_depth : int
        Entries of the MultimemQ, each a packet that is being made. A power of two.
    max_targets : int
        Longest target list, 1 to 512.
    packet_flits : int
        Data flits up to which accesses are merged: 1, 2, 4, 8 or 16.
    flush_cycles : int
        A packet that could leave and has not grown for so many cycles is sent.
    objects : int
        Multicast objects that the hub knows at once, 1 to 16.
    experts : int
        Experts on this GPU, 1 to 512; at most 1024 times over all objects.
    tlb_form : TlbForm
        How the AL TLB is built.
    tlb_entries : int
        Its entries, a power of two from 16 to 4096.
    tlb_ways : int
        Ways of a set, in the form ``SETS``: 1, 2, 4 or 8.
    misses : int
        AL table reads under way at once, a power of two from 1 to 64.
    lookups : int
        Translations under way at once, a power of two, `misses` or more.
    hub_flits : int
        Flits of requests that the hub buffers: its credits. A power of two.
    response_flits : int
        Flits of answers to one GPU that wait for credits. A power of two.
    memory_flits : int
        Flits of one beat of the memory: 1, 2, 4 or 8.
    tiles : int
        Entries of the tracker's table of tiles (TS), a power of two from 8 to 4096.
    tokens : int
        Entries of its table of tokens (OR), likewise.
    track_ways : int
        Ways of a set of both: 1, 2, 4 or 8.
    track_reads : int
        Records of each of these tables that are read from memory at once, a power of two from 1
        to 16.
    track_queue : int
        Words of each of the tracker's queues that are on the chip, a power of two from 8 to 1024;
        the rest is in memory.
    """

    gpus: int
    entries: int = 512
    ordinary_tags: int = 32
    queue_depth: int = 32
    max_targets: int = 64
    packet_flits: int = 8
    flush_cycles: int = 32
    objects: int = 4
    experts: int = 32
    tlb_form: TlbForm = TlbForm.CAM
    tlb_entries: int = 512
    tlb_ways: int = 8
    misses: int = 16
    lookups: int = 64
    hub_flits: int = 512
    response_flits: int = 64
    memory_flits: int = 4
    tiles: int = 1024
    tokens: int = 1024
    track_ways: int = 4
    track_reads: int = 8
    track_queue: int = 64

    def __post_init__(self) -> None:
        check_int("gpus", self.gpus, 2, MAX_PORTS)
        check_power("entries", self.entries, 8, 1 << 9)
        check_int("ordinary_tags", self.ordinary_tags, 4, self.entries - 4)
        if self.ordinary_tags % 4:
            raise ValueError(f"`ordinary_tags` must be a multiple of 4, not {self.ordinary_tags!r}")
        check_power("queue_depth", self.queue_depth, 2, 256)
        check_int("max_targets", self.max_targets, 1, MAX_TARGETS_LIMIT)
        check_choice("packet_flits", self.packet_flits, (1, 2, 4, 8, 16))
        check_int("flush_cycles", self.flush_cycles, 1, 1 << 16)
        check_int("objects", self.objects, 1, 16)
        check_int("experts", self.experts, 1, 512)
        if self.objects * self.experts > MAX_ROWS:
            raise ValueError(
                f"`experts` times `objects` must be {MAX_ROWS} at most, "
                f"not {self.experts * self.objects!r}"
            )
        if not isinstance(self.tlb_form, TlbForm):
            raise TypeError(f"`tlb_form` must be a TlbForm, not {self.tlb_form!r}")
        check_power("tlb_entries", self.tlb_entries, 16, 4096)
        check_choice("tlb_ways", self.tlb_ways, (1, 2, 4, 8))
        check_power("misses", self.misses, 1, 64)
        check_power("lookups", self.lookups, 1, 1024)
        if self.lookups < self.misses:
            raise ValueError(f"`lookups` must be `misses` or more, not {self.lookups!r}")
        longest = self.max_request_flits
        check_power("hub_flits", self.hub_flits, 2, 4096)
        if self.hub_flits < longest:
            raise ValueError(
                f"`hub_flits` must be at least {longest} to hold the longest packet, "
                f"not {self.hub_flits!r}"
            )
        check_power("response_flits", self.response_flits, 2, 4096)
        if self.response_flits < 1 + MAX_DATA_FLITS:
            raise ValueError(
                f"`response_flits` must be at least {1 + MAX_DATA_FLITS} to hold the longest "
                f"packet, not {self.response_flits!r}"
            )
        check_choice("memory_flits", self.memory_flits, (1, 2, 4, 8))
        check_power("tiles", self.tiles, 8, 4096)
        check_power("tokens", self.tokens, 8, 4096)
        check_choice("track_ways", self.track_ways, (1, 2, 4, 8))
        check_power("track_reads", self.track_reads, 1, 16)
        check_power("track_queue", self.track_queue, 8, 1024)

    @property
    def max_request_flits(self) -> int:
        """Flits of the longest request."""
        return 1 + ceil(self.max_targets / LANES) + MAX_DATA_FLITS

    @property
    def tags(self) -> int:
        """Tags of multicast requests: 0 and up; the rest are those of ordinary ones."""
        return self.entries - self.ordinary_tags


GPU_PRESETS: dict[str, GpuParams] = {
    "tiny": GpuParams(
        gpus=4,
        entries=16,
        ordinary_tags=4,
        queue_depth=8,
        max_targets=16,
        objects=2,
        experts=4,
        tlb_entries=16,
        tlb_ways=2,
        misses=4,
        lookups=16,
        hub_flits=64,
        response_flits=32,
        memory_flits=2,
        tiles=16,
        tokens=16,
        track_ways=2,
        track_reads=2,
        track_queue=8,
    ),
    "default": GpuParams(gpus=8),
    "default_sets": GpuParams(gpus=8, tlb_form=TlbForm.SETS),
}
"""``default`` has the sizes of the paper: 32 queue entries, a CAM of 512."""
