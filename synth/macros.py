# SPDX-License-Identifier: Apache-2.0
"""Writes a Liberty file for RAM macros, so that timing goes into and out of them."""

from collections.abc import Iterable

from .liberty import Library
from .memories import RamMacro
from .pdks import RamModel

__all__ = ["ram_liberty"]

_PIN_CAP_FF = {"clk": 4.0}
_DEFAULT_CAP_FF = 1.0


def ram_liberty(macros: Iterable[RamMacro], model: RamModel, library: Library) -> str:
    """Give the text of a Liberty file with one cell for each macro, in the units of `library`.

    Every input has the setup and hold of `model` against the rising clock, every output its clock
    to output delay, at any load and slew: these are figures, not a characterisation.
    """
    unit = f"{_number(library.time_ps)}ps" if library.time_ps < 1e3 else "1ns"
    cap_unit = "1, pf" if library.cap_ff >= 1e3 else "1, ff"
    cap_scale = 1e3 if library.cap_ff >= 1e3 else 1.0
    time_scale = library.time_ps if library.time_ps < 1e3 else 1e3
    setup, hold = model.setup_ps / time_scale, model.hold_ps / time_scale
    lines = [
        "library (dysharp_rams) {",
        "  delay_model : table_lookup;",
        f'  time_unit : "{unit}";',
        f"  capacitive_load_unit ({cap_unit});",
        '  voltage_unit : "1V";',
        '  current_unit : "1mA";',
        '  pulling_resistance_unit : "1kohm";',
        '  leakage_power_unit : "1nW";',
        "  input_threshold_pct_rise : 50;",
        "  input_threshold_pct_fall : 50;",
        "  output_threshold_pct_rise : 50;",
        "  output_threshold_pct_fall : 50;",
        "  slew_lower_threshold_pct_rise : 20;",
        "  slew_lower_threshold_pct_fall : 20;",
        "  slew_upper_threshold_pct_rise : 80;",
        "  slew_upper_threshold_pct_fall : 80;",
    ]
    caps = {name: cap / cap_scale for name, cap in _PIN_CAP_FF.items()}
    default_cap = _DEFAULT_CAP_FF / cap_scale
    for macro in macros:
        delay = model.clk_to_q(macro.bits) / time_scale
        slew = delay / 10
        lines += [
            f"  cell ({macro.name}) {{",
            f"    area : {_number(macro.bits * model.bit_area)};",
            "    dont_touch : true;",
            "    pin (clk) {",
            "      direction : input;",
            "      clock : true;",
            f"      capacitance : {_number(caps['clk'])};",
            "    }",
        ]
        for pin in macro.inputs:
            lines += [
                f"    pin ({pin}) {{",
                "      direction : input;",
                f"      capacitance : {_number(default_cap)};",
                *_constraint("setup_rising", setup),
                *_constraint("hold_rising", hold),
                "    }",
            ]
        for pin in macro.outputs:
            lines += [
                f"    pin ({pin}) {{",
                "      direction : output;",
                "      timing () {",
                '        related_pin : "clk";',
                "        timing_type : rising_edge;",
                "        timing_sense : non_unate;",
                *_scalar(("cell_rise", "cell_fall"), delay),
                *_scalar(("rise_transition", "fall_transition"), slew),
                "      }",
                "    }",
            ]
        lines.append("  }")
    lines.append("}")
    return "\n".join(lines) + "\n"


def _constraint(kind: str, value: float) -> list[str]:
    return [
        "      timing () {",
        '        related_pin : "clk";',
        f"        timing_type : {kind};",
        *_scalar(("rise_constraint", "fall_constraint"), value),
        "      }",
    ]


def _scalar(groups: tuple[str, ...], value: float) -> list[str]:
    return [f'        {group} (scalar) {{ values ("{_number(value)}"); }}' for group in groups]


def _number(value: float) -> str:
    return f"{value:.6g}"
