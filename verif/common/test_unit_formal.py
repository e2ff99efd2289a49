# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
from amaranth.hdl import Assert, Assume, Module, Signal
from dysharp.verif.common.formal_round_robin import GRANT_PROPERTIES, fair_spec, grant_spec
from dysharp.verif.common.prove import prove

COUNTS = [1, 2, 3, 5, 7]


@pytest.mark.parametrize("count", COUNTS)
def test_proof_round_robin_grants(count: int, tmp_path: Path) -> None:
    proof = prove(*grant_spec(count), tmp_path, induction=2)
    assert proof.properties == GRANT_PROPERTIES
    assert proof.holds


@pytest.mark.parametrize("count", COUNTS)
def test_proof_round_robin_is_fair(count: int, tmp_path: Path) -> None:
    proof = prove(*fair_spec(count, count - 1), tmp_path, depth=count + 2)
    assert proof.properties == count
    assert proof.holds


@pytest.mark.parametrize("count", [2, 3, 5, 7])
def test_proof_round_robin_bound_is_sharp(count: int, tmp_path: Path) -> None:
    proof = prove(*fair_spec(count, count - 2), tmp_path, depth=count + 2)
    assert proof.properties == count
    assert not proof.holds


def test_proof_finds_what_is_false_later(tmp_path: Path) -> None:
    m = Module()
    up, value = Signal(), Signal(4)
    m.d.sync += value.eq(value + up)
    m.d.comb += Assert(value != 5)
    assert prove(m, [up], tmp_path, depth=5).holds
    assert not prove(m, [up], tmp_path, depth=6).holds
    assert not prove(m, [up], tmp_path, induction=20).holds


def test_proof_begins_with_the_first_cycle(tmp_path: Path) -> None:
    m = Module()
    value, copy = Signal(init=0), Signal()
    m.d.sync += [value.eq(1), copy.eq(value)]
    m.d.comb += Assert(value)  # false in the first cycle only
    assert not prove(m, [copy], tmp_path, depth=3).holds
    assert not prove(m, [copy], tmp_path, induction=3).holds


def test_proof_heeds_assumptions(tmp_path: Path) -> None:
    m = Module()
    a, b = Signal(4), Signal(4)
    m.d.comb += [Assume(a < b), Assert(a != 15)]
    proof = prove(m, [a, b], tmp_path)
    assert (proof.holds, proof.properties, proof.assumptions) == (True, 1, 1)


@pytest.mark.parametrize(("inner", "known"), [("value", True), ("values", False)])
def test_proof_peeks_inside(inner: str, known: bool, tmp_path: Path) -> None:
    m = Module()
    m.submodules.dut = dut = Module()
    up, value, peek = Signal(), Signal(4, name="value"), Signal(4, name="peek")
    dut.d.sync += value.eq(value + up)
    m.d.comb += Assert(peek < 3)
    if known:
        proof = prove(m, [up, peek, value], tmp_path, depth=3, peek={"peek": inner})
        assert proof.holds
        assert not prove(m, [up, peek, value], tmp_path, depth=4, peek={"peek": inner}).holds
    else:
        with pytest.raises(RuntimeError, match=r"neither proved nor disproved"):
            prove(m, [up, peek, value], tmp_path, depth=3, peek={"peek": inner})


def test_proof_that_does_not_end_is_told(tmp_path: Path) -> None:
    m = Module()
    up, value = Signal(), Signal(4)
    with m.If(up & (value != 4)):  # 5 cannot be reached, but induction does not see it
        m.d.sync += value.eq(value + 1)
    m.d.comb += Assert(value != 9)
    with pytest.raises(RuntimeError, match=r"neither proved nor disproved"):
        prove(m, [up], tmp_path, induction=3)
