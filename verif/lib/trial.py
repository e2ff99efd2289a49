# SPDX-License-Identifier: Apache-2.0
"""One test's seeds, time-out and evidence: the reproduce line and the waveform of a failure.

``DYSHARP_SEED`` replaces the seeds of all tests by one, ``DYSHARP_WAVES=1`` makes every run write a
waveform.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Trial", "time_limit"]


class Trial:
    """What a test that simulates is given.

    Parameters
    ----------
    test : str
        The test's identifier, as pytest takes it on the command line.
    """

    def __init__(self, test: str) -> None:
        self._test = test
        self._seed: int | None = None
        forced = os.environ.get("DYSHARP_SEED")
        self._only = None if forced is None else int(forced)
        self._waves = os.environ.get("DYSHARP_WAVES", "0") not in ("", "0")
        self.waveforms: list[Path] = []
        """Where runs of this test write their waveforms."""

    @property
    def name(self) -> str:
        """The test's name as a file name."""
        _, _, name = self._test.rpartition("/")
        return "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-")

    @property
    def waves(self) -> bool:
        """Whether runs are to write a waveform."""
        return self._waves

    @property
    def reproduce(self) -> str:
        """The command that repeats what ran last, with a waveform."""
        seed = "" if self._seed is None else f"DYSHARP_SEED={self._seed} "
        return f'{seed}DYSHARP_WAVES=1 .venv/bin/pytest "{self._test}"'

    def seeds(self, count: int = 1) -> Iterator[int]:
        """`count` seeds from 1 on, or the one that was asked for."""
        for seed in range(1, count + 1) if self._only is None else (self._only,):
            self._seed = seed
            yield seed

    def examine(self, test: Callable[[], None], seconds: int) -> list[str]:
        """Repeat a test that has failed, once and with waves; return what helps to look into it."""
        lines = [self.reproduce]
        if not self._waves:
            self._only, self._waves = self._seed, True
            self.waveforms.clear()
            try:
                with time_limit(seconds):
                    test()
                lines.append("the second run, with waves, did not fail")
            except Exception as error:
                lines.append(f"the second run failed with {type(error).__name__}")
        return lines + [f"waveform: {path}" for path in self.waveforms if path.exists()]


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in the main thread after some time."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"the test took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
