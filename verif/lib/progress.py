# SPDX-License-Identifier: Apache-2.0
"""Tells how far long work is."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Protocol

__all__ = ["Progress", "nothing", "watched"]

_LOG_LINE = 42  # bytes of a flit in a log of `sv/link_sink.sv` and `sv/link_log.sv`


class Progress(Protocol):
    """Told what is under way."""

    def __call__(self, what: str, part: float = 0.0) -> None:
        """Take what is under way, and which part of it is done, 0 to 1; 0 if nobody knows."""


def nothing(what: str, part: float = 0.0) -> None:
    """Tell nobody."""


@contextmanager
def watched(where: Path, logs: str, flits: int, tell: Progress) -> Iterator[None]:
    """Tell from the growth of the files `logs` in `where` how far a simulation is.

    Parameters
    ----------
    where : Path
        Folder of the run.
    logs : str
        Pattern of the logs of flits.
    flits : int
        Flits that will be in all of them.
    tell : Progress
        Who is told.
    """
    ended = Event()

    def watch() -> None:
        while not ended.wait(0.3):
            # Those of the run before may vanish meanwhile.
            seen = sum(path.stat().st_size for path in where.glob(logs) if path.exists())
            tell("simulating", min(1.0, seen / _LOG_LINE / flits))

    thread = Thread(target=watch, daemon=True)
    tell("simulating")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
