# SPDX-License-Identifier: Apache-2.0
import re

import pytest
from dysharp.gen.names import RESERVED, Namer, snake_case
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("wish", "name"),
    [
        ("plain", "plain"),
        ("_kept_", "_kept_"),
        ("i__0__payload", "i__0__payload"),
        ("payload.kind", "payload_kind"),
        ("part[3]", "part_3"),
        ("U$0", "U_0"),
        ("7seg", "n7seg"),
        ("", "n"),
        ("$", "n"),
        ("module", "module_1"),
        ("Module", "Module_1"),
        ("switch", "switch_1"),
        ("namespace", "namespace_1"),
    ],
)
def test_name_is_the_nearest_plain_identifier(wish, name):
    assert Namer()(wish) == name


def test_names_never_differ_in_case_only():
    namer = Namer()
    assert [namer("a"), namer("A"), namer("a"), namer("a_1")] == ["a", "A_1", "a_2", "a_1_1"]


@given(st.lists(st.text(max_size=8) | st.sampled_from(sorted(RESERVED))))
def test_names_are_unique_and_plain_for_any_wishes(wishes):
    namer = Namer()
    names = [namer(wish) for wish in wishes]
    assert len({name.lower() for name in names}) == len(names)
    for name in names:
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)
        assert name.lower() not in RESERVED


@pytest.mark.parametrize(
    ("name", "snake"),
    [
        ("PacketQueue", "packet_queue"),
        ("Ram", "ram"),
        ("AXIPort", "axi_port"),
        ("Vc2Fifo", "vc2_fifo"),
    ],
)
def test_snake_case(name, snake):
    assert snake_case(name) == snake
