# SPDX-License-Identifier: Apache-2.0
"""The register bus, from outside."""

from dataclasses import replace

import numpy as np
from dysharp.golden.switch import SwitchConfig
from dysharp.rtl.flits import Opcode
from dysharp.rtl.params import PRESETS
from dysharp.rtl.register_map import ID_VALUE, address_of, register_map
from dysharp.verif.switch.environment import Phase
from dysharp.verif.switch.shapes import SHAPES
from dysharp.verif.switch.stimulus import Mix, make_packets, random_packets

TINY = PRESETS["tiny"]


def idle(params, probes, **more):
    """Return a phase with one packet, so that there is an end, and these accesses before it."""
    packet = make_packets(Opcode.READ, gpu=0, address=[0])
    nothing = packet.slice(0, 0)
    return Phase(
        inputs=[packet, *[nothing] * (params.ports - 1)],
        config=SwitchConfig.at_reset(params),
        probes=probes,
        **more,
    )


def test_all_registers_read_their_reset_values(bench, trial):
    for params in (TINY, SHAPES["static"], SHAPES["links2"]):
        registers = register_map(params)
        for seed in trial.seeds():
            probes = [(register.address, None) for register in registers]
            (result,) = bench.check(params, idle(params, probes), seed=seed)
            assert result.probes == [(register.reset, False) for register in registers]
    assert registers[0].reset == ID_VALUE


def test_writable_registers_keep_what_is_written(bench, trial):
    rng = np.random.default_rng(1)
    wanted = {
        register.name: int(rng.integers(1, TINY.ports))
        for register in register_map(TINY)
        if register.access == "rw"
    }
    writes = [(address_of(TINY, name), value) for name, value in wanted.items()]
    reads = [(address_of(TINY, name), None) for name in wanted]
    for seed in trial.seeds():
        (result,) = bench.run(TINY, [idle(TINY, writes + reads)], seed=seed)
        assert result.end == "done"
        assert result.probes[: len(writes)] == [(0, False)] * len(writes)
        assert result.probes[len(writes) :] == [(value, False) for value in wanted.values()]


def test_unknown_addresses_and_read_only_registers_give_errors(bench, trial):
    known = {register.address for register in register_map(TINY)}
    unknown = [
        address
        for address in (0x18, 0x24, 0x110, 0x820, 0x1020, 0x1100, 0x1FFC, 0x8000, 0xFFFC, 0x0002)
        if address not in known
    ]
    read_only = [r for r in register_map(TINY) if r.access == "ro"]
    for seed in trial.seeds():
        probes = [(address, None) for address in unknown]
        probes += [(address, 1) for address in unknown]
        probes += [(register.address, 0xFFFF_FFFF) for register in read_only]
        reads = [(register.address, None) for register in read_only]
        (result,) = bench.check(TINY, idle(TINY, probes + reads), seed=seed)
        answers = result.probes
        wrong = [
            f"{address:#x}"
            for (address, _), (_, error) in zip(probes, answers, strict=False)
            if not error
        ]
        assert wrong == []
        # The writes have changed nothing.
        assert answers[len(probes) :] == [(r.reset, False) for r in read_only]


def test_experts_per_gpu_out_of_range_is_ignored(bench, trial):
    """0 and 65536 change neither the register nor the routes; 1 and 65535 do."""
    address = address_of(TINY, "experts_per_gpu")
    for seed in trial.seeds():
        rng = np.random.default_rng(seed)
        config = replace(SwitchConfig.at_reset(TINY), experts_per_gpu=7)
        mix = Mix(unicast=0, static=0, response=0)
        inputs = [random_packets(TINY, config, port, 20, mix, rng) for port in range(TINY.ports)]
        ignored = Phase(
            inputs=inputs,
            config=config,
            writes=[(address, 0), (address, 65536), (address, 0xFFFF_0000)],
            probes=[(address, None)],
        )
        phases = [ignored]
        for experts in (1, 65535):
            other = replace(config, experts_per_gpu=experts)
            sent = [random_packets(TINY, other, port, 20, mix, rng) for port in range(TINY.ports)]
            phases.append(Phase(inputs=sent, config=other, probes=[(address, None)]))
        results = bench.check(TINY, *phases, seed=seed)
        assert [result.probes for result in results] == [
            [(7, False)],
            [(1, False)],
            [(65535, False)],
        ]
