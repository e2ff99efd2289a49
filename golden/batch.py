# SPDX-License-Identifier: Apache-2.0
"""Packets of all ports with their fields, and what follows from the header of each alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..rtl.flits import (
    MAX_BYTE_ENABLE_FLITS,
    MAX_DATA_FLITS,
    Addressing,
    Kind,
    Opcode,
    Order,
    Status,
    Vc,
)
from ..rtl.params import SwitchParams
from .arms import IS_TO_F32, REDUCES, Arms, slots_of
from .arrays import FlitArray, IntArray, Mask, value_of
from .route import ports_of

__all__ = ["Batch", "Copies", "arms_of", "entry_status", "header_status", "plain_copies"]


@dataclass(frozen=True, eq=False)
class Batch:
    """Packets of all input ports, with their header fields."""

    flits: FlitArray
    starts: IntArray
    sizes: IntArray
    source: IntArray
    fields: dict[str, IntArray]

    @property
    def is_multicast(self) -> Mask:
        """Whether each packet is a request for several GPUs."""
        how = self.fields["opcode"] >> 2
        several: Mask = np.isin(how, [value_of(Addressing.STATIC), value_of(Addressing.DYNAMIC)])
        return several

    @property
    def is_load(self) -> Mask:
        """Whether each packet is a load, if it is a request."""
        loads: Mask = self.fields["opcode"] & 3 == value_of(Kind.LOAD)
        return loads

    @property
    def arms(self) -> Mask:
        """Whether each packet arms a reduction entry, if it is not refused."""
        arms: Mask = self.is_multicast & (self.is_load | (self.fields["posted"] == 0))
        return arms

    @property
    def is_response(self) -> Mask:
        """Whether each packet is a response, well-formed or not."""
        responds: Mask = self.fields["opcode"] >> 2 == value_of(Addressing.RESPONSE)
        return responds


@dataclass(frozen=True, eq=False)
class Copies:
    """Copies to be sent: of which packet and by which port.

    `count` is the length of the pruned list and -1 on copies that do not have one; `targets` are
    all pruned lists end to end.
    """

    packet: IntArray
    port: IntArray
    count: IntArray
    targets: IntArray


def plain_copies(packet: IntArray, port: IntArray) -> Copies:
    """Return copies that have no list."""
    return Copies(packet, port, np.full(len(packet), -1), np.zeros(0, np.int64))


def header_status(params: SwitchParams, known: Mask, batch: Batch) -> IntArray:
    """Statuses 1 to 4 of requests; 0 for those that pass and for responses."""
    fields = batch.fields
    home = ports_of(fields["gpu"], fields["address"], params.links_per_gpu)
    length, enables = fields["length"], fields["byte_enable"] == 1
    bad_length = (length == 0) | (length > MAX_DATA_FLITS)
    bad_length |= enables & batch.is_load
    bad_length |= enables & (length > MAX_BYTE_ENABLE_FLITS)
    doubled = batch.is_multicast & batch.is_load & IS_TO_F32[fields["dtype"]]
    bad_length |= doubled & (2 * length > MAX_DATA_FLITS)
    checks = (
        (Status.UNKNOWN_OPCODE, ~known[fields["opcode"]]),
        (Status.BAD_VC, fields["vc"] != value_of(Vc.REQUEST)),
        (Status.BAD_SOURCE, home != batch.source),
        (Status.BAD_LENGTH, bad_length),
    )
    status = np.zeros(len(batch.starts), np.int64)
    for code, wrong in reversed(checks):
        status[wrong & ~batch.is_response] = value_of(code)
    return status


def entry_status(params: SwitchParams, batch: Batch) -> IntArray:
    """Statuses 10 and 11 of requests that no earlier check refuses."""
    fields, loads = batch.fields, batch.is_multicast & batch.is_load
    tag, reduces = fields["tag"], REDUCES[fields["dtype"], fields["aux"] & 7]
    static_red = fields["opcode"] == value_of(Opcode.MM_RED)
    bad_tag = batch.arms & (tag >= params.entries)
    bad_tag |= loads & (tag % slots_of(fields["length"], fields["dtype"]) != 0)
    return np.select(
        [bad_tag, (loads | static_red) & ~reduces],
        [value_of(Status.BAD_TAG), value_of(Status.BAD_REDUCTION)],
        value_of(Status.OK),
    )


def arms_of(params: SwitchParams, batch: Batch, requests: Sequence[Copies]) -> tuple[Arms, ...]:
    """Entries that the requests with these copies arm, for each port."""
    packet = np.concatenate([copies.packet for copies in requests])
    port = np.concatenate([copies.port for copies in requests])
    gpu = (port // params.links_per_gpu).astype(np.uint64)
    expected = np.zeros(len(batch.starts), np.uint64)
    np.bitwise_or.at(expected, packet, np.left_shift(np.uint64(1), gpu))
    copies = np.bincount(packet, minlength=len(batch.starts))
    which = np.flatnonzero(batch.arms & (copies > 0))
    fields = {name: values[which] for name, values in batch.fields.items()}
    load = fields["opcode"] & 3 == value_of(Kind.LOAD)
    listed = fields["opcode"] >> 2 == value_of(Addressing.DYNAMIC)
    every = Arms(
        tag=fields["tag"],
        gen=fields["gen"],
        kind=np.where(load, value_of(Kind.LOAD), value_of(Kind.STORE)),
        dtype=fields["dtype"],
        op=fields["aux"] & 7,
        canonical=load & (fields["aux"] >> 3 == value_of(Order.CANONICAL)),
        length=fields["length"],
        total=np.where(listed, fields["count"], copies[which]),
        expected=expected[which],
    )
    ends = np.searchsorted(batch.source[which], np.arange(params.ports + 1))
    return tuple(every.select(np.arange(*pair)) for pair in pairwise(ends.tolist()))
