# SPDX-License-Identifier: Apache-2.0
"""What the flow needs to know of a Liberty file: cells, areas, functions, units."""

import gzip
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from .errors import FlowError

__all__ = ["Library", "LibraryCell", "read_libraries", "unpack"]

_LIBRARY = re.compile(r'\blibrary\s*\(\s*"?([^")\s]+)"?\s*\)\s*\{')
_CELL = re.compile(r'^[ \t]*cell\s*\(\s*"?([^")\s]+)"?\s*\)\s*\{', re.MULTILINE)
_AREA = re.compile(r'\barea\s*:\s*"?([-+0-9.eE]+)"?')
_FUNCTION = re.compile(r'\bfunction\s*:\s*"([^"]*)"')
_STATE = re.compile(r"^[ \t]*(?:ff|ff_bank)\s*\(", re.MULTILINE)
_OTHER_STATE = re.compile(r"^[ \t]*(?:latch|latch_bank|statetable)\s*\(", re.MULTILINE)
_TIME_UNIT = re.compile(r'\btime_unit\s*:\s*"?\s*([0-9.]+)\s*([munpf]?s)\b')
_CAP_UNIT = re.compile(r'\bcapacitive_load_unit\s*\(\s*"?([0-9.]+)"?\s*,\s*"?([pf]f)"?\s*\)', re.I)
_TIME_PS = {"s": 1e12, "ms": 1e9, "us": 1e6, "ns": 1e3, "ps": 1.0, "fs": 1e-3}
_CAP_FF = {"pf": 1e3, "ff": 1.0}
_TOKEN = re.compile(r"[A-Za-z_][\w\[\]]*|[01]|[()!'&*|+^]")


@dataclass(frozen=True)
class LibraryCell:
    """One cell of a library.

    Parameters
    ----------
    name : str
        Name in the library.
    area : float
        In the library's unit.
    flop : bool
        Whether it holds an edge-triggered register.
    functions : tuple of str
        The functions of its output pins, as written.
    """

    name: str
    area: float
    flop: bool
    functions: tuple[str, ...]


@dataclass(frozen=True)
class Library:
    """One or more Liberty files that together are the cells of a design.

    Parameters
    ----------
    names : tuple of str
        Names that the files give themselves.
    paths : tuple of Path
        The files.
    sha256 : tuple of str
        Of the files as they are on disk.
    cells : dict of str to LibraryCell
        All cells.
    time_ps : float
        The time unit of the first file in picoseconds.
    cap_ff : float
        Its capacitance unit in femtofarads.
    """

    names: tuple[str, ...]
    paths: tuple[Path, ...]
    sha256: tuple[str, ...]
    cells: dict[str, LibraryCell] = field(repr=False)
    time_ps: float
    cap_ff: float

    @property
    def nand2(self) -> LibraryCell:
        """The smallest cell whose one function is that of a two-input NAND."""
        found = [cell for cell in self.cells.values() if _is_nand2(cell)]
        if not found:
            raise FlowError(f"library {self.names[0]} has no two-input NAND to count gates with")
        return min(found, key=lambda cell: (cell.area, cell.name))


def _read_text(path: Path) -> tuple[bytes, str]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise FlowError(f"cannot read library {path}: {error.strerror}") from None
    data = raw
    if raw[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(raw)
        except (OSError, EOFError) as error:
            raise FlowError(f"cannot unpack library {path}: {error}") from None
    return raw, data.decode("utf-8", "replace")


def _parse_cells(text: str) -> Iterable[LibraryCell]:
    starts = list(_CELL.finditer(text))
    for index, start in enumerate(starts):
        end = starts[index + 1].start() if index + 1 < len(starts) else len(text)
        body = text[start.end() : end]
        area = _AREA.search(body)
        functions = tuple(_FUNCTION.findall(body))
        if _OTHER_STATE.search(body):
            functions = ()
        yield LibraryCell(
            name=start[1],
            area=float(area[1]) if area else 0.0,
            flop=_STATE.search(body) is not None,
            functions=functions,
        )


def read_libraries(paths: Sequence[Path]) -> Library:
    """Read Liberty files, plain or gzipped, as one library.

    Raises
    ------
    FlowError
        If a file is missing, is no Liberty file, or no cell is found in any.
    """
    if not paths:
        raise FlowError("`libs` must name at least one Liberty file, not []")
    names: list[str] = []
    hashes: list[str] = []
    cells: dict[str, LibraryCell] = {}
    units: list[tuple[float, float]] = []
    for path in paths:
        raw, text = _read_text(path)
        library = _LIBRARY.search(text)
        if library is None:
            raise FlowError(f"{path} is not a Liberty file: no `library (...)` group in it")
        time_unit, cap_unit = _TIME_UNIT.search(text), _CAP_UNIT.search(text)
        units.append(
            (
                float(time_unit[1]) * _TIME_PS[time_unit[2]] if time_unit else 1e3,
                float(cap_unit[1]) * _CAP_FF[cap_unit[2].lower()] if cap_unit else 1e3,
            )
        )
        names.append(library[1])
        hashes.append(hashlib.sha256(raw).hexdigest())
        for cell in _parse_cells(text):
            cells.setdefault(cell.name, cell)
    if not cells:
        raise FlowError(f"library {names[0]} has no cells")
    if len(set(units)) > 1:
        raise FlowError(f"libraries {', '.join(names)} differ in their time or load units")
    return Library(
        names=tuple(names),
        paths=tuple(paths),
        sha256=tuple(hashes),
        cells=cells,
        time_ps=units[0][0],
        cap_ff=units[0][1],
    )


def unpack(library: Library, cache: Path) -> list[Path]:
    """Give plain files for all of `library`, unpacked into `cache` where they are gzipped.

    OpenSTA of 2019 reads no gzip and does not say so.
    """
    plain: list[Path] = []
    for path, digest in zip(library.paths, library.sha256, strict=True):
        raw, text = _read_text(path)
        if raw[:2] != b"\x1f\x8b":
            plain.append(path)
            continue
        target = cache / f"{digest[:16]}.lib"
        if not target.exists():
            cache.mkdir(parents=True, exist_ok=True)
            part = target.with_suffix(".part")
            part.write_text(text, encoding="utf-8")
            part.replace(target)
        plain.append(target)
    return plain


class _Expression:
    """Evaluates a Liberty function: ``!``, ``'``, ``&`` ``*`` and juxtaposition, ``^``, ``|``."""

    def __init__(self, text: str, values: dict[str, bool]) -> None:
        self._tokens = _TOKEN.findall(text)
        self._at = 0
        self._values = values

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def value(self) -> bool:
        result = self._xor()
        while self._peek() in ("|", "+"):
            self._next()
            result = self._xor() or result
        return result

    def _xor(self) -> bool:
        result = self._and()
        while self._peek() == "^":
            self._next()
            result = self._and() != result
        return result

    def _and(self) -> bool:
        result = self._not()
        while self._peek() not in ("", ")", "|", "+", "^"):
            if self._peek() in ("&", "*"):
                self._next()
            result = self._not() and result
        return result

    def _not(self) -> bool:
        token = self._next()
        if token == "!":
            return not self._not()
        if token == "(":
            result = self.value()
            self._next()
        elif token in ("0", "1"):
            result = token == "1"
        else:
            result = self._values.get(token, False)
        while self._peek() == "'":
            self._next()
            result = not result
        return result


def _is_nand2(cell: LibraryCell) -> bool:
    if cell.flop or len(cell.functions) != 1 or cell.area <= 0:
        return False
    text = cell.functions[0]
    pins = sorted({token for token in _TOKEN.findall(text) if token[0].isalpha()})
    if len(pins) != 2:
        return False
    return all(
        _Expression(text, dict(zip(pins, bits, strict=True))).value() is not all(bits)
        for bits in product((False, True), repeat=2)
    )
