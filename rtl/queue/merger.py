# SPDX-License-Identifier: Apache-2.0
"""Merging of accesses: the open entry of the queue."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..flits import FLIT_BITS, LANES, Status
from ..gpu_params import GpuParams
from .access_check import checked_layout
from .layouts import entry_bits, entry_layout, fetch_layout, word_bits

__all__ = ["Merger"]


class Merger(wiring.Component):
    """Puts accesses that follow on each other into one entry.

    Parameters
    ----------
    params : GpuParams
        The queue.

    Members
    -------
    i_valid, i : In
        An access that the :class:`AccessCheck` looked at. It is always taken: an entry is free.
    alone : In(1)
        Nothing older than the open entry is left, and no access is on its way to it.
    merged : Out(1)
        It went into the open entry.
    opens, id, words, rotation : Out
        It opened this entry; so many words of list, which begins at this lane, belong to it.
    fetch_en, fetch : Out
        Registered: a list is to be fetched (:func:`fetch_layout`).
    closes, entry : Out
        The open entry is complete (:func:`entry_layout`).
    flit_en, flit : Out
        A data flit of a store is complete. Those of an entry are, at the latest, together with it.

    Timing
    ------
    One access a cycle. An entry closes one cycle after its last access if that filled it or was the
    warp's last, when another one begins, or in the ``flush_cycles``-th cycle after its last access
    in which it is ``alone``. The other cycles do not count: behind older entries it could not leave
    anyway, and an access that is offered either joins it or closes it.

    So no packet is cut short by a link that is held up, and no entry is held for ever: as long as
    the link takes beats, all that is older leaves. From then on each cycle either has an access
    offered or counts. One that is offered is taken at once (the open entry and what is on its way
    to it never fill the queue for longer than the way takes), and then it closes the entry, or
    joins it, which can happen only until the entry is full.

    Ordering
    --------
    Entries open and close in the order of accesses.

    Reset
    -----
    No entry is open.

    Errors
    ------
    An access in error has an entry of its own, without data and list.
    """

    def __init__(self, params: GpuParams) -> None:
        self._params = params
        super().__init__(
            {
                "i_valid": In(1),
                "i": In(checked_layout(params)),
                "alone": In(1),
                "merged": Out(1),
                "opens": Out(1),
                "id": Out(entry_bits(params)),
                "words": Out(word_bits(params) + 1),
                "rotation": Out(range(LANES)),
                "fetch_en": Out(1),
                "fetch": Out(fetch_layout(params)),
                "closes": Out(1),
                "entry": Out(entry_layout(params)),
                "flit_en": Out(1),
                "flit": Out(FLIT_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        access = self.i.access
        entry = self.entry
        is_open = Signal()
        ending = Signal()  # nothing more may join the open entry
        staged = Signal()  # `flit` is to go out
        idle = Signal(range(max(2, params.flush_cycles)), init=params.flush_cycles - 1)
        expires = Signal()
        begins = Signal()
        next_id = Signal(entry_bits(params))
        m.d.comb += [
            self.merged.eq(self.i_valid & self.i.joins & is_open & ~ending),
            begins.eq(self.i_valid & ~self.merged),
            expires.eq(self.alone & (idle == 0)),
            self.closes.eq(is_open & (ending | begins | (expires & ~self.i_valid))),
            self.flit_en.eq(staged & (self.closes | (self.merged & self.i.begins_flit))),
            self.opens.eq(begins),
            self.id.eq(next_id),
            self.words.eq(self.i.words),
            self.rotation.eq(access.list[1:4]),
        ]

        with m.If(self.i_valid):
            m.d.sync += [
                is_open.eq(1),
                ending.eq(self.i.ends),
                entry.end.eq(self.i.end),
                staged.eq(access.opcode.as_value()[0] & (self.i.status == Status.OK)),
                idle.eq(params.flush_cycles - 1),
            ]
        with m.Else():
            with m.If(self.closes):
                m.d.sync += [is_open.eq(0), ending.eq(0), staged.eq(0)]
            with m.If(self.alone & (idle != 0)):
                m.d.sync += idle.eq(idle - 1)

        with m.If(begins):
            names = ("opcode", "size", "dtype", "op", "order", "rd", "address", "count")
            m.d.sync += [getattr(entry, name).eq(getattr(access, name)) for name in names]
            m.d.sync += [
                entry.id.eq(next_id),
                entry.status.eq(self.i.status),
                # A load has a result whatever it says.
                entry.posted.eq(access.posted & access.opcode.as_value()[0]),
                entry.accesses.eq(1),
                entry.length.eq(1),
                next_id.eq(next_id + 1),
            ]
        with m.Elif(self.merged):
            m.d.sync += [
                entry.accesses.eq(entry.accesses + 1),
                entry.length.eq(entry.length + self.i.begins_flit),
            ]

        # Bytes that are not written are zero.
        fresh = Signal()
        m.d.comb += fresh.eq(begins | self.i.begins_flit)
        for lane, (held, new) in enumerate(
            zip(_lanes(self.flit), _lanes(access.data), strict=True)
        ):
            with m.If(self.i_valid & self.i.lanes[lane]):
                m.d.sync += held.eq(new)
            with m.Elif(self.i_valid & fresh):
                m.d.sync += held.eq(0)

        m.d.sync += [
            self.fetch_en.eq(begins & (self.i.words != 0)),
            self.fetch.id.eq(next_id),
            self.fetch.shared.eq(access.shared),
            self.fetch.address.eq(access.list[4:]),
            self.fetch.words.eq(self.i.words),
        ]
        return m


def _lanes(flit: Value) -> list[Value]:
    return [flit[bit : bit + 32] for bit in range(0, FLIT_BITS, 32)]
