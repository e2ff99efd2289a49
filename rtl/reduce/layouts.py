# SPDX-License-Identifier: Apache-2.0
"""What the parts of a port's reduction hand to each other."""

from amaranth.lib import data, enum

from ..flits import HEADER
from ..params import SwitchParams

__all__ = [
    "GPU_BITS",
    "TICK_BITS",
    "TICK_CYCLES",
    "Op",
    "command_layout",
    "operation_layout",
    "report_layout",
]

GPU_BITS = HEADER["gpu"].width
TICK_BITS = 16
"""Width of the time-out register and of the time stamps."""
TICK_CYCLES = 64
"""Cycles of a tick, a power of two."""


class Op(enum.Enum, shape=2):
    """What happens to an entry."""

    PART = 0
    """A GPU's part of an answer."""
    PASS = 1
    """A response that is passed on; no entry is looked at."""
    ARM = 2
    """A request wants an answer."""
    SCAN = 3
    """Whether its time is over."""


def operation_layout(params: SwitchParams) -> data.StructLayout:
    """Return the layout of an operation on an entry.

    ``data`` is, for a part, whether it has data; for an order to arm, whether the request is a
    load. ``gpus`` is the sender of a part (one-hot), or the GPUs that are to answer.
    """
    names = ("tag", "gen", "aux", "length", "dtype", "count", "more")
    return data.StructLayout(
        {
            "op": Op,
            **{name: HEADER[name].width for name in names},
            "data": 1,
            "gpus": params.gpus,
        }
    )


def command_layout(params: SwitchParams) -> data.StructLayout:
    """Return the layout of an order to take a packet; packets are taken in the order of these.

    ``source`` is the queue that it is taken from (one-hot; the last is for refusals), 0 for none.
    ``passes``: unchanged to the requester. ``adds``: its data goes into the entry, as the ``first``
    or to what is there. ``final``: the result leaves with it. ``report``: an error result leaves,
    whose content is in the report register. Otherwise it is dropped. ``guards``: the entry is in
    use until the packet is through. ``wide`` and ``presum``: of the entry, and f32 parts of a wide
    one. ``length``: data flits of the result.
    """
    return data.StructLayout(
        {
            "source": params.ports + 1,
            "passes": 1,
            "adds": 1,
            "first": 1,
            "final": 1,
            "report": 1,
            "guards": 1,
            "wide": 1,
            "presum": 1,
            "to_f32": 1,
            "tag": HEADER["tag"].width,
            "dtype": HEADER["dtype"].width,
            "op": 3,
            "load": 1,
            "total": params.count_bits,
            "length": HEADER["length"].width,
        }
    )


def report_layout(params: SwitchParams) -> data.StructLayout:
    """Return the layout of the content of an error result."""
    return data.StructLayout(
        {
            "tag": HEADER["tag"].width,
            "gen": HEADER["gen"].width,
            "dtype": HEADER["dtype"].width,
            "total": params.count_bits,
            "status": HEADER["aux"].width,
            "missing": params.gpus,
            "faulty": params.gpus,
        }
    )
