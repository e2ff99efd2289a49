# SPDX-License-Identifier: Apache-2.0
"""``docs/packet-format.md`` is what its generator writes, and its hand arithmetic adds up."""

import re
from pathlib import Path

import dysharp.golden.packet_format_doc as generator

DOC = Path(generator.__file__).parent.parent / "docs" / "packet-format.md"


def test_doc_is_up_to_date() -> None:
    written = DOC.read_text(encoding="utf-8")
    assert written == generator.packet_format(), (
        "run: python -m dysharp.golden.packet_format_doc > docs/packet-format.md"
    )


def test_hand_arithmetic_adds_up() -> None:
    text = DOC.read_text(encoding="utf-8")
    section = text[text.index("### One by hand") : text.index("### token-a")]
    blocks = re.findall(r"```\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        *terms, total = [int(number, 16) for number in re.findall(r"0x([0-9a-f]{16})", block)]
        assert len(terms) >= 2
        assert sum(terms) == total
