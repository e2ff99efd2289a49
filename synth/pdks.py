# SPDX-License-Identifier: Apache-2.0
"""What the flow knows of each open library: cells to avoid, loads, and figures for RAM macros.

The numbers of RAM macros come from the RAM models that are published with each library. They are
figures for an estimate; no library data is part of this project.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from .liberty import Library

__all__ = ["PDKS", "Pdk", "RamModel", "find_pdk"]


@dataclass(frozen=True, kw_only=True)
class RamModel:
    """Figures of a RAM macro in one technology.

    Parameters
    ----------
    bit_area : float
        Area of a bit with its share of the periphery, in the library's area unit.
    bit_area_range : (float, float)
        Smallest and largest figure among the published macros of useful sizes.
    area_source : str
        Where these come from.
    clk_to_q_ps : tuple of (int, float)
        (bits, picoseconds), ascending: the first entry with as many bits as the macro or more is
        taken, the last one for anything larger.
    setup_ps, hold_ps : float
        For all inputs.
    timing_source : str
        Where these come from.
    """

    bit_area: float
    bit_area_range: tuple[float, float]
    area_source: str
    clk_to_q_ps: tuple[tuple[int, float], ...]
    setup_ps: float
    hold_ps: float
    timing_source: str

    def clk_to_q(self, bits: int) -> float:
        """Clock to output of a macro of `bits` bits, in picoseconds."""
        for limit, delay in self.clk_to_q_ps:
            if bits <= limit:
                return delay
        return self.clk_to_q_ps[-1][1]


@dataclass(frozen=True, kw_only=True)
class Pdk:
    """One technology as the flow uses it.

    Parameters
    ----------
    name : str
        Short name in reports.
    patterns : tuple of str
        Shell patterns of the names that its Liberty files give themselves.
    area_unit : str
        What an area of 1 is.
    dont_use : tuple of str
        Shell patterns of cells that neither flops nor logic are mapped to.
    driving_cell : str
        Drives the input ports.
    inverter : str
        The inverter that FO4, the delay of an inverter that drives four of its kind, is taken of.
    inverter_pins : (str, str)
        Its input and output.
    load_ff : float
        At every output port, in femtofarads: about four inverter inputs.
    flop_overhead_ps : float
        Clock to output plus setup of a flop, rounded up. ABC, that sees only what is between the
        flops, is given the clock less this.
    ram : RamModel
        Figures for RAM macros.
    """

    name: str
    patterns: tuple[str, ...]
    area_unit: str = "um2"
    dont_use: tuple[str, ...] = ()
    driving_cell: str
    inverter: str
    inverter_pins: tuple[str, str] = ("A", "Y")
    load_ff: float
    flop_overhead_ps: float
    ram: RamModel

    def matches(self, library: Library) -> bool:
        """Whether any file of `library` belongs to this technology."""
        return any(
            fnmatchcase(name, pattern) for name in library.names for pattern in self.patterns
        )


PDKS: tuple[Pdk, ...] = (
    Pdk(
        name="embedded",
        patterns=("dysharp_gate_equivalents",),
        area_unit="GE",
        driving_cell="BUF_X2",
        inverter="INV_X1",
        inverter_pins=("A", "Y"),
        load_ff=4.0,
        flop_overhead_ps=100.0,
        ram=RamModel(
            bit_area=0.75,
            bit_area_range=(0.6, 1.1),
            area_source="middle of nangate45, asap7 and ihp-sg13g2 in NAND2 areas a bit",
            clk_to_q_ps=((1 << 14, 160.0), (1 << 16, 200.0), (1 << 18, 280.0)),
            setup_ps=30.0,
            hold_ps=30.0,
            timing_source="8 to 14 FO4 of 20 ps, as fakeram45 has against nangate45; nominal",
        ),
    ),
    Pdk(
        name="nangate45",
        patterns=("NangateOpenCellLibrary*",),
        dont_use=("AOI211_X1", "OAI211_X1", "TAPCELL*", "FILLCELL*"),
        driving_cell="BUF_X1",
        inverter="INV_X1",
        inverter_pins=("A", "ZN"),
        load_ff=6.8,
        flop_overhead_ps=150.0,
        ram=RamModel(
            bit_area=0.63,
            bit_area_range=(0.50, 0.87),
            area_source="fakeram45_256x48; generated one-port sizes, not real memories",
            clk_to_q_ps=(
                (1344, 203.0),
                (8192, 233.0),
                (12288, 246.0),
                (16384, 253.0),
                (24320, 292.0),
                (32768, 309.0),
                (79872, 435.0),
            ),
            setup_ps=50.0,
            hold_ps=50.0,
            timing_source="fakeram45 64x21 to 2048x39, typical; generated, not real memories",
        ),
    ),
    Pdk(
        name="sky130hd",
        patterns=("sky130_fd_sc_hd__*",),
        dont_use=("*probe*", "*lpflow*", "*edf*", "*sedf*"),
        driving_cell="sky130_fd_sc_hd__buf_2",
        inverter="sky130_fd_sc_hd__inv_1",
        load_ff=9.2,
        flop_overhead_ps=600.0,
        ram=RamModel(
            bit_area=25.6,
            bit_area_range=(22.0, 37.5),
            area_source="OpenRAM 1rw1r 64x256; a real layout with two ports",
            clk_to_q_ps=((1 << 20, 525.0),),
            setup_ps=165.0,
            hold_ps=0.0,
            timing_source=(
                "OpenRAM 1rw1r 64x256 TT; there it counts from the falling edge, half a clock "
                "later than taken here"
            ),
        ),
    ),
    Pdk(
        name="asap7",
        patterns=("asap7sc7p5t_*",),
        dont_use=("*x1p*_ASAP7*", "*xp*_ASAP7*", "SDF*", "ICG*", "DFFHQx4*"),
        driving_cell="BUFx2_ASAP7_75t_R",
        inverter="INVx1_ASAP7_75t_R",
        load_ff=2.4,
        flop_overhead_ps=50.0,
        ram=RamModel(
            bit_area=0.042,
            bit_area_range=(0.034, 0.093),
            area_source=(
                "fakeram7, flat over all sizes; it has no periphery term: real small macros of "
                "7 nm are several times that"
            ),
            clk_to_q_ps=((1 << 20, 218.0),),
            setup_ps=50.0,
            hold_ps=50.0,
            timing_source="fakeram7, the same for all sizes; generated, not real memories",
        ),
    ),
    Pdk(
        name="gf180mcu7t",
        patterns=("gf180mcu_fd_sc_mcu7t5v0__*",),
        driving_cell="gf180mcu_fd_sc_mcu7t5v0__buf_4",
        inverter="gf180mcu_fd_sc_mcu7t5v0__inv_1",
        inverter_pins=("I", "ZN"),
        load_ff=22.0,
        flop_overhead_ps=1200.0,
        ram=RamModel(
            bit_area=72.0,
            bit_area_range=(51.0, 196.0),
            area_source="gf180mcu_fd_ip_sram 256x8; real, one port, 512 to 4096 bits only",
            clk_to_q_ps=((512, 7363.0), (1024, 7484.0), (2048, 7710.0), (4096, 8131.0)),
            setup_ps=1876.0,
            hold_ps=1979.0,
            timing_source="gf180mcu_fd_ip_sram 64x8 to 512x8, tt 3.3 V, largest table values",
        ),
    ),
    Pdk(
        name="ihp-sg13g2",
        patterns=("sg13g2_stdcell_*",),
        dont_use=("sg13g2_lgcp_1", "sg13g2_sighold", "sg13g2_slgcp_1", "sg13g2_dfrbp_2"),
        driving_cell="sg13g2_buf_2",
        inverter="sg13g2_inv_1",
        load_ff=12.0,
        flop_overhead_ps=350.0,
        ram=RamModel(
            bit_area=5.7,
            bit_area_range=(3.75, 12.3),
            area_source="RM_IHPSG13_1P_256x64; real, one port with test pins",
            clk_to_q_ps=(
                (1 << 14, 3324.0),
                (1 << 15, 4026.0),
                (1 << 16, 4549.0),
                (1 << 17, 5596.0),
            ),
            setup_ps=689.0,
            hold_ps=927.0,
            timing_source="RM_IHPSG13_1P 256x48 to 2048x64, typical, largest table values",
        ),
    ),
)
"""All technologies; the first, `embedded`, is the one whose library is part of this project."""


def find_pdk(library: Library) -> Pdk | None:
    """Tell which technology `library` belongs to by the names its files give themselves."""
    return next((pdk for pdk in PDKS if pdk.matches(library)), None)
