# SPDX-License-Identifier: Apache-2.0
"""A layer on one dynamic object: its memory, its accesses, and what they leave."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from dysharp.golden.arrays import IntArray, offsets, ragged_index, value_of
from dysharp.golden.cuda import CUDymulticastObjectProp, DyBinding
from dysharp.golden.flits import unpack_headers
from dysharp.golden.moe import MoeLayer, Segment
from dysharp.golden.numerics import Bits
from dysharp.golden.runtime import Runtime
from dysharp.rtl.flits import FLIT_BYTES, Opcode, Order, ReduceOp, Stage, Status
from dysharp.verif.lib.flit_files import FlitLog

from .driver import ACCESS, Region

__all__ = ["NAMES", "Issue", "MoeObject"]

NAMES = 1 << 16
"""Names of r1: an access' name is its number among all of its GPU, modulo this."""
_STAGES = (Stage.DISPATCH, Stage.COMBINE)


@dataclass(frozen=True, kw_only=True)
class Issue:
    """How the accesses of a layer are issued.

    Parameters
    ----------
    order : Order
        Order of the sums.
    posted : bool
        Stores are posted.
    shared : bool
        Target lists are in shared memory, not in global memory.
    alignment : int
        Lists begin at its multiples: 2 or more.
    at_once : int
        So many tokens of a GPU are issued in turns, packet by packet, as its cores would.
    """

    order: Any = Order.CANONICAL
    posted: bool = False
    shared: bool = True
    alignment: int = FLIT_BYTES
    at_once: int = 1


class MoeObject:
    """One layer's dynamic object on the GPUs of a runtime.

    Parameters
    ----------
    layer : MoeLayer
        The work.
    outputs : ndarray
        What the experts store (:meth:`.MoeLayer.outputs`).
    runtime : Runtime
        The object is made and bound in it.
    bsize : int
        Bytes from one token to the next.
    packet_bytes : int
        Accesses are merged up to its multiples.
    issue : Issue
        How the accesses are issued.
    first_list : int
        Address of the first list in the memories of target lists.
    """

    def __init__(
        self,
        layer: MoeLayer,
        outputs: Bits,
        runtime: Runtime,
        *,
        bsize: int,
        packet_bytes: int,
        issue: Issue,
        first_list: int = 0,
    ) -> None:
        self.layer = layer
        self.outputs = outputs
        self.bsize = bsize
        self.issue = issue
        self._packet_bytes = packet_bytes
        self._first_list = first_list
        self._runtime = runtime
        self.handle = self._bind()
        """What the runtime names the object by."""
        self.base = runtime.address(self.handle)
        """Its multimem address."""

    def _bind(self) -> int:
        layer, runtime = self.layer, self._runtime
        handle = runtime.cuDyMulticastCreate(
            CUDymulticastObjectProp(numDevices=layer.gpus, hsize=layer.hsize, bsize=self.bsize)
        )
        for device in range(layer.gpus):
            runtime.cuDyMulticastAddDevice(handle, device)
        rooms = layer.nactive.reshape(layer.gpus, -1).tolist()
        for device, nactive in enumerate(rooms):
            places = {
                stage: [
                    runtime.cuMemAlloc(device, room * self.bsize) if room else 0 for room in nactive
                ]
                for stage in _STAGES
            }
            runtime.cuDyMulticastBindAddr(handle, device, len(layer.ids), nactive, places)
        return handle

    @cached_property
    def bindings(self) -> list[DyBinding]:
        """Memory of each GPU behind the object."""
        return [self._runtime.binding(self.handle, gpu) for gpu in range(self.layer.gpus)]

    @cached_property
    def tokens(self) -> list[IntArray]:
        """Tokens that each GPU sends, in order: those that have targets."""
        layer = self.layer
        return [
            np.flatnonzero((layer.sources == gpu) & (layer.counts > 0)) for gpu in range(layer.gpus)
        ]

    @cached_property
    def lists(self) -> list[npt.NDArray[np.uint8]]:
        """Target lists of each GPU, from the first one's address on."""
        layer = self.layer
        begins = offsets(layer.counts)
        images = []
        for tokens, address in zip(self.tokens, self._list_offsets, strict=True):
            end = int(address[-1] + 2 * layer.counts[tokens[-1]]) if len(tokens) else 0
            image = np.zeros(-(-max(1, end) // FLIT_BYTES) * FLIT_BYTES // 2, "<u2")
            chosen = ragged_index(begins[tokens], layer.counts[tokens])
            image[ragged_index(address // 2, layer.counts[tokens])] = layer.expert[chosen]
            images.append(image.view(np.uint8))
        return images

    @cached_property
    def _list_offsets(self) -> list[IntArray]:
        step = self.issue.alignment
        return [offsets(-(-2 * self.layer.counts[tokens] // step) * step) for tokens in self.tokens]

    @cached_property
    def _sequence(self) -> list[tuple[IntArray, IntArray]]:
        """For each GPU, of its accesses in order: which flit of its tokens it is, which packet."""
        flits = self.layer.hsize // FLIT_BYTES
        made = []
        for tokens in self.tokens:
            rank = np.repeat(np.arange(len(tokens)), flits)
            group = rank // self.issue.at_once
            byte = np.tile(np.arange(flits) * FLIT_BYTES, len(tokens))
            begin = np.repeat(tokens * self.bsize, flits)
            packet = (begin + byte) // self._packet_bytes - begin // self._packet_bytes
            place = np.lexsort((byte, rank, packet, group))
            both = np.stack([rank, packet], axis=1)[place]
            begins = np.diff(both, axis=0, prepend=-1).any(axis=1)
            made.append((place, np.cumsum(begins) - 1))
        return made

    @property
    def packets(self) -> list[IntArray]:
        """Number of the packet of each GPU's accesses, in their order."""
        return [packet for _, packet in self._sequence]

    def accesses(self, gpu: int, opcode: Any) -> npt.NDArray[Any]:
        """Return the accesses of one GPU, 16 B each, without names."""
        layer = self.layer
        tokens = self.tokens[gpu]
        flits = layer.hsize // FLIT_BYTES
        made = np.zeros((len(tokens), flits), ACCESS)
        made["opcode"] = value_of(opcode)
        made["size"] = 2
        made["address"] = self.base + tokens[:, None] * self.bsize + FLIT_BYTES * np.arange(flits)
        made["count"] = layer.counts[tokens, None]
        made["list"] = self._first_list + self._list_offsets[gpu][:, None]
        made["shared"] = self.issue.shared
        if opcode is Opcode.DY_ST:
            made["posted"] = self.issue.posted
            made["data"] = (
                np.ascontiguousarray(layer.tokens[tokens]).view("<u8").reshape(-1, flits, 2)
            )
        else:
            made["dtype"] = value_of(layer.dtype)
            made["op"] = value_of(ReduceOp.ADD)
            made["order"] = value_of(self.issue.order)
        place, packet = self._sequence[gpu]
        plain = made.reshape(-1)[place]
        # The next packet's data may lie right behind this one's end.
        plain["last"] = np.diff(packet, append=-1) != 0
        return plain

    def regions(self, gpu: int, stages: Sequence[Any]) -> list[Region]:
        """Return what is dumped of a GPU: rows of each stage, then the table, expert by expert."""
        binding = self.bindings[gpu]
        regions = []
        for expert, room in enumerate(binding.nactive):
            regions += [(binding.addresses[stage][expert], room * self.bsize) for stage in stages]
            regions.append((binding.tables[expert], -(-4 * binding.ntoken // 16) * 16))
        return regions

    def images(self, layout: IntArray, stages: Sequence[Any]) -> list[list[Segment]]:
        """Return what :meth:`regions` must hold."""
        outputs = self.outputs if Stage.COMBINE in stages else None
        try:
            return self.layer.images(self.bindings, self.bsize, layout, outputs)
        except (ValueError, IndexError) as error:
            raise AssertionError(f"the layout makes no sense: {error}") from error

    def layout(self, dumps: Sequence[Sequence[Segment]], stages: Sequence[Any]) -> IntArray:
        """Return the layout index of each pair, out of the AL tables in dumps of the regions."""
        step = 1 + len(stages)
        tables = [content for dump in dumps for _, content in dump[step - 1 :: step]]
        words = np.array([table.view("<u4")[: len(self.layer.ids)] for table in tables])
        rows: IntArray = words[self.layer.expert, self.layer.token].astype(np.int64)
        return rows & 0xFF_FFFF

    def arrival(self, down: Sequence[FlitLog]) -> list[IntArray]:
        """Return the tokens of each GPU in the order in which their stores came down its link."""
        found = []
        for log in down:
            fields = unpack_headers(log.packets.headers)
            token = (fields["address"] - self.base) // self.bsize
            stores = fields["opcode"] == value_of(Opcode.DY_ST)
            found.append(token[stores & (token >= 0) & (token < len(self.layer.ids))])
        return found

    def memory_problems(
        self,
        dumps: Sequence[Sequence[Segment]],
        stages: Sequence[Any],
        down: Sequence[FlitLog] | None,
    ) -> list[str]:
        """Return what is wrong in the memories; with `down`, also in the order of the rows."""
        layout = self.layout(dumps, stages)
        found = []
        if down is not None and not np.array_equal(layout, self.layer.layout(self.arrival(down))):
            found.append("layout: not in the order in which tokens came in")
        images = self.images(layout, stages)
        for gpu, (dump, image) in enumerate(zip(dumps, images, strict=True)):
            for (address, content), (_, right) in zip(dump, image, strict=True):
                wrong = np.flatnonzero(content[: len(right)] != right)
                if len(wrong):
                    place = address + int(wrong[0])
                    found.append(f"GPU {gpu}: {len(wrong)} wrong bytes from {place:#x} on")
        return found

    def ending_problems(self, logs: Sequence[npt.NDArray[Any]], *, posted: bool) -> list[str]:
        """Return what is wrong in how accesses ended: every one once, and well."""
        found = []
        for gpu, log in enumerate(logs):
            bad = log[log["status"] != value_of(Status.OK)]
            if len(bad):
                status = Status(int(bad["status"][0])).name
                found.append(f"GPU {gpu}: {len(bad)} results with {status} or others")
            sent = 0 if posted else len(self.tokens[gpu]) * self.layer.hsize // FLIT_BYTES
            ended = int(log["accesses"].sum())
            if ended != sent:
                found.append(f"GPU {gpu}: {ended} accesses have ended, not {sent}")
        return found

    def sums(
        self, logs: Sequence[npt.NDArray[Any]], names: Sequence[npt.NDArray[np.int64]]
    ) -> Bits:
        """Return the sums that the GPUs have got, shape of the tokens.

        Parameters
        ----------
        logs : Sequence[ndarray]
            Results of each GPU's loads.
        names : Sequence[ndarray]
            What each load's access was named, in the order of the accesses.
        """
        sums = np.zeros_like(self.layer.tokens)
        for gpu, (tokens, log) in enumerate(zip(self.tokens, logs, strict=True)):
            # Results come in any order, but those of one name as its accesses.
            data = np.empty((len(log), 2), np.uint64)
            place, _ = self._sequence[gpu]
            data[place[np.argsort(names[gpu], kind="stable")]] = log["data"][
                np.argsort(log["rd"], kind="stable")
            ]
            sums[tokens] = data.view(sums.dtype).reshape(len(tokens), sums.shape[1])
        return sums
