# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from dysharp.golden.flits import unpack_headers
from dysharp.golden.isa import accesses_of
from dysharp.golden.queue import QueueModel, list_reader, make_accesses
from dysharp.rtl.flits import DType, Opcode, Status
from dysharp.rtl.gpu_params import GPU_PRESETS

TINY = GPU_PRESETS["tiny"]
LIST = np.arange(100, 132, dtype="<u2").tobytes()
READ = list_reader(LIST, LIST[:32])


def model() -> QueueModel:
    return QueueModel(TINY, gpu=1)


def test_queue_model_by_hand() -> None:
    """Two stores of 8 bytes from byte 8 on become one packet; every flit of it."""
    accesses = accesses_of(
        """
        dymultimem.st.b64.list::shared [0x1008], 0x0123456789abcdef, 3, [2];
        dymultimem.st.b64.list::shared [0x1010], 0xfedcba9876543210, 3, [2];
        """
    )
    assert model().partition(accesses).tolist() == [2]
    entries = model().entries(accesses, np.array([2]), READ)
    (flits,) = entries.packets
    numbers = [int(low) | int(high) << 64 for low, high in flits]
    header = 0x1000 | 3 << 49 | 0x9 << 64 | 2 << 83 | 1 << 88 | 1 << 89
    assert numbers == [
        header,
        101 | 102 << 16 | 103 << 32,
        0x00FFFF00,
        0x0123456789ABCDEF << 64,
        0xFEDCBA9876543210,
    ]
    results = model().results(accesses, entries, 0, Status.TIMEOUT.value)
    assert results.tolist()[0][:4] == (0, 2, 0, Status.TIMEOUT.value)


def test_queue_model_load_results() -> None:
    accesses = make_accesses(
        3,
        opcode=Opcode.DY_LD_REDUCE.value,
        dtype=DType.U32.value,
        order=1,
        op=2,
        address=[0x2008, 0x200C, 0x2010],
        rd=[5, 6, 7],
        count=1,
    )
    queue = model()
    entries = queue.entries(accesses, np.array([3]), READ)
    fields = unpack_headers(entries.packets.headers)
    wanted = {"length": 2, "aux": 0b1010, "stage": 1, "dtype": 1, "address": 0x2000, "gpu": 1}
    assert {name: int(fields[name][0]) for name in wanted} == wanted
    data = np.array([[0, 0x22222222_11111111], [0x33333333, 0]], np.uint64)
    results = queue.results(accesses, entries, 0, data=data)
    assert results["rd"].tolist() == [5, 6, 7]
    assert results["data"][:, 0].tolist() == [0x11111111, 0x22222222, 0x33333333]
    assert not results["data"][:, 1].any()
    with pytest.raises(ValueError, match="needs `data`"):
        queue.results(accesses, entries, 0)


def test_queue_model_list_beyond_the_memory() -> None:
    accesses = make_accesses(
        3, opcode=Opcode.DY_ST.value, size=2, count=8, list=[0x10, 0x12, 0x12], shared=[0, 0, 1]
    )
    entries = model().entries(accesses, np.ones(3, np.int64), READ)
    assert entries.status.tolist() == [0, Status.BAD_ADDRESS.value, 0]
    assert entries.packet.tolist() == [0, -1, 1]


def test_queue_model_checks_partitions() -> None:
    numbers = np.arange(10)
    accesses = make_accesses(
        10, opcode=Opcode.MM_ST.value, size=2, address=0x1000 + 16 * numbers, rd=numbers
    )
    queue = model()
    assert queue.partition(accesses).tolist() == [8, 2]
    queue.check_partition(accesses, np.array([8, 2]))
    with pytest.raises(ValueError, match=r"^access 3 belongs into the entry of the one before$"):
        queue.check_partition(accesses, np.array([3, 5, 2]))
    queue.check_partition(accesses, np.array([3, 5, 2]), numbers == 3)
    with pytest.raises(ValueError, match=r"^access 8 must not go into the entry of the one before"):
        queue.check_partition(accesses, np.array([10]))
    with pytest.raises(ValueError, match=r"^the entries have 9 accesses, not 10$"):
        queue.check_partition(accesses, np.array([8, 1]))


def test_queue_model_tags_go_on() -> None:
    """Tags and generations go on from one call to the next; posted stores have none."""
    queue = model()
    accesses = make_accesses(
        5, opcode=Opcode.MM_ST.value, size=2, posted=[0, 1, 0, 0, 0], address=0x100 * np.arange(5)
    )
    seen = []
    for _ in range(4):
        headers = queue.entries(accesses, np.ones(5, np.int64), READ).packets.headers
        fields = unpack_headers(headers)
        assert not fields["tag"][1]
        assert not fields["gen"][1]
        seen += [(int(fields["tag"][n]), int(fields["gen"][n])) for n in (0, 2, 3, 4)]
    assert seen == [(n % TINY.tags, n // TINY.tags) for n in range(16)]


def test_queue_model_refuses_unknown_fields() -> None:
    with pytest.raises(ValueError, match=r"^an access has no field 'adress'$"):
        make_accesses(1, adress=1)
