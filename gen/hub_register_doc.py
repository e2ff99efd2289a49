# SPDX-License-Identifier: Apache-2.0
"""Writer of ``docs/hub-registers.md``.

``python -m dysharp.gen.hub_register_doc > docs/hub-registers.md``
"""

import re
import sys
from collections.abc import Sequence

from ..rtl.gpu_params import GPU_PRESETS
from ..rtl.hub_register_map import HUB_ID_VALUE, hub_address_of, hub_register_map
from ..rtl.register_map import Register
from .register_doc import table

__all__ = ["hub_register_page"]

_PRESET = "default"
_HEAD = ("Address", "Name", "Access", "Reset", "Meaning")


def _cells(register: Register, name: str, more: str = "") -> Sequence[object]:
    address = f"0x{register.address:04x}{more}"
    meaning = register.meaning.replace("2**", "2\\*\\*")
    return address, f"`{name}`", register.access, f"0x{register.reset:08x}", meaning


def hub_register_page() -> str:
    """Return the text of ``docs/hub-registers.md``, made from ``rtl/hub_register_map.py``."""
    params = GPU_PRESETS[_PRESET]
    registers = hub_register_map(params)
    plain = [r for r in registers if not re.match(r"(object|expert)\d", r.name)]
    objects = [r for r in registers if r.name.startswith("object0_")]
    experts = [r for r in registers if r.name.startswith("expert0_0_")]
    object_step = hub_address_of(params, "object1_mode") - hub_address_of(params, "object0_mode")
    expert_step = hub_address_of(params, "expert0_1_used") - hub_address_of(
        params, "expert0_0_used"
    )
    object_rows = [
        _cells(r, r.name.replace("object0", "object{o}"), f" + 0x{object_step:x} \\* o")
        for r in objects
    ]
    expert_rows = [
        _cells(
            r,
            r.name.replace("expert0_0", "expert{o}_{e}"),
            f" + 0x{expert_step:x} \\* (o \\* {params.experts} + e)",
        )
        for r in experts
    ]
    return f"""
<!-- SPDX-License-Identifier: Apache-2.0 -->
# Registers of a hub

*Made from `rtl/hub_register_map.py` by `python -m dysharp.gen.hub_register_doc`; do not edit.*

All of 32 bits at byte addresses, for the preset `{_PRESET}`: {params.objects} objects (*o*),
{params.experts} experts (*e*) each. `id` reads 0x{HUB_ID_VALUE:08x}. The bus is that of the
[switch](registers.md), but an access may take longer: `done` ends it. Registers that are `wo`
read as 0. An access to no register, and a write to one that is `ro`, ends with `error` and
changes nothing.

{table(_HEAD, [_cells(r, r.name) for r in plain])}

## Objects

{table(_HEAD, object_rows)}

A *static* object uses `base`, `size` and `memory`; a *dynamic* one all others. Objects must not
overlap. `reciprocal` and `shift` make the division by the block size exact
([translation.md](translation.md)).

## Experts

{table(_HEAD, expert_rows)}

There is one holding register for each kind of `_lo`: write the `_hi` of a row before the `_lo` of
the next one. An AL table has a word of 4 B for each block; it must be zero before its object is
used for the first time.

## Order of programming

1. `memory`, `presum`.
2. Rows of the object's experts, and its tables in memory set to zero.
3. The object's registers, `mode` last.
4. Before the next layer: `clear`, when no request of the object is under way. Nothing has to wait
   for it: requests that come meanwhile do. `busy` reads 0 when it is through.
5. To take an object away: `mode` 0.

[runtime.md](runtime.md) describes the functions that do this.
""".lstrip()


if __name__ == "__main__":
    sys.stdout.write(hub_register_page())
