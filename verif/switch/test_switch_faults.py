# SPDX-License-Identifier: Apache-2.0
"""What is broken is answered, dropped or cut off, and everything else goes on."""

from dataclasses import replace

import numpy as np
import pytest
from dysharp.golden.flits import unpack_field
from dysharp.golden.packets import Packets
from dysharp.golden.switch import SwitchConfig
from dysharp.rtl.flits import Opcode, Status
from dysharp.rtl.params import PRESETS
from dysharp.verif.switch.environment import PACES, Pace, Phase
from dysharp.verif.switch.scoreboard import Scoreboard
from dysharp.verif.switch.stimulus import (
    FAULT_STATUSES,
    FAULTS,
    Mix,
    make_packets,
    random_config,
    random_packets,
)
from dysharp.verif.switch.test_switch_random import random_phase

TINY = PRESETS["tiny"]
IMPATIENT = replace(TINY, rx_timeout=512)
AT_RESET = SwitchConfig.at_reset(TINY)


def statuses(result, port):
    """Statuses of the acknowledgements that a port sent."""
    packets = result.outputs[port].packets
    acks = packets.headers[unpack_field(packets.headers, "opcode") == Opcode.RSP_ACK.value]
    return unpack_field(acks, "aux")


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_between_good_packets(bench, trial, fault):
    for seed in trial.seeds():
        rng = np.random.default_rng(seed)
        config = replace(random_config(TINY, rng), experts_per_gpu=7)
        mix = Mix(faults=0.3, fault_kinds=(fault,), max_data=4)
        inputs = [random_packets(TINY, config, port, 60, mix, rng) for port in range(TINY.ports)]
        phase = Phase(inputs=inputs, config=config)
        (result,) = bench.check(TINY, phase, seed=seed, pace=PACES["light"])
        refused = sum(result.registers[f"refused{port}"] for port in range(TINY.ports))
        dropped = sum(result.registers[f"dropped{port}"] for port in range(TINY.ports))
        if fault in FAULT_STATUSES:
            wanted = FAULT_STATUSES[fault].value
            seen = sum(int((statuses(result, port) == wanted).sum()) for port in range(TINY.ports))
            assert seen >= 20
            assert refused >= 20
        else:
            assert dropped >= 20
        assert all(result.registers[f"fault{word}"] == 0 for word in range(1))


@pytest.mark.parametrize("preset", ["tiny", "default"])
def test_faults_mixed(bench, trial, preset):
    params = PRESETS[preset]
    for seed in trial.seeds(3):
        phase = random_phase(params, 20 + seed, 300, Mix(faults=0.5))
        bench.check(params, phase, seed=seed, pace=PACES["heavy"])


def test_short_packets_behind_good_and_bad_tails(bench, trial):
    """A packet of one flit right behind the last flit of every other kind, without idle cycles."""
    for seed in trial.seeds():
        rng = np.random.default_rng(seed)
        config = replace(random_config(TINY, rng), experts_per_gpu=7)
        inputs = []
        for port in range(TINY.ports):
            mix = Mix(max_data=3, load=0.0, faults=0.3)
            parts = []
            for before in random_packets(TINY, config, port, 150, mix, rng):
                address = rng.integers(0, 1 << 48, 1)
                short = {
                    0: make_packets(Opcode.READ, gpu=port, address=address, count=port),
                    1: make_packets(Opcode.MM_LD_REDUCE, gpu=port, address=address, count=1),
                    2: make_packets(
                        Opcode.RSP_ACK, gpu=int(address[0]) % 4, address=address, length=0
                    ),
                }[int(rng.integers(3))]
                parts += [Packets(np.array(before)), short]
            inputs.append(Packets.concatenate(*parts))
        phase = Phase(inputs=inputs, config=config)
        for pace in ("none", "heavy", "bursty"):
            bench.check(TINY, phase, seed=seed, pace=PACES[pace])


def test_partitions_keep_packets_apart(bench, trial):
    """Unicast and responses of all pairs, groups and lists: nothing crosses, senders are told."""
    experts = 4
    ports = range(TINY.ports)
    rng = np.random.default_rng(1)
    for partitions in ((0, 1, 2, 3), (0, 1, 0, 1), (3, 3, 3, 0)):
        config = SwitchConfig(
            experts_per_gpu=experts, groups=(0b1111, 0b0101, 0b1010, 0b1000), partitions=partitions
        )
        inputs = []
        for port in ports:
            address = rng.integers(0, 1 << 48, TINY.ports)
            everywhere = [[gpu * experts for gpu in ports], *([gpu * experts + 1] for gpu in ports)]
            common = {"gpu": port, "address": address, "length": 2}
            inputs.append(
                Packets.concatenate(
                    make_packets(Opcode.WRITE, count=ports, **common),
                    make_packets(Opcode.MM_ST, count=ports, **common),
                    make_packets(Opcode.DY_ST, targets=everywhere[:4], **common),
                    make_packets(Opcode.DY_ST, targets=everywhere[1:], **common),
                    *(
                        make_packets(Opcode.RSP_DATA, gpu=gpu, address=address[:1], length=2)
                        for gpu in ports
                    ),
                )
            )
        for seed in trial.seeds():
            phase = Phase(inputs=inputs, config=config)
            (result,) = bench.check(TINY, phase, seed=seed)
            for port in ports:
                packets = result.outputs[port].packets
                requests = packets.select(unpack_field(packets.headers, "vc") == 0)
                sources = set(unpack_field(requests.headers, "gpu").tolist())
                assert sources <= {p for p in ports if partitions[p] == partitions[port]}
                assert (statuses(result, port) == Status.PARTITION.value).any()
                strangers = sum(one != partitions[port] for one in partitions)
                assert result.registers[f"dropped{port}"] == strangers


@pytest.mark.parametrize("channel", ["request", "response"])
def test_sender_without_credits_is_cut_off(bench, trial, channel):
    """Port 0 ignores its credits while an output stalls: the others go on, nothing hangs."""
    stalled = Pace(stall=0b0001, stall_until=3000)
    for seed in trial.seeds(3):
        rng = np.random.default_rng(seed)
        address = rng.integers(0, 1 << 48, 60)
        if channel == "request":
            bad = make_packets(Opcode.WRITE, gpu=0, address=address, count=0, length=5)
        else:
            bad = make_packets(Opcode.RSP_DATA, gpu=0, address=address, length=5)
        mix = Mix(unicast=0, static=0, dynamic=0, response=1)
        others = [
            make_packets(
                Opcode.WRITE, gpu=port, address=rng.integers(0, 1 << 48, 200), count=port % 3 + 1
            )
            if seed % 2
            else random_packets(TINY, AT_RESET, port, 5, mix, rng)
            for port in range(1, TINY.ports)
        ]
        phase = Phase(inputs=[bad, *others], config=AT_RESET, forced=frozenset({0}))
        (result,) = bench.run(TINY, [phase], seed=seed, pace=stalled)
        assert result.end == "done"
        assert result.registers["fault0"] == 0b0001
        taken = result.registers["rx_flits0"]
        assert taken < len(bad.flits)
        assert taken % 6 == 0  # the open packet was completed
        assert_completed_with_zeros(TINY, result, phase, taken)


def assert_completed_with_zeros(params, result, phase, taken):
    """Check that zeros stand for the flits of port 0's last packet that did not come in."""
    flits = phase.inputs[0].flits
    size = int(phase.inputs[0].sizes[0])
    outputs = [log.flits for log in result.outputs]
    reasons = []
    for real in range(size, 0, -1):
        filled = flits[:taken].copy()
        filled[taken - size + real :] = 0
        board = Scoreboard(params, phase.config, [Packets(filled), *phase.inputs[1:]])
        problems = board.mismatches(outputs) + board.counter_mismatches(result.registers)
        if not problems:
            return
        reasons.append(problems[0])
    raise AssertionError("\n".join(reasons))


@pytest.mark.parametrize("left", ["header", "list", "data"])
def test_sender_that_stops_inside_a_packet_is_cut_off(bench, trial, left):
    """What receivers have begun to take is completed with zero flits, so nobody waits."""
    experts = 4
    for seed in trial.seeds():
        rng = np.random.default_rng(seed)
        config = SwitchConfig(
            experts_per_gpu=experts, groups=(15, 1, 2, 0), partitions=(0,) * TINY.ports
        )
        targets = [list(range(16))] * 3
        address = rng.integers(0, 1 << 48, 3)
        sent = Packets.concatenate(
            make_packets(Opcode.DY_ST, gpu=0, address=address, length=6, targets=targets),
            make_packets(Opcode.WRITE, gpu=0, address=address, length=6, count=1),
        )
        cut = int(sent.starts[2]) + {"header": 1, "list": 2, "data": 6}[left]
        others = [
            random_packets(TINY, config, port, 300, Mix(), rng) for port in range(1, TINY.ports)
        ]
        phase = Phase(inputs=[sent, *others], config=config, cut={0: cut})
        (result,) = bench.check(IMPATIENT, phase, seed=seed, pace=PACES["light"])
        assert result.registers["fault0"] == 0b0001
        assert result.registers["rx_flits0"] == int(sent.starts[3])


def test_sender_that_waits_for_credits_is_not_cut_off(bench, trial):
    """An output that stalls for longer than the time-out leaves senders inside packets."""
    for seed in trial.seeds():
        rng = np.random.default_rng(seed)
        inputs = [
            make_packets(
                Opcode.WRITE, gpu=port, address=rng.integers(0, 1 << 48, 40), count=0, length=10
            )
            for port in range(TINY.ports)
        ]
        phase = Phase(inputs=inputs, config=AT_RESET)
        (result,) = bench.run(
            IMPATIENT, [phase], seed=seed, pace=Pace(stall=0b0001, stall_until=2000)
        )
        assert result.registers["fault0"] == 0
        assert result.problems() == []


def test_port_that_was_cut_off_works_after_reset(bench, trial):
    for seed in trial.seeds():
        rng = np.random.default_rng(seed)
        sent = make_packets(
            Opcode.WRITE, gpu=0, address=rng.integers(0, 1 << 48, 4), length=6, count=1
        )
        broken = Phase(inputs=[sent, *[Packets()] * 3], config=AT_RESET, cut={0: 10})
        whole = Phase(inputs=[sent, *[Packets()] * 3], config=AT_RESET)
        first, second = bench.check(IMPATIENT, broken, whole, seed=seed)
        assert first.registers["fault0"] == 1
        assert second.registers["fault0"] == 0


@pytest.mark.parametrize("preset", ["tiny", "default"])
def test_reset_inside_packets(bench, trial, preset):
    """Resets at all moments; normal traffic in between shows that nothing is left over."""
    params = PRESETS[preset]
    for seed in trial.seeds():
        rng = np.random.default_rng(seed)
        phases = []
        for number in range(12):
            cut = random_phase(params, 100 * seed + number, 200)
            phases += [
                replace(cut, cycles=int(rng.integers(8, 200))),
                random_phase(params, 100 * seed + 50 + number, 40),
            ]
        results = bench.run(params, phases, seed=seed, pace=PACES["heavy"])
        for broken, normal in zip(results[::2], results[1::2], strict=True):
            assert broken.end == "cut"
            assert normal.problems() == []
        began = [result for result in results[::2] if any(len(log.flits) for log in result.outputs)]
        assert len(began) >= 6
