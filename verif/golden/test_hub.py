# SPDX-License-Identifier: Apache-2.0
"""The hub's golden model against cases worked out by hand."""

from typing import Any

import numpy as np
import pytest
from dysharp.golden.flits import from_hex, pack_headers, replace_fields, unpack_headers
from dysharp.golden.hub import HubModel
from dysharp.golden.packets import Packets
from dysharp.golden.vectors import VECTORS
from dysharp.rtl.flits import DType, Opcode, ReduceOp, Status
from dysharp.rtl.gpu_params import GPU_PRESETS

PARAMS = GPU_PRESETS["tiny"]
"""Beats of 32 bytes."""


def shifted(lookups: Any) -> Any:
    """Targets lie 256 bytes apart; there are four."""
    bad = lookups["target"] > 3
    place = lookups["address"].astype(np.int64) + 256 * lookups["target"].astype(np.int64)
    status = np.where(bad, Status.BAD_ADDRESS.value, Status.OK.value)
    return np.where(bad, 0, place), status


def model(presum: bool = True) -> HubModel:
    return HubModel(PARAMS, np.zeros(1024, np.uint8), shifted, presum=presum)


def request(opcode: Any, targets: Any = (), data: Any = None, enables: Any = None, **fields: Any):
    fields = {"length": 1, "count": len(targets)} | fields
    header = pack_headers(opcode=opcode.value, byte_enable=int(enables is not None), **fields)
    none = np.zeros((0, 2), np.uint64)
    return Packets.build(
        header,
        targets=list(targets),
        byte_enables=none if enables is None else np.array([[enables, 0]], np.uint64),
        data=none if data is None else np.array(data, np.uint64),
    )[0]


def fields_of(answer: Any) -> dict[str, int]:
    return {name: int(column[0]) for name, column in unpack_headers(answer.flits[:1]).items()}


def test_store_to_two_targets_with_byte_enables() -> None:
    hub = model()
    data = [[0x1111111111111111, 0x2222222222222222]]
    packet = request(Opcode.DY_ST, (1, 3), data, enables=0x00F1, gpu=2, tag=5)
    (answer,) = hub.request(packet)
    for base in (256, 768):
        expected = [0x11, 0, 0, 0, 0x11, 0x11, 0x11, 0x11] + [0] * 8
        assert hub.memory[base : base + 16].tolist() == expected
    fields = fields_of(answer)
    assert (fields["opcode"], fields["count"], fields["aux"]) == (Opcode.PART_ACK.value, 2, 0)
    assert (answer.gpu, answer.kind, fields["tag"], fields["vc"]) == (2, "store", 5, 1)


def test_refused_target_does_not_stop_the_others() -> None:
    hub = model()
    (answer,) = hub.request(request(Opcode.DY_ST, (4, 0), [[7, 0]]))
    assert fields_of(answer)["aux"] == Status.BAD_ADDRESS.value
    assert hub.memory[0] == 7
    assert (hub.requests, hub.refused) == (1, 1)
    assert hub.request(request(Opcode.DY_ST, (4,), [[7, 0]], posted=1)) == []
    assert hub.refused == 2


@pytest.mark.parametrize(
    ("dtype", "targets", "presum", "shapes"),
    [
        (DType.F16, (0, 1), True, [(2, 2, "same")]),
        (DType.F16, (0, 1), False, [(1, 2, "same"), (1, 2, "same")]),
        (DType.F16_ACC32, (0, 1), True, [(1, 2, "same"), (1, 2, "same")]),
        (DType.F16_ACC32, (0, 1, 1), True, [(3, 3, "f32")]),
        (DType.F16, (2,), True, [(1, 2, "same")]),
    ],
)
def test_parts_of_a_load(dtype: Any, targets: Any, presum: bool, shapes: Any) -> None:
    """1.0 and 2.0 in eight f16: how many parts there are, and what stands in them."""
    hub = model(presum)
    hub.memory[:16] = np.full(8, 0x3C00, "<u2").view(np.uint8)
    hub.memory[256:272] = np.full(8, 0x4000, "<u2").view(np.uint8)
    answers = hub.request(request(Opcode.DY_LD_REDUCE, targets, dtype=dtype.value))
    seen = []
    for number, answer in enumerate(answers):
        fields = fields_of(answer)
        kind = "same" if fields["dtype"] == dtype.value else "f32"
        seen.append((fields["count"], len(answer.flits), kind))
        assert fields["more"] == (number < len(answers) - 1)
        assert fields["opcode"] == Opcode.PART_DATA.value
    assert seen == shapes
    if shapes == [(2, 2, "same")]:
        assert (answers[0].flits[1] == 0x4200420042004200).all()
    if shapes == [(3, 3, "f32")]:
        assert (answers[0].flits[1:] == 0x40A0000040A00000).all()


def test_red_of_each_order() -> None:
    hub = model()
    hub.memory[:16] = np.array([5, 0xFFFFFFFF, 1, 2], "<u4").view(np.uint8)
    fields = {"dtype": DType.S32.value, "aux": ReduceOp.MIN.value}
    data = [[0x00000003_00000007, 0xFFFFFFFE_00000000]]
    (answer,) = hub.request(request(Opcode.MM_RED, (), data, count=1, **fields))
    assert hub.memory[:16].view("<u4").tolist() == [5, 0xFFFFFFFF, 0, 0xFFFFFFFE]
    assert (answer.kind, fields_of(answer)["opcode"]) == ("red", Opcode.PART_ACK.value)


def test_known_answers() -> None:
    """The vectors of the packet format: GPU 1's acknowledgement, and GPU 3's of a unicast write."""
    packets = {vector.name: from_hex(vector.flits) for vector in VECTORS}
    hub = HubModel(PARAMS, np.zeros(8192, np.uint8), shifted)
    store = packets["token-a-gpu1"]
    (answer,) = hub.request(store)
    assert np.array_equal(answer.flits, packets["token-a-ack"])
    write = packets["unicast-write"].copy()
    write[:1] = replace_fields(write[:1], address=0x9A80 % 4096)
    (answer,) = hub.request(write)
    told = replace_fields(answer.flits, address=0x123456789A80)
    assert np.array_equal(told, packets["ack"])


def test_memory_ends() -> None:
    """A beat that begins beyond the memory is an error, of the load and of the store."""
    hub = model()
    for opcode, data in ((Opcode.READ, None), (Opcode.WRITE, [[1, 1], [1, 1]])):
        length = 2
        (answer,) = hub.request(request(opcode, (), data, address=1008, length=length))
        fields = fields_of(answer)
        assert fields["opcode"] == Opcode.RSP_ACK.value
        assert fields["aux"] == Status.BAD_ADDRESS.value
    assert hub.memory[1008:].tolist() == [1, 0, 0, 0, 0, 0, 0, 0] * 2


@pytest.mark.parametrize(
    "fields",
    [
        {"opcode": 0xB},
        {"opcode": 0x3},
        {"opcode": 0xD},
        {"vc": 1},
        {"gpu": 4},
        {"length": 0},
        {"length": 17},
    ],
    ids=str,
)
def test_malformed(fields: Any) -> None:
    hub = model()
    header = pack_headers(**({"opcode": Opcode.READ.value, "length": 1} | fields))
    assert hub.request(header) == []
    assert (hub.requests, hub.refused) == (1, 1)


def test_wrong_memory() -> None:
    with pytest.raises(TypeError, match="`memory` must be an array of bytes"):
        HubModel(PARAMS, np.zeros(4, np.uint16), shifted)
