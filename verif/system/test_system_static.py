# SPDX-License-Identifier: Apache-2.0
"""Static objects and ordinary loads and stores on the RTL."""

from pathlib import Path
from typing import Any

import numpy as np
from dysharp.golden.arrays import value_of
from dysharp.golden.cuda import CUmulticastObjectProp
from dysharp.golden.flits import pack_headers, unpack_field
from dysharp.golden.packets import Packets
from dysharp.golden.queue import make_accesses
from dysharp.golden.runtime import Runtime
from dysharp.rtl.flits import DType, Opcode, Order, ReduceOp
from dysharp.rtl.system import SYSTEM_PRESETS
from dysharp.verif.system.environment import Step, SystemEnvironment, program
from dysharp.verif.system.harness import Sizes

BUILD = Path(__file__).parents[2] / "build" / "sim"
PARAMS = SYSTEM_PRESETS["tiny"]
MEMORY = 1 << 20
SIZE = 2048


def test_store_then_load_reduce() -> None:
    """GPU 0 stores to GPUs 1 to 3, then all of these load the sum of the three copies."""
    runtime = Runtime(PARAMS.switch, PARAMS.gpu, memory=MEMORY)
    handle = runtime.cuMulticastCreate(CUmulticastObjectProp(numDevices=3, size=SIZE))
    for device in (1, 2, 3):
        runtime.cuMulticastAddDevice(handle, device)
    for device in (1, 2, 3):  # so that the memories behind the object lie at different places
        runtime.cuMemAlloc(device, 512 * device)
    places = {device: runtime.cuMemAlloc(device, SIZE) for device in (1, 2, 3)}
    for device, place in places.items():
        runtime.cuMulticastBindAddr(handle, device, place)
    rng = np.random.default_rng(1)
    numbers = rng.integers(0, 1 << 30, SIZE // 4, np.uint32)
    flits = SIZE // 16
    address = runtime.address(handle) + 16 * np.arange(flits)
    common: dict[str, Any] = {
        "size": 2,
        "rd": np.arange(flits),
        "address": address,
        "count": runtime.group(handle),
    }
    store = make_accesses(
        flits,
        opcode=value_of(Opcode.MM_ST),
        data=numbers.view(np.uint64).reshape(-1, 2),
        **common,
    )
    load = make_accesses(
        flits,
        opcode=value_of(Opcode.MM_LD_REDUCE),
        dtype=value_of(DType.U32),
        op=value_of(ReduceOp.ADD),
        order=value_of(Order.CANONICAL),
        **common,
    )
    bench = SystemEnvironment(PARAMS, BUILD, sizes=Sizes(memory=MEMORY))
    first, second = bench.run(
        [
            Step(
                accesses=[store, None, None, None],
                writes=program(runtime.take(), PARAMS.gpus),
                dumps=[[], *([(places[device], SIZE)] for device in (1, 2, 3))],
            ),
            Step(accesses=[None, load, load, load]),
        ],
        name="static",
        seed=1,
    )
    assert first.end == second.end == "done"
    assert int(first.results[0]["accesses"].sum()) == flits
    for device in (1, 2, 3):
        assert first.dumps[device][0][1].tobytes() == numbers.tobytes()
        log = second.results[device]
        assert not log["status"].any()
        ordered = log[np.argsort(log["rd"], kind="stable")]
        assert np.ascontiguousarray(ordered["data"]).tobytes() == (3 * numbers).tobytes()


def test_ordinary_writes_and_reads() -> None:
    """GPU 0 writes into GPU 2's memory, and reads it back."""
    rng = np.random.default_rng(2)
    runtime = Runtime(PARAMS.switch, PARAMS.gpu, memory=MEMORY)
    count, length = 12, 8
    data = rng.integers(0, 1 << 64, (count * length, 2), np.uint64)
    common: dict[str, Any] = {
        "address": 4096 + 128 * np.arange(count),
        "length": length,
        "count": 2,
        "tag": PARAMS.gpu.tags + np.arange(count) % PARAMS.gpu.ordinary_tags,
    }
    packets = Packets.concatenate(
        Packets.build(pack_headers(opcode=value_of(Opcode.WRITE), **common), data=data),
        Packets.build(pack_headers(opcode=value_of(Opcode.READ), **common)),
    )
    waits = np.zeros(2 * count, np.int64)
    waits[count] = 1
    bench = SystemEnvironment(PARAMS, BUILD, sizes=Sizes(memory=MEMORY))
    (seen,) = bench.run(
        [
            Step(
                ordinary=[packets, None, None, None],
                ordinary_waits=[waits, None, None, None],
                writes=program(runtime.take(), PARAMS.gpus),
                dumps=[[], [], [(4096, 128 * count)], []],
            )
        ],
        name="ordinary",
        seed=1,
    )
    assert seen.end == "done"
    assert seen.dumps[2][0][1].tobytes() == data.tobytes()
    answers = seen.answers[0].packets
    opcode = unpack_field(answers.headers, "opcode")
    assert (opcode == value_of(Opcode.RSP_ACK)).sum() == count
    reads = answers.select(opcode == value_of(Opcode.RSP_DATA))
    assert len(reads) == count
    got = np.concatenate([packet[1:] for packet in reads])
    assert got.tobytes() == data.tobytes()
