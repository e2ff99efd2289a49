# SPDX-License-Identifier: Apache-2.0
"""The scoreboard accepts every order that a switch may make, and no other."""

from dataclasses import replace

import numpy as np
import pytest
from dysharp.golden.flits import pack_headers
from dysharp.golden.packets import Packets
from dysharp.golden.switch import SwitchConfig
from dysharp.rtl.flits import DType, Opcode
from dysharp.rtl.params import PRESETS
from dysharp.verif.switch.scoreboard import Scoreboard
from dysharp.verif.switch.stimulus import Mix, make_packets, random_config, random_packets

TINY = PRESETS["tiny"]
CONFIG = replace(SwitchConfig.at_reset(TINY), experts_per_gpu=2)


def streams_of(result, port):
    """Return the streams that leave by a port, each in an order of its own."""
    streams = [*result.outputs[port].values(), result.refusals[port], result.results[port]]
    return [list(packets) for packets in streams if len(packets)]


def interleave(streams, rng):
    """One of the orders in which they may leave."""
    order = rng.permutation(np.repeat(np.arange(len(streams)), [len(s) for s in streams]))
    rest = [iter(stream) for stream in streams]
    return [next(rest[number]) for number in order.tolist()]


def flits_of(packets):
    return np.concatenate([np.zeros((0, 2), np.uint64), *packets])


def random_board(seed, **mix):
    rng = np.random.default_rng(seed)
    config = random_config(TINY, rng)
    mix = Mix(faults=0.2, **mix)
    inputs = [random_packets(TINY, config, port, 200, mix, rng) for port in range(TINY.ports)]
    board = Scoreboard(TINY, config, inputs)
    outputs = [interleave(streams_of(board.expected, port), rng) for port in range(TINY.ports)]
    registers = {
        f"{name}{port}": int(value)
        for name, values in board.expected.counters.items()
        for port, value in enumerate(values)
    }
    return board, outputs, registers


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("mix", [{"load": 0.5, "waiting": 0.3}, {"load": 0.0, "part": 1.0}])
def test_any_interleaving_is_right(seed, mix):
    board, outputs, registers = random_board(seed, **mix)
    assert board.mismatches([flits_of(packets) for packets in outputs]) == []
    assert board.counter_mismatches(registers) == []


@pytest.mark.parametrize("seed", range(3))
def test_swapped_results_are_found(seed):
    board, outputs, _ = random_board(seed, load=0.5)
    first, second = (packet.tobytes() for packet in board.expected.results[2].slice(3, 5))
    assert first != second
    keys = [packet.tobytes() for packet in outputs[2]]
    a, b = keys.index(first), keys.index(second)
    outputs[2][a], outputs[2][b] = outputs[2][b], outputs[2][a]
    (message,) = board.mismatches([flits_of(packets) for packets in outputs])
    assert (
        message
        == f"port 2: response {responses_before(outputs[2], a)} was not expected (or not yet)"
    )


def responses_before(packets, index):
    return sum(int(packet[0, 1]) >> 31 & 1 for packet in packets[:index])


def test_missing_and_foreign_responses_are_found():
    board, outputs, registers = random_board(9, load=0.5)
    result = outputs[1].pop(
        [packet.tobytes() for packet in outputs[1]].index(board.expected.results[1][-1].tobytes())
    )
    outputs[3].append(result)
    found = board.mismatches([flits_of(packets) for packets in outputs])
    assert found[0] == "port 1: 1 responses are missing"
    assert found[1].startswith("port 3: response ")
    assert len(found) == 2
    registers["replaced1"] += 1
    value = registers["replaced1"]
    assert board.counter_mismatches(registers) == [f"replaced1 is {value}, not {value - 1}"]


def test_equal_packets_of_two_sources_may_come_in_any_order():
    """X, Z from one port and X, Y from the other: after X and Y, both X and Z can be next."""

    def stream(*addresses):
        return make_packets(Opcode.RSP_ACK, gpu=0, address=addresses, length=0)

    x, y, z = stream(1), stream(2), stream(3)
    board = Scoreboard(TINY, CONFIG, [Packets(), stream(1, 3), stream(1, 2), Packets()])
    for good in ((x, y, x, z), (x, z, x, y), (x, x, y, z), (x, x, z, y)):
        outputs = [Packets.concatenate(*good).flits, *[np.zeros((0, 2), np.uint64)] * 3]
        assert board.mismatches(outputs) == []
    outputs[0] = Packets.concatenate(x, y, z, x).flits
    assert board.mismatches(outputs) == ["port 0: response 2 was not expected (or not yet)"]


def test_given_results_come_in_any_order():
    store = make_packets(Opcode.DY_ST, gpu=0, address=[5] * 3, targets=[[1]] * 3, posted=0)
    part = make_packets(Opcode.PART_ACK, gpu=0, address=[5] * 3, length=0, count=1)
    results = Packets(pack_headers(opcode=Opcode.RSP_ACK, vc=1, tag=[1, 1, 2], count=1))
    inputs = [store, part, Packets(), Packets()]
    board = Scoreboard(TINY, CONFIG, inputs, {0: results})
    assert not board.expected.settled[0]
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        leaves = Packets.concatenate(store, results.select(np.array(order)))
        outputs = [leaves.flits, *[np.zeros((0, 2), np.uint64)] * 3]
        assert board.mismatches(outputs) == []
    outputs[0] = Packets.concatenate(store, results.slice(0, 2)).flits
    assert board.mismatches(outputs) == ["port 0: 1 responses are missing"]
    registers = {
        f"{name}{port}": int(value)
        for name, values in board.expected.counters.items()
        for port, value in enumerate(values)
    }
    registers |= {"tx_responses0": 3, "tx_flits0": len(leaves.flits), "replaced0": 77}
    assert board.counter_mismatches(registers) == []
    registers["tx_flits0"] += 1
    size = len(leaves.flits)
    assert board.counter_mismatches(registers) == [f"tx_flits0 is {size + 1}, not {size}"]


def test_answered_requests_have_their_results():
    load = make_packets(
        Opcode.DY_LD_REDUCE, gpu=0, address=[64], targets=[[1, 0, 6, 5]], length=2, tag=3
    )
    store = make_packets(Opcode.DY_ST, gpu=0, address=[128], targets=[[7, 6]], posted=0, tag=2)
    fields = {"gpu": 0, "tag": 3, "address": [64], "dtype": DType.U32.value, "length": 2}
    by_gpu = {
        0: make_packets(Opcode.PART_DATA, count=2, **fields),
        2: make_packets(Opcode.PART_DATA, count=1, **fields),
        3: make_packets(Opcode.PART_DATA, count=1, **fields),
    }
    ack = make_packets(Opcode.PART_ACK, gpu=0, tag=2, address=[128], length=0, count=2)
    words = [by_gpu[gpu][0][1:].view("<u4") for gpu in by_gpu]
    total = (words[0] + words[1] + words[2]).view(np.uint64)
    header = pack_headers(
        opcode=Opcode.RSP_DATA, vc=1, tag=3, count=4, length=2, dtype=DType.U32.value
    )
    results = Packets.concatenate(
        Packets(np.concatenate([header, total])),
        Packets(pack_headers(opcode=Opcode.RSP_ACK, vc=1, tag=2, count=2)),
    )
    inputs = [
        Packets.concatenate(load, store, by_gpu[0]),
        Packets(),
        by_gpu[2],
        Packets.concatenate(ack, by_gpu[3]),
    ]
    board = Scoreboard(TINY, CONFIG, inputs, answered=True)
    copies = [board.expected.packets(port, 0, 0) for port in range(TINY.ports)]
    for order in ([0, 1], [1, 0]):
        outputs = [packets.flits for packets in copies]
        outputs[0] = Packets.concatenate(copies[0], results.select(np.array(order))).flits
        assert board.mismatches(outputs) == []
    with pytest.raises(ValueError, match=r"^`parts` must answer every request completely"):
        Scoreboard(TINY, CONFIG, [*inputs[:3], ack], answered=True)
