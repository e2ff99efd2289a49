# SPDX-License-Identifier: Apache-2.0
"""MoE layers on a system: dispatch, combine, one after the other, or both at once."""

import io
import json
from collections.abc import Sequence
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from dysharp.golden.arrays import IntArray
from dysharp.golden.moe import MoeLayer, Segment
from dysharp.golden.moe_links import LinkFlits, link_flits, packet_lengths
from dysharp.golden.numerics import Bits
from dysharp.golden.runtime import Runtime
from dysharp.rtl.flits import FLIT_BYTES, Opcode, Order, Stage
from dysharp.rtl.hub_register_map import HUB_COUNTERS, hub_address_of

from .driver import BusAccess, read_dump
from .environment import Settings, Step, StepResult, program, write_loads, zeros_of
from .moe_object import NAMES, Issue, MoeObject

__all__ = ["Mode", "MoeRun", "place_outputs"]

_STAGES = (Stage.DISPATCH, Stage.COMBINE)
_PREPARE = f"{__name__}:place_outputs"
_FILE = "moe.npz"


class Mode(Enum):
    """What is done with a layer."""

    DISPATCH = "dispatch"
    """Dispatch alone."""
    COMBINE = "combine"
    """Combine alone; the memories hold what dispatch and experts would have left."""
    SERIAL = "serial"
    """Dispatch, experts in no time, combine."""
    TOGETHER = "together"
    """Combine, and at once the dispatch of a second layer with the same routing."""


class MoeRun:
    """A layer on a system whose GPUs have nothing else to do.

    Parameters
    ----------
    layer : MoeLayer
        The work.
    outputs : ndarray
        What the experts store (:meth:`.MoeLayer.outputs`); between dispatch and combine it is put
        into the memories, at the places that the tokens have got.
    params : SystemParams
        The system.
    memory : int
        Bytes of memory of each GPU.
    mode : Mode
        What to do.
    bsize : int
        Bytes from one token to the next; 0 for those of a token.
    presum : bool
        What the hubs' register ``presum`` is set to.
    settings : Settings, optional
        Behaviour of the models.
    issue : keyword arguments
        Of :class:`.Issue`.
    """

    def __init__(
        self,
        layer: MoeLayer,
        outputs: Bits,
        params: Any,
        *,
        memory: int,
        mode: Mode = Mode.SERIAL,
        bsize: int = 0,
        presum: bool = True,
        settings: Settings | None = None,
        **issue: Any,
    ) -> None:
        if layer.gpus != params.gpu.gpus:
            raise ValueError(f"`layer` must have {params.gpu.gpus} GPUs, not {layer.gpus}")
        self._layer = layer
        self._params = params
        self._presum = presum
        self._settings = settings or Settings()
        self.mode = mode
        """What is done."""
        self.issue = Issue(**issue)
        """How accesses are issued."""
        self.bsize = bsize or layer.hsize
        """Bytes from one token to the next."""
        self.runtime = Runtime(
            params.switch, params.gpu, memory=memory, experts_per_gpu=layer.experts_per_gpu
        )
        """What was called to set the system up."""
        self.objects = [self._object(outputs, 0)]
        """The layer's object; in mode ``TOGETHER`` also that of the layer which is dispatched."""
        if mode is Mode.TOGETHER:
            first = max(len(image) for image in self.objects[0].lists)
            self.objects.append(self._object(outputs, first))

    def _object(self, outputs: Bits, first_list: int) -> MoeObject:
        return MoeObject(
            self._layer,
            outputs,
            self.runtime,
            bsize=self.bsize,
            packet_bytes=self._params.gpu.packet_flits * FLIT_BYTES,
            issue=self.issue,
            first_list=first_list,
        )

    @cached_property
    def jobs(self) -> list[dict[Any, MoeObject]]:
        """For each step, which stages it does, each on which object."""
        first, last = self.objects[0], self.objects[-1]
        return {
            Mode.DISPATCH: [{Stage.DISPATCH: first}],
            Mode.COMBINE: [{Stage.COMBINE: first}],
            Mode.SERIAL: [{Stage.DISPATCH: first}, {Stage.COMBINE: first}],
            Mode.TOGETHER: [{Stage.DISPATCH: last, Stage.COMBINE: first}],
        }[self.mode]

    @cached_property
    def links(self) -> list[LinkFlits]:
        """For each step, what the links have to carry."""
        made = []
        for job in self.jobs:
            parts = [
                link_flits(
                    self._layer,
                    stage,
                    bsize=self.bsize,
                    packet_flits=self._params.gpu.packet_flits,
                    presum=self._presum,
                    posted=self.issue.posted,
                )
                for stage in job
            ]
            made.append(parts[0] if len(parts) == 1 else parts[0] + parts[1])
        return made

    def _order(self, gpu: int, job: dict[Any, MoeObject]) -> IntArray:
        """Return the order of the accesses of a step's stages: in turns, packet by packet."""
        packets = [each.packets[gpu] for each in job.values()]
        which = np.repeat(np.arange(len(packets)), [len(each) for each in packets])
        return np.lexsort((which, np.concatenate(packets)))

    def _accesses(self, gpu: int, job: dict[Any, MoeObject]) -> npt.NDArray[Any]:
        """Return the accesses of one GPU."""
        opcodes = {Stage.DISPATCH: Opcode.DY_ST, Stage.COMBINE: Opcode.DY_LD_REDUCE}
        parts = [each.accesses(gpu, opcodes[stage]) for stage, each in job.items()]
        plain = np.concatenate(parts)[self._order(gpu, job)]
        plain["rd"] = np.arange(len(plain)) % NAMES
        return plain

    def _names(self, gpu: int, job: dict[Any, MoeObject], stage: Any) -> IntArray:
        """Return what the accesses of one stage are named, in their order."""
        order = self._order(gpu, job)
        stages = list(job)
        sizes = [len(each.packets[gpu]) for each in job.values()]
        which = np.repeat(np.arange(len(stages)), sizes)[order]
        names: IntArray = np.flatnonzero(which == stages.index(stage)) % NAMES
        return names

    def _list_images(self) -> list[npt.NDArray[np.uint8]]:
        size = max(len(image) for image in self.objects[0].lists)
        images = []
        for gpu in range(self._layer.gpus):
            padded = [
                np.pad(each.lists[gpu], (0, size - len(each.lists[gpu]))) for each in self.objects
            ]
            images.append(np.concatenate(padded))
        return images

    def steps(self) -> list[Step]:
        """Return the steps. They are for the begin of a run."""
        gpus = range(self._layer.gpus)
        todo = self.runtime.take()
        hub = self._params.gpu
        loads = zeros_of(todo, len(gpus))
        if self.mode in (Mode.COMBINE, Mode.TOGETHER):
            ready = self.objects[0].images(self._layer.layout(), _STAGES)
            loads = [[*zeros, *images] for zeros, images in zip(loads, ready, strict=True)]
        images = self._list_images()
        steps = []
        for number, job in enumerate(self.jobs):
            first = number == 0
            writes = [
                *program(todo, len(gpus)),
                *(BusAccess(gpu, hub_address_of(hub, "presum"), int(self._presum)) for gpu in gpus),
            ]
            steps.append(
                Step(
                    accesses=[self._accesses(gpu, job) for gpu in gpus],
                    shared=images if first and self.issue.shared else (),
                    global_=images if first and not self.issue.shared else (),
                    loads=loads if first else (),
                    dumps=[
                        [
                            region
                            for stage, each in job.items()
                            for region in each.regions(gpu, self._dumped(stage))
                        ]
                        for gpu in gpus
                    ],
                    writes=writes if first else (),
                    reads={
                        f"{counter.name}{gpu}": BusAccess(gpu, hub_address_of(hub, counter.name))
                        for gpu in gpus
                        for counter in HUB_COUNTERS
                    },
                    settings=self._settings,
                    cycles=self._limit(number),
                    files={} if first else {_FILE: self._file()},
                    prepare="" if first else _PREPARE,
                )
            )
        return steps

    def _limit(self, number: int) -> int:
        settings = self._settings
        percent = min(settings.memory_percent, settings.result_percent, settings.list_percent)
        return 100_000 + 2000 * self.links[number].ideal_cycles // percent

    @staticmethod
    def _dumped(stage: Any) -> tuple[Any, ...]:
        return _STAGES if stage is Stage.COMBINE else (Stage.DISPATCH,)

    def _file(self) -> bytes:
        """Return what :func:`place_outputs` needs."""
        layer, each = self._layer, self.objects[0]
        plain = {
            "bsize": self.bsize,
            "hsize": layer.hsize,
            "gpus": layer.gpus,
            "experts_per_gpu": layer.experts_per_gpu,
            "combine": [list(binding.addresses[Stage.COMBINE]) for binding in each.bindings],
            "nactive": [list(binding.nactive) for binding in each.bindings],
            "regions": [each.regions(gpu, (Stage.DISPATCH,)) for gpu in range(layer.gpus)],
        }
        file = io.BytesIO()
        outputs = np.ascontiguousarray(each.outputs).view(np.uint8)
        np.savez(
            file,
            plain=np.frombuffer(json.dumps(plain).encode(), np.uint8),
            token=layer.token,
            expert=layer.expert,
            outputs=outputs.reshape(len(layer.token), -1),
        )
        return file.getvalue()

    def problems(self, results: Sequence[StepResult]) -> list[str]:
        """Return all that is not as the model says, a line each."""
        for number, result in enumerate(results):
            if result.end != "done" or result.fault:
                return [f"step {number} ended with {result.end}, fault {result.fault}"]
        found: list[str] = []
        for number, (job, result) in enumerate(zip(self.jobs, results, strict=True)):
            begin = [0] * self._layer.gpus
            for stage, each in job.items():
                name = stage.name.lower()
                stores = stage is Stage.DISPATCH
                logs = [log[log["load"] != stores] for log in result.results]
                posted = stores and self.issue.posted
                lines = each.ending_problems(logs, posted=posted)
                stages = self._dumped(stage)
                dumps = []
                for gpu, dump in enumerate(result.dumps):
                    size = len(each.regions(gpu, stages))
                    dumps.append(dump[begin[gpu] : begin[gpu] + size])
                    begin[gpu] += size
                down = result.down if stores and self._settings.links else None
                lines += each.memory_problems(dumps, stages, down)
                if not lines and not stores and self.issue.order is Order.CANONICAL:
                    lines = self._sum_problems(self._sums(number, result))
                found += [f"{name}: {line}" for line in lines]
        return found

    def sums(self, results: Sequence[StepResult]) -> Bits:
        """Return the sums of the run's combine, shape of the tokens."""
        return self._sums(len(results) - 1, results[-1])

    def _sums(self, number: int, result: StepResult) -> Bits:
        job = self.jobs[number]
        each = job[Stage.COMBINE]
        names = [self._names(gpu, job, Stage.COMBINE) for gpu in range(self._layer.gpus)]
        return each.sums([log[log["load"] == 1] for log in result.results], names)

    def _sum_problems(self, sums: Bits) -> list[str]:
        layer = self._layer
        lengths = packet_lengths(
            np.arange(len(layer.ids)), layer.hsize, self.bsize, self._params.gpu.packet_flits
        )
        wanted = layer.combine(
            self.objects[0].outputs,
            presum=self._presum,
            # Of each flit, that of its packet.
            lengths=np.repeat(lengths, lengths.ravel()).reshape(len(lengths), -1),
        )
        wrong = np.argwhere(sums != wanted)
        if not len(wrong):
            return []
        token, element = wrong[0].tolist()
        return [f"{len(wrong)} elements, first element {element} of token {token}"]


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
