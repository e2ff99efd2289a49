# SPDX-License-Identifier: Apache-2.0
"""The runtime: multicast objects as CUDA has them, down to the registers of switch and hubs.

Static objects are made by the functions that CUDA has (``cuMulticast...``), dynamic ones by theirs
(``cuDyMulticast...``). Both go the same way: create, add all devices, bind memory of every device,
use, unbind, destroy. ``docs/runtime.md`` has the rules and the errors.

Nothing here runs on hardware: calls append to a list of things to do (:meth:`Runtime.take`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from ..rtl.flits import FLIT_BYTES, Stage
from ..rtl.gpu_params import GpuParams
from ..rtl.params import SwitchParams
from .al_map import DynamicObject, Expert, StaticObject
from .allocator import Allocator
from .cuda import (
    CudaError,
    CUDymulticastObjectProp,
    CUmulticastObjectProp,
    CUresult,
    DyBinding,
    check_int,
)
from .programming import Programming

__all__ = ["Runtime"]

_MULTIMEM_FIRST = 1 << 44
_MULTIMEM_END = 1 << 48
_MULTIMEM_GRANULARITY = 1 << 21
"""As of CUDA's multicast objects. A block's place in a 128 B packet follows from its offset."""
_MEMORY_GRANULARITY = 256
_MAX_BLOCKS = 1 << 24
_MAX_BLOCK_BYTES = FLIT_BYTES << 16
_MAX_OBJECT_BYTES = 1 << 40
_MAX_EPOCH = 255

_VALUE = CUresult.CUDA_ERROR_INVALID_VALUE
_STATE = CUresult.CUDA_ERROR_ILLEGAL_STATE
_MEMORY = CUresult.CUDA_ERROR_OUT_OF_MEMORY
_HANDLE = CUresult.CUDA_ERROR_INVALID_HANDLE
_DEVICE = CUresult.CUDA_ERROR_INVALID_DEVICE
_PERMITTED = CUresult.CUDA_ERROR_NOT_PERMITTED


@dataclass
class _Region:
    """Bound memory."""

    begin: int
    end: int


@dataclass
class _Object:
    prop: CUmulticastObjectProp | CUDymulticastObjectProp
    slot: int
    group: int | None
    devices: list[int] = field(default_factory=list)
    base: int | None = None
    ntoken: int = 0
    regions: dict[int, list[_Region]] = field(default_factory=dict)
    bindings: dict[int, DyBinding] = field(default_factory=dict)


class Runtime:
    """The driver of one switch and its GPUs.

    Parameters
    ----------
    switch : SwitchParams
        The switch, with one link a GPU.
    gpu : GpuParams
        Every GPU's side.
    memory : int
        Bytes of memory of each GPU.
    experts_per_gpu : int
        Experts on each GPU, the same for all dynamic objects: expert *e* is on GPU
        ``e // experts_per_gpu``.

    Raises
    ------
    ValueError
        If switch and GPUs do not fit together, or the hub has no room for so many experts.
    """

    def __init__(
        self, switch: SwitchParams, gpu: GpuParams, *, memory: int, experts_per_gpu: int = 1
    ) -> None:
        if switch.links_per_gpu != 1 or switch.gpus != gpu.gpus:
            raise ValueError("`switch` must have one link for each GPU of `gpu`")
        if not 1 <= experts_per_gpu <= gpu.experts:
            raise ValueError(
                f"`experts_per_gpu` must be 1 to {gpu.experts}, not {experts_per_gpu!r}"
            )
        if memory % FLIT_BYTES or not 0 < memory < 1 << 48:
            raise ValueError(f"`memory` must be a multiple of 16 below 2**48, not {memory!r}")
        self._switch = switch
        self._gpu = gpu
        self._experts = experts_per_gpu
        self._memory = [
            Allocator(_MEMORY_GRANULARITY, memory, _MEMORY_GRANULARITY) for _ in range(gpu.gpus)
        ]
        self._tables = [set[int]() for _ in range(gpu.gpus)]
        self._space = Allocator(_MULTIMEM_FIRST, _MULTIMEM_END, _MULTIMEM_GRANULARITY)
        self._objects: dict[int, _Object] = {}
        self._handles = 0
        self._epochs: dict[tuple[int, int], int] = {}  # device and slot, once it has been in use
        self._todo = Programming(switch, gpu)
        self._todo.begin(experts_per_gpu, memory)

    def take(self) -> Programming:
        """Return what the calls since the last time ask of the hardware."""
        todo, self._todo = self._todo, Programming(self._switch, self._gpu)
        return todo

    # Memory.

    def cuMemAlloc(self, device: int, size: int) -> int:
        """Allocate `size` bytes of a device's memory and return their address."""
        self._check_device(device)
        check_int("size", size, 1, 1 << 48)
        address = self._memory[device].allocate(size)
        if address is None:
            raise CudaError(_MEMORY, f"device {device} has no {size} bytes in one piece")
        return address

    def cuMemFree(self, device: int, address: int) -> None:
        """Free what :meth:`cuMemAlloc` gave; it must not be bound."""
        self._check_device(device)
        found = self._memory[device].range_of(address)
        if found is None or found[0] != address or address in self._tables[device]:
            raise CudaError(_VALUE, f"no allocation of device {device} begins at {address!r}")
        if any(found[0] <= region.begin < found[1] for region in self._bound(device)):
            raise CudaError(_PERMITTED, f"memory at {address:#x} is bound")
        self._memory[device].free(address)

    # Static objects.

    def cuMulticastCreate(self, prop: CUmulticastObjectProp) -> int:
        """Make a static object and return its handle."""
        self._check_devices(prop.numDevices)
        check_int("size", prop.size, FLIT_BYTES, _MAX_OBJECT_BYTES, FLIT_BYTES)
        taken = {entry.group for entry in self._objects.values()}
        group = next((n for n in range(self._switch.groups) if n not in taken), None)
        if group is None:
            raise CudaError(_MEMORY, f"the switch has no more than {self._switch.groups} groups")
        slot = self._free_slot()
        base = self._space.allocate(prop.size)
        if base is None:
            raise CudaError(_MEMORY, "the multimem space is full")
        return self._add(_Object(prop=prop, slot=slot, group=group, base=base))

    def cuMulticastAddDevice(self, handle: int, device: int) -> None:
        """Add a device; the last one completes the group."""
        entry = self._static(handle)
        self._add_device(entry, device)
        if len(entry.devices) == entry.prop.numDevices:
            self._todo.group(self.group(handle), sum(1 << number for number in entry.devices))

    def cuMulticastBindAddr(self, handle: int, device: int, address: int) -> None:
        """Bind the memory of a device from `address` on, as long as the object is."""
        entry = self._static(handle)
        assert isinstance(entry.prop, CUmulticastObjectProp)
        assert entry.base is not None
        self._check_bind(entry, device)
        region = self._region(device, "address", address, entry.prop.size)
        self._check_overlap(device, [region])
        entry.regions[device] = [region]
        self._todo.static(device, entry.slot, entry.base, entry.prop.size, address)

    def cuMulticastUnbind(self, handle: int, device: int) -> None:
        """Take a device's memory away; no request may be under way."""
        self._unbind(self._static(handle), device)

    def cuMulticastDestroy(self, handle: int) -> None:
        """Release a static object; nothing may be bound."""
        entry = self._static(handle)
        self._check_unbound(entry)
        if len(entry.devices) == entry.prop.numDevices:
            self._todo.group(self.group(handle), 0)
        self._remove(handle)

    # Dynamic objects.

    def cuDyMulticastCreate(self, prop: CUDymulticastObjectProp) -> int:
        """Make a dynamic object and return its handle."""
        self._check_devices(prop.numDevices)
        check_int("hsize", prop.hsize, FLIT_BYTES, _MAX_BLOCK_BYTES, FLIT_BYTES)
        if prop.bsize != 0:
            check_int("bsize", prop.bsize, prop.hsize, _MAX_BLOCK_BYTES, FLIT_BYTES)
        stages = tuple(prop.stages)
        if not stages or len(set(stages)) != len(stages) or not set(stages) <= set(Stage):
            raise CudaError(_VALUE, f"`stages` must be stages, each once, not {stages!r}")
        return self._add(_Object(prop=prop, slot=self._free_slot(), group=None))

    def cuDyMulticastAddDevice(self, handle: int, device: int) -> None:
        """Add a device."""
        self._add_device(self._dynamic(handle), device)

    def cuDyMulticastBindAddr(
        self,
        handle: int,
        device: int,
        ntoken: int,
        nactive: Sequence[int],
        addresses: Mapping[Any, Sequence[int]],
    ) -> None:
        """Bind the memory of a device's experts.

        Parameters
        ----------
        handle, device : int
            Object, and one of its devices.
        ntoken : int
            Blocks of the multimem space; the same on all devices.
        nactive : Sequence[int]
            Per expert of the device: blocks that there is room for, the tokens that it will get.
        addresses : Mapping[Stage, Sequence[int]]
            Per stage of the object and expert: where ``nactive * bsize`` bytes are. The AL tables
            are allocated here.
        """
        entry = self._dynamic(handle)
        prop = entry.prop
        assert isinstance(prop, CUDymulticastObjectProp)
        self._check_bind(entry, device)
        check_int("ntoken", ntoken, 1, min(_MAX_BLOCKS, _MAX_OBJECT_BYTES // prop.block))
        if entry.bindings and ntoken != entry.ntoken:
            raise CudaError(_VALUE, f"`ntoken` must be {entry.ntoken} as on other devices")
        if len(nactive) != self._experts:
            raise CudaError(
                _VALUE, f"`nactive` must have {self._experts} items, not {len(nactive)}"
            )
        for count in nactive:
            check_int("nactive", count, 0, _MAX_BLOCKS)
            if count > ntoken:
                raise CudaError(_VALUE, f"`nactive` must be {ntoken} at most, not {count}")
        if set(addresses) != set(prop.stages):
            raise CudaError(_VALUE, "`addresses` must have the stages of the object")
        regions = []
        for stage, places in addresses.items():
            if len(places) != self._experts:
                raise CudaError(
                    _VALUE,
                    f"`addresses` of {stage.name} must have {self._experts} items, "
                    f"not {len(places)}",
                )
            regions += [
                self._region(device, "addresses", place, count * prop.block)
                for place, count in zip(places, nactive, strict=True)
            ]
        self._check_overlap(device, regions)
        self._place(entry, ntoken)
        assert entry.base is not None
        tables = self._allocate_tables(entry, device, ntoken)
        entry.regions[device] = regions
        first = (device, entry.slot) not in self._epochs
        if first:
            self._epochs[device, entry.slot] = 1
        entry.bindings[device] = DyBinding(
            ntoken=ntoken,
            nactive=tuple(int(count) for count in nactive),
            addresses={
                stage: tuple(int(place) for place in places) for stage, places in addresses.items()
            },
            tables=tables,
            epoch=self._epochs[device, entry.slot],
        )
        self._todo.dynamic(
            device, entry.slot, entry.base, prop, entry.bindings[device], device * self._experts
        )
        if not first:
            # The TLB may still have blocks of whatever had this slot, and its tables are others.
            self._clear(entry, device)

    def cuDyMulticastUnbind(self, handle: int, device: int) -> None:
        """Take a device's memory and tables away; no request may be under way."""
        entry = self._dynamic(handle)
        self._unbind(entry, device)
        binding = entry.bindings.pop(device)
        for table in binding.tables:
            self._memory[device].free(table)
            self._tables[device].discard(table)
        if not entry.bindings and entry.base is not None:
            self._space.free(entry.base)
            entry.base = None

    def cuDyMulticastDestroy(self, handle: int) -> None:
        """Release a dynamic object; nothing may be bound."""
        self._check_unbound(self._dynamic(handle))
        self._remove(handle)

    def cuDyMulticastClear(self, handle: int) -> None:
        """Forget all places of tokens, for the next layer; no request may be under way."""
        entry = self._dynamic(handle)
        self._check_whole(entry)
        for device in entry.devices:
            self._clear(entry, device)

    # What kernels need to know.

    def address(self, handle: int) -> int:
        """Return the multimem address of an object that is bound on all its devices."""
        entry = self._any(handle)
        self._check_whole(entry)
        assert entry.base is not None
        return entry.base

    def group(self, handle: int) -> int:
        """Return the group of a static object: ``count`` of its instructions."""
        group = self._static(handle).group
        assert group is not None
        return group

    def slot(self, handle: int) -> int:
        """Return the number that the object has in the hubs."""
        return self._any(handle).slot

    def binding(self, handle: int, device: int) -> DyBinding:
        """Return the memory of a device behind a dynamic object."""
        entry = self._dynamic(handle)
        if device not in entry.bindings:
            raise CudaError(_STATE, f"device {device} is not bound")
        return entry.bindings[device]

    def hub_object(self, handle: int, device: int) -> StaticObject | DynamicObject:
        """Return what the hub of a device knows of an object, as the model of its map has it."""
        entry = self._any(handle)
        if device not in entry.regions:
            raise CudaError(_STATE, f"device {device} is not bound")
        assert entry.base is not None
        if isinstance(entry.prop, CUmulticastObjectProp):
            memory = entry.regions[device][0].begin
            return StaticObject(base=entry.base, size=entry.prop.size, memory=memory)
        binding = entry.bindings[device]
        dispatch, combine = (
            binding.addresses.get(stage, (None,) * self._experts)
            for stage in (Stage.DISPATCH, Stage.COMBINE)
        )
        return DynamicObject(
            base=entry.base,
            blocks=binding.ntoken,
            block=entry.prop.block // FLIT_BYTES,
            first_expert=device * self._experts,
            experts=tuple(
                Expert(
                    table=binding.tables[expert],
                    nactive=binding.nactive[expert],
                    dispatch=dispatch[expert],
                    combine=combine[expert],
                )
                for expert in range(self._experts)
            ),
        )

    # Rules.

    def _check_device(self, device: int) -> None:
        if not isinstance(device, int) or not 0 <= device < self._gpu.gpus:
            raise CudaError(
                _DEVICE,
                f"`device` must be 0 to {self._gpu.gpus - 1}, not {device!r}",
            )

    def _check_devices(self, count: int) -> None:
        if not isinstance(count, int) or not 1 <= count <= self._gpu.gpus:
            raise CudaError(_VALUE, f"`numDevices` must be 1 to {self._gpu.gpus}, not {count!r}")

    def _any(self, handle: int) -> _Object:
        if handle not in self._objects:
            raise CudaError(_HANDLE, f"no object has handle {handle!r}")
        return self._objects[handle]

    def _static(self, handle: int) -> _Object:
        entry = self._any(handle)
        if not isinstance(entry.prop, CUmulticastObjectProp):
            raise CudaError(_HANDLE, f"{handle} is a dynamic object")
        return entry

    def _dynamic(self, handle: int) -> _Object:
        entry = self._any(handle)
        if not isinstance(entry.prop, CUDymulticastObjectProp):
            raise CudaError(_HANDLE, f"{handle} is a static object")
        return entry

    def _check_bind(self, entry: _Object, device: int) -> None:
        self._check_device(device)
        if len(entry.devices) != entry.prop.numDevices:
            raise CudaError(
                _STATE,
                f"all {entry.prop.numDevices} devices must be added before memory is bound, "
                f"not {len(entry.devices)}",
            )
        if device not in entry.devices:
            raise CudaError(_DEVICE, f"device {device} was not added to the object")
        if device in entry.regions:
            raise CudaError(_STATE, f"device {device} is bound already")

    def _check_unbound(self, entry: _Object) -> None:
        if entry.regions:
            raise CudaError(_STATE, f"device {min(entry.regions)} is still bound")

    def _check_whole(self, entry: _Object) -> None:
        if len(entry.regions) != entry.prop.numDevices:
            raise CudaError(
                _STATE, f"{entry.prop.numDevices - len(entry.regions)} devices are not bound"
            )

    def _region(self, device: int, name: str, address: Any, size: int) -> _Region:
        check_int(name, address, 0, (1 << 48) - 1, FLIT_BYTES)
        found = self._memory[device].range_of(address)
        if size and (
            found is None or found[0] in self._tables[device] or address + size > found[1]
        ):
            raise CudaError(
                _VALUE,
                f"`{name}`: no allocation of device {device} holds {size} bytes at {address:#x}",
            )
        return _Region(address, address + size)

    def _bound(self, device: int) -> Iterator[_Region]:
        for entry in self._objects.values():
            yield from entry.regions.get(device, ())

    def _check_overlap(self, device: int, regions: list[_Region]) -> None:
        every = [*self._bound(device), *regions]
        every = sorted((r for r in every if r.begin < r.end), key=lambda region: region.begin)
        for below, above in pairwise(every):
            if above.begin < below.end:
                raise CudaError(
                    _PERMITTED,
                    f"memory at {above.begin:#x} of device {device} would be bound twice",
                )

    # Book-keeping.

    def _free_slot(self) -> int:
        taken = {entry.slot for entry in self._objects.values()}
        slot = next((n for n in range(self._gpu.objects) if n not in taken), None)
        if slot is None:
            raise CudaError(_MEMORY, f"a hub knows no more than {self._gpu.objects} objects")
        return slot

    def _add(self, entry: _Object) -> int:
        self._handles += 1
        self._objects[self._handles] = entry
        return self._handles

    def _remove(self, handle: int) -> None:
        entry = self._objects.pop(handle)
        if entry.base is not None:
            self._space.free(entry.base)

    def _add_device(self, entry: _Object, device: int) -> None:
        self._check_device(device)
        if device in entry.devices:
            raise CudaError(_VALUE, f"device {device} was added already")
        if len(entry.devices) == entry.prop.numDevices:
            raise CudaError(_STATE, f"all {entry.prop.numDevices} devices were added already")
        entry.devices.append(device)

    def _unbind(self, entry: _Object, device: int) -> None:
        self._check_device(device)
        if device not in entry.regions:
            raise CudaError(_STATE, f"device {device} is not bound")
        del entry.regions[device]
        self._todo.none(device, entry.slot)

    def _place(self, entry: _Object, ntoken: int) -> None:
        """Give a dynamic object its addresses, at its first bind."""
        if entry.bindings:
            return
        assert isinstance(entry.prop, CUDymulticastObjectProp)
        entry.base = self._space.allocate(ntoken * entry.prop.block)
        if entry.base is None:
            raise CudaError(_MEMORY, "the multimem space is full")
        entry.ntoken = ntoken

    def _allocate_tables(self, entry: _Object, device: int, ntoken: int) -> tuple[int, ...]:
        tables: list[int] = []
        for _ in range(self._experts):
            table = self._memory[device].allocate(4 * ntoken)
            if table is None:
                for other in tables:
                    self._memory[device].free(other)
                if not entry.bindings and entry.base is not None:
                    self._space.free(entry.base)
                    entry.base = None
                raise CudaError(_MEMORY, f"device {device} has no room for AL tables")
            tables.append(table)
        self._tables[device].update(tables)
        self._todo.zeros += [(device, table, 4 * ntoken) for table in tables]
        return tuple(tables)

    def _clear(self, entry: _Object, device: int) -> None:
        self._todo.clear(device, entry.slot)
        epoch = self._epochs[device, entry.slot] % _MAX_EPOCH + 1
        self._epochs[device, entry.slot] = epoch
        entry.bindings[device] = replace(entry.bindings[device], epoch=epoch)
