# SPDX-License-Identifier: Apache-2.0
"""Parameters of a switch, validated at construction, and its presets."""

from dataclasses import dataclass
from math import ceil

from .flits import FLIT_BITS, LANES, MAX_DATA_FLITS
from .param_checks import check_choice, check_int, check_power

__all__ = ["PRESETS", "SwitchParams"]

MAX_PORTS = 64
MAX_TARGETS_LIMIT = 512


@dataclass(frozen=True, kw_only=True)
class SwitchParams:
    """Everything that is fixed when a switch is generated.

    Parameters
    ----------
    ports : int
        Link ports, 2 to 64, any number.
    links_per_gpu : int
        Ports of one GPU: 1, 2 or 4. GPU ``g`` has ports ``g * links_per_gpu ...``.
    max_targets : int
        Longest target list, 1 to 512.
    lanes : int
        Targets that a route unit maps in one cycle: 1, 2, 4 or 8.
    ports_per_route : int
        How many ports share a route unit. A unit takes one list flit a cycle.
    groups : int
        Static multicast groups.
    dynamic : bool
        Whether ``dymultimem`` requests are supported. Without, they are unknown opcodes and all
        logic for lists is left out.
    ingress_depth : int
        Flits a port buffers per virtual channel before the crossbar: the credits that a sender
        gets.
    request_depth, response_depth : int
        Flits of one (input, output) pair's queue per virtual channel.
    entries : int
        Reduction entries of a port, each of 128 B: the tags that a GPU has for multicast requests.
        A power of two from 4 to 512.
    result_depth : int
        Flits of a port's queue of results.
    rx_timeout : int
        A sender that has credits and stops inside a packet for so many cycles is cut off (power of
        two).
    """

    ports: int
    links_per_gpu: int = 1
    max_targets: int = 64
    lanes: int = LANES
    ports_per_route: int = 8
    groups: int = 32
    dynamic: bool = True
    ingress_depth: int = 64
    request_depth: int = 64
    response_depth: int = 32
    entries: int = 512
    result_depth: int = 64
    rx_timeout: int = 4096

    def __post_init__(self) -> None:
        check_int("ports", self.ports, 2, MAX_PORTS)
        check_choice("links_per_gpu", self.links_per_gpu, (1, 2, 4))
        if self.ports % self.links_per_gpu or self.ports // self.links_per_gpu < 2:
            raise ValueError(
                f"`ports` must be 2 or more times `links_per_gpu` ({self.links_per_gpu}), "
                f"not {self.ports!r}"
            )
        check_int("max_targets", self.max_targets, 1, MAX_TARGETS_LIMIT)
        check_choice("lanes", self.lanes, (1, 2, 4, 8))
        check_int("ports_per_route", self.ports_per_route, 1, MAX_PORTS)
        check_int("groups", self.groups, 1, 256)
        if not isinstance(self.dynamic, bool):
            raise TypeError(f"`dynamic` must be a bool, not {self.dynamic!r}")
        for name, longest in (
            ("ingress_depth", self.max_request_flits),
            ("request_depth", self.max_request_flits + self.queue_margin),
            ("response_depth", self.max_response_flits),
            ("result_depth", self.max_response_flits),
        ):
            value = getattr(self, name)
            check_power(name, value, 1, 4096)
            if value < longest:
                raise ValueError(
                    f"`{name}` must be at least {longest} to hold the longest packet, not {value!r}"
                )
        check_power("entries", self.entries, 4, 1 << 9)
        check_power("rx_timeout", self.rx_timeout, 16, 1 << 20)

    @property
    def gpus(self) -> int:
        """GPUs at the switch."""
        return self.ports // self.links_per_gpu

    @property
    def max_extensions(self) -> int:
        """Extension flits of the longest list.

        Buffers are sized for them without dynamic support too, so that static collectives take the
        same cycles with and without.
        """
        return ceil(self.max_targets / LANES)

    @property
    def max_request_flits(self) -> int:
        """Flits of the longest request: header, list, then 8 flits under byte enables or 16."""
        return 1 + self.max_extensions + MAX_DATA_FLITS

    @property
    def max_response_flits(self) -> int:
        """Flits of the longest response."""
        return 1 + MAX_DATA_FLITS

    @property
    def count_bits(self) -> int:
        """Bits of the number of a request's targets: of a list, or of a group's GPUs."""
        return max(self.max_targets, self.gpus).bit_length()

    @property
    def queue_margin(self) -> int:
        """Slots of a pair's request queue that admission leaves free.

        An output may step back over a header and its list (``rtl/switch/sender.py``).
        """
        return 1 + self.max_extensions

    @property
    def route_units(self) -> int:
        """Route units; 0 without dynamic support."""
        return ceil(self.ports / self.ports_per_route) if self.dynamic else 0

    @property
    def buffer_bits(self) -> int:
        """Bits of all buffers of one port, the figure to hold against NVLink's 64 KiB."""
        pair = self.request_depth + self.response_depth
        return (self.ingress_depth + self.ports * pair + self.result_depth) * FLIT_BITS


PRESETS: dict[str, SwitchParams] = {
    "tiny": SwitchParams(
        ports=4,
        max_targets=16,
        groups=4,
        ingress_depth=32,
        request_depth=32,
        response_depth=32,
        entries=16,
        result_depth=32,
    ),
    "default": SwitchParams(ports=8),
    "nvl32": SwitchParams(ports=64, links_per_gpu=2),
}
"""``tiny`` for quick tests, ``default`` for figures, ``nvl32`` as in GH200 NVL32 (32 GPUs)."""
