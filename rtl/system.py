# SPDX-License-Identifier: Apache-2.0
"""GPUs around a switch."""

from dataclasses import dataclass, replace

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .common.bus import BusSignature
from .endpoint.endpoint import Endpoint, core_members
from .flits import FLIT_BITS
from .gpu_params import GPU_PRESETS, GpuParams
from .params import PRESETS, SwitchParams
from .switch.switch import Switch

__all__ = ["SYSTEM_PRESETS", "System", "SystemParams"]


@dataclass(frozen=True, kw_only=True)
class SystemParams:
    """A switch and as many GPUs as it has ports.

    Parameters
    ----------
    switch : SwitchParams
        The switch. One link a GPU: hubs of several links would have to share an AL map.
    gpu : GpuParams
        Every GPU's side.
    """

    switch: SwitchParams
    gpu: GpuParams

    def __post_init__(self) -> None:
        if not isinstance(self.switch, SwitchParams):
            raise TypeError(f"`switch` must be a SwitchParams, not {self.switch!r}")
        if not isinstance(self.gpu, GpuParams):
            raise TypeError(f"`gpu` must be a GpuParams, not {self.gpu!r}")
        if self.switch.links_per_gpu != 1:
            raise ValueError(
                "`links_per_gpu` of `switch` must be 1 in a system, "
                f"not {self.switch.links_per_gpu!r}"
            )
        for name, low, high in (
            ("gpus", self.switch.gpus, self.switch.gpus),
            ("entries", 1, self.switch.entries),
            ("max_targets", 1, self.switch.max_targets),
        ):
            value = getattr(self.gpu, name)
            if not low <= value <= high:
                wanted = f"{high}" if low == high else f"{high} at most"
                raise ValueError(f"`{name}` of `gpu` must be {wanted}, as of `switch`, not {value}")
        if not self.switch.dynamic:
            raise ValueError("`dynamic` of `switch` must be true in a system, not False")

    @property
    def gpus(self) -> int:
        """GPUs of the system."""
        return self.switch.gpus


class System(wiring.Component):
    """Endpoints around a switch; memories and cores are outside.

    Parameters
    ----------
    params : SystemParams
        Everything that is fixed at generation.

    Members
    -------
    access, result, shared_list, global_list, ordinary, ordinary_valid, ordinary_flit, memory, \
table, bus : one per GPU
        As in :class:`Endpoint`.
    switch_bus : In
        Registers of the switch.
    up_valid, up_flit, down_valid, down_flit : Out, one per GPU
        What is on the links to and from the switch, for monitors.
    fault : Out(gpus)
        Endpoints that cut the switch off; never, unless something is broken.

    Timing
    ------
    See :class:`Endpoint` and :class:`Switch`. There are no registers in between: a physical link
    adds its flight time.

    Reset
    -----
    Synchronous.
    """

    def __init__(self, params: SystemParams) -> None:
        self._params = params
        gpus = params.gpus
        gpu = params.gpu
        super().__init__(
            {
                **{name: each.array(gpus) for name, each in core_members(gpu).items()},
                "switch_bus": In(BusSignature()),
                "up_valid": Out(1).array(gpus),
                "up_flit": Out(FLIT_BITS).array(gpus),
                "down_valid": Out(1).array(gpus),
                "down_flit": Out(FLIT_BITS).array(gpus),
                "fault": Out(gpus),
            }
        )

    @property
    def params(self) -> SystemParams:
        """Parameters of this system."""
        return self._params

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        params = self._params
        m.submodules.switch = switch = Switch(params.switch)
        connect(m, flipped(self.switch_bus), switch.bus)
        for number in range(params.gpus):
            endpoint = Endpoint(params.gpu)
            m.submodules[f"endpoint_{number}"] = endpoint
            connect(m, endpoint.tx, switch.rx[number])
            connect(m, switch.tx[number], endpoint.rx)
            for name, member in core_members(params.gpu).items():
                outer, inner = getattr(self, name)[number], getattr(endpoint, name)
                if member.is_port:
                    m.d.comb += outer.eq(inner)
                elif member.flow is In:
                    connect(m, flipped(outer), inner)
                else:
                    connect(m, inner, flipped(outer))
            m.d.comb += [
                endpoint.gpu.eq(number),
                self.up_valid[number].eq(endpoint.tx.valid),
                self.up_flit[number].eq(endpoint.tx.flit),
                self.down_valid[number].eq(endpoint.rx.valid),
                self.down_flit[number].eq(endpoint.rx.flit),
                self.fault[number].eq(endpoint.fault),
            ]
        return m


def _around(switch: SwitchParams, gpu: GpuParams) -> SystemParams:
    return SystemParams(switch=switch, gpu=replace(gpu, gpus=switch.gpus))


SYSTEM_PRESETS: dict[str, SystemParams] = {
    "tiny": _around(PRESETS["tiny"], GPU_PRESETS["tiny"]),
    "gpus2": _around(replace(PRESETS["default"], ports=2), GPU_PRESETS["default_sets"]),
    "gpus4": _around(replace(PRESETS["default"], ports=4), GPU_PRESETS["default_sets"]),
    "default": _around(PRESETS["default"], GPU_PRESETS["default_sets"]),
    "gpus16": _around(replace(PRESETS["default"], ports=16), GPU_PRESETS["default_sets"]),
}
"""2, 4, 8 (``default``) and 16 GPUs, ``tiny`` with 4. TLBs are set-associative, which simulate
faster and answer the same."""
