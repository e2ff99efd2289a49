# SPDX-License-Identifier: Apache-2.0
"""Scoreboard of the switch: what went in, through the model, against what came out."""

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
from dysharp.golden.flits import FlitArray, unpack_field
from dysharp.golden.packets import Packets
from dysharp.golden.route import ports_of
from dysharp.golden.switch import SwitchConfig, SwitchModel, SwitchResult
from dysharp.rtl.params import SwitchParams

__all__ = ["Scoreboard"]

_REQUEST, _RESPONSE = 0, 1


class Scoreboard:
    """Compares outputs with the model, bit for bit, in order per source and channel.

    Parameters
    ----------
    params : SwitchParams
        The switch.
    config : SwitchConfig
        How its registers were programmed.
    inputs : Sequence[Packets]
        What the monitors saw on every input link.
    """

    def __init__(
        self, params: SwitchParams, config: SwitchConfig, inputs: Sequence[Packets]
    ) -> None:
        self._params = params
        self._expected = SwitchModel(params, config).process(inputs)

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
        """Counters that differ from the model's."""
        return [
            f"{name}{port} is {registers[f'{name}{port}']}, not {value}"
            for name, values in self._expected.counters.items()
            for port, value in enumerate(values)
            if registers[f"{name}{port}"] != value
        ]

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
        """Match responses, which do not tell by which port they came in, against queue heads."""
        queues = [
            deque(packet.tobytes() for packet in self._expected.packets(port, origin, _RESPONSE))
            for origin in range(self._params.ports)
        ]
        queues.append(deque(packet.tobytes() for packet in self._expected.refusals[port]))
        for index, packet in enumerate(packets):
            key = np.ascontiguousarray(packet).tobytes()
            for queue in queues:
                if queue and queue[0] == key:
                    queue.popleft()
                    break
            else:
                yield f"port {port}: response {index} was not expected (or not yet)"
                return
        left = sum(map(len, queues))
        if left:
            yield f"port {port}: {left} responses are missing"


def _difference(got: Packets, wanted: Packets) -> str:
    for index, (one, other) in enumerate(zip(got, wanted, strict=False)):
        if not np.array_equal(one, other):
            return f"packet {index} of {len(wanted)} differs"
    return f"{len(got)} packets, not {len(wanted)}"
