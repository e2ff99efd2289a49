# SPDX-License-Identifier: Apache-2.0
"""Shapes of switches that the tests go through, besides the presets."""

from dataclasses import replace

from dysharp.rtl.params import PRESETS, SwitchParams

__all__ = ["SHAPES"]

_TINY = PRESETS["tiny"]

SHAPES: dict[str, SwitchParams] = {
    "ports2_lanes2": replace(_TINY, ports=2, lanes=2, entries=4),
    "ports3_lanes1": replace(_TINY, ports=3, lanes=1),
    "ports5_lanes4_route2": replace(_TINY, ports=5, lanes=4, ports_per_route=2),
    "ports6_route1": replace(_TINY, ports=6, ports_per_route=1),
    "ports7_route3": replace(_TINY, ports=7, ports_per_route=3),
    "links2": replace(_TINY, ports=8, links_per_gpu=2),
    "links4": replace(_TINY, ports=8, links_per_gpu=4),
    "static": replace(_TINY, dynamic=False),
    # The longest request fills a pair's queue but for one flit.
    "smallest_buffers": replace(_TINY, ports=3, max_targets=48),
    "one_target": replace(_TINY, ports=2, max_targets=1, groups=1, entries=512),
}
"""Several features together, since every shape is a simulation to build."""
