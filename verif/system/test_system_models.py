# SPDX-License-Identifier: Apache-2.0
"""Tests the models around a system against a stub in its place (:mod:`.stub`)."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from dysharp.golden.arrays import value_of
from dysharp.golden.flits import pack_headers, unpack_field
from dysharp.golden.packets import Packets
from dysharp.rtl.flits import Opcode, ReduceOp, Status
from dysharp.rtl.gpu_params import GPU_PRESETS
from dysharp.verif.lib.run import SimulationError, emptied
from dysharp.verif.system import test_system_models
from dysharp.verif.system.driver import (
    ACCESS,
    BusAccess,
    read_dump,
    read_results,
    write_accesses,
    write_segments,
)
from dysharp.verif.system.environment import (
    Settings,
    Step,
    StepResult,
    SystemEnvironment,
    write_step,
)
from dysharp.verif.system.harness import Sizes
from dysharp.verif.system.stub import StubParams, write_stub

BUILD = Path(__file__).parents[2] / "build" / "sim"
PARAMS = StubParams(GPU_PRESETS["tiny"])
SIZES = Sizes(memory=1 << 16, shared=1 << 12, global_=1 << 13)
FIXED = Settings(read_min=20, read_max=20, write_min=12, write_max=12, table_min=9, table_max=9)


def accesses(opcode: Any, number: int = 1, /, **fields: Any) -> npt.NDArray[Any]:
    made = np.zeros(number, ACCESS)
    made["opcode"] = value_of(opcode)
    made["size"] = 2
    made["rd"] = np.arange(number)
    for name, value in fields.items():
        made[name] = value
    return made


def random_words(rng: np.random.Generator, count: int) -> npt.NDArray[np.uint64]:
    return rng.integers(0, 1 << 64, (count, 2), np.uint64)


def play(
    name: str, steps: Sequence[Step], *, seed: int = 1, sizes: Sizes = SIZES
) -> list[StepResult]:
    bench = SystemEnvironment(PARAMS, BUILD, sizes=sizes, write=write_stub)
    return bench.run(steps, name=f"models-{name}", seed=seed)


def only(first: Any) -> list[Any]:
    """Something for GPU 0, nothing for the others."""
    return [first, None, None, None]


def test_stores_and_loads_of_all_gpus() -> None:
    """Each GPU has its memory; partial stores change their bytes; beyond it are errors."""
    rng = np.random.default_rng(1)
    images = [rng.integers(0, 256, SIZES.memory, np.uint8) for _ in range(4)]
    plays, wanted, expected = [], [], []
    for image in images:
        size = rng.integers(0, 3, 60)
        address = rng.integers(0, SIZES.memory // 16, 60) * 16
        address += rng.integers(0, 4, 60) % (4 >> size) * (4 << size)
        address[50:] = SIZES.memory + rng.integers(0, 1 << 40, 10) * 16
        stores = accesses(Opcode.MM_ST, 60, size=size, address=address, data=random_words(rng, 60))
        loads = accesses(Opcode.MM_LD_REDUCE, 60, address=address & ~15)
        plays.append(np.concatenate([stores, loads]))
        after = image.copy()
        for store in stores[:50]:
            place, width = int(store["address"]), 4 << int(store["size"])
            after[place : place + width] = store["data"].view(np.uint8)[:width]
        wanted.append(after)
        expected.append(after[(address[:50, None] & ~15) + np.arange(16)])
    (seen,) = play(
        "stores",
        [
            Step(
                accesses=plays,
                loads=[[(0, image)] for image in images],
                dumps=[[(4096, SIZES.memory - 4096), (0, 4096)]] * 4,
            )
        ],
    )
    assert seen.end == "done"
    assert not seen.fault
    for gpu in range(4):
        (high_at, high), (low_at, low) = seen.dumps[gpu]
        assert (high_at, low_at) == (4096, 0)
        assert np.array_equal(np.concatenate([low, high]), wanted[gpu])
        results = seen.results[gpu]
        assert results["rd"].tolist() == [*range(60), *range(60)]
        assert (results["accesses"] == 1).all()
        assert results["load"].tolist() == [0] * 60 + [1] * 60
        bad = value_of(Status.BAD_ADDRESS)
        assert results["status"].tolist() == ([0] * 50 + [bad] * 10) * 2
        assert results["data"][60:110].tobytes() == expected[gpu].tobytes()
        assert len(seen.issues[gpu]) == 120
        assert (seen.issues[gpu] < results["cycle"]).all()
        assert (np.diff(seen.issues[gpu]) > 0).all()


def test_latencies_of_the_memory() -> None:
    """From transfer to reply; the stub adds a cycle before and one after."""
    play_ = np.concatenate([accesses(Opcode.MM_ST, 30), accesses(Opcode.MM_LD_REDUCE, 30)])
    (seen,) = play("latency", [Step(accesses=only(play_), settings=FIXED)])
    took = seen.results[0]["cycle"] - seen.issues[0]
    assert (took[:30] == 12 + 2).all()
    assert (took[30:] == 20 + 2).all()
    wide = replace(FIXED, read_min=2, read_max=50, write_min=2, write_max=50)
    (seen,) = play("latency", [Step(accesses=only(play_), settings=wide)])
    took = seen.results[0]["cycle"] - seen.issues[0] - 2
    for part in (took[:30], took[30:]):
        assert 2 <= part.min() < 12
        assert 40 < part.max() <= 50


@pytest.mark.parametrize(("percent", "low", "high"), [(100, 1.0, 1.0), (50, 0.45, 0.55)])
def test_bandwidth_of_the_memory(percent: int, low: float, high: float) -> None:
    """Reads and writes that follow each other; replies in order, one a cycle."""
    count = 2000
    rng = np.random.default_rng(2)
    image = rng.integers(0, 256, SIZES.memory, np.uint8)
    address = rng.integers(0, SIZES.memory // 32, count) * 32
    stores = accesses(Opcode.MM_ST, count, posted=1, address=address, data=random_words(rng, count))
    loads = accesses(Opcode.MM_LD_REDUCE, count, last=1, address=address)
    stores["barrier"][0] = True
    settings = replace(FIXED, memory_percent=percent, read_max=60)
    (seen,) = play(
        "bandwidth",
        [
            Step(
                accesses=only(np.concatenate([loads, stores])),
                loads=[[(0, image)], [], [], []],
                settings=settings,
            )
        ],
    )
    for cycles in (seen.issues[0][:count], seen.issues[0][count:]):
        assert low <= (count - 1) / (cycles[-1] - cycles[0]) <= high
    results = seen.results[0]
    assert len(results) == count
    wanted = image[address[:, None] + np.arange(16)]
    assert results["data"].tobytes() == wanted.tobytes()
    assert results["cycle"][0] - seen.issues[0][0] >= 20


def test_reads_do_not_see_writes_before_their_end() -> None:
    """Those that are taken before `written` have the old contents."""
    rng = np.random.default_rng(3)
    data = random_words(rng, 4)
    play_ = np.concatenate(
        [
            accesses(Opcode.MM_ST, 1, posted=1, address=64, data=data[:1]),
            accesses(Opcode.MM_LD_REDUCE, 1, last=1, address=64, rd=1),
            accesses(Opcode.MM_LD_REDUCE, 1, last=1, address=64, rd=2, gap=30),
        ]
    )
    (seen,) = play("order", [Step(accesses=only(play_), settings=FIXED)])
    assert not seen.results[0]["data"][0].any()
    assert np.array_equal(seen.results[0]["data"][1], data[0])


def test_tables() -> None:
    """Words of the same image; reads in any order, with the name that they were asked by."""
    rng = np.random.default_rng(4)
    image = rng.integers(0, 256, SIZES.memory, np.uint8)
    address = rng.integers(0, SIZES.memory // 4 - 4, 50) * 4
    reads = accesses(Opcode.MM_RED, 50, count=4, address=address)
    writes = accesses(
        Opcode.MM_RED,
        50,
        op=value_of(ReduceOp.MIN),
        count=1,
        address=address,
        data=random_words(rng, 50),
    )
    beyond = accesses(Opcode.MM_RED, 1, count=1, address=SIZES.memory)
    (seen,) = play(
        "tables",
        [
            Step(
                accesses=only(np.concatenate([reads, writes, beyond])),
                loads=[[(0, image)], [], [], []],
                dumps=[[(0, SIZES.memory)], [], [], []],
                settings=replace(FIXED, table_min=1, table_max=100, table_percent=80),
            )
        ],
    )
    results = seen.results[0]
    words = image.view("<u4")
    assert results["data"][:50].tobytes() == words[address[:, None] // 4 + np.arange(4)].tobytes()
    assert not results["data"][100].any()
    after = words.copy()
    for place, word in zip(
        address // 4, writes["data"][:, 0] & np.uint64(0xFFFF_FFFF), strict=True
    ):
        after[place] = word
    assert seen.dumps[0][0][1].tobytes() == after.tobytes()


@pytest.mark.parametrize("shared", [0, 1])
def test_lists(shared: int) -> None:
    """Both memories; replies in any order; errors beyond what was loaded."""
    rng = np.random.default_rng(5)
    images = [rng.integers(0, 256, 2048, np.uint8) for _ in range(2)]
    count = rng.integers(1, 60, 40)
    place = rng.integers(0, 100, 40) * 16
    place[-3:] = (2048 - 16, 2048, 1 << 47)
    count[-3:] = (9, 1, 1)
    play_ = accesses(Opcode.DY_LD_REDUCE, 40, count=count, list=place, shared=shared)
    (seen,) = play(
        f"lists{shared}",
        [Step(accesses=only(play_), shared=only(images[1]), global_=only(images[0]))],
    )
    for number, result in enumerate(seen.results[0]):
        words = -(-int(count[number]) // 8)
        bad = int(place[number]) + 16 * words > 2048
        assert (result["status"] != 0) == bad
        if not bad:
            first = int(place[number]) // 16
            part = images[shared].view(np.uint64).reshape(-1, 2)[first : first + words]
            assert np.array_equal(result["data"], np.bitwise_xor.reduce(part))
    took = seen.results[0]["cycle"] - seen.issues[0]
    assert (took.mean() > 40) == (shared == 0)


def test_gaps_and_barriers() -> None:
    play_ = accesses(Opcode.MM_ST, 5, posted=1)
    play_["gap"] = (0, 7, 0, 100, 3)
    loads = accesses(Opcode.MM_LD_REDUCE, 6, last=1)
    loads["barrier"][3] = True
    (seen,) = play("gaps", [Step(accesses=only(np.concatenate([play_, loads])), settings=FIXED)])
    gaps = np.diff(seen.issues[0])
    assert gaps[:4].tolist() == [8, 1, 101, 4]
    assert gaps[5:7].tolist() == [1, 1]
    assert seen.issues[0][8] > seen.results[0]["cycle"][2]
    assert seen.issues[0][8] - seen.results[0]["cycle"][2] <= 2
    assert seen.cycles == seen.results[0]["cycle"][-1] - seen.start + 1


def test_links_are_logged_or_not() -> None:
    rng = np.random.default_rng(6)
    data = random_words(rng, 20)
    play_ = accesses(Opcode.MM_ST, 20, posted=1, data=data)
    on, off = play(
        "links",
        [
            Step(accesses=[play_] * 4),
            Step(accesses=[play_] * 4, settings=Settings(links=False)),
        ],
    )
    for gpu in range(4):
        assert np.array_equal(on.up[gpu].flits, data)
        assert np.array_equal(on.down[gpu].flits, data)
        assert np.array_equal(on.up[gpu].cycles, on.issues[gpu])
        assert (on.down[gpu].cycles - on.up[gpu].cycles == 2).all()
        assert len(off.up[gpu].flits) == len(off.down[gpu].flits) == 0
        assert len(off.issues[gpu]) == 20


def test_ordinary_packets() -> None:
    count = 30
    rng = np.random.default_rng(7)
    opcode = rng.choice([value_of(Opcode.WRITE), value_of(Opcode.READ)], count)
    length = rng.integers(1, 9, count)
    enables = (opcode == value_of(Opcode.WRITE)) & (rng.random(count) < 0.5)
    headers = pack_headers(
        opcode=opcode, length=length, tag=np.arange(count), byte_enable=enables.astype(np.int64)
    )
    flits = int(length[opcode == value_of(Opcode.WRITE)].sum())
    packets = Packets.build(
        headers,
        data=random_words(rng, flits),
        byte_enables=random_words(rng, int(enables.sum())),
    )
    waits = np.zeros(count, np.int64)
    waits[20] = 1
    (seen,) = play(
        "ordinary",
        [
            Step(
                ordinary=only(packets),
                ordinary_gaps=only(np.full(count, 5)),
                ordinary_waits=only(waits),
            )
        ],
    )
    answers = seen.answers[0]
    assert unpack_field(answers.flits, "tag").tolist() == list(range(count))
    assert seen.end == "done"


def test_registers() -> None:
    """Every bus on its own; errors are told; polls wait for zero."""
    writes = [BusAccess(bus, 4, 100 + bus) for bus in range(5)]
    writes += [BusAccess(2, 12, None, until_zero=True), BusAccess(3, 8, 0xFFFF_FFFF)]
    reads = {f"a{bus}": BusAccess(bus, 4) for bus in range(5)}
    reads |= {"left2": BusAccess(2, 12), "left1": BusAccess(1, 12), "none": BusAccess(0, 16)}
    reads |= {"full": BusAccess(3, 8)}
    (seen,) = play("registers", [Step(writes=writes, reads=reads)])
    assert seen.registers == {
        **{f"a{bus}": 100 + bus for bus in range(5)},
        "left2": 0,
        "left1": 20,
        "none": None,
        "full": 0xFFFF_FFFF,
    }
    with pytest.raises(SimulationError, match="a register write of step 0 ended with an error"):
        play("registers", [Step(writes=[BusAccess(4, 12, 1)])])


def test_results_are_taken_at_their_pace() -> None:
    play_ = accesses(Opcode.MM_LD_REDUCE, 100)
    took = []
    for percent in (100, 10):
        settings = replace(FIXED, result_percent=percent)
        (seen,) = play("pace", [Step(accesses=only(play_), settings=settings)])
        took.append((seen.results[0]["cycle"] - seen.issues[0]).mean())
    assert took[0] == 22
    assert 27 < took[1] < 37


def prepare_second(folder: Path, number: int) -> None:
    """Load what the first step dumped, one up in every byte."""
    ((address, content),) = read_dump(folder / "dump0_0.bin", [(256, 512)])
    results = read_results(folder / "result0_0.log")
    assert len(results) == 1
    step = Step(
        accesses=only(accesses(Opcode.MM_LD_REDUCE, 32, address=256 + 16 * np.arange(32))),
        loads=[[(address, content + 1)], [], [], []],
        dumps=[[(0, 1024)], [], [], []],
    )
    write_step(folder, number, step, 4, 1)


def test_steps_keep_memory_and_can_be_prepared() -> None:
    content = np.arange(1024, dtype=np.uint64).astype(np.uint8)
    first, second = play(
        "steps",
        [
            Step(
                accesses=only(accesses(Opcode.MM_LD_REDUCE)),
                loads=[[(0, content)], [], [], []],
                dumps=[[(256, 512)], [], [], []],
            ),
            Step(prepare=f"{test_system_models.__name__}:prepare_second"),
        ],
    )
    assert np.array_equal(first.dumps[0][0][1], content[256:768])
    wanted = content.copy()
    wanted[256:768] += 1
    assert np.array_equal(second.dumps[0][0][1], wanted)
    assert second.results[0]["data"].tobytes() == wanted[256:768].tobytes()
    assert second.start > first.start


def test_hangs_and_cuts_are_told() -> None:
    # No word is written, so the stub waits for ever.
    stuck = accesses(Opcode.MM_RED, op=value_of(ReduceOp.MIN), count=0)
    (hung,) = play("hang", [Step(accesses=only(stuck)), Step()])
    assert hung.end == "hang"
    (cut,) = play("cut", [Step(accesses=only(stuck), cycles=500)])
    assert cut.end == "cut"


def test_repeatable() -> None:
    play_ = accesses(Opcode.MM_LD_REDUCE, 100)
    settings = Settings(read_min=2, read_max=200)
    cycles = []
    for seed in (1, 1, 2):
        (seen,) = play("again", [Step(accesses=[play_] * 4, settings=settings)], seed=seed)
        cycles.append([(log["cycle"] - seen.start).tolist() for log in seen.results])
    assert cycles[0] == cycles[1]
    assert cycles[0] != cycles[2]
    assert cycles[0][0] != cycles[0][1]


def test_large_memories() -> None:
    """Images of 64 MiB for each GPU are loaded, used and dumped in seconds."""
    sizes = Sizes(memory=1 << 26)
    rng = np.random.default_rng(8)
    image = rng.integers(0, 256, 1 << 22, np.uint8)
    places = [gpu << 20 | 3 << 24 for gpu in range(4)]
    play_ = accesses(Opcode.MM_LD_REDUCE, 100, address=(1 << 26) - 16 * (1 + np.arange(100)))
    begin = time.monotonic()
    (seen,) = play(
        "large",
        [
            Step(
                accesses=[play_] * 4,
                loads=[[(place, image)] for place in places],
                dumps=[[(place, len(image))] for place in places],
            )
        ],
        sizes=sizes,
    )
    took = time.monotonic() - begin
    for gpu in range(4):
        assert np.array_equal(seen.dumps[gpu][0][1], image)
    assert took < 300, f"{took:.0f} s"


def test_wrong_settings_and_files(tmp_path: Path) -> None:
    for changes, text in (
        ({"read_min": 1}, "`read_min` and `read_max` must be 2 to 1500"),
        ({"shared_min": 13}, "`shared_min` and `shared_max` must be 1 to 1500 in order"),
        ({"table_max": 1501}, "`table_min` and `table_max` must be"),
        ({"memory_percent": 0}, "`memory_percent` must be 1 to 100, not 0"),
    ):
        with pytest.raises(ValueError, match=text):
            Settings(**changes)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`size` must have 2 bits"):
        write_accesses(tmp_path / "a", accesses(Opcode.MM_ST, 1, size=4))
    with pytest.raises(TypeError, match="`accesses` must be an array of ACCESS"):
        write_accesses(tmp_path / "a", np.zeros(1))
    for segment in ((8, np.zeros(16, np.uint8)), (0, np.zeros(8, np.uint8))):
        with pytest.raises(ValueError, match="must begin and end at a multiple of 16"):
            write_segments(tmp_path / "s", [segment])
    with pytest.raises(ValueError, match="`accesses` must be of 4 GPUs, not 1"):
        write_step(tmp_path, 0, Step(accesses=[None]), 4, 1)
    for size in (0, 8, SIZES.shared + 16):
        with pytest.raises(ValueError, match="`shared` must be a multiple of 16 B, 4096 at most"):
            play("sizes", [Step(shared=only(np.zeros(size, np.uint8)))])
    for text in ("00000000 ", "0000000x " + 39 * "0" + "\n"):
        (tmp_path / "log").write_text(text)
        with pytest.raises(ValueError, match="log"):
            read_results(tmp_path / "log")
    with (
        emptied(BUILD / "runs" / "models-busy"),
        pytest.raises(SimulationError, match="another run uses this folder"),
    ):
        play("busy", [Step()])


def test_loads_beyond_the_memory_are_errors() -> None:
    with pytest.raises(SimulationError, match="GPU 1 has no memory at"):
        play("beyond", [Step(loads=[[], [(SIZES.memory, np.zeros(16, np.uint8))], [], []])])
