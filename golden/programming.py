# SPDX-License-Identifier: Apache-2.0
"""What the runtime asks of the hardware: memory to be zeroed, and register writes."""

from collections.abc import Iterable, Iterator

from ..rtl.flits import FLIT_BYTES, Stage
from ..rtl.gpu_params import GpuParams
from ..rtl.hub_register_map import OBJECT_MODES, hub_address_of
from ..rtl.params import SwitchParams
from ..rtl.register_map import address_of
from .al_map import reciprocal
from .arrays import value_of
from .cuda import CUDymulticastObjectProp, DyBinding

__all__ = ["Programming"]

_WORD = 0xFFFF_FFFF


def _halves(name: str, value: int) -> Iterator[tuple[str, int]]:
    yield f"{name}_lo", value & _WORD
    yield f"{name}_hi", value >> 32


class Programming:
    """Things to do, first all of :attr:`zeros`, then the writes of each list in order.

    Parameters
    ----------
    switch : SwitchParams
        The switch.
    gpu : GpuParams
        Every GPU's side.
    """

    def __init__(self, switch: SwitchParams, gpu: GpuParams) -> None:
        self._switch = switch
        self._gpu = gpu
        self.zeros: list[tuple[int, int, int]] = []
        """Memory to be zeroed: device, address, bytes."""
        self.switch: list[tuple[int, int]] = []
        """Register writes of the switch: address and value."""
        self.hubs: dict[int, list[tuple[int, int]]] = {}
        """Register writes of the hub of each device: address and value."""

    def begin(self, experts_per_gpu: int, memory: int) -> None:
        """Set what holds for all objects."""
        self.switch.append((address_of(self._switch, "experts_per_gpu"), experts_per_gpu))
        for device in range(self._gpu.gpus):
            self._write(device, _halves("memory", memory))

    def group(self, group: int, mask: int) -> None:
        """Set the GPUs of a group; 0 for no group."""
        self.switch += [
            (address_of(self._switch, f"group{group}_{word}"), mask >> 32 * word & _WORD)
            for word in range(-(-self._switch.gpus // 32))
        ]

    def none(self, device: int, slot: int) -> None:
        """Switch an object off."""
        self._write(device, [(f"object{slot}_mode", OBJECT_MODES["none"])])

    def static(self, device: int, slot: int, base: int, size: int, memory: int) -> None:
        """Set a static object, its mode last."""
        values = [*_halves("base", base), *_halves("size", size), *_halves("memory", memory)]
        self._object(device, slot, "static", values)

    def dynamic(
        self,
        device: int,
        slot: int,
        base: int,
        prop: CUDymulticastObjectProp,
        binding: DyBinding,
        first_expert: int,
    ) -> None:
        """Set a dynamic object, its mode last."""
        experts = len(binding.nactive)
        for expert in range(experts):
            row = f"expert{slot}_{expert}"
            for name, stage in (("dispatch", Stage.DISPATCH), ("combine", Stage.COMBINE)):
                if stage in binding.addresses:
                    place = binding.addresses[stage][expert]
                    self._write(device, _halves(f"{row}_{name}", place))
            self._write(device, _halves(f"{row}_table", binding.tables[expert]))
            self._write(device, [(f"{row}_nactive", binding.nactive[expert])])
        block = prop.block // FLIT_BYTES
        factor, shift = reciprocal(block)
        values = [
            *_halves("base", base),
            ("blocks", binding.ntoken),
            ("block", block),
            *_halves("reciprocal", factor),
            ("shift", shift),
            *_halves("size", binding.ntoken * prop.block),
            ("first_expert", first_expert),
            ("experts", experts),
            ("stages", sum(1 << value_of(stage) for stage in prop.stages)),
        ]
        self._object(device, slot, "dynamic", values)

    def clear(self, device: int, slot: int) -> None:
        """Forget the AL map of an object."""
        self._write(device, [("clear", 1 << slot)])

    def _object(self, device: int, slot: int, mode: str, values: Iterable[tuple[str, int]]) -> None:
        self._write(
            device,
            [
                (f"object{slot}_{name}", value)
                for name, value in (*values, ("mode", OBJECT_MODES[mode]))
            ],
        )

    def _write(self, device: int, values: Iterable[tuple[str, int]]) -> None:
        self.hubs.setdefault(device, []).extend(
            (hub_address_of(self._gpu, name), value) for name, value in values
        )
