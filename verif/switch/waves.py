# SPDX-License-Identifier: Apache-2.0
"""Measures links in a waveform (VCD), independently of the monitors."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from dysharp.golden.arrays import IntArray
from dysharp.golden.flits import FlitArray
from dysharp.golden.packets import Packets
from dysharp.verif.lib.flit_files import FlitLog
from vcdvcd import VCDVCD

__all__ = ["Links", "header_latencies", "occupancy", "read_links"]

_DUT = "harness.dut."


@dataclass(frozen=True)
class Links:
    """What passed on all links of a switch, in cycles from the first rising clock edge.

    Parameters
    ----------
    inputs, outputs : list[FlitLog]
        One per port.
    """

    inputs: list[FlitLog]
    outputs: list[FlitLog]


def read_links(path: Path, ports: int) -> Links:
    """Sample all links just before every rising edge of the clock.

    Raises
    ------
    ValueError
        The waveform has no links of that many ports.
    """
    names = {
        f"{side}__{port}__{name}"
        for side in ("rx", "tx")
        for port in range(ports)
        for name in ("valid", "flit")
    } | {"clk"}
    every = VCDVCD(str(path), only_sigs=True).signals
    found = {}
    for signal in every:
        name = signal[signal.find(_DUT) + len(_DUT) :].split("[")[0]
        if _DUT in signal and name in names:
            found[name] = signal
    if found.keys() != names:
        raise ValueError(f"{path}: no {', '.join(sorted(names - found.keys()))}")
    wave = VCDVCD(str(path), signals=list(found.values()), store_tvs=True)
    edges = np.array([time for time, value in wave[found["clk"]].tv if value == "1"])

    def link(side: str, port: int) -> FlitLog:
        valid = _sample(wave[found[f"{side}__{port}__valid"]].tv, edges)
        flits = _sample(wave[found[f"{side}__{port}__flit"]].tv, edges)
        cycles = np.array([c for c, value in enumerate(valid) if value == "1"], dtype=np.int64)
        words = [int(flits[cycle], 2) for cycle in cycles]
        return FlitLog(cycles, _as_flits(words))

    return Links(
        inputs=[link("rx", port) for port in range(ports)],
        outputs=[link("tx", port) for port in range(ports)],
    )


def occupancy(log: FlitLog) -> float:
    """Share of the cycles from the first flit to the last in which a link carries one."""
    if not len(log.cycles):
        return 0.0
    return float(len(log.cycles) / (log.cycles[-1] - log.cycles[0] + 1))


def header_latencies(links: Links) -> dict[int, list[int]]:
    """Cycles from header in to header out of every copy, by the packet's address.

    Addresses must tell the packets apart.
    """
    came = {address: cycle for log in links.inputs for address, cycle in _headers(log)}
    latencies: dict[int, list[int]] = {address: [] for address in came}
    for log in links.outputs:
        for address, cycle in _headers(log):
            if address in came:  # results of the switch itself have no address
                latencies[address].append(cycle - came[address])
    return {address: sorted(found) for address, found in latencies.items()}


def _headers(log: FlitLog) -> list[tuple[int, int]]:
    packets = Packets(log.flits)
    addresses = (packets.headers[:, 0] & np.uint64((1 << 48) - 1)).tolist()
    return list(zip(addresses, log.cycles[packets.starts].tolist(), strict=True))


def _sample(changes: list[tuple[int, str]], edges: IntArray) -> list[str]:
    """Values just before each edge; "x" before the first change."""
    times = np.array([time for time, _ in changes])
    index = np.searchsorted(times, edges, side="left") - 1
    return [changes[i][1] if i >= 0 else "x" for i in index]


def _as_flits(words: list[int]) -> FlitArray:
    mask = (1 << 64) - 1
    flits = np.array([[word & mask, word >> 64] for word in words], dtype=np.uint64)
    return flits.reshape(-1, 2)
