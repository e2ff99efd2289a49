# SPDX-License-Identifier: Apache-2.0
"""What went wrong in other projects, as tests of this switch."""

from dataclasses import replace

import numpy as np
from dysharp.golden.flits import unpack_field
from dysharp.golden.packets import Packets
from dysharp.golden.switch import SwitchConfig
from dysharp.rtl.flits import MAX_DATA_FLITS, Opcode, Status
from dysharp.rtl.params import PRESETS
from dysharp.verif.switch.environment import PACES, Phase
from dysharp.verif.switch.stimulus import Mix, make_packets, random_packets

TINY = PRESETS["tiny"]
EXPERTS = 8
CONFIG = replace(SwitchConfig.at_reset(TINY), experts_per_gpu=EXPERTS)


def lists(port, targets, **fields):
    """Make stores with these lists from `port`, with different addresses."""
    address = [port << 16 | index for index in range(len(targets))]
    return make_packets(Opcode.DY_ST, gpu=port, address=address, targets=targets, **fields)


def test_ids_beyond_the_experts_are_refused(bench, trial):
    """0xFFFF as "none", the number of experts itself, and good ids in front of them."""
    total = EXPERTS * TINY.gpus
    bad = [
        [0xFFFF],
        [total],
        [0, 0xFFFF],
        [total - 1, total],
        [*range(7), total],
        [0] * 15 + [total],
    ]
    good = [[total - 1], [0], [0, total - 1]]
    for seed in trial.seeds():
        inputs = [lists(port, [*bad, *good] * 3) for port in range(TINY.ports)]
        (result,) = bench.check(
            TINY, Phase(inputs=inputs, config=CONFIG), seed=seed, pace=PACES["light"]
        )
        for port in range(TINY.ports):
            packets = result.outputs[port].packets
            refusals = packets.headers[unpack_field(packets.headers, "vc") == 1]
            assert unpack_field(refusals, "aux").tolist() == [Status.BAD_TARGET.value] * 18


def test_every_target_gets_every_flit_once_while_outputs_stall(bench, trial):
    """Multicasts to all ports under every back-pressure; each flit is counted at each output."""
    for seed in trial.seeds():
        targets = [[gpu * EXPERTS for gpu in range(TINY.gpus)]] * 100
        inputs = [lists(port, targets, length=5) for port in range(TINY.ports)]
        for pace in PACES.values():
            phase = Phase(inputs=inputs, config=CONFIG)
            (result,) = bench.check(TINY, phase, seed=seed, pace=pace)
            for log in result.outputs:
                addresses = unpack_field(log.packets.headers, "address")
                assert len(addresses) == len(set(addresses.tolist())) == 400
                assert len(log.flits) == 400 * 7


def test_source_in_its_own_list_gets_one_copy(bench, trial):
    for seed in trial.seeds():
        inputs = [
            lists(port, [[port * EXPERTS], [port * EXPERTS, port * EXPERTS + 1], list(range(16))])
            for port in range(TINY.ports)
        ]
        (result,) = bench.check(TINY, Phase(inputs=inputs, config=CONFIG), seed=seed)
        for port, log in enumerate(result.outputs):
            own = unpack_field(log.packets.headers, "gpu") == port
            wanted = [1, 2] + ([8] if port < 2 else [])
            assert unpack_field(log.packets.headers[own], "count").tolist() == wanted


def test_repeated_targets_stay_in_the_list(bench, trial):
    for seed in trial.seeds():
        targets = [[9] * size for size in (2, 8, 9, 16)] + [[1, 9] * 8, [9, 1, 1, 9]]
        inputs = [lists(port, targets) for port in range(TINY.ports)]
        (result,) = bench.check(TINY, Phase(inputs=inputs, config=CONFIG), seed=seed)
        counts = unpack_field(result.outputs[1].packets.headers, "count")
        assert sorted(counts.tolist()) == sorted([2, 8, 9, 16, 8, 2] * TINY.ports)


def test_all_sizes_in_mixed_order(bench, trial):
    """Every length of list and data, the first beyond the limits too, kinds in turn."""
    for seed in trial.seeds():
        rng = np.random.default_rng(seed)
        inputs = []
        for port in range(TINY.ports):
            packets = []
            for length in range(1, MAX_DATA_FLITS + 2):
                for count in range(TINY.max_targets + 2):
                    targets = [rng.integers(0, EXPERTS * TINY.gpus, count).tolist()]
                    packets.append(lists(port, targets, length=length))
                address = rng.integers(0, 1 << 48, 1)
                packets += [
                    make_packets(
                        Opcode.WRITE, gpu=port, address=address, length=length, count=port
                    ),
                    make_packets(Opcode.RSP_DATA, gpu=port, address=address, length=length),
                ]
            order = rng.permutation(len(packets))
            inputs.append(Packets.concatenate(*(packets[index] for index in order)))
        phase = Phase(inputs=inputs, config=CONFIG)
        bench.check(TINY, phase, seed=seed, pace=PACES["bursty"])


def test_all_load_on_one_port(bench, trial):
    """All lists, groups and unicasts of all inputs end at one GPU."""
    for seed in trial.seeds():
        rng = np.random.default_rng(seed)
        config = replace(CONFIG, groups=(4,) * TINY.groups)
        inputs = []
        for port in range(TINY.ports):
            sizes = rng.integers(1, 17, 60)
            targets = [(rng.integers(0, EXPERTS, n) + 2 * EXPERTS).tolist() for n in sizes]
            address = rng.integers(0, 1 << 48, 60)
            parts = [
                lists(port, targets, length=4),
                make_packets(Opcode.MM_ST, gpu=port, address=address, length=4),
                make_packets(Opcode.WRITE, gpu=port, address=address, length=4, count=2),
            ]
            every = Packets.concatenate(*parts)
            inputs.append(every.select(rng.permutation(len(every))))
        phase = Phase(inputs=inputs, config=config)
        (result,) = bench.check(TINY, phase, seed=seed, pace=PACES["light"])
        assert [len(log.flits) > 0 for log in result.outputs] == [False, False, True, False]


def test_ports_without_traffic(bench, trial):
    """One busy input, and inputs that send a single packet at the very end."""
    for seed in trial.seeds():
        rng = np.random.default_rng(seed)
        busy = random_packets(TINY, CONFIG, 2, 200, Mix(static=0), rng)
        late = make_packets(Opcode.READ, gpu=1, address=[5], count=1)
        phase = Phase(
            inputs=[Packets(), late, busy, Packets()],
            config=CONFIG,
            gaps=[None, np.array([5000]), None, None],
        )
        bench.check(TINY, phase, seed=seed, pace=PACES["heavy"])
