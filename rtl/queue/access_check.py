# SPDX-License-Identifier: Apache-2.0
"""First stages of the intake: what is wrong with an access, and whether it follows on the last."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..common.bits import any_of, is_one_of
from ..flits import FLIT_BITS, FLIT_BYTES, LANES, REDUCTIONS, TO_F32, Kind, Opcode, Status
from ..gpu_params import GpuParams
from .layouts import is_dynamic, word_bits
from .ports import Access

__all__ = ["OPCODES", "AccessCheck", "checked_layout"]

OPCODES = (Opcode.MM_ST, Opcode.MM_LD_REDUCE, Opcode.MM_RED, Opcode.DY_ST, Opcode.DY_LD_REDUCE)
"""What an access may be."""
_SIZE_16 = 2
_UNKNOWN_SIZE = 3
_LANE_BITS = 32
_SAME = ("opcode", "size", "dtype", "op", "order", "posted", "count", "shared", "list")


def checked_layout(params: GpuParams) -> data.StructLayout:
    """Return the layout of an access that has been looked at.

    ``access.data`` stands at its place in the flit, in the 32-bit ``lanes`` that are written.
    ``status`` tells what is wrong. ``joins``: it may go into the packet of the access before it.
    ``ends``: nothing may join it. ``begins_flit``: it is the first of its flit. ``words`` of the
    list are to be fetched.
    """
    return data.StructLayout(
        {
            "access": Access,
            "lanes": FLIT_BITS // _LANE_BITS,
            "status": Status,
            "joins": 1,
            "ends": 1,
            "begins_flit": 1,
            "end": 4,
            "words": word_bits(params) + 1,
        }
    )


class AccessCheck(wiring.Component):
    """Looks at accesses on their way to the :class:`Merger`.

    Parameters
    ----------
    params : GpuParams
        The queue.

    Members
    -------
    i_valid, i_access : In
        An access; it is always taken.
    o_valid, o : Out
        The same with what was found out about it (:func:`checked_layout`).

    Timing
    ------
    An access that comes in cycle *t* goes out in *t* + 2. One a cycle.

    Ordering
    --------
    None is overtaken.

    Errors
    ------
    ``status`` is the first that applies of UNKNOWN_OPCODE, BAD_LENGTH, BAD_ADDRESS, COUNT_ZERO,
    TOO_MANY_TARGETS and BAD_REDUCTION. Such an access joins none, and none joins it.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        super().__init__(
            {
                "i_valid": In(1),
                "i_access": In(Access),
                "o_valid": Out(1),
                "o": Out(checked_layout(params)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        access = Signal(Access, reset_less=True)
        valid = Signal()
        m.d.sync += [valid.eq(self.i_valid), self.o_valid.eq(valid)]
        with m.If(self.i_valid):
            m.d.sync += access.eq(self.i_access)

        # What an access must have to join the one in `o`.
        next_address = Signal(48, reset_less=True)
        next_rd = Signal(16, reset_less=True)
        last = self.o.access
        follows = Signal()
        m.d.comb += follows.eq(
            Cat(*(_bits(access[name]) for name in _SAME), access.address, access.rd)
            == Cat(*(_bits(last[name]) for name in _SAME), next_address, next_rd)
        )

        opcode = _bits(access.opcode)
        size = access.size
        # Size is 4, 8 or 16 bytes: one more in bit 2, 3 or 4. (An unknown one joins nothing.)
        step = Cat(Const(0, 2), size == 0, size == 1, size == _SIZE_16)
        after = Signal(48)
        m.d.comb += after.eq(access.address + step)
        # A byte-enable flit reaches over 8 flits, so packets that may have one end there.
        partial = opcode[0] & (size != _SIZE_16)
        begins_packet = Signal()
        fills_packet = Signal()
        for place, found in ((access.address, begins_packet), (after, fills_packet)):
            whole = ~any_of(place[: _log2(params.packet_flits * FLIT_BYTES)])
            part = ~any_of(place[: _log2(min(params.packet_flits, 8) * FLIT_BYTES)])
            m.d.comb += found.eq(Mux(partial, part, whole))

        status = Signal(Status)
        m.d.comb += status.eq(self._status(access))
        wrong = Signal()
        m.d.comb += wrong.eq(status != Status.OK)

        offset = access.address[2:4]
        lanes = Signal(4)
        placed = Signal(FLIT_BITS)
        with m.If(size == 0):
            m.d.comb += [lanes.eq(1 << offset), placed.eq(access.data[:32].replicate(4))]
        with m.Elif(size == 1):
            m.d.comb += [
                lanes.eq(Mux(offset[1], 0b1100, 0b0011)),
                placed.eq(access.data[:64].replicate(2)),
            ]
        with m.Else():
            m.d.comb += [lanes.eq(0b1111), placed.eq(access.data)]

        count = access.count[: params.max_targets.bit_length()]
        words = Signal(word_bits(params) + 1)
        m.d.comb += words.eq((count + access.list[1:4] + (LANES - 1)) >> 3)

        with m.If(valid):
            m.d.sync += [
                self.o.access.eq(access),
                self.o.access.data.eq(placed),
                self.o.lanes.eq(lanes),
                self.o.status.eq(status),
                self.o.joins.eq(follows & ~begins_packet & ~wrong),
                self.o.ends.eq(access.last | fills_packet | wrong),
                self.o.begins_flit.eq(~any_of(access.address[:4])),
                self.o.end.eq(after[:4]),
                self.o.words.eq(Mux(is_dynamic(opcode) & ~wrong, words, 0)),
                next_address.eq(after),
                next_rd.eq(access.rd + 1),
            ]
        return m

    def _status(self, access: data.View) -> Value:
        """First fault of an access."""
        opcode = _bits(access.opcode)
        size = access.size
        kind = opcode[:2]
        dynamic = is_dynamic(opcode)
        pairs = [
            (dtype, op) for dtype, ops in REDUCTIONS.items() if dtype not in TO_F32 for op in ops
        ]
        reduces = is_one_of(
            Cat(_bits(access.dtype), _bits(access.op)),
            [dtype.value | op.value << len(_bits(access.dtype)) for dtype, op in pairs],
        )
        misaligned = (
            any_of(access.address[:2])
            | ((size != 0) & access.address[2])
            | (size[1] & access.address[3])
            | (dynamic & access.list[0])
        )
        faults = (
            (~is_one_of(opcode, [known.value for known in OPCODES]), Status.UNKNOWN_OPCODE),
            (
                (size == _UNKNOWN_SIZE) | ((kind == Kind.RED.value) & (size != _SIZE_16)),
                Status.BAD_LENGTH,
            ),
            (misaligned, Status.BAD_ADDRESS),
            (dynamic & (access.count == 0), Status.COUNT_ZERO),
            (dynamic & (access.count > self._params.max_targets), Status.TOO_MANY_TARGETS),
            (kind[1] & ~reduces, Status.BAD_REDUCTION),
        )
        status: Value = Const(Status.OK.value, 4)
        for found, told in reversed(faults):
            status = Mux(found, told.value, status)
        return status


def _bits(value: object) -> Value:
    """Turn a field into its bits, enumerations too."""
    return Value.cast(value)


def _log2(power: int) -> int:
    return power.bit_length() - 1
