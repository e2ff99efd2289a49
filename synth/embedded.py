# SPDX-License-Identifier: Apache-2.0
"""The library of this project, ``gate_equivalents.lib``, as a table and the text made of it.

Areas are in NAND2 areas, as usual for static CMOS cells of these functions; delays follow logical
effort with 4 ps for its unit, so an inverter that drives four has 20 ps. It is no technology: it
lets the flow run without any and gives numbers that are near those of the open libraries.
"""

from dataclasses import dataclass

__all__ = ["library_text"]

_TAU = 4.0
_LOADS = (0.5, 256.0)
_SLEWS = (1.0, 1000.0)


@dataclass(frozen=True)
class _Gate:
    """A gate: function, area, logical effort of an input, own delay, sizes it comes in."""

    name: str
    function: str
    area: float
    effort: float
    delay: float
    sizes: tuple[int, ...] = (1, 2, 4)


_GATES = (
    _Gate("INV", "!A", 0.67, 1.0, 1.0, (1, 2, 4, 8)),
    _Gate("BUF", "A", 1.0, 1.0, 3.0, (1, 2, 4, 8)),
    _Gate("NAND2", "!(A & B)", 1.0, 1.33, 2.0),
    _Gate("NAND3", "!(A & B & C)", 1.33, 1.67, 3.0),
    _Gate("NAND4", "!(A & B & C & D)", 1.67, 2.0, 4.0),
    _Gate("NOR2", "!(A | B)", 1.0, 1.67, 2.0),
    _Gate("NOR3", "!(A | B | C)", 1.33, 2.33, 3.0),
    _Gate("NOR4", "!(A | B | C | D)", 1.67, 3.0, 4.0, (1,)),
    _Gate("AND2", "A & B", 1.33, 1.33, 3.5),
    _Gate("AND3", "A & B & C", 1.67, 1.67, 4.5),
    _Gate("OR2", "A | B", 1.33, 1.67, 4.0),
    _Gate("OR3", "A | B | C", 1.67, 2.33, 5.0),
    _Gate("XOR2", "A ^ B", 2.0, 2.0, 4.0, (1, 2)),
    _Gate("XNOR2", "!(A ^ B)", 2.0, 2.0, 4.0, (1, 2)),
    _Gate("MUX2", "(A & !S) | (B & S)", 2.33, 2.0, 4.0, (1, 2)),
    _Gate("AOI21", "!((A & B) | C)", 1.33, 2.0, 2.33, (1, 2)),
    _Gate("OAI21", "!((A | B) & C)", 1.33, 2.0, 2.33, (1, 2)),
    _Gate("AOI22", "!((A & B) | (C & D))", 1.67, 2.0, 3.33, (1, 2)),
    _Gate("OAI22", "!((A | B) & (C | D))", 1.67, 2.0, 3.33, (1, 2)),
    _Gate("AOI211", "!((A & B) | C | D)", 1.67, 2.33, 3.67, (1,)),
    _Gate("OAI211", "!((A | B) & C & D)", 1.67, 2.33, 3.67, (1,)),
    _Gate("AOI221", "!((A & B) | (C & D) | E)", 2.0, 2.33, 4.67, (1,)),
    _Gate("OAI221", "!((A | B) & (C | D) & E)", 2.0, 2.33, 4.67, (1,)),
    _Gate("AOI222", "!((A & B) | (C & D) | (E & F))", 2.67, 2.67, 5.67, (1,)),
    _Gate("OAI222", "!((A | B) & (C | D) & (E | F))", 2.67, 2.67, 5.67, (1,)),
    _Gate("MAJ3", "(A & B) | (A & C) | (B & C)", 2.67, 2.0, 5.0, (1,)),
)

_HEADER = """\
/* SPDX-License-Identifier: Apache-2.0
   Cells in gate equivalents, NAND2_X1 = 1; made by dysharp.synth.embedded, no technology. */
library (dysharp_gate_equivalents) {
  delay_model : table_lookup;
  time_unit : "1ps";
  capacitive_load_unit (1, ff);
  voltage_unit : "1V";
  current_unit : "1mA";
  pulling_resistance_unit : "1kohm";
  leakage_power_unit : "1nW";
  nom_process : 1;
  nom_voltage : 1;
  nom_temperature : 25;
  input_threshold_pct_rise : 50;
  input_threshold_pct_fall : 50;
  output_threshold_pct_rise : 50;
  output_threshold_pct_fall : 50;
  slew_lower_threshold_pct_rise : 20;
  slew_lower_threshold_pct_fall : 20;
  slew_upper_threshold_pct_rise : 80;
  slew_upper_threshold_pct_fall : 80;
  default_max_transition : 1000;
  lu_table_template (delay) {
    variable_1 : input_net_transition;
    variable_2 : total_output_net_capacitance;
    index_1 ("1, 1000");
    index_2 ("0.5, 256");
  }
"""


def library_text() -> str:
    """Text of ``gate_equivalents.lib``."""
    parts = [_HEADER]
    for gate in _GATES:
        parts += [_gate_text(gate, size) for size in gate.sizes]
    parts += [_flop_text(1), _flop_text(2)]
    parts += [_tie_text(name, value) for name, value in (("TIE0", 0), ("TIE1", 1))]
    return "".join([*parts, "}\n"])


def _table(groups: str, fixed: float, slope: float) -> str:
    row = ", ".join(f"{fixed + slope * load:g}" for load in _LOADS)
    values = ", ".join(f'"{row}"' for _ in _SLEWS)
    return "".join(
        f"        {group} (delay) {{ values ({values}); }}\n" for group in groups.split()
    )


def _arc(pin: str, fixed: float, slope: float, more: str) -> str:
    return (
        f'      timing () {{ related_pin : "{pin}"; {more}\n'
        + _table("cell_rise cell_fall", fixed, slope)
        + _table("rise_transition fall_transition", _TAU, slope)
        + "      }\n"
    )


def _input(pin: str, capacitance: float, more: str = "") -> str:
    return f"    pin ({pin}) {{ direction : input; capacitance : {capacitance:g};{more} }}\n"


def _output(pin: str, function: str, limit: float, arcs: str) -> str:
    return (
        f'    pin ({pin}) {{ direction : output; function : "{function}"; '
        f"max_capacitance : {limit:g};\n{arcs}    }}\n"
    )


def _cell(name: str, area: float, body: str) -> str:
    return f"  cell ({name}) {{\n    area : {area:g};\n{body}  }}\n"


def _gate_text(gate: _Gate, size: int) -> str:
    pins = sorted({char for char in gate.function if char.isalpha()})
    # Twice the drive costs wider transistors only, not wiring and spacing again.
    area = round(gate.area * (1 + 0.35 * (size - 1)), 2)
    inputs = (_input(pin, round(gate.effort * size, 2)) for pin in pins)
    sense = f"timing_sense : {_sense(gate)};"
    arcs = (_arc(pin, _TAU * gate.delay, _TAU / size, sense) for pin in pins)
    output = _output("Y", gate.function, 64 * size, "".join(arcs))
    return _cell(f"{gate.name}_X{size}", area, "".join(inputs) + output)


def _sense(gate: _Gate) -> str:
    if "^" in gate.function or gate.name == "MUX2":
        return "non_unate"
    return "negative_unate" if gate.function.startswith("!") else "positive_unate"


def _flop_text(size: int) -> str:
    limits = "".join(
        f'\n      timing () {{ related_pin : "CK"; timing_type : {kind}_rising;\n'
        f'        rise_constraint (scalar) {{ values ("{value}"); }}\n'
        f'        fall_constraint (scalar) {{ values ("{value}"); }}\n      }}'
        for kind, value in (("setup", 30), ("hold", 4))
    )
    edge = "timing_type : rising_edge; timing_sense : non_unate;"
    return _cell(
        f"DFF_X{size}",
        (5.67, 6.33)[size - 1],
        '    ff (IQ, IQN) { clocked_on : "CK"; next_state : "D"; }\n'
        + _input("CK", 1.0, " clock : true;")
        + _input("D", 1.33, limits)
        + _output("Q", "IQ", 64 * size, _arc("CK", 10 * _TAU, _TAU / size, edge)),
    )


def _tie_text(name: str, value: int) -> str:
    return _cell(name, 0.67, _output("Y", str(value), 64, ""))
