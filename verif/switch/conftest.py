# SPDX-License-Identifier: Apache-2.0
"""Runs of generated switches for the tests of this folder."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from dysharp.rtl.params import SwitchParams
from dysharp.verif.lib.coverage import Coverage, sample
from dysharp.verif.lib.trace import Trace, read_trace
from dysharp.verif.lib.trial import Trial

from .environment import Pace, Phase, PhaseResult, SwitchEnvironment

BUILD = Path(__file__).parents[2] / "build"
COVERAGE = BUILD / "coverage" / "switch"


class Bench:
    """Runs switches in a simulator; files are named after the test.

    Parameters
    ----------
    trial : Trial
        The test.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._runs = 0
        self._last = Path()

    def run(
        self,
        params: SwitchParams,
        phases: Sequence[Phase],
        *,
        seed: int,
        pace: Pace | None = None,
        simulator: str = "verilator",
        initial_values: bool = True,
        trace: bool = False,
        waves: bool = False,
    ) -> list[PhaseResult]:
        """Play phases; skips the test when Icarus is wanted and not installed."""
        if simulator == "icarus" and not shutil.which("iverilog"):
            pytest.skip("Icarus Verilog is not installed: apt-get install iverilog")
        waves = waves or self._trial.waves
        environment = SwitchEnvironment(
            params, BUILD / "sim", simulator=simulator, waves=waves, initial_values=initial_values
        )
        self._runs += 1
        name = f"{self._trial.name}-{simulator}-{seed}-{self._runs}{'-waves' if waves else ''}"
        self._last = environment.where(name)
        if waves:
            self._trial.waveforms.append(environment.waveform(name))
        return environment.run(phases, name=name, seed=seed, pace=pace, trace=trace)

    def check(
        self,
        params: SwitchParams,
        *phases: Phase,
        seed: int,
        pace: Pace | None = None,
        simulator: str = "verilator",
        initial_values: bool = True,
        trace: bool = False,
        waves: bool = False,
        coverage: str | None = None,
    ) -> list[PhaseResult]:
        """Play phases and fail with all differences from the model.

        `coverage` is the class of back-pressure under which the bins are counted.
        """
        results = self.run(
            params,
            phases,
            seed=seed,
            pace=pace,
            simulator=simulator,
            initial_values=initial_values,
            trace=trace,
            waves=waves,
        )
        problems = [
            f"phase {number}: {problem}"
            for number, result in enumerate(results)
            for problem in result.problems()[:20]
        ]
        assert not problems, "\n".join([f"seed {seed}, see {self._last}:", *problems])
        if coverage is not None:
            bins = Coverage()
            for phase, result in zip(phases, results, strict=True):
                packets = [log.packets for log in result.inputs]
                sample(bins, params, packets, phase.config, result.scoreboard.expected, coverage)
            bins.dump(COVERAGE / f"{self._trial.name}-{simulator}-{seed}.json")
        return results

    def trace(self) -> Trace:
        """Trace of the last run."""
        return read_trace(self._last / "trace.log")


@pytest.fixture
def bench(trial):
    """Return the means to run switches."""
    return Bench(trial)
