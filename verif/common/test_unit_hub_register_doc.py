# SPDX-License-Identifier: Apache-2.0
"""``docs/hub-registers.md`` is what its generator writes, and tells every register."""

import re
from pathlib import Path

import dysharp.gen.hub_register_doc as generator
from dysharp.rtl.gpu_params import GPU_PRESETS
from dysharp.rtl.hub_register_map import hub_register_map

DOC = Path(generator.__file__).parent.parent / "docs" / "hub-registers.md"


def test_doc_is_up_to_date() -> None:
    written = DOC.read_text(encoding="utf-8")
    assert written == generator.hub_register_page(), (
        "run: python -m dysharp.gen.hub_register_doc > docs/hub-registers.md"
    )


def test_doc_tells_every_register() -> None:
    params = GPU_PRESETS["default"]
    told = {}
    for line in generator.hub_register_page().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not cells[0].startswith("0x"):
            continue
        base, *stride = [int(text, 16) for text in re.findall(r"0x([0-9a-f]+)", cells[0])]
        name = cells[1].strip("`")
        for o in range(params.objects if "{o}" in name else 1):
            for e in range(params.experts if "{e}" in name else 1):
                row = o * params.experts + e if "{e}" in name else o
                told[name.replace("{o}", str(o)).replace("{e}", str(e))] = (
                    base + row * (stride[0] if stride else 0),
                    cells[2],
                    cells[3],
                )
    wanted = {r.name: (r.address, r.access, f"0x{r.reset:08x}") for r in hub_register_map(params)}
    assert told == wanted
