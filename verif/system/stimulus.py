# SPDX-License-Identifier: Apache-2.0
"""A whole MoE layer as steps of a run: dispatch, the experts' work, combine; and its check."""

import io
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
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
from dysharp.rtl.hub_register_map import hub_address_of

from .driver import ACCESS, BusAccess, Region, read_dump
from .environment import Settings, Step, StepResult, program, write_loads, zeros_of

__all__ = ["MoeRun", "place_outputs"]

_NAMES = 1 << 16
_STAGES = (Stage.DISPATCH, Stage.COMBINE)
_PREPARE = f"{__name__}:place_outputs"
_FILE = "moe.npz"


class MoeRun:
    """One layer on a system whose GPUs have nothing else to do.

    Parameters
    ----------
    layer : MoeLayer
        The work.
    outputs : ndarray
        What the experts store (:meth:`.MoeLayer.outputs`); it is put into the memories between
        the two steps, at the places that the tokens have got.
    params : SystemParams
        The system.
    memory : int
        Bytes of memory of each GPU.
    bsize : int
        Bytes from one token to the next; 0 for those of a token.
    order : Order
        Order of the sums.
    shared : bool
        Whether target lists are in shared memory.
    alignment : int
        Lists begin at its multiples: 2 or more.
    presum : bool
        What the hubs' register ``presum`` is set to.
    posted : bool
        Dispatch stores are posted. The step then ends when nothing moves.
    settings : Settings, optional
        Behaviour of the models in both steps.
    """

    def __init__(
        self,
        layer: MoeLayer,
        outputs: Bits,
        params: Any,
        *,
        memory: int,
        bsize: int = 0,
        order: Any = Order.CANONICAL,
        shared: bool = True,
        alignment: int = FLIT_BYTES,
        presum: bool = True,
        posted: bool = False,
        settings: Settings | None = None,
    ) -> None:
        if layer.gpus != params.gpu.gpus:
            raise ValueError(f"`layer` must have {params.gpu.gpus} GPUs, not {layer.gpus}")
        self._layer = layer
        self._outputs = outputs
        self._params = params
        self._order = order
        self._shared = shared
        self._alignment = alignment
        self._presum = presum
        self._posted = posted
        self._settings = settings or Settings()
        self.runtime = Runtime(
            params.switch, params.gpu, memory=memory, experts_per_gpu=layer.experts_per_gpu
        )
        """What was called to set the system up."""
        self.bsize = bsize or layer.hsize
        """Bytes from one token to the next."""
        self.handle = self._bind()
        """The dynamic object."""

    def _bind(self) -> int:
        layer, runtime = self._layer, self.runtime
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
        return [self.runtime.binding(self.handle, gpu) for gpu in range(self._layer.gpus)]

    @cached_property
    def tokens(self) -> list[IntArray]:
        """Tokens that each GPU sends, in order: those that have targets."""
        layer = self._layer
        return [
            np.flatnonzero((layer.sources == gpu) & (layer.counts > 0)) for gpu in range(layer.gpus)
        ]

    @cached_property
    def _lists(self) -> tuple[list[npt.NDArray[np.uint8]], list[IntArray]]:
        """Memory of target lists of each GPU, and the address of each of its tokens' lists."""
        layer = self._layer
        images, addresses = [], []
        begins = offsets(layer.counts)
        for tokens in self.tokens:
            sizes = 2 * layer.counts[tokens]
            address = offsets(-(-sizes // self._alignment) * self._alignment)
            end = int(address[-1] + sizes[-1]) if len(tokens) else 0
            image = np.zeros(-(-max(1, end) // FLIT_BYTES) * FLIT_BYTES // 2, "<u2")
            chosen = ragged_index(begins[tokens], layer.counts[tokens])
            image[ragged_index(address // 2, layer.counts[tokens])] = layer.expert[chosen]
            images.append(image.view(np.uint8))
            addresses.append(address)
        return images, addresses

    def _accesses(self, gpu: int, opcode: Any) -> npt.NDArray[Any]:
        """Return the accesses of one GPU: 16 B each, token after token."""
        layer = self._layer
        tokens = self.tokens[gpu]
        flits = layer.hsize // FLIT_BYTES
        made = np.zeros((len(tokens), flits), ACCESS)
        made["opcode"] = value_of(opcode)
        made["size"] = 2
        base = self.runtime.address(self.handle)
        made["address"] = base + tokens[:, None] * self.bsize + FLIT_BYTES * np.arange(flits)
        made["count"] = layer.counts[tokens, None]
        made["list"] = self._lists[1][gpu][:, None]
        made["shared"] = self._shared
        made["last"][:, -1] = 1
        if opcode is Opcode.DY_ST:
            made["posted"] = self._posted
            made["data"] = (
                np.ascontiguousarray(layer.tokens[tokens]).view("<u8").reshape(-1, flits, 2)
            )
        else:
            made["dtype"] = value_of(layer.dtype)
            made["op"] = value_of(ReduceOp.ADD)
            made["order"] = value_of(self._order)
        plain = made.reshape(-1)
        plain["rd"] = np.arange(len(plain)) % _NAMES
        return plain

    def _regions(self, gpu: int, stages: Sequence[Any]) -> list[Region]:
        """Return what is dumped of a GPU: rows of each stage, then the table, expert by expert."""
        binding = self.bindings[gpu]
        regions = []
        for expert, room in enumerate(binding.nactive):
            regions += [(binding.addresses[stage][expert], room * self.bsize) for stage in stages]
            regions.append((binding.tables[expert], -(-4 * binding.ntoken // 16) * 16))
        return regions

    def steps(self) -> list[Step]:
        """Return the steps of dispatch and combine. They are for the begin of a run."""
        gpus = self._layer.gpus
        todo = self.runtime.take()
        hub = self._params.gpu
        presum = hub_address_of(hub, "presum")
        images = self._lists[0]
        dispatch = Step(
            accesses=[self._accesses(gpu, Opcode.DY_ST) for gpu in range(gpus)],
            shared=images if self._shared else (),
            global_=() if self._shared else images,
            loads=zeros_of(todo, gpus),
            dumps=[self._regions(gpu, (Stage.DISPATCH,)) for gpu in range(gpus)],
            writes=[
                *program(todo, gpus),
                *(BusAccess(gpu, presum, int(self._presum)) for gpu in range(gpus)),
            ],
            settings=self._settings,
        )
        combine = Step(
            accesses=[self._accesses(gpu, Opcode.DY_LD_REDUCE) for gpu in range(gpus)],
            dumps=[self._regions(gpu, _STAGES) for gpu in range(gpus)],
            settings=self._settings,
            files={_FILE: self._file()},
            prepare=_PREPARE,
        )
        return [dispatch, combine]

    def _file(self) -> bytes:
        """Return what :func:`place_outputs` needs."""
        layer = self._layer
        plain = {
            "bsize": self.bsize,
            "hsize": layer.hsize,
            "gpus": layer.gpus,
            "experts_per_gpu": layer.experts_per_gpu,
            "combine": [list(each.addresses[Stage.COMBINE]) for each in self.bindings],
            "nactive": [list(each.nactive) for each in self.bindings],
            "regions": [self._regions(gpu, (Stage.DISPATCH,)) for gpu in range(layer.gpus)],
        }
        file = io.BytesIO()
        outputs = np.ascontiguousarray(self._outputs).view(np.uint8)
        np.savez(
            file,
            plain=np.frombuffer(json.dumps(plain).encode(), np.uint8),
            token=layer.token,
            expert=layer.expert,
            outputs=outputs.reshape(len(layer.token), -1),
        )
        return file.getvalue()

    def layout(self, dispatch: StepResult) -> IntArray:
        """Return the layout index of each pair, out of the AL tables after dispatch."""
        tables = [content for dump in dispatch.dumps for _, content in dump[1::2]]
        words = np.array([table.view("<u4")[: len(self._layer.ids)] for table in tables])
        rows: IntArray = words[self._layer.expert, self._layer.token].astype(np.int64)
        return rows & 0xFF_FFFF

    def arrival(self, dispatch: StepResult) -> list[IntArray]:
        """Return the tokens of each GPU in the order in which their packets came down its link."""
        base = self.runtime.address(self.handle)
        found = []
        for log in dispatch.down:
            fields = unpack_headers(log.packets.headers)
            stores = fields["opcode"] == value_of(Opcode.DY_ST)
            found.append((fields["address"][stores] - base) // self.bsize)
        return found

    def problems(self, results: Sequence[StepResult]) -> list[str]:
        """Return all that is not as the model says, a line each."""
        for number, result in enumerate(results):
            if result.end != "done" or result.fault:
                return [f"step {number} ended with {result.end}, fault {result.fault}"]
        dispatch, combine = results
        found = [*self._endings(dispatch, "dispatch"), *self._endings(combine, "combine")]
        layout = self.layout(dispatch)
        layer = self._layer
        if self._settings.links and not np.array_equal(
            layout, layer.layout(self.arrival(dispatch))
        ):
            found.append("layout: not in the order in which tokens came in")
        for name, result, outputs in (
            ("dispatch", dispatch, None),
            ("combine", combine, self._outputs),
        ):
            wanted = self._wanted(layout, outputs)
            for gpu, (dump, image) in enumerate(zip(result.dumps, wanted, strict=True)):
                for (address, content), (_, right) in zip(dump, image, strict=True):
                    wrong = np.flatnonzero(content[: len(right)] != right)
                    if len(wrong):
                        place = address + int(wrong[0])
                        found.append(
                            f"{name}: GPU {gpu}: {len(wrong)} wrong bytes from {place:#x} on"
                        )
        if not found and self._order is Order.CANONICAL:
            found += self._sums(combine)
        return found

    def _wanted(self, layout: IntArray, outputs: Bits | None) -> list[list[Segment]]:
        try:
            return self._layer.images(self.bindings, self.bsize, layout, outputs)
        except (ValueError, IndexError) as error:
            raise AssertionError(f"the layout makes no sense: {error}") from error

    def _endings(self, result: StepResult, name: str) -> list[str]:
        """Every access ends, and well."""
        found = []
        for gpu, log in enumerate(result.results):
            bad = log[log["status"] != value_of(Status.OK)]
            if len(bad):
                status = Status(int(bad["status"][0])).name
                found.append(f"{name}: GPU {gpu}: {len(bad)} results with {status} or others")
            sent = len(self.tokens[gpu]) * self._layer.hsize // FLIT_BYTES
            wanted = 0 if name == "dispatch" and self._posted else sent
            ended = int(log["accesses"].sum())
            if ended != wanted:
                found.append(f"{name}: GPU {gpu}: {ended} accesses have ended, not {wanted}")
        return found

    def sums(self, combine: StepResult) -> Bits:
        """Return the sums that the GPUs have got, shape of the tokens."""
        layer = self._layer
        sums = np.zeros_like(layer.tokens)
        for tokens, log in zip(self.tokens, combine.results, strict=True):
            # Results come in any order, but those of one name as its accesses.
            names = np.arange(len(log)) % _NAMES
            data = np.empty((len(log), 2), np.uint64)
            data[np.argsort(names, kind="stable")] = log["data"][
                np.argsort(log["rd"], kind="stable")
            ]
            sums[tokens] = data.view(sums.dtype).reshape(len(tokens), sums.shape[1])
        return sums

    def _sums(self, combine: StepResult) -> list[str]:
        wanted = self._layer.combine(self._outputs, presum=self._presum)
        wrong = np.argwhere(self.sums(combine) != wanted)
        if not len(wrong):
            return []
        token, element = wrong[0].tolist()
        return [f"combine: {len(wrong)} elements, first element {element} of token {token}"]


def place_outputs(folder: Path, number: int) -> None:
    """Put the experts' outputs to where the tokens of the step before lie.

    Parameters
    ----------
    folder : Path
        Folder of the run.
    number : int
        The step that begins; only its files to be loaded are written.
    """
    with np.load(folder / _FILE) as file:
        arrays = dict(file)
    plain = json.loads(arrays["plain"].tobytes())
    token, expert, outputs = arrays["token"], arrays["expert"], arrays["outputs"]
    bsize, hsize = plain["bsize"], plain["hsize"]
    loads: list[list[Segment]] = []
    for gpu in range(plain["gpus"]):
        segments: list[Segment] = []
        regions = [(address, size) for address, size in plain["regions"][gpu]]
        dump = read_dump(folder / f"dump{number - 1}_{gpu}.bin", regions)
        for local in range(plain["experts_per_gpu"]):
            which = np.flatnonzero(expert == gpu * plain["experts_per_gpu"] + local)
            table = dump[2 * local + 1][1].view("<u4")
            rows = (table[token[which]] & 0xFF_FFFF).astype(np.int64)
            room = plain["nactive"][gpu][local]
            block = np.zeros((room, bsize), np.uint8)
            good = rows < room
            block[rows[good], :hsize] = outputs[which[good]]
            segments.append((plain["combine"][gpu][local], block.reshape(-1)))
        loads.append(segments)
    write_loads(folder, number, loads)
