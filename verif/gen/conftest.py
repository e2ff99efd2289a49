# SPDX-License-Identifier: Apache-2.0
"""A top of the tests' own, in the registry for the time of a test."""

import pytest
from dysharp.gen import registry


@pytest.fixture
def grid(monkeypatch):
    """Register the circuit `grid`."""
    circuits = "dysharp.verif.gen.circuits"
    top = registry.Top(
        name="grid",
        doc="queues in a grid",
        component=f"{circuits}:Grid",
        parameters=f"{circuits}:GridParams",
        presets=f"{circuits}:PRESETS",
    )
    monkeypatch.setitem(registry._TOPS, "grid", top)
    return top
