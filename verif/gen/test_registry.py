# SPDX-License-Identifier: Apache-2.0
import re

import pytest
from amaranth.hdl import Fragment
from dysharp.gen import registry
from dysharp.gen.registry import ParameterError
from dysharp.verif.gen.circuits import Corner, Grid, GridParams


def test_every_top_has_a_default_preset_and_a_line_of_text():
    assert "switch" in registry.names()
    for name in registry.names():
        top = registry.get(name)
        assert top.name == name
        assert top.doc
        assert "\n" not in top.doc
        assert "default" in top.preset_names()


def test_every_preset_of_every_top_can_be_looked_up_by_its_parameters():
    for name in registry.names():
        top = registry.get(name)
        for preset in top.preset_names():
            assert top.preset_of(top.params(preset)) == preset


def test_unknown_top_is_refused_with_the_names():
    with pytest.raises(ParameterError, match=r"^`top` must be one of switch.*, not 'router'$"):
        registry.get("router")


def test_overrides_are_parsed_by_the_type_of_the_field(grid):
    overrides = {
        "columns": "0x3",
        "counter": "False",
        "label": "x",
        "corner": "RIGHT",
    }
    assert grid.params("small", overrides) == GridParams(
        columns=3, counter=False, label="x", corner=Corner.RIGHT
    )
    assert grid.params("small") == GridParams()
    assert grid.preset_of(grid.params("small", {"depth": "8"})) is None


@pytest.mark.parametrize(
    ("preset", "overrides", "message"),
    [
        ("huge", {}, "`preset` of top grid must be one of small, wide, not 'huge'"),
        (
            "small",
            {"colums": "3"},
            (
                "parameter of top grid must be one of columns, depth, counter, label, corner, "
                "not 'colums'"
            ),
        ),
        ("small", {"columns": "three"}, "`columns` must be an integer, not 'three'"),
        ("small", {"columns": "2.0"}, "`columns` must be an integer, not '2.0'"),
        ("small", {"counter": "yes"}, "`counter` must be true or false, not 'yes'"),
        ("small", {"corner": "TOP"}, "`corner` must be one of LEFT, RIGHT, not 'TOP'"),
        ("small", {"columns": "0"}, "top grid, preset small: `columns` must be 1 or more, not 0"),
    ],
)
def test_wrong_parameters_are_refused(grid, preset, overrides, message):
    with pytest.raises(ParameterError, match=f"^{re.escape(message)}$"):
        grid.params(preset, overrides)


def test_build_makes_the_component(grid):
    component = grid.build(GridParams())
    assert isinstance(component, Grid)
    Fragment.get(component, None)  # else Amaranth warns that it was made for nothing


def test_build_refuses_parameters_of_another_class(grid):
    with pytest.raises(TypeError, match=r"^`params` must be a GridParams, not 3$"):
        grid.build(3)


def test_fields_of_inner_parameters_are_named_with_a_dot():
    system = registry.get("system")
    overrides = {"switch.ports": "2", "gpu.gpus": "2", "gpu.tlb_form": "CAM"}
    params = system.params("default", overrides)
    assert (params.gpus, params.gpu.tlb_form.value, params.gpu.tlb_entries) == (2, "cam", 512)
    with pytest.raises(ParameterError, match=r"^`gpu.tlb_form` must be one of CAM, SETS, not"):
        system.params("default", {"gpu.tlb_form": "RAM"})
    for key in ("gpu", "tlb_form", "gpu.nothing", "switch.ports.x"):
        message = rf"^parameter of top system must be one of .*, not '{key}'$"
        with pytest.raises(ParameterError, match=message):
            system.params("default", {key: "1"})
    message = "^top system, preset default: `gpus` of `gpu` must be 2, as of `switch`, not 8$"
    with pytest.raises(ParameterError, match=message):
        system.params("default", {"switch.ports": "2"})
