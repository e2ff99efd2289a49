# SPDX-License-Identifier: Apache-2.0
"""Turns a component into RTLIL, each distinct component once.

Amaranth works on the whole design bit by bit: a switch of 64 ports with its 4096 queues takes
tens of gigabytes and does not end. Here every component whose hardware depends on nothing but its
parameters becomes a module of its own, made once and then instantiated.
"""

import dataclasses
import enum
import gc
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import (
    ClockDomain,
    ClockSignal,
    Elaboratable,
    Fragment,
    Instance,
    ResetSignal,
    Shape,
    Value,
)
from amaranth.hdl._ir import PortDirection
from amaranth.hdl._xfrm import TransformedElaboratable
from amaranth.lib import data, wiring

__all__ = ["Rtlil", "elaborate", "port_name"]


@dataclasses.dataclass(frozen=True)
class Rtlil:
    """A design as text.

    Parameters
    ----------
    text : str
        RTLIL; every module stands before those that it instantiates.
    kinds : dict[str, str]
        Class name of the component behind a module.
    """

    text: str
    kinds: dict[str, str]


def elaborate(component: wiring.Component, name: str, platform: str | None = None) -> Rtlil:
    """Elaborate a component and all below it.

    Parameters
    ----------
    component : wiring.Component
        Its signature gives the ports; ``clk`` and ``rst`` are added where they are used.
    name : str
        Name of its module.
    platform : str, optional
        Handed to every `elaborate`.

    Returns
    -------
    Rtlil
        The module `name` comes first.
    """
    with _no_collector():
        builder = _Builder()
        builder.convert(Fragment.get(component, platform), component, name)
        return Rtlil("".join(reversed(builder.texts)), builder.kinds)


def port_name(path: tuple[str | int, ...]) -> str:
    """Name of the port that a path in a signature becomes."""
    return "__".join(map(str, path))


@contextmanager
def _no_collector() -> Iterator[None]:
    """Halve the time on a large design: millions of objects, hardly a cycle among them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Builder:
    """Collects the texts of all distinct components, submodules before their parents."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.kinds: dict[str, str] = {}
        self._modules: dict[Hashable, tuple[str, list[ClockDomain]]] = {}

    def convert(
        self, fragment: Fragment, component: wiring.Component, name: str
    ) -> list[ClockDomain]:
        """Convert one component; return the clock domains that it takes from outside."""
        self._share(fragment)
        domains: list[ClockDomain] = []

        def missing_domain(domain_name: str) -> ClockDomain:
            domains.append(ClockDomain(domain_name))
            return domains[-1]

        ports = {}
        for path, member, value in component.signature.flatten(component):
            inward = member.flow is wiring.In
            direction = PortDirection.Input if inward else PortDirection.Output
            ports[port_name(path)] = (Value.cast(value), direction)
        design = fragment.prepare(ports, hierarchy=(name,), missing_domain=missing_domain)
        text, _ = rtlil.convert_fragment(design, name=name, emit_src=False)
        self.texts.append(text)
        for part, info in design.fragments.items():
            kind = next((type(origin) for origin in part.origins or () if _is_ours(origin)), None)
            if kind:
                self.kinds[".".join(info.name)] = kind.__name__
        return domains

    def _share(self, fragment: Fragment) -> None:
        """Replace the subfragments that stand for themselves by instances."""
        for index, (part, name, src_loc) in enumerate(fragment.subfragments):
            origins = part.origins or ()
            if any(isinstance(origin, TransformedElaboratable) for origin in origins):
                continue  # its own clock, reset or enable reaches into everything below
            component = origins[0] if origins else None
            key = _identity(component) if isinstance(component, wiring.Component) else None
            if key is None or _has_domains(part):
                self._share(part)
                continue
            if key not in self._modules:
                module = f"{type(component).__name__}@{len(self._modules)}"
                self._modules[key] = (module, [])
                self._modules[key][1].extend(self.convert(part, component, module))
            instance = _instance(component, *self._modules[key])
            fragment.subfragments[index] = (instance, name, src_loc)


def _instance(component: wiring.Component, module: str, domains: list[ClockDomain]) -> Instance:
    pins: dict[str, Any] = {}
    for path, member, value in component.signature.flatten(component):
        pins[f"{'i' if member.flow is wiring.In else 'o'}_{port_name(path)}"] = Value.cast(value)
    for domain in domains:
        pins[f"i_{domain.clk.name}"] = ClockSignal(domain.name)
        if domain.rst is not None:
            pins[f"i_{domain.rst.name}"] = ResetSignal(domain.name)
    return Instance(module, **pins)


def _is_ours(origin: object) -> bool:
    return isinstance(origin, Elaboratable) and not type(origin).__module__.startswith(
        "amaranth.hdl"
    )


def _has_domains(fragment: Fragment) -> bool:
    return bool(fragment.domains) or any(_has_domains(part) for part, *_ in fragment.subfragments)


def _identity(component: wiring.Component) -> Hashable | None:
    """Tell what the hardware of a component depends on, or None if that cannot be told.

    It can when all that the component remembers, apart from its ports, is plain data. A component
    that keeps a signal or another component may be wired from outside its signature.
    """
    state = []
    for name, value in sorted(vars(component).items()):
        if name in component.signature.members or name.startswith("_MustUse__"):
            continue
        if value is component.signature:
            continue
        try:
            state.append((name, _plain(value)))
        except TypeError:
            return None
    ports = []
    for path, member, value in component.signature.flatten(component):
        shape = Value.cast(value).shape()
        initial = getattr(Value.cast(value), "init", None)
        ports.append((path, member.flow.name, shape.width, shape.signed, initial))
    return type(component), tuple(state), tuple(ports)


def _plain(value: object) -> Hashable:
    """Return a hashable stand-in of plain data; raise TypeError for anything else."""
    if value is None or isinstance(value, bool | int | float | str | bytes | enum.Enum | type):
        return type(value), value
    if isinstance(value, tuple | list):
        return type(value), tuple(map(_plain, value))
    if isinstance(value, range):
        return value
    if isinstance(value, Shape | data.Layout):
        return type(value), repr(value)
    if dataclasses.is_dataclass(value):
        fields = tuple(_plain(getattr(value, f.name)) for f in dataclasses.fields(value))
        return type(value), fields
    raise TypeError(f"`value` must be plain data, not {value!r}")
