# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any, Literal

import pytest
from dysharp.rtl.params import SwitchParams
from dysharp.verif.common.prove import prove
from dysharp.verif.switch import (
    formal_pruner,
    formal_request_queue,
    formal_response_queue,
    formal_route_unit,
    formal_vc_buffer,
)

TINY: dict[str, Any] = {"ports": 2, "max_targets": 16, "groups": 1, "ingress_depth": 32}
SHAPES = {
    "tiny": SwitchParams(**TINY, request_depth=32, response_depth=32),
    "deep-responses": SwitchParams(**TINY, request_depth=32, response_depth=64),
    "large": SwitchParams(**TINY, request_depth=4096, response_depth=1024),
}


@pytest.mark.parametrize("params", SHAPES.values(), ids=SHAPES)
def test_proof_request_queue_counts(params: SwitchParams, tmp_path: Path) -> None:
    proof = prove(
        *formal_request_queue.request_queue_spec(params),
        tmp_path,
        induction=2,
        peek=formal_request_queue.PEEK,
    )
    assert proof.properties == formal_request_queue.PROPERTIES
    assert proof.assumptions == formal_request_queue.ASSUMPTIONS
    assert proof.holds


def test_proof_request_queue_needs_careful_readers(tmp_path: Path) -> None:
    spec = formal_request_queue.request_queue_spec(SHAPES["tiny"], careless=True)
    proof = prove(*spec, tmp_path, depth=4, peek=formal_request_queue.PEEK)
    assert proof.properties == formal_request_queue.PROPERTIES
    assert not proof.holds


@pytest.mark.parametrize("params", SHAPES.values(), ids=SHAPES)
def test_proof_response_queue_loses_nothing(params: SwitchParams, tmp_path: Path) -> None:
    proof = prove(
        *formal_response_queue.response_queue_spec(params),
        tmp_path,
        induction=2,
        peek=formal_response_queue.PEEK,
    )
    assert proof.properties == formal_response_queue.PROPERTIES
    assert proof.assumptions == formal_response_queue.ASSUMPTIONS
    assert proof.holds


@pytest.mark.parametrize(("careless", "cycles"), [("writer", 36), ("reader", 3)])
def test_proof_response_queue_needs_careful_users(
    careless: Literal["writer", "reader"], cycles: int, tmp_path: Path
) -> None:
    spec = formal_response_queue.response_queue_spec(SHAPES["tiny"], careless=careless)
    proof = prove(*spec, tmp_path, depth=cycles, peek=formal_response_queue.PEEK)
    assert proof.properties == formal_response_queue.PROPERTIES
    assert not proof.holds


@pytest.mark.parametrize(("depth", "cycles"), [(2, 14), (4, 12), (8, 12)])
def test_proof_vc_buffer_counts(depth: int, cycles: int, tmp_path: Path) -> None:
    proof = prove(*formal_vc_buffer.vc_buffer_spec(depth), tmp_path, depth=cycles)
    assert proof.properties == formal_vc_buffer.PROPERTIES
    assert proof.assumptions == formal_vc_buffer.ASSUMPTIONS
    assert proof.holds


def test_proof_vc_buffer_has_no_more_credits_than_room(tmp_path: Path) -> None:
    proof = prove(*formal_vc_buffer.vc_buffer_spec(4, promise=5), tmp_path, depth=8)
    assert proof.properties == formal_vc_buffer.PROPERTIES + 1
    assert not proof.holds


def test_proof_pruner_is_the_naive_one(tmp_path: Path) -> None:
    proof = prove(*formal_pruner.pruner_spec(), tmp_path)
    assert proof.properties == formal_pruner.PROPERTIES
    assert proof.assumptions == formal_pruner.ASSUMPTIONS
    assert proof.holds


def test_proof_pruner_would_notice(tmp_path: Path) -> None:
    proof = prove(*formal_pruner.pruner_spec(slip=1), tmp_path)
    assert proof.properties == formal_pruner.PROPERTIES
    assert not proof.holds


@pytest.mark.parametrize(("gpus", "lane"), [(2, 0), (3, 7), (5, 3), (8, 0)])
def test_proof_route_unit_divides(gpus: int, lane: int, tmp_path: Path) -> None:
    proof = prove(*formal_route_unit.route_unit_spec(gpus, lane), tmp_path, induction=2)
    assert proof.properties == gpus + 1
    assert proof.assumptions == formal_route_unit.ASSUMPTIONS
    assert proof.holds


def test_proof_route_unit_would_notice(tmp_path: Path) -> None:
    spec = formal_route_unit.route_unit_spec(5, 2, limit=60000)
    proof = prove(*spec, tmp_path, induction=2)
    assert proof.properties == 6
    assert not proof.holds
