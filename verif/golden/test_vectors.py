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
from dysharp.golden.reduction import Outcome, ReductionModel
from dysharp.golden.switch import SwitchConfig, SwitchModel, SwitchResult
from dysharp.golden.vectors import (
    EXPERTS_PER_GPU,
    GATHERS,
    GROUPS,
    PRESET,
    TRANSFERS,
    VECTORS,
    Gather,
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


def send(source: int, name: str) -> SwitchResult:
    config = SwitchConfig(
        experts_per_gpu=EXPERTS_PER_GPU, groups=GROUPS, partitions=(0,) * PARAMS.ports
    )
    inputs = [Packets() for _ in range(PARAMS.ports)]
    inputs[source] = Packets(BY_NAME[name])
    return SwitchModel(PARAMS, config).process(inputs)


@pytest.mark.parametrize("transfer", TRANSFERS, ids=lambda transfer: transfer.packet)
def test_switch_makes_the_hand_made_copies(transfer: Transfer) -> None:
    result = send(transfer.source, transfer.packet)
    for port in range(PARAMS.ports):
        made = [packet.tolist() for batch in result.outputs[port].values() for packet in batch]
        name = transfer.copies.get(port)
        assert made == ([BY_NAME[name].tolist()] if name else [])
        refusals = [packet.tolist() for packet in result.refusals[port]]
        refused = transfer.refusal and port == transfer.source
        assert refusals == ([BY_NAME[transfer.refusal].tolist()] if refused else [])


@pytest.mark.parametrize("gather", GATHERS, ids=lambda gather: gather.request)
def test_entries_make_the_hand_made_results(gather: Gather) -> None:
    (request,) = send(gather.source, gather.request).arms[gather.source]
    model = ReductionModel(PARAMS, gather.source)
    model.arm(request)
    for gpu, name in gather.parts:
        assert model.armed == 1
        reached = send(gpu, name).parts[gather.source][gpu]
        assert reached == Packets(BY_NAME[name])
        assert model.part(gpu, reached[0]) is Outcome.TAKEN
    if gather.times_out:
        model.time_out(request.tag)
    assert model.armed == 0
    assert [packet.tolist() for packet in model.results] == [BY_NAME[gather.result].tolist()]


def test_every_packet_is_used() -> None:
    used = {name for t in TRANSFERS for name in (t.packet, t.refusal, *t.copies.values())}
    used |= {name for g in GATHERS for name in (g.result, *(name for _, name in g.parts))}
    assert used - {""} == set(BY_NAME)
