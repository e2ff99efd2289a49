# SPDX-License-Identifier: Apache-2.0
"""Packets worked out by hand against the packer, the unpacker and the switch model."""

import numpy as np
import pytest
from dysharp.golden.flits import (
    extension_flits,
    from_hex,
    pack_headers,
    pack_targets,
    packet_flits,
    unpack_headers,
    unpack_targets,
)
from dysharp.golden.packets import Packets
from dysharp.golden.switch import SwitchConfig, SwitchModel
from dysharp.golden.vectors import (
    EXPERTS_PER_GPU,
    GROUPS,
    PRESET,
    TRANSFERS,
    VECTORS,
    Transfer,
    Vector,
)
from dysharp.rtl.params import PRESETS

PARAMS = PRESETS[PRESET]
BY_NAME = {vector.name: from_hex(vector.flits) for vector in VECTORS}


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(VECTORS)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_packing_gives_the_hand_made_flits(vector: Vector) -> None:
    flits = BY_NAME[vector.name]
    header = pack_headers(**vector.fields)
    assert header.tolist() == flits[:1].tolist()
    assert packet_flits(header).tolist() == [len(flits)]
    lists = pack_targets(vector.targets, [len(vector.targets)])
    assert lists.tolist() == flits[1 : 1 + len(lists)].tolist()


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_unpacking_gives_the_words(vector: Vector) -> None:
    flits = BY_NAME[vector.name]
    for name, values in unpack_headers(flits[:1]).items():
        wanted = vector.fields.get(name, 0)
        assert values.tolist() == [getattr(wanted, "value", wanted)], name
    count = len(vector.targets)
    lists = flits[1 : 1 + int(extension_flits(np.array([count]))[0])]
    assert tuple(unpack_targets(lists, count).tolist()) == vector.targets


@pytest.mark.parametrize("transfer", TRANSFERS, ids=lambda transfer: transfer.packet)
def test_switch_makes_the_hand_made_copies(transfer: Transfer) -> None:
    config = SwitchConfig(
        experts_per_gpu=EXPERTS_PER_GPU, groups=GROUPS, partitions=(0,) * PARAMS.ports
    )
    inputs = [Packets() for _ in range(PARAMS.ports)]
    inputs[transfer.source] = Packets(BY_NAME[transfer.packet])
    result = SwitchModel(PARAMS, config).process(inputs)
    for port in range(PARAMS.ports):
        made = [packet.tolist() for batch in result.outputs[port].values() for packet in batch]
        name = transfer.copies.get(port)
        assert made == ([BY_NAME[name].tolist()] if name else [])
        refusals = [packet.tolist() for packet in result.refusals[port]]
        refused = transfer.refusal and port == transfer.source
        assert refusals == ([BY_NAME[transfer.refusal].tolist()] if refused else [])
