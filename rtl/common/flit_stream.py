# SPDX-License-Identifier: Apache-2.0
"""Streams of flits whose packets have a mark at their end."""

from amaranth.lib import data, stream

from ..flits import FLIT_BITS

__all__ = ["flit_stream"]


def flit_stream() -> stream.Signature:
    """Return a stream of flits: ``flit``, and ``last``, which is set on a packet's last."""
    return stream.Signature(data.StructLayout({"flit": FLIT_BITS, "last": 1}))
