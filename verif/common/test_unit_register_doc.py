# SPDX-License-Identifier: Apache-2.0
"""``docs/registers.md`` is what its generator writes, and tells every register."""

import json
import re
from pathlib import Path

import dysharp.gen.register_doc as generator
from dysharp.rtl.params import PRESETS, SwitchParams
from dysharp.rtl.register_map import COUNTERS, address_of, register_map

DOC = Path(generator.__file__).parent.parent / "docs" / "registers.md"


def test_doc_is_up_to_date() -> None:
    written = DOC.read_text(encoding="utf-8")
    assert written == generator.register_page(), (
        "run: python -m dysharp.gen.register_doc > docs/registers.md"
    )


def test_doc_tells_every_register() -> None:
    told = {}
    for line in generator.register_page().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not cells[0].startswith("0x"):
            continue
        base, *stride = re.findall(r"0x([0-9a-f]+)", cells[0])
        last = int(cells[2].split()[-1]) if cells[2] else 0
        for n in range(last + 1):
            address = int(base, 16) + n * (int(stride[0], 16) if stride else 0)
            told[cells[1].strip("`").replace("{n}", str(n))] = (address, cells[3], cells[4])
    wanted = {
        r.name: (r.address, r.access, f"0x{r.reset:08x}") for r in register_map(PRESETS["default"])
    }
    assert told == wanted


def test_timing_diagram_shows_three_cycles() -> None:
    (text,) = re.findall(r"```wavedrom\n(.*?)```", generator.register_page(), re.DOTALL)
    waves = {signal["name"]: signal["wave"] for signal in json.loads(text)["signal"]}
    assert len({len(wave) for wave in waves.values()}) == 1
    starts = [n for n, level in enumerate(waves["valid"]) if level == "1"]
    ends = [n for n, level in enumerate(waves["done"]) if level == "1"]
    assert len(starts) == 3
    assert ends == [start + 3 for start in starts]
    assert waves["error"].index("1") == ends[2]


def test_map_has_room_for_the_largest_switch() -> None:
    for preset in PRESETS.values():
        addresses = [register.address for register in register_map(preset)]
        assert len(set(addresses)) == len(addresses)
    largest = SwitchParams(ports=64, groups=256)
    registers = register_map(largest)
    assert len({register.address for register in registers}) == len(registers)
    assert address_of(largest, "timeout") == 0x14
    assert address_of(largest, "armed63") == 0x2FC
    assert len(COUNTERS) <= 16
    names = [counter.name for counter in COUNTERS]
    assert names[7:] == ["dropped", "late", "duplicates", "wrong", "timeouts", "replaced"]
    assert address_of(largest, "late1") == 0x1000 + 0x40 + 4 * 8
