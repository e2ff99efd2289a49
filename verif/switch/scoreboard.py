# SPDX-License-Identifier: Apache-2.0
"""Scoreboard of the switch: what went in, through the model, against what came out."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from dysharp.golden.arrays import FlitArray
from dysharp.golden.combine import port_results
from dysharp.golden.flits import unpack_field
from dysharp.golden.packets import Packets
from dysharp.golden.route import ports_of
from dysharp.golden.switch import SwitchConfig, SwitchModel, SwitchResult
from dysharp.rtl.flits import FLIT_BYTES
from dysharp.rtl.params import SwitchParams

__all__ = ["Scoreboard"]

_REQUEST, _RESPONSE = 0, 1
_COUNTER_MASK = (1 << 32) - 1
_MOST_WAYS = 256


class Scoreboard:
    """Compares outputs with the model, bit for bit, in order per source and channel.

    On the response channel of a port, the answers from each source keep their order, and so do
    refusals and results, but nothing tells which of these a packet is. So every way in which the
    packets so far can belong to them is kept, up to a limit that only many equal packets reach.

    Parameters
    ----------
    params : SwitchParams
        The switch.
    config : SwitchConfig
        How its registers were programmed.
    inputs : Sequence[Packets]
        What the monitors saw on every input link.
    results : Mapping[int, Iterable[FlitArray]], optional
        Results of ports where they depend on parts or on time, in any order, by port. Ports that
        are left out have those of the model.
    answered : bool
        Every multicast request was answered completely and correctly, so the results of all ports
        are those of :func:`dysharp.golden.combine.port_results`, in any order.

    Raises
    ------
    ValueError
        If `answered` is not true of the inputs.
    """

    def __init__(
        self,
        params: SwitchParams,
        config: SwitchConfig,
        inputs: Sequence[Packets],
        results: Mapping[int, Iterable[FlitArray]] | None = None,
        *,
        answered: bool = False,
    ) -> None:
        self._params = params
        self._expected = SwitchModel(params, config).process(inputs)
        given = dict(results or {})
        self._loose = frozenset(given)
        if answered:
            for port, arms in enumerate(self._expected.arms):
                parts = self._expected.parts[port]
                given[port] = port_results(params, port, arms, parts).values()
        self._results = {port: Counter(map(_bytes, packets)) for port, packets in given.items()}

    @property
    def expected(self) -> SwitchResult:
        """What the model says."""
        return self._expected

    def mismatches(self, outputs: Sequence[FlitArray]) -> list[str]:
        """Every difference, a line each; empty when all is right and nothing is left over."""
        found: list[str] = []
        for port, flits in enumerate(outputs):
            try:
                packets = Packets(flits)
            except ValueError as error:
                found.append(f"port {port}: {error}")
                continue
            channel = unpack_field(packets.headers, "vc")
            found += self._requests(port, packets.select(channel == _REQUEST))
            found += self._responses(port, packets.select(channel == _RESPONSE))
            if (channel > _RESPONSE).any():
                found.append(f"port {port}: packet on a channel that does not exist")
        return found

    def counter_mismatches(self, registers: dict[str, int]) -> list[str]:
        """Counters that differ from the model's.

        Those of time-outs and replaced requests are not known on ports with given `results`.
        """
        found = []
        for name, values in self._expected.counters.items():
            for port, value in enumerate(values.tolist()):
                given = self._results.get(port)
                if given is not None:
                    before = self._expected.results[port]
                    if name in ("timeouts", "replaced") and port in self._loose:
                        continue
                    if name == "tx_responses":
                        value += given.total() - len(before)
                    if name == "tx_flits":
                        flits = sum(len(packet) // FLIT_BYTES * n for packet, n in given.items())
                        value += flits - len(before.flits)
                seen = registers[f"{name}{port}"]
                if seen != value & _COUNTER_MASK:
                    found.append(f"{name}{port} is {seen}, not {value & _COUNTER_MASK}")
        return found

    def _requests(self, port: int, packets: Packets) -> Iterator[str]:
        headers = packets.headers
        source = ports_of(
            unpack_field(headers, "gpu"),
            unpack_field(headers, "address"),
            self._params.links_per_gpu,
        )
        for origin in range(self._params.ports):
            mine = packets.select(source == origin)
            wanted = self._expected.packets(port, origin, _REQUEST)
            if mine != wanted:
                yield f"port {port}: requests from {origin}: {_difference(mine, wanted)}"
        if (source >= self._params.ports).any():
            yield f"port {port}: request from a port that does not exist"

    def _responses(self, port: int, packets: Packets) -> Iterator[str]:
        expected = self._expected
        batches = [
            expected.packets(port, origin, _RESPONSE) for origin in range(self._params.ports)
        ]
        batches.append(expected.refusals[port])
        left = Counter(self._results.get(port, ()))
        if port not in self._results:
            batches.append(expected.results[port])
        queues = [[_bytes(packet) for packet in batch] for batch in batches if len(batch)]
        # How many packets of each queue have been seen: all ways in which that can have happened.
        ways = [(0,) * len(queues)]
        for index, packet in enumerate(packets):
            key = _bytes(packet)
            following = dict.fromkeys(
                (*way[:number], way[number] + 1, *way[number + 1 :])
                for way in ways
                for number, queue in enumerate(queues)
                if way[number] < len(queue) and queue[way[number]] == key
            )
            if following:
                ways = list(following)[:_MOST_WAYS]
            elif left[key]:
                left[key] -= 1
            else:
                yield f"port {port}: response {index} was not expected (or not yet)"
                return
        missing = sum(map(len, queues)) - sum(ways[0]) + left.total()
        if missing:
            yield f"port {port}: {missing} responses are missing"


def _bytes(packet: FlitArray) -> bytes:
    return np.ascontiguousarray(packet).tobytes()


def _difference(got: Packets, wanted: Packets) -> str:
    for index, (one, other) in enumerate(zip(got, wanted, strict=False)):
        if not np.array_equal(one, other):
            return f"packet {index} of {len(wanted)} differs"
    return f"{len(got)} packets, not {len(wanted)}"
