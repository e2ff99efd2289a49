# SPDX-License-Identifier: Apache-2.0
"""Register map of the switch: names, addresses, access and reset values in one table.

The component ``rtl/switch/registers.py`` builds its decoder from it, benches and drivers look
addresses up in it, and ``docs/registers.md`` is written from it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from .params import SwitchParams

__all__ = ["COUNTERS", "ID_VALUE", "Counter", "Register", "address_of", "register_map"]

ID_VALUE = 0xD5A4_0002
"""Reads as the product (upper half) and the version of this map (lower half)."""

_PARTITIONS = 0x0100
_ARMED = 0x0200
_GROUPS = 0x0800
_COUNTERS = 0x1000
_COUNTER_STRIDE = 0x40
_GROUP_STRIDE = 8


@dataclass(frozen=True)
class Counter:
    """One event counter that every port has; 32 bits, wraps, cleared by reset only."""

    name: str
    meaning: str


COUNTERS = (
    Counter("rx_flits", "flits taken from the link"),
    Counter("rx_requests", "requests that came in whole, malformed ones included"),
    Counter("rx_responses", "responses that came in whole, malformed ones included"),
    Counter("tx_flits", "flits sent to the link"),
    Counter("tx_requests", "copies of requests sent"),
    Counter("tx_responses", "responses sent: results, refusals and those of other GPUs"),
    Counter("refused", "requests that were consumed and answered with a status"),
    Counter("dropped", "malformed responses that were consumed without an answer"),
    Counter("late", "parts for no request that is armed"),
    Counter("duplicates", "parts of a GPU that was not asked, or had answered to the end"),
    Counter("wrong", "parts that did not fit their request"),
    Counter("timeouts", "requests that ended because answers were missing for too long"),
    Counter("replaced", "requests that ended because their tag was used again"),
)


@dataclass(frozen=True)
class Register:
    """One 32-bit register."""

    name: str
    address: int
    access: str
    """``ro`` or ``rw``."""
    reset: int
    meaning: str


def _registers(params: SwitchParams) -> Iterator[Register]:
    yield Register("id", 0x0000, "ro", ID_VALUE, "product and version of this map")
    yield Register(
        "shape",
        0x0004,
        "ro",
        params.ports | params.links_per_gpu << 8 | params.lanes << 12 | params.groups << 16,
        "ports 7:0, links per GPU 11:8, lanes 15:12, groups 31:16",
    )
    if params.dynamic:
        yield Register("max_targets", 0x0008, "ro", params.max_targets, "longest target list")
        yield Register(
            "experts_per_gpu",
            0x000C,
            "rw",
            1,
            "1 to 65535; other values are ignored. Write it while no dynamic request is under way",
        )
        yield Register(
            "busy", 0x0010, "ro", 0, "bit 0: the multiples of experts_per_gpu are being computed"
        )
    yield Register(
        "timeout",
        0x0014,
        "rw",
        0,
        "1 to 65535: a multicast request that has no result after so many times 64 cycles ends "
        "with TIMEOUT; 0: never",
    )
    for word in range(ceil(params.ports / 32)):
        yield Register(
            f"fault{word}",
            0x0020 + 4 * word,
            "ro",
            0,
            f"bit p: port {32 * word} + p was cut off for a broken link protocol, until reset",
        )
    for port in range(params.ports):
        yield Register(
            f"partition{port}",
            _PARTITIONS + 4 * port,
            "rw",
            0,
            f"partition of port {port}; packets stay inside their partition",
        )
        yield Register(
            f"armed{port}",
            _ARMED + 4 * port,
            "ro",
            0,
            f"multicast requests of port {port} that wait for answers now",
        )
    for group in range(params.groups):
        for word in range(ceil(params.gpus / 32)):
            yield Register(
                f"group{group}_{word}",
                _GROUPS + _GROUP_STRIDE * group + 4 * word,
                "rw",
                0,
                f"GPU mask of group {group}, GPUs {32 * word} and up; 0 in all words: no group",
            )
    for port in range(params.ports):
        for index, counter in enumerate(COUNTERS):
            yield Register(
                f"{counter.name}{port}",
                _COUNTERS + _COUNTER_STRIDE * port + 4 * index,
                "ro",
                0,
                f"port {port}: {counter.meaning}",
            )


def register_map(params: SwitchParams) -> tuple[Register, ...]:
    """All registers of a switch, in address order."""
    return tuple(sorted(_registers(params), key=lambda r: r.address))


def address_of(params: SwitchParams, name: str) -> int:
    """Byte address of the register `name`."""
    for register in _registers(params):
        if register.name == name:
            return register.address
    raise ValueError(f"`name` must be a register of this switch, not {name!r}")
