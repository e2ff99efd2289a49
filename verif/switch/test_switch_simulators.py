# SPDX-License-Identifier: Apache-2.0
"""The generated Verilog behaves alike in Verilator, Icarus and pysim, from time 0."""

import numpy as np
import pytest
from dysharp.golden.flits import unpack_field
from dysharp.rtl.params import PRESETS
from dysharp.rtl.switch.switch import Switch
from dysharp.verif.lib.trace import replay
from dysharp.verif.switch.environment import PACES
from dysharp.verif.switch.stimulus import Mix
from dysharp.verif.switch.test_switch_random import random_phase

TINY = PRESETS["tiny"]
OUTPUTS = ("bus__done", "bus__rdata", "bus__error")


@pytest.mark.parametrize("pace", ["none", "heavy"])
def test_icarus_and_verilator_agree(bench, trial, pace):
    """Same cycle and same bits for every flit on every link, also behind a second reset."""
    for seed in trial.seeds():
        phases = [random_phase(TINY, seed, 30), random_phase(TINY, 100 + seed, 30)]
        common = {"seed": seed, "pace": PACES[pace]}
        one = bench.check(TINY, *phases, **common)
        other = bench.check(TINY, *phases, **common, simulator="icarus")
        for a, b in zip(one, other, strict=True):
            for x, y in zip(a.inputs + a.outputs, b.inputs + b.outputs, strict=True):
                np.testing.assert_array_equal(x.cycles, y.cycles)
                np.testing.assert_array_equal(x.flits, y.flits)
            assert a.registers == b.registers


def test_pysim_agrees_with_verilator(bench, trial):
    """Every output in every cycle from time 0, registers and credits included."""
    for seed in trial.seeds():
        phase = random_phase(TINY, seed, 10)
        bench.check(TINY, phase, seed=seed, pace=PACES["heavy"], trace=True)
        trace = bench.trace()
        assert len(trace.rows) > 500
        assert replay(Switch(TINY), trace) == []


def test_replay_finds_a_difference(bench, trial):
    for seed in trial.seeds():
        bench.check(TINY, random_phase(TINY, seed, 1, Mix()), seed=seed, trace=True)
        trace = bench.trace()
        column = trace.names.index("rx__2__credit")
        cycle = next(c for c, row in enumerate(trace.rows) if row[column] == "1f")
        row = list(trace.rows[cycle])
        row[column] = "01"
        trace.rows[cycle] = tuple(row)
        assert replay(Switch(TINY), trace) == [f"cycle {cycle}: rx__2__credit is 1f, not 01"]


def test_no_unknown_bits_without_initial_values(bench, trial):
    """Silicon has no initial values: after reset nothing on links, credits and bus is X."""
    for seed in trial.seeds():
        phase = random_phase(TINY, seed, 40)
        bench.check(
            TINY,
            phase,
            seed=seed,
            pace=PACES["light"],
            simulator="icarus",
            initial_values=False,
            trace=True,
        )
        trace = bench.trace()
        # The check itself works: before reset there are unknown bits.
        assert any("x" in row[trace.names.index("tx__0__valid")] for row in trace.rows[:1])
        for port in range(TINY.ports):
            for name in (f"rx__{port}__credit", f"tx__{port}__valid"):
                assert trace.unknown(name) == []
            assert trace.unknown(f"tx__{port}__flit", f"tx__{port}__valid") == []
        for name in OUTPUTS:
            assert trace.unknown(name, None if name == "bus__done" else "bus__done") == []


def test_credits_are_neither_lost_nor_made(bench, trial):
    """Never more out than the buffer has, and at the end all are back."""
    for seed in trial.seeds():
        (result,) = bench.check(
            TINY, random_phase(TINY, seed, 200), seed=seed, pace=PACES["heavy"], trace=True
        )
        trace = bench.trace()
        reset = np.array([value == "1" for value in trace.column("rst")])
        for port, log in enumerate(result.inputs):
            credits = [int(value, 16) for value in trace.column(f"rx__{port}__credit")]
            packets = log.packets
            opcode = unpack_field(packets.headers, "opcode")
            # Requests are of class 0, responses of their requester's.
            gpu = unpack_field(packets.headers, "gpu")
            classes = np.repeat(np.where(opcode >> 2 == 3, 1 + gpu, 0), packets.sizes)
            for number in range(1 + TINY.ports):
                depth = TINY.response_depth if number else TINY.ingress_depth
                given = np.array([value >> number & 1 for value in credits])
                given[reset] = 0
                sent = np.zeros(len(given), dtype=np.int64)
                # The trace counts from its own first line.
                mine = log.cycles[classes == number]
                valid = trace.column(f"rx__{port}__valid")
                shift = valid.index("1") - int(log.cycles[0])
                sent[mine + shift] = 1
                out = np.cumsum(given) - np.cumsum(sent)
                assert out.min() >= 0
                assert out.max() <= depth
                assert out[-1] == depth


def test_links_are_quiet_under_reset(bench, trial):
    """A neighbour whose reset ends earlier must not count credits, or take flits, too early."""
    for seed in trial.seeds():
        phases = [random_phase(TINY, seed, 10), random_phase(TINY, 100 + seed, 10)]
        bench.check(TINY, *phases, seed=seed, trace=True)
        trace = bench.trace()
        reset = trace.column("rst")
        for port in range(TINY.ports):
            for name in (f"rx__{port}__credit", f"tx__{port}__valid"):
                column = trace.column(name)
                # The first cycle of a reset shows what was before.
                under = [
                    value
                    for before, now, value in zip(reset[:-1], reset[1:], column[1:], strict=True)
                    if before == now == "1"
                ]
                assert len(under) >= 6
                assert {int(value, 16) for value in under} == {0}, name
