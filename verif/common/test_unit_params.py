# SPDX-License-Identifier: Apache-2.0
import re
from dataclasses import FrozenInstanceError, fields
from math import ceil
from typing import Any

import pytest
from dysharp.rtl.flits import FLIT_BITS, HEADER_FIELDS, SLOT_FLITS
from dysharp.rtl.params import PRESETS, SwitchParams
from hypothesis import given, settings
from hypothesis import strategies as st


def message_of(**arguments: Any) -> tuple[type[Exception], str]:
    with pytest.raises((TypeError, ValueError)) as caught:
        SwitchParams(**({"ports": 8} | arguments))
    return caught.type, str(caught.value)


RANGES = {
    "ports": (2, 64),
    "max_targets": (1, 512),
    "ports_per_route": (1, 64),
    "groups": (1, 256),
    "ingress_depth": (1, 4096),
    "request_depth": (1, 4096),
    "response_depth": (1, 4096),
    "entries": (4, 512),
    "result_depth": (1, 4096),
    "rx_timeout": (16, 1 << 20),
}
CHOICES = {"links_per_gpu": (1, 2, 4), "lanes": (1, 2, 4, 8)}
DEPTHS = ("ingress_depth", "request_depth", "response_depth", "result_depth")


@pytest.mark.parametrize("name", RANGES)
def test_params_out_of_range(name: str) -> None:
    low, high = RANGES[name]
    for value in (low - 1, high + 1, -5):
        wanted = f"`{name}` must be {low} to {high}, not {value}"
        assert message_of(**{name: value}) == (ValueError, wanted)


@pytest.mark.parametrize("name", [*RANGES, *CHOICES])
@pytest.mark.parametrize("value", [8.0, "8", None, True])
def test_params_no_integer(name: str, value: object) -> None:
    wanted = f"`{name}` must be an integer, not {value!r}"
    assert message_of(**{name: value}) == (TypeError, wanted)


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("value", [0, 3, 16, -1])
def test_params_not_one_of(name: str, value: object) -> None:
    wanted = f"`{name}` must be one of {CHOICES[name]}, not {value!r}"
    assert message_of(**{name: value}) == (ValueError, wanted)


@pytest.mark.parametrize("value", [0, 1, None, "yes"])
def test_params_dynamic_no_bool(value: object) -> None:
    assert message_of(dynamic=value) == (TypeError, f"`dynamic` must be a bool, not {value!r}")


@pytest.mark.parametrize(("ports", "links"), [(2, 2), (4, 4), (9, 2), (6, 4), (63, 2)])
def test_params_ports_and_links(ports: int, links: int) -> None:
    kind, message = message_of(ports=ports, links_per_gpu=links)
    assert kind is ValueError
    assert re.fullmatch(
        rf"`ports` must be 2 or more times `links_per_gpu` \({links}\), not {ports}", message
    )


@pytest.mark.parametrize("name", DEPTHS)
@pytest.mark.parametrize("value", [3, 33, 100, 4095])
def test_params_depth_no_power_of_two(name: str, value: int) -> None:
    wanted = f"`{name}` must be a power of two, not {value}"
    assert message_of(**{name: value}) == (ValueError, wanted)


@pytest.mark.parametrize("name", DEPTHS)
@pytest.mark.parametrize("max_targets", [1, 8, 9, 64, 100])
def test_params_depth_too_small(name: str, max_targets: int) -> None:
    roomy: dict[str, Any] = dict.fromkeys(DEPTHS, 256)
    params = SwitchParams(ports=8, max_targets=max_targets, **roomy)
    longest = {
        "ingress_depth": params.max_request_flits,
        "request_depth": params.max_request_flits + params.queue_margin,
        "response_depth": params.max_response_flits,
        "result_depth": params.max_response_flits,
    }[name]
    enough = 1 << (longest - 1).bit_length()
    SwitchParams(ports=8, max_targets=max_targets, **(roomy | {name: enough}))
    kind, message = message_of(max_targets=max_targets, **(roomy | {name: enough // 2}))
    assert kind is ValueError
    assert re.fullmatch(
        rf"`{name}` must be at least {longest} to hold the longest packet, not {enough // 2}",
        message,
    )


@pytest.mark.parametrize("value", [17, 1000, (1 << 20) - 1])
def test_params_timeout_no_power_of_two(value: int) -> None:
    wanted = f"`rx_timeout` must be a power of two, not {value}"
    assert message_of(rx_timeout=value) == (ValueError, wanted)


@pytest.mark.parametrize("value", [5, 96, 511])
def test_params_entries_no_power_of_two(value: int) -> None:
    wanted = f"`entries` must be a power of two, not {value}"
    assert message_of(entries=value) == (ValueError, wanted)


def test_params_entries_hold_every_tag() -> None:
    (tag,) = (field for field in HEADER_FIELDS if field.name == "tag")
    assert RANGES["entries"][1] == 1 << tag.width
    # 512 entries of 128 B are the 64 KiB of a port of an NVSwitch.
    assert SwitchParams(ports=8).entries * SLOT_FLITS * FLIT_BITS == 64 * 1024 * 8


def test_params_cannot_be_changed_or_positional() -> None:
    params = SwitchParams(ports=8)
    with pytest.raises(FrozenInstanceError):
        params.ports = 4
    with pytest.raises(TypeError, match=r"positional"):
        SwitchParams(8)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(
    gpus=st.integers(2, 64),
    links=st.sampled_from([1, 2, 4]),
    max_targets=st.integers(1, 512),
    sharing=st.integers(1, 64),
    dynamic=st.booleans(),
)
def test_params_derived(
    gpus: int, links: int, max_targets: int, sharing: int, dynamic: bool
) -> None:
    gpus = min(gpus, 64 // links)
    params = SwitchParams(
        ports=gpus * links,
        links_per_gpu=links,
        max_targets=max_targets,
        ports_per_route=sharing,
        dynamic=dynamic,
        ingress_depth=256,
        request_depth=256,
        response_depth=64,
    )
    # Without dynamic support buffers are as large as with it, for the same timing.
    extensions = ceil(max_targets / 8)
    assert params.gpus == gpus
    assert params.max_extensions == extensions
    # Header, list, then 16 data flits; with byte enables there are 8 at most, so no more.
    assert params.max_request_flits == 1 + extensions + 16
    assert params.max_response_flits == 17
    assert params.route_units == (ceil(gpus * links / sharing) if dynamic else 0)
    # An output steps back over a header and its list.
    assert params.queue_margin >= 1 + extensions
    # Requests wait in the ingress and in the pair queues, responses in the latter and as results.
    flits = 256 + gpus * links * (256 + 64) + params.result_depth
    assert params.buffer_bits == flits * FLIT_BITS
    assert 1 << params.count_bits > max(params.max_targets, params.gpus)
    assert params == SwitchParams(**{f.name: getattr(params, f.name) for f in fields(params)})


def test_presets() -> None:
    assert list(PRESETS) == ["tiny", "default", "nvl32"]
    assert PRESETS["default"] == SwitchParams(ports=8)
    assert PRESETS["nvl32"].gpus == 32
    # NVLink's figure for the buffers of a port is 64 KiB.
    assert PRESETS["default"].buffer_bits < 64 * 1024 * 8
