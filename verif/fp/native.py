# SPDX-License-Identifier: Apache-2.0
"""Verilated components under a main program in C++, for millions of operations."""

import hashlib
import os
import subprocess
from pathlib import Path

from amaranth.hdl import Const, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from dysharp.gen.writer import write_component
from dysharp.rtl.fp.adder import Fp32Adder
from dysharp.rtl.fp.convert import Fp32To16, scaled_to_32
from dysharp.verif.lib.run import locked, verilator_environment

__all__ = ["NarrowAdder", "build_native", "run_native"]

_CPP = Path(__file__).with_name("cpp")


class NarrowAdder(wiring.Component):
    """Adds two 16-bit numbers as a lane does, without registers.

    Parameters
    ----------
    f16 : bool
        They are f16, else bf16.
    """

    a: In(16)
    b: In(16)
    sum: Out(16)

    def __init__(self, *, f16: bool) -> None:
        self._f16 = f16
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        """Build the hardware."""
        m = Module()
        m.submodules.adder = adder = Fp32Adder()
        m.submodules.to_half = to_half = Fp32To16()
        m.d.comb += [
            to_half.f16.eq(self._f16),
            to_half.scaled.eq(1),
            adder.a.eq(scaled_to_32(self.a, Const(self._f16))),
            adder.b.eq(scaled_to_32(self.b, Const(self._f16))),
            to_half.i.eq(adder.sum),
            self.sum.eq(to_half.o),
        ]
        return m


def build_native(component: wiring.Component, program: str, folder: Path) -> Path:
    """Build a program on a component, or find the one that was built from the same files before.

    Parameters
    ----------
    component : wiring.Component
        It becomes ``Vtop``.
    program : str
        Name of the C++ file.
    folder : Path
        Builds are kept below it.
    """
    source = _CPP / f"{program}.cpp"
    verilog = write_component(component, name="top", out=folder / f"{program}-verilog")
    digest = hashlib.sha256(verilog.read_bytes() + source.read_bytes()).hexdigest()
    place = folder / f"{program}-{digest[:16]}"
    binary = place / "Vtop"
    with locked(place):
        if not binary.exists():
            command = ["verilator", "--cc", "--exe", "--build", "-O3", "--x-assign", "fast"]
            command += ["-Wno-fatal", "-CFLAGS", "-O2", "--top-module", "top", "--Mdir", str(place)]
            environment = os.environ | verilator_environment()
            # Its own library, which takes most of the build, is hardly used.
            environment["MAKEFLAGS"] = f"{environment.get('MAKEFLAGS', '')} OPT_GLOBAL=-O0"
            done = subprocess.run(
                [*command, str(verilog), str(source)],
                env=environment,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            if done.returncode:
                raise RuntimeError(f"Verilator failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return binary


def run_native(binary: Path, *arguments: object, seconds: float) -> str:
    """Run a program and return what it printed; it must succeed in time."""
    done = subprocess.run(
        [binary, *map(str, arguments)], capture_output=True, text=True, timeout=seconds, check=False
    )
    if done.returncode:
        raise AssertionError(f"{binary.name} told {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout
