# SPDX-License-Identifier: Apache-2.0
"""Destinations of a packet: GPU masks, port masks, and the checks that both heads share."""

from amaranth.hdl import Cat, Const, Value
from amaranth.lib import data

from ..address_hash import link_of
from ..flits import HEADER, Opcode, Vc
from ..params import SwitchParams

__all__ = ["gpu_one_hot", "ports_of", "refusal"]


def gpu_one_hot(number: Value, gpus: int) -> Value:
    """Mask with the bit of one GPU; 0 when `number` is no GPU."""
    return Cat(number == gpu for gpu in range(gpus))


def ports_of(params: SwitchParams, gpus: Value, header: data.View) -> Value:
    """Port mask of a GPU mask: the link of each GPU that the header's address hashes to."""
    links = params.links_per_gpu
    if links == 1:
        return gpus
    link = link_of(data.View(HEADER, header).address, links)
    return Cat(gpus[port // links] & (link == port % links) for port in range(params.ports))


def refusal(header: data.View, status) -> data.View:
    """Header of the answer to a refused request: the request's own, turned into an answer."""
    answer = {name: header[name] for name in HEADER.members} | {
        "opcode": Const(Opcode.RSP_ACK.value, 4),
        "aux": status,
        "length": Const(0, 5),
        "byte_enable": Const(0, 1),
        "vc": Const(Vc.RESPONSE.value, 2),
    }
    return data.View(HEADER, Cat(answer.values()))
