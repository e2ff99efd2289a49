# SPDX-License-Identifier: Apache-2.0
"""Proofs for all f16 and all bf16 operands: every pair is in one of the cases.

Two minutes of a core in all; the longest, f16 of the same exponent, takes 20 s.
"""

from pathlib import Path

import pytest
from dysharp.verif.common.prove import prove
from dysharp.verif.fp.formal_narrow import far_distance, far_spec, near_spec, special_spec
from dysharp.verif.fp.reference import BF16, F16, Format

FORMATS = pytest.mark.parametrize("form", [F16, BF16], ids=["f16", "bf16"])
NEAR = [
    pytest.param(form, distance, id=f"{name}-{distance}")
    for name, form in (("f16", F16), ("bf16", BF16))
    for distance in range(far_distance(form))
]


@pytest.mark.parametrize("swapped", [False, pytest.param(True, marks=pytest.mark.regress)])
@pytest.mark.parametrize(("form", "distance"), NEAR)
def test_proof_narrow_add_near(form: Format, distance: int, swapped: bool, tmp_path: Path) -> None:
    proof = prove(*near_spec(form, distance, swapped=swapped), tmp_path)
    assert (proof.holds, proof.properties, proof.assumptions) == (True, 1, 1)


@FORMATS
@pytest.mark.parametrize("swapped", [False, True])
def test_proof_narrow_add_far(form: Format, swapped: bool, tmp_path: Path) -> None:
    proof = prove(*far_spec(form, swapped=swapped), tmp_path)
    assert (proof.holds, proof.properties, proof.assumptions) == (True, 1, 1)


@FORMATS
def test_proof_narrow_add_special(form: Format, tmp_path: Path) -> None:
    proof = prove(*special_spec(form), tmp_path)
    assert (proof.holds, proof.properties, proof.assumptions) == (True, 1, 1)


@FORMATS
def test_proof_narrow_add_finds_ties_up(form: Format, tmp_path: Path) -> None:
    assert not prove(*near_spec(form, 3, swapped=False, ties_up=True), tmp_path).holds


@FORMATS
def test_proof_narrow_add_bound_is_sharp(form: Format, tmp_path: Path) -> None:
    assert not prove(*far_spec(form, swapped=False, closer=1), tmp_path).holds
