# SPDX-License-Identifier: Apache-2.0
"""Functional coverage of the switch: which situations its tests have brought about.

Bins are counted from what the monitors saw and what the model made of it.

``cp_request``
    opcode x fan-out x length of the list x back-pressure.
``cp_response``
    opcode x back-pressure, of responses that are passed on.
``cp_status``
    Statuses that requests were refused with.
``cp_drop``
    Whether responses were dropped.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from dysharp.golden.arrays import value_of
from dysharp.golden.flits import unpack_field, unpack_headers
from dysharp.golden.packets import Packets
from dysharp.golden.switch import SwitchConfig, SwitchResult
from dysharp.rtl.flits import LANES, Addressing, Opcode, Status
from dysharp.rtl.params import SwitchParams

__all__ = ["Coverage", "expected_bins", "sample"]

_FAN_OUT = ("one", "some", "all")
_LENGTH = ("1", "2-7", "8", "9-", "max")


class Coverage:
    """Counts of bins, each named ``<point>:<bin>``."""

    def __init__(self, counts: Counter[str] | None = None) -> None:
        self._counts: Counter[str] = counts or Counter()

    def add(self, point: str, names: Iterable[str]) -> None:
        """Count one in each of the bins `names` of a point."""
        self._counts.update(f"{point}:{name}" for name in names)

    def empty(self, wanted: Iterable[str]) -> list[str]:
        """Those of the bins `wanted` that nothing was counted in."""
        return [name for name in wanted if not self._counts[name]]

    def dump(self, path: Path) -> None:
        """Write the counts as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(dict(sorted(self._counts.items())), indent=1) + "\n")

    @classmethod
    def merge(cls, paths: Iterable[Path]) -> "Coverage":
        """Sum of several files."""
        counts: Counter[str] = Counter()
        for path in paths:
            counts.update(json.loads(path.read_text()))
        return cls(counts)


def expected_bins(params: SwitchParams, paces: Sequence[str]) -> list[str]:
    """All bins that a switch's random tests must reach."""
    bins = []
    for opcode in Opcode:
        code = value_of(opcode)
        if opcode in (Opcode.PART_ACK, Opcode.PART_DATA):
            continue  # nothing is armed in random runs; ``verif/reduce`` has the parts
        for pace in paces:
            if code >> 2 == value_of(Addressing.RESPONSE):
                bins.append(f"cp_response:{opcode.name}/{pace}")
            else:
                bins += [
                    f"cp_request:{opcode.name}/{fan_out}/{length}/{pace}"
                    for fan_out, length in _shapes(params, code >> 2)
                ]
    refused = range(1, value_of(Status.TIMEOUT))
    bins += [f"cp_status:{status.name}" for status in Status if value_of(status) in refused]
    return [*bins, "cp_drop:yes"]


def _shapes(params: SwitchParams, addressing: int) -> list[tuple[str, str]]:
    """Fan-outs and lengths that go together; length "-" without a list."""
    fewest = {"one": 1, "some": 2, "all": params.gpus}
    fan_outs = [name for name in _FAN_OUT if name != "some" or params.gpus > 2]
    if addressing == value_of(Addressing.UNICAST):
        return [("one", "-")]
    if addressing == value_of(Addressing.STATIC):
        return [(fan_out, "-") for fan_out in fan_outs]
    if not params.dynamic:
        return []
    most = {"1": 1, "2-7": 7, "8": 8, "9-": params.max_targets - 1, "max": params.max_targets}
    return [(f, n) for f in fan_outs for n in _LENGTH if fewest[f] <= most[n]]


def sample(
    bins: Coverage,
    params: SwitchParams,
    inputs: Sequence[Packets],
    config: SwitchConfig,
    result: SwitchResult,
    pace: str,
) -> None:
    """Count the bins of one run.

    Parameters
    ----------
    bins : Coverage
        Where to count.
    params, config : SwitchParams, SwitchConfig
        The switch and its registers.
    inputs : Sequence[Packets]
        What each port sent.
    result : SwitchResult
        What the model made of it.
    pace : str
        Class of back-pressure.
    """
    names = {value_of(opcode): opcode.name for opcode in Opcode}
    for refusals in result.refusals:
        codes = unpack_headers(refusals.headers)["aux"]
        bins.add("cp_status", (Status(int(code)).name for code in codes))
    if result.counters["dropped"].any():
        bins.add("cp_drop", ["yes"])
    for source, packets in enumerate(inputs):
        copies = _copies(source, result)
        fields = unpack_headers(packets.headers)
        for address, opcode, count in zip(
            *(fields[name].tolist() for name in ("address", "opcode", "count")), strict=True
        ):
            fan_out = copies[address]
            if not fan_out:
                continue
            if opcode >> 2 == value_of(Addressing.RESPONSE):
                bins.add("cp_response", [f"{names[opcode]}/{pace}"])
                continue
            spread = "one" if fan_out == 1 else "all" if fan_out == params.gpus else "some"
            length = "-"
            if opcode >> 2 == value_of(Addressing.DYNAMIC):
                length = _length_class(count, params.max_targets)
            bins.add("cp_request", [f"{names[opcode]}/{spread}/{length}/{pace}"])


def _copies(source: int, result: SwitchResult) -> Counter[int]:
    """Count the copies of each packet from a port, by the address, which tells them apart."""
    copies: Counter[int] = Counter()
    for output in result.outputs:
        for (origin, _), packets in output.items():
            if origin == source:
                copies.update(unpack_field(packets.headers, "address").tolist())
    return copies


def _length_class(count: int, longest: int) -> str:
    if count == longest:
        return "max"
    if count > LANES:
        return "9-"
    return "1" if count == 1 else "8" if count == LANES else "2-7"
