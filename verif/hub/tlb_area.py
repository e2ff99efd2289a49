# SPDX-License-Identifier: Apache-2.0
"""Area of a TLB in both forms."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dysharp.gen.writer import write_component
from dysharp.rtl.hub.al_tlb_cam import AlTlbCam
from dysharp.rtl.hub.al_tlb_sets import AlTlbSets
from dysharp.synth.flow import synthesise

__all__ = ["DATA_BITS", "TAG_BITS", "WAYS", "TlbArea", "make_tlb", "tlb_area"]

TAG_BITS, DATA_BITS = 48, 31
"""An entry of the paper; those of the presets are smaller."""
WAYS = 8


@dataclass(frozen=True, kw_only=True)
class TlbArea:
    """Area of a TLB, in areas of the library's smallest NAND2.

    Parameters
    ----------
    cells : float
        Standard cells, and memories that are so small that they are made of them.
    ram : float
        RAM macros: bits times the area of a bit of the technology.
    """

    cells: float
    ram: float

    @property
    def total(self) -> float:
        """Cells and RAM."""
        return self.cells + self.ram


def make_tlb(
    form: str, entries: int, tag_bits: int = TAG_BITS, data_bits: int = DATA_BITS
) -> AlTlbCam | AlTlbSets:
    """Make a TLB of a form, ``cam`` or ``sets``."""
    if form == "cam":
        return AlTlbCam(tag_bits=tag_bits, data_bits=data_bits, entries=entries)
    return AlTlbSets(tag_bits=tag_bits, data_bits=data_bits, entries=entries, ways=WAYS)


def tlb_area(form: str, entries: int, libraries: Sequence[Path], folder: Path) -> TlbArea:
    """Map a TLB for the smallest area, without a clock."""
    name = f"tlb_{form}_{entries}"
    design = write_component(make_tlb(form, entries), name=name, out=folder / name, checks=False)
    mapped = synthesise(design, design.stem, libs=libraries, workdir=folder / name, tree_levels=0)
    ram = mapped.macro_area_estimate
    assert ram is not None, "no figure for RAM"
    return TlbArea(cells=mapped.area_ge, ram=ram / mapped.nand2_area)
