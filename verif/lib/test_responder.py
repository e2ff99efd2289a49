# SPDX-License-Identifier: Apache-2.0
"""Tests the model of a GPU (``sv/gpu_model.sv``) against a stub in place of the switch."""

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dysharp.golden.arrays import IntArray, value_of
from dysharp.golden.flits import pack_headers, unpack_field, unpack_headers
from dysharp.golden.packets import Packets
from dysharp.golden.route import ports_of
from dysharp.golden.switch import SwitchConfig
from dysharp.rtl.flits import Addressing, DType, Opcode, Status
from dysharp.rtl.params import PRESETS, SwitchParams
from dysharp.verif.lib.flit_files import FlitLog, read_log, write_stimulus
from dysharp.verif.lib.harness import SOURCES, write_harness
from dysharp.verif.lib.responder import (
    RESPONDER_FAULTS,
    Responder,
    random_memories,
    responder_data,
    write_responder,
)
from dysharp.verif.lib.run import Build, SimulationError, build, simulate
from dysharp.verif.switch import environment
from dysharp.verif.switch.environment import Phase, PhaseResult, SwitchEnvironment

BUILDS = Path(__file__).parents[2] / "build" / "sim"
STUB = Path(__file__).with_name("sv") / "stub_switch.sv"
PLAIN = PRESETS["tiny"]
LINKS = replace(PLAIN, links_per_gpu=2)
MEMORIES = random_memories(4, np.random.default_rng(7))


def stub(ports: int) -> str:
    """Wrap ``stub_switch`` in the ports of a generated switch."""
    sides = {
        side: [
            f"{direction} logic [{width - 1}:0] {side}__{port}__{name}"
            for port in range(ports)
            for direction, width, name in members
        ]
        for side, members in {
            "rx": (("input", 1, "valid"), ("input", 128, "flit"), ("output", ports + 1, "credit")),
            "tx": (("output", 1, "valid"), ("output", 128, "flit"), ("input", 2, "credit")),
        }.items()
    }
    bus = [
        "input valid",
        "input write",
        "input [15:0] address",
        "input [31:0] wdata",
        "output reg done",
        "output [31:0] rdata",
        "output error",
    ]
    lines = [
        "module dysharp_switch (input logic clk, input logic rst,",
        ",\n".join(" bus__".join(word.rsplit(" ", 1)) for word in bus) + ",",
        ",\n".join(sides["rx"] + sides["tx"]) + ");",
        f"  logic [{ports - 1}:0] rx_valid, tx_valid;",
        f"  logic [{ports - 1}:0][127:0] rx_flit, tx_flit;",
        f"  logic [{ports * (ports + 1) - 1}:0] rx_credit;",
        f"  logic [{2 * ports - 1}:0] tx_credit;",
        f"  stub_switch #(.N({ports})) stub (.*);",
        "  always_ff @(posedge clk) bus__done <= bus__valid;",
        "  assign bus__rdata = '0;",
        "  assign bus__error = 1'b0;",
    ]
    for port in range(ports):
        lines += [
            f"  assign rx_valid[{port}] = rx__{port}__valid;",
            f"  assign rx_flit[{port}] = rx__{port}__flit;",
            f"  assign rx__{port}__credit = rx_credit[{port * (ports + 1)} +: {ports + 1}];",
            f"  assign tx__{port}__valid = tx_valid[{port}];",
            f"  assign tx__{port}__flit = tx_flit[{port}];",
            f"  assign tx_credit[{2 * port} +: 2] = tx__{port}__credit;",
        ]
    return "\n".join([*lines, "endmodule", ""])


@cache
def made(params: SwitchParams, simulator: str) -> Build:
    folder = BUILDS / f"stub{params.ports}_{params.links_per_gpu}"
    harness, control = write_harness("dysharp_switch", params, folder)
    design = folder / "stub.sv"
    design.write_text(stub(params.ports))
    return build(
        [harness, *SOURCES, STUB, design],
        top="harness",
        folder=BUILDS / "builds",
        simulator=simulator,
        control=[control],
    )


class Seen:
    """Logs of one run."""

    def __init__(self, folder: Path, params: SwitchParams) -> None:
        ports = range(params.ports)
        self.inputs = [read_log(folder / f"in0_{port}.log") for port in ports]
        self.outputs = [read_log(folder / f"out0_{port}.log") for port in ports]

    def answers(self, port: int) -> tuple[Packets, IntArray]:
        """Responses that a port sent to the switch, and the cycles of their headers."""
        return responses(self.inputs[port])


def responses(log: FlitLog) -> tuple[Packets, IntArray]:
    packets = log.packets
    chosen = unpack_field(packets.headers, "opcode") >> 2 == value_of(Addressing.RESPONSE)
    return packets.select(chosen), log.cycles[packets.starts[chosen]]


def play(
    folder: Path,
    inputs: Sequence[Packets],
    *,
    params: SwitchParams = PLAIN,
    responder: Responder | None = None,
    tags: bool = False,
    gaps: IntArray | None = None,
    simulator: str = "verilator",
    seed: int = 1,
    **plusargs: object,
) -> Seen:
    if simulator == "icarus" and not shutil.which("iverilog"):
        pytest.skip("Icarus Verilog is not installed: apt-get install iverilog")
    for port in range(params.ports):
        packets = inputs[port] if port < len(inputs) else Packets()
        write_stimulus(
            folder / f"stim0_{port}.bin", packets, gaps if port == 0 else None, tags=tags
        )
    if responder is not None:
        write_responder(folder, 0, responder, seed)
    phase = {"writes": [], "probes": [], "settle": 100, "cycles": 60_000, "poll": 64, "reads": {}}
    simulate(
        made(params, simulator),
        module="dysharp.verif.switch.bench_switch",
        folder=folder,
        seed=seed,
        plusargs={"dir": folder, "seed": seed, **plusargs},
        config={"phases": [phase | {"quiet": 200, "hang": 2000}]},
    )
    return Seen(folder, params)


def requests(
    opcodes: Any,
    number: int,
    *,
    gpu: int | IntArray = 0,
    rng: np.random.Generator,
    **fields: int | IntArray,
) -> Packets:
    """Build `number` requests with their tags in order."""
    names = [opcodes] if isinstance(opcodes, Opcode) else opcodes
    codes = np.array([value_of(opcode) for opcode in names])
    headers = pack_headers(
        **{
            "opcode": codes[np.arange(number) % len(codes)],
            "address": rng.integers(0, 1 << 44, number) << 4,
            "stage": rng.integers(0, 2, number),
            "tag": np.arange(number) % 512,
            "gen": rng.integers(0, 4, number),
            "count": rng.integers(1, 12, number),
            "length": rng.integers(1, 17, number),
            "dtype": rng.integers(0, len(DType), number),
            "gpu": gpu,
            **fields,
        }
    )
    values = unpack_headers(headers)
    listed = np.where(values["opcode"] >> 2 == value_of(Addressing.DYNAMIC), values["count"], 0)
    carried = np.where(values["opcode"] & 1, values["length"], 0)
    data = rng.integers(0, 1 << 64, (int(carried.sum()), 2), dtype=np.uint64)
    targets = rng.integers(0, 1 << 16, int(listed.sum()))
    return Packets.build(headers, targets=targets, data=data)


def expected(sent: Packets, port: int, *, presum: bool, unicast: bool = False) -> Packets:
    """Build what a responder without faults answers, in order."""
    answers = []
    for header in sent.headers:
        fields = {name: int(value[0]) for name, value in unpack_headers(header[None]).items()}
        addressing, kind = fields["opcode"] >> 2, fields["opcode"] & 3
        single = addressing == value_of(Addressing.UNICAST)
        if not unicast if single else (fields["posted"] and kind != 2):
            continue
        count = fields["count"] if addressing == value_of(Addressing.DYNAMIC) else 1
        load = kind == 2
        for target in range(1 if presum else count):
            length = fields["length"] if load else 0
            data = responder_data(
                MEMORIES[port],
                np.array(fields["address"]),
                np.array(length),
                np.array(target),
            )
            ack, full = (
                (Opcode.RSP_ACK, Opcode.RSP_DATA) if single else (Opcode.PART_ACK, Opcode.PART_DATA)
            )
            part = pack_headers(
                **{
                    name: fields[name]
                    for name in ("address", "stage", "tag", "gen", "gpu", "dtype")
                },
                opcode=value_of(full if load else ack),
                length=length,
                vc=1,
                count=count if presum else 1,
                more=int(not presum and target + 1 < count),
            )
            answers.append(Packets.build(part, data=data))
    return Packets.concatenate(*answers)


EVERY = (
    Opcode.MM_LD_REDUCE,
    Opcode.DY_LD_REDUCE,
    Opcode.MM_ST,
    Opcode.DY_ST,
    Opcode.MM_RED,
    Opcode.READ,
    Opcode.WRITE,
)


@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
@pytest.mark.parametrize(("presum", "unicast"), [(True, False), (False, True)])
def test_answers_are_those_of_the_twin(
    tmp_path: Path, simulator: str, presum: bool, unicast: bool
) -> None:
    """All opcodes, posted or not, of all ports at once; nothing else goes onto the links."""
    rng = np.random.default_rng(1)
    inputs = [
        requests(EVERY, 70, gpu=port, rng=rng, posted=rng.integers(0, 2, 70))
        for port in range(PLAIN.ports)
    ]
    seen = play(
        tmp_path,
        inputs,
        responder=Responder(memories=MEMORIES, presum=presum, unicast=unicast, delay_max=50),
        simulator=simulator,
    )
    for port in range(PLAIN.ports):
        answers, _ = seen.answers(port)
        assert answers == expected(inputs[port - 1], port, presum=presum, unicast=unicast)
        packets = seen.inputs[port].packets
        assert len(packets) == len(answers) + 70
        opcode = unpack_field(packets.headers, "opcode")
        assert packets.select(opcode < 12) == inputs[port]


def test_off_without_its_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    sent = requests(EVERY, 70, rng=rng)
    seen = play(tmp_path, [sent])
    assert seen.inputs[0].packets == seen.outputs[1].packets == sent
    assert not any(len(log.flits) for log in seen.inputs[1:])


@pytest.mark.parametrize("length", [0, 1, 16])
def test_one_flit_a_cycle(tmp_path: Path, length: int) -> None:
    """Acknowledgements, short and long parts, without a gap between them."""
    rng = np.random.default_rng(2)
    opcode = Opcode.MM_LD_REDUCE if length else Opcode.MM_ST
    count = {0: 2000, 1: 2000, 16: 400}[length]
    sent = requests(opcode, count, rng=rng, length=max(1, length))
    seen = play(
        tmp_path, [sent], responder=Responder(memories=MEMORIES, delay_min=1000, delay_max=1000)
    )
    cycles = seen.inputs[1].cycles
    assert len(cycles) == count * (1 + length)
    # A store arrives every other cycle, so its acknowledgements cannot come faster.
    assert len(cycles) / (cycles[-1] - cycles[0] + 1) >= (0.99 if length else 0.495)


def test_parts_of_acknowledgements_one_a_cycle(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    sent = requests(Opcode.DY_ST, 400, rng=rng, count=8, length=1)
    seen = play(tmp_path, [sent], responder=Responder(memories=MEMORIES))
    cycles = seen.inputs[1].cycles
    assert len(cycles) == 3200
    assert len(cycles) / (cycles[-1] - cycles[0] + 1) >= 0.99


def test_player_and_responder_take_turns(tmp_path: Path) -> None:
    """Both have packets all the time: they alternate, and the link has no gap."""
    rng = np.random.default_rng(3)
    inputs = [
        requests(Opcode.MM_LD_REDUCE, 500, rng=rng, length=3),
        requests(Opcode.WRITE, 800, gpu=1, rng=rng, length=3),
    ]
    seen = play(tmp_path, inputs, responder=Responder(memories=MEMORIES), stub_depth=64)
    log = seen.inputs[1]
    middle = (log.cycles > log.cycles[0] + 600) & (log.cycles <= log.cycles[0] + 2600)
    assert middle.sum() >= 0.99 * 2000
    kinds = unpack_field(log.packets.headers, "opcode")[200:800]
    assert (kinds[1:] != kinds[:-1]).mean() > 0.99


@pytest.mark.parametrize("reorder", [False, True])
def test_delays_and_order(tmp_path: Path, reorder: bool) -> None:
    rng = np.random.default_rng(4)
    sent = requests(Opcode.MM_LD_REDUCE, 300, rng=rng, length=1)
    gaps = np.full(300, 10)
    seen = play(
        tmp_path,
        [sent],
        gaps=gaps,
        responder=Responder(memories=MEMORIES, delay_min=40, delay_max=200, reorder=reorder),
    )
    answers, cycles = seen.answers(1)
    tags = unpack_field(answers.headers, "tag")
    assert sorted(tags) == list(range(300))
    assert (np.diff(tags) > 0).all() != reorder
    asked = seen.outputs[1].cycles[seen.outputs[1].packets.starts]
    delays = cycles - asked[tags]
    assert delays.min() >= 40
    assert delays.max() <= 210
    if reorder:
        assert delays.min() <= 50
        assert delays.max() >= 190
        assert np.diff(tags).min() < -5


@pytest.mark.parametrize("params", [PLAIN, LINKS], ids=["links1", "links2"])
def test_credits_are_by_destination(tmp_path: Path, params: SwitchParams) -> None:
    """One destination gives no credits back; the answers to the others all leave.

    The stub checks that nothing is sent without credits for all of it.
    """
    rng = np.random.default_rng(5)
    count = 400
    sent = requests(Opcode.MM_LD_REDUCE, count, gpu=rng.integers(0, params.gpus, count), rng=rng)
    played = play(
        tmp_path, [sent], params=params, responder=Responder(memories=MEMORIES), stub_stuck="4"
    )
    answers, _ = played.answers(1)
    fields = unpack_headers(answers.headers)
    asked = unpack_headers(sent.headers)
    wanted = ports_of(asked["gpu"], asked["address"], params.links_per_gpu)
    got = ports_of(fields["gpu"], fields["address"], params.links_per_gpu)
    for port in range(params.ports):
        if port == 2:
            assert 0 < answers.select(got == port).sizes.sum() <= 32
        else:
            assert (got == port).sum() == (wanted == port).sum() > 20


def test_player_waits_for_credits_of_a_whole_response(tmp_path: Path) -> None:
    """Also with credits that come back late. Responses to nobody need none."""
    rng = np.random.default_rng(6)
    count = 300
    headers = pack_headers(
        opcode=value_of(Opcode.RSP_DATA),
        address=rng.integers(0, 1 << 48, count),
        length=rng.integers(1, 17, count),
        gpu=rng.integers(0, 6, count),
        vc=1,
        more=1,
        tag=np.arange(count),
    )
    length = unpack_field(headers, "length")
    data = rng.integers(0, 1 << 64, (int(length.sum()), 2), dtype=np.uint64)
    sent = Packets.build(headers, data=data)
    seen = play(tmp_path, [sent], stub_depth=32, stub_slow=60)
    assert seen.inputs[0].packets == sent
    log = seen.inputs[0]
    assert log.cycles[-1] - log.cycles[0] > 1.1 * len(log.flits)
    inside = np.ones(len(log.flits), bool)
    inside[log.packets.starts] = False
    assert (np.diff(log.cycles)[inside[1:]] == 1).all()


def test_responses_to_nobody_need_no_credits(tmp_path: Path) -> None:
    headers = pack_headers(opcode=value_of(Opcode.PART_ACK), gpu=np.full(200, 4), vc=1)
    seen = play(tmp_path, [Packets.build(headers)], stub_depth=1)
    assert len(seen.inputs[0].flits) == 200
    assert seen.inputs[0].cycles[-1] - seen.inputs[0].cycles[0] == 199


def test_response_that_is_longer_than_the_buffer_is_sent_all_the_same(tmp_path: Path) -> None:
    """With what credits there are at first, then flit by flit; a wrong packet as tests send it."""
    header = pack_headers(opcode=value_of(Opcode.RSP_DATA), length=31, byte_enable=1, vc=1, more=1)
    sent = Packets.build(
        header, byte_enables=np.zeros((1, 2), np.uint64), data=np.zeros((31, 2), np.uint64)
    )
    with pytest.raises(SimulationError, match="port 0 began a response without credits for all"):
        play(tmp_path, [sent], stub_depth=32)
    seen = Seen(tmp_path, PLAIN)
    assert len(seen.inputs[0].flits) > 0


@pytest.mark.parametrize("fault", RESPONDER_FAULTS)
def test_faults(tmp_path: Path, fault: str) -> None:
    """At the rate that was asked for, in one part each, and everything else as without."""
    rng = np.random.default_rng(8)
    count = 400
    sent = requests(
        (Opcode.DY_LD_REDUCE, Opcode.MM_LD_REDUCE, Opcode.DY_ST), count, rng=rng, address=0
    )
    seen = play(
        tmp_path, [sent], responder=Responder(memories=MEMORIES, faults={fault: 250}), seed=3
    )
    answers, _ = seen.answers(1)
    good = expected(sent, 1, presum=False)
    per_tag = [groups(answers), groups(good)]
    wrong = [tag for tag in range(count) if per_tag[0].get(tag) != per_tag[1][tag]]
    assert 0.15 * count < len(wrong) + (fault == "wrong_dtype") * count * 0.08 < 0.35 * count
    for tag in wrong:
        check_fault(fault, per_tag[0].get(tag, []), per_tag[1][tag])


def groups(packets: Packets) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for tag, packet in zip(unpack_field(packets.headers, "tag").tolist(), packets, strict=True):
        found.setdefault(tag, []).append(np.ascontiguousarray(packet).tobytes())
    return found


def fields_of(packet: bytes) -> dict[str, int]:
    header = np.frombuffer(packet[:16], np.uint64).reshape(1, 2)
    return {name: int(value[0]) for name, value in unpack_headers(header).items()}


def check_fault(fault: str, got: list[bytes], good: list[bytes]) -> None:
    if fault == "drop":
        assert got == []
        return
    if fault in ("duplicate", "stale_gen"):
        assert len(got) == len(good) + 1
        more = Counter(got) - Counter(good)
        (extra,) = more.elements()
        if fault == "duplicate":
            assert extra in good
            assert any(a == b for a, b in pairwise(got))
        else:
            index = got.index(extra)
            fields = fields_of(got[index + 1])
            assert fields_of(extra) == fields | {"gen": (fields["gen"] - 1) % 4}
            assert extra[16:] == got[index + 1][16:]
        return
    assert len(got) == len(good)
    (pair,) = [(a, b) for a, b in zip(got, good, strict=True) if a != b]
    is_now, was = map(fields_of, pair)
    changes = {name: is_now[name] for name in is_now if is_now[name] != was[name]}
    full = value_of(Opcode.PART_DATA)
    if fault == "wrong_length":
        assert is_now["opcode"] == full
        assert is_now["length"] == (15 if was["length"] == 16 else was["length"] + 1)
        assert changes.keys() <= {"length", "opcode"}
    elif fault == "wrong_dtype":
        assert changes == {"dtype": was["dtype"] ^ 1}
        assert pair[0][16:] == pair[1][16:]
    elif fault == "over_count":
        assert changes == {"count": was["count"] + 7}
    else:
        assert is_now["aux"] == value_of(Status.BAD_ADDRESS)
        assert is_now["opcode"] == value_of(Opcode.PART_ACK)
        assert len(pair[0]) == 16


def test_presums_of_wide_types_may_be_f32(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    sent = requests(Opcode.MM_LD_REDUCE, 100, rng=rng)
    seen = play(tmp_path, [sent], responder=Responder(memories=MEMORIES, presum=True, f32=True))
    answers, _ = seen.answers(1)
    asked, got = unpack_headers(sent.headers), unpack_headers(answers.headers)
    wide = (asked["dtype"] >= value_of(DType.F16_ACC32)) & (asked["length"] <= 8)
    assert 10 < wide.sum() < 60
    assert (got["dtype"] == np.where(wide, value_of(DType.F32), asked["dtype"])).all()
    assert (got["length"] == np.where(wide, 2, 1) * asked["length"]).all()
    data = responder_data(MEMORIES[1], asked["address"], got["length"], np.array(0))
    assert answers == Packets.build(answers.headers, data=data)


def test_tags_are_not_used_twice_at_a_time(tmp_path: Path) -> None:
    """Four tags for 200 requests: a request leaves after the result of the last with its tag.

    Posted stores and unicast requests do not wait.
    """
    rng = np.random.default_rng(10)
    count = 200
    sent = requests(
        EVERY,
        count,
        rng=rng,
        tag=rng.integers(0, 4, count),
        posted=rng.integers(0, 2, count),
        address=rng.integers(0, 1 << 44, count) << 4,
    )
    seen = play(tmp_path, [sent], tags=True, responder=Responder(memories=MEMORIES, delay_max=60))
    assert seen.inputs[0].packets == sent
    fields = unpack_headers(sent.headers)
    load = fields["opcode"] & 3 == 2
    arms = (fields["opcode"] >> 2 != 0) & (load | (fields["posted"] == 0))
    cycles = seen.inputs[0].cycles[sent.starts]
    results, ends = responses(seen.outputs[0])
    freed = unpack_field(results.headers, "tag")
    waits = 0
    for tag in range(4):
        begins = cycles[arms & (fields["tag"] == tag)]
        ended = ends[freed == tag]
        assert len(begins) == len(ended) > 10
        assert (ended > begins).all()
        assert (begins[1:] > ended[:-1]).all()
        waits += int((begins[1:] - ended[:-1] < 4).sum())
    assert waits > 10
    without = cycles[1:][~arms[1:]] - cycles[:-1][~arms[1:]]
    assert (without == sent.sizes[:-1][~arms[1:]]).mean() > 0.9


def test_repeatable(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    sent = requests(EVERY, 200, rng=rng)
    responder = Responder(
        memories=MEMORIES, delay_max=100, reorder=True, faults=dict.fromkeys(RESPONDER_FAULTS, 50)
    )
    logs = [
        play(tmp_path / str(i), [sent], responder=responder, seed=seed).inputs[1]
        for i, seed in enumerate((1, 1, 2))
    ]
    assert np.array_equal(logs[0].cycles, logs[1].cycles)
    assert np.array_equal(logs[0].flits, logs[1].flits)
    assert not np.array_equal(logs[0].flits, logs[2].flits)


def test_environment_plays_phases_with_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each phase has its own settings; the checker takes the place of the scoreboard."""
    monkeypatch.setattr(environment, "_build", lambda *_: made(PLAIN, "verilator"))
    rng = np.random.default_rng(12)
    sent = requests(EVERY, 70, rng=rng, tag=rng.integers(0, 4, 70))
    inputs = [sent, *[Packets()] * 3]

    def checker(result: PhaseResult) -> list[str]:
        answers, cycles = responses(result.inputs[1])
        presum = result.phase.responder is not None and result.phase.responder.presum
        assert answers == expected(sent, 1, presum=presum)
        assert result.received[0] == sent
        return [f"{cycles[0]}"]

    quick, late = (
        Responder(memories=MEMORIES, presum=presum, delay_min=delay, delay_max=delay)
        for presum, delay in ((True, 0), (False, 5000))
    )
    config = SwitchConfig.at_reset(PLAIN)
    bench = SwitchEnvironment(PLAIN, tmp_path)
    results = bench.run(
        [
            Phase(inputs=inputs, config=config, responder=quick, tags=True, checker=checker),
            Phase(inputs=inputs, config=config),
            Phase(inputs=inputs, config=config, responder=late, checker=checker),
            Phase(inputs=inputs, config=config, responder=late, tags=True, cycles=9000),
        ],
        name="phases",
        seed=1,
    )
    assert [result.end for result in results] == ["done", "done", "done", "cut"]
    first, _, third, _ = results
    begins = [int(result.inputs[0].cycles[0]) for result in results]
    assert int(first.problems()[0]) - begins[0] < 20
    assert 5000 < int(third.problems()[0]) - begins[2] < 5020
    assert [len(result.inputs[1].flits) > 0 for result in results] == [True, False, True, True]
    assert len(results[3].inputs[0].packets) < 10


def test_settings_out_of_range() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"delay_min": 2, "delay_max": 1}, "`delay_max` must be 2 to"),
        ({"faults": {"none": 1}}, "`faults` must be of"),
        ({"faults": {"drop": 600, "duplicate": 500}}, "`faults` must add up to 1000"),
        ({"memories": [np.zeros((1, 2), np.uint64)]}, "`memories` must be 4096 flits"),
    ]
    for settings, text in wrong:
        with pytest.raises(ValueError, match=text):
            Responder(**{"memories": MEMORIES, **settings})
