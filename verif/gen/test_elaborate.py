# SPDX-License-Identifier: Apache-2.0
import re

import pytest
from amaranth.hdl import ClockDomain, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from dysharp.gen.elaborate import elaborate
from dysharp.gen.rtlil import clean
from dysharp.verif.gen.circuits import Grid, GridParams, Leaf, Resetting


def modules(component):
    done = elaborate(component, "top")
    return {m.name: (m.component, m.instances) for m in clean(done.text, "top", done.kinds).modules}


class Parent(wiring.Component):
    """Whatever leaves it is given, side by side."""

    def __init__(self, *leaves):
        self._leaves = leaves
        super().__init__({"a": In(4), "q": Out(4).array(len(leaves))})

    def elaborate(self, platform):
        m = Module()
        for index, leaf in enumerate(self._leaves):
            m.submodules[f"leaf{index}"] = leaf
            m.d.comb += [leaf.a.eq(self.a), self.q[index].eq(leaf.q)]
        return m


def test_equal_components_are_elaborated_once():
    text = elaborate(Grid(GridParams(columns=3)), "top").text
    assert len(re.findall(r"^module ", text, re.MULTILINE)) == 2
    assert modules(Grid(GridParams(columns=3))) == {
        "top": ("Grid", 1),
        "top_queue": ("Queue", 6),
    }


def test_components_with_different_parameters_but_equal_hardware_are_merged():
    text = elaborate(Parent(Leaf(4, tag=1), Leaf(4, tag=2)), "top").text
    assert len(re.findall(r"^module ", text, re.MULTILINE)) == 3
    assert modules(Parent(Leaf(4, tag=1), Leaf(4, tag=2)))["top_leaf"] == ("Leaf", 2)


@pytest.mark.parametrize(
    "tag", [1, True, "x", (1, (2.5,)), [1], range(3), GridParams(), Leaf, None]
)
def test_plain_parameters_tell_components_apart(tag):
    text = elaborate(Parent(Leaf(4, tag), Leaf(4, tag), Leaf(4, "other")), "top").text
    assert len(re.findall(r"^module \\Leaf@", text, re.MULTILINE)) == 2


def test_one_and_true_are_different_parameters():
    text = elaborate(Parent(Leaf(4, 1), Leaf(4, True)), "top").text
    assert len(re.findall(r"^module \\Leaf@", text, re.MULTILINE)) == 2


def test_component_that_keeps_anything_else_is_elaborated_in_place():
    text = elaborate(Parent(Leaf(4, object()), Leaf(4, {})), "top").text
    assert re.findall(r"^module (\S+)", text, re.MULTILINE) == [
        "\\top",
        "\\top.leaf0",
        "\\top.leaf1",
    ]


def test_component_with_a_reset_of_its_own_is_elaborated_in_place():
    assert modules(Resetting()) == {
        "top": ("Resetting", 1),
        "top_leaf": ("Leaf", 1),
        "top_leaky": ("Leaky", 1),
        "top_leaf_1": ("Leaf", 2),
    }


class OwnDomain(wiring.Component):
    """Component that makes a clock domain."""

    def __init__(self):
        super().__init__({"a": In(4), "q": Out(4)})

    def elaborate(self, platform):
        m = Module()
        m.domains.local = ClockDomain()
        m.d.local += self.q.eq(self.a)
        return m


def test_component_that_makes_a_clock_domain_is_elaborated_in_place():
    text = elaborate(Parent(OwnDomain(), OwnDomain()), "top").text
    assert "OwnDomain@" not in text


class Slow(wiring.Component):
    """Leaf in a domain that comes from outside."""

    def __init__(self):
        super().__init__({"a": In(4), "q": Out(4)})

    def elaborate(self, platform):
        m = Module()
        m.d.slow += self.q.eq(self.a)
        return m


def test_clocks_of_every_domain_reach_the_instances():
    text = elaborate(Parent(Slow(), Slow()), "top").text
    assert len(re.findall(r"connect \\slow_clk \\slow_clk", text)) == 2
    assert len(re.findall(r"connect \\slow_rst \\slow_rst", text)) == 2


class TestMerging:
    CELL = "  cell $not $1\n    connect \\A {a}\n    connect \\Y {y}\n  end\n"

    def module(self, name, a, y, extra=""):
        ports = f"  wire width 1 input 0 {a}\n  wire width 1 output 1 {y}\n"
        return f"module \\{name}\n{ports}{self.CELL.format(a=a, y=y)}{extra}end\n"

    def design(self, *submodules):
        cells = "".join(
            f"  cell \\{name} \\{name}\n    connect {a} \\a\n    connect {y} \\y\n  end\n"
            for name, a, y in submodules
        )
        wires = "  wire width 1 input 0 \\a\n  wire width 1 output 1 \\y\n"
        return f"module \\top\n{wires}{cells}end\n"

    def test_modules_that_differ_in_names_only_become_one(self):
        text = self.design(("one", "\\a", "\\y"), ("two", "\\b", "\\z"))
        text += self.module("one", "\\a", "\\y") + self.module("two", "\\b", "\\z")
        done = clean(text, "top")
        assert [(m.name, m.instances) for m in done.modules] == [("top", 1), ("top_one", 2)]
        assert done.text.count("connect \\a \\a\nconnect \\y \\y\n") == 2

    def test_exchanged_ports_are_kept_apart_from_their_names(self):
        # In the second module the input is called y and the output a.
        text = self.design(("one", "\\a", "\\y"), ("two", "\\y", "\\a"))
        text += self.module("one", "\\a", "\\y") + self.module("two", "\\y", "\\a")
        done = clean(text, "top")
        assert len(done.modules) == 2
        assert done.text.count("connect \\a \\a\nconnect \\y \\y\n") == 2

    def test_modules_that_differ_in_anything_else_stay(self):
        text = self.design(("one", "\\a", "\\y"), ("two", "\\a", "\\y"))
        text += self.module("one", "\\a", "\\y")
        text += self.module("two", "\\a", "\\y").replace("$not", "$neg")
        assert len(clean(text, "top").modules) == 3

    def test_text_that_is_not_understood_is_refused(self):
        with pytest.raises(ValueError, match=r"^`text` must be RTLIL as Amaranth prints it, not "):
            clean("module \\top\n  sync always\nend\n", "top")

    def test_top_must_be_there(self):
        with pytest.raises(ValueError, match=r"^`top` must be a module of the text, not 'top'$"):
            clean("", "top")
