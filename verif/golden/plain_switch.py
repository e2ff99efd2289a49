# SPDX-License-Identifier: Apache-2.0
"""A second model of the switch, which handles a packet at a time."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from dysharp.golden.flits import pack_headers, pack_targets, replace_fields, unpack_headers
from dysharp.golden.route import link_of
from dysharp.golden.switch import SwitchConfig
from dysharp.rtl.params import SwitchParams

__all__ = ["Handled", "PlainSwitch", "plain_replaced"]


@dataclass
class Handled:
    """What becomes of one packet."""

    status: int = 0
    """-1: dropped."""
    copies: dict[int, list[list[int]]] = field(default_factory=dict)
    """The copy for each port."""
    answer: list[int] | None = None
    part_of: int | None = None
    """Port that a part reaches."""
    arm: dict[str, int] | None = None


class PlainSwitch:
    """The rules again, in the words of the packet format and without any array arithmetic."""

    def __init__(self, params: SwitchParams, config: SwitchConfig) -> None:
        self.params, self.config = params, config

    def port(self, gpu: int, address: int) -> int:
        """Return the port of a GPU for an address."""
        links = self.params.links_per_gpu
        return gpu * links + int(link_of(np.array([address]), links)[0])

    def crosses(self, source: int, port: int) -> bool:
        """Return whether two ports are in different partitions."""
        return self.config.partitions[source] != self.config.partitions[port]

    def respond(self, source: int, fields: dict[str, int], flits: list[list[int]]) -> Handled:
        """Pass a response, take it for a part or drop it."""
        opcode, length = fields["opcode"], fields["length"]
        ok = fields["vc"] == 1 and fields["gpu"] < self.params.gpus
        ok = ok and (length == 0 if opcode in (12, 13) else 1 <= length <= 16)
        ok = ok and not fields["byte_enable"]
        port = self.port(fields["gpu"], fields["address"]) if ok else 0
        if not ok or self.crosses(source, port):
            return Handled(-1)
        return Handled(part_of=port) if opcode in (12, 15) else Handled(copies={port: flits})

    def entry_status(self, fields: dict[str, int]) -> int:
        """Check multicast requests for what is checked last."""
        opcode, tag, dtype, op = (fields[x] for x in ("opcode", "tag", "dtype", "aux"))
        load = opcode in (6, 10)
        words = fields["length"] * (2 if dtype in (6, 7, 8, 9) else 1)
        entries = 1 if words <= 8 else 2 if words <= 16 else 4
        if (load or not fields["posted"]) and tag >= self.params.entries:
            return 10
        if load and tag % entries:
            return 10
        ops = (3, 4, 5) if dtype == 0 else (0, 1, 2) if dtype < 10 else ()
        return 11 if (load or opcode == 7) and op % 8 not in ops else 0

    def handle(self, source: int, packet: np.ndarray) -> Handled:
        """Return what becomes of a packet from port `source`."""
        params, config = self.params, self.config
        fields = {name: int(values[0]) for name, values in unpack_headers(packet[:1]).items()}
        opcode, length, count = fields["opcode"], fields["length"], fields["count"]
        flits = packet.tolist()
        if opcode >= 12:
            return self.respond(source, fields, flits)

        status = 0
        copies: dict[int, list[Any]] = {}
        known = {1, 2, 5, 6, 7} | ({9, 10} if params.dynamic else set())
        lists = packet[1 : 1 + (count + 7) // 8].tolist() if opcode in (9, 10) else []
        targets = [word >> 16 * i & 0xFFFF for pair in lists for word in pair for i in range(4)]
        targets = targets[:count]
        enabled, load = fields["byte_enable"], opcode in (2, 6, 10)
        longest = 8 if opcode in (6, 10) and fields["dtype"] in (8, 9) else 16
        if opcode not in known:
            status = 1
        elif fields["vc"]:
            status = 2
        elif self.port(fields["gpu"], fields["address"]) != source:
            status = 3
        elif not 1 <= length <= longest or (enabled and (load or length > 8)):
            status = 4
        elif opcode in (9, 10):
            if count == 0:
                status = 5
            elif count > params.max_targets:
                status = 6
            elif any(target >= config.experts_per_gpu * params.gpus for target in targets):
                status = 7
            for target in [] if status else targets:
                port = self.port(target // config.experts_per_gpu, fields["address"])
                copies.setdefault(port, []).append(target)
            for port, left in copies.items():
                header = replace_fields(packet[:1], count=len(left))
                copies[port] = [*header.tolist(), *pack_targets([left]).tolist()]
                copies[port] += flits[1 + len(lists) :]
        elif opcode in (1, 2):
            if count >= params.gpus:
                status = 7
            else:
                copies = {self.port(count, fields["address"]): flits}
        else:
            mask = config.groups[count] if count < params.groups else 0
            gpus = [gpu for gpu in range(params.gpus) if mask >> gpu & 1]
            copies = {self.port(gpu, fields["address"]): flits for gpu in gpus}
            status = 0 if gpus else 8
        if not status and any(self.crosses(source, port) for port in copies):
            status = 9
        if not status and opcode > 4:
            status = self.entry_status(fields)
        if status:
            answer = replace_fields(
                packet[:1], opcode=13, aux=status, length=0, byte_enable=0, vc=1
            ).tolist()[0]
            return Handled(status, answer=answer)
        if opcode < 4 or (fields["posted"] and not load):
            return Handled(copies=copies)
        arm = {name: fields[name] for name in ("tag", "gen", "dtype", "length")}
        arm |= {
            "kind": 2 if load else 1,
            "op": fields["aux"] % 8,
            "canonical": load and fields["aux"] >= 8,
            "total": len(copies) if opcode < 8 else count,
            "expected": sum(1 << port // params.links_per_gpu for port in copies),
        }
        return Handled(copies=copies, arm=arm)


def plain_replaced(gpu: int, arms: list[dict[str, int]]) -> list[list[list[int]]]:
    """Results of requests that nobody answers: those whose tag is used again."""
    results = []
    armed: dict[int, dict[str, int]] = {}
    for arm in arms:
        old = armed.get(arm["tag"])
        armed[arm["tag"]] = arm
        if old:
            names = ("tag", "gen", "dtype")
            header = pack_headers(
                **{name: old[name] for name in names},
                opcode=14,
                count=old["total"],
                aux=14,
                length=1,
                gpu=gpu,
                vc=1,
            )
            results.append([*header.tolist(), [old["expected"], 0]])
    return results
