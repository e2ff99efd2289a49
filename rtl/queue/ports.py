# SPDX-License-Identifier: Apache-2.0
"""What goes in and out of the MultimemQ: accesses, results, beats, list words."""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..flits import FLIT_BITS, FLIT_BYTES, DType, Opcode, Order, ReduceOp, Status
from ..gpu_params import GpuParams

__all__ = ["SIZES", "Access", "Beat", "FetchSignature", "Result"]

SIZES = (4, 8, 16)
"""Bytes of an access, by its field ``size``: type size times vector width is 32, 64 or 128 bits."""


class Access(data.Struct):
    """One thread's ``multimem`` or ``dymultimem`` instruction.

    Members
    -------
    opcode
        ``MM_ST``, ``MM_LD_REDUCE``, ``MM_RED``, ``DY_ST`` or ``DY_LD_REDUCE``.
    size
        Bytes: index into :data:`SIZES`.
    dtype, op, order
        Of a reduction.
    posted
        A store that nobody waits for.
    last
        The warp's last access: the packet that it goes into is not held for more.
    rd
        Name of r1 for the result. Accesses are merged only if their names follow each other.
    address
        r2, a multiple of the size.
    count
        r3, the number of targets; of a static instruction, the group.
    shared
        The list is in shared memory, not in global memory.
    list
        r4, byte address of the list of 16-bit targets, even.
    data
        r1 of a store or a ``red``, in the low bytes.
    """

    opcode: Opcode
    size: 2
    dtype: DType
    op: ReduceOp
    order: Order
    posted: 1
    last: 1
    rd: 16
    address: 48
    count: 15
    shared: 1
    list: 48
    data: FLIT_BITS


class Result(data.Struct):
    """The end of an access, or of all the accesses of a store's packet.

    Members
    -------
    rd
        Name of r1; of several accesses, that of the first.
    accesses
        How many accesses it ends, with names that follow each other. 1 for a load.
    load
        ``data`` is the reduced value, if the status is OK.
    status
        How it ended.
    data
        In the low bytes; zero above the access' size, and with another status than OK.
    """

    rd: 16
    accesses: 7
    load: 1
    status: Status
    data: FLIT_BITS


class Beat(data.Struct):
    """Up to three flits of a packet that follow each other.

    Members
    -------
    flits
        Header; list or byte-enable flit; data flit.
    present
        Bit *i*: flit *i* is there. Flits go out by ascending *i*.
    last
        The last flit that is present ends the packet.
    """

    flits: data.ArrayLayout(FLIT_BITS, 3)
    present: 3
    last: 1


class FetchSignature(wiring.Signature):
    """A port to a memory of target lists, seen from the queue.

    Parameters
    ----------
    params : GpuParams
        The queue.

    Members
    -------
    request : Out
        Stream of ``address`` (48 bits, a multiple of 16) and ``id``.
    reply : In
        Stream of ``id``, ``data`` (the 16 bytes there) and ``error``; replies come in any order,
        one for each request.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        words = params.max_targets * 2 // FLIT_BYTES + 2  # of an entry; odd lists cross one more
        ids = ((params.queue_depth * words) - 1).bit_length()
        super().__init__(
            {
                "request": Out(stream.Signature(data.StructLayout({"address": 48, "id": ids}))),
                "reply": In(
                    stream.Signature(data.StructLayout({"id": ids, "data": FLIT_BITS, "error": 1}))
                ),
            }
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FetchSignature) and self._params == other._params

    def __repr__(self) -> str:
        return f"FetchSignature({self._params!r})"
