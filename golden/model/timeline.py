# SPDX-License-Identifier: Apache-2.0
"""An event-driven engine: tiles that pass a fixed row of servers, held up by gates."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

__all__ = ["Span", "Step", "run_timeline"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """One step that every tile takes.

    Parameters
    ----------
    name : str
        For reports.
    server : int
        Number of the server that it needs.
    work : ndarray
        Seconds that each tile keeps the server.
    after : float
        Seconds from there until the tile has finished the step.
    group : ndarray, optional
        Group of each tile, from 0 on: the step may begin with a tile when all tiles of its group
        have finished the step before. By default every tile is a group.
    wait : float
        Seconds from there until the step may begin.
    """

    name: str
    server: int
    work: npt.NDArray[np.float64]
    after: float = 0.0
    group: npt.NDArray[np.int64] | None = None
    wait: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Span:
    """When a step was under way.

    Parameters
    ----------
    name : str
        Of the step.
    server : int
        Its server.
    begin, end : ndarray
        Seconds at which each tile took the server, and had finished the step.
    busy : float
        Seconds of the server that the step took.
    """

    name: str
    server: int
    begin: npt.NDArray[np.float64]
    end: npt.NDArray[np.float64]
    busy: float


def run_timeline(steps: Sequence[Step]) -> tuple[Span, ...]:
    """Let all tiles take all steps, and tell when.

    Ordering
    --------
    A server takes one tile at a time. Among the steps that have a tile ready for it, it goes round,
    tile by tile, so that they share it; tiles of one step are taken in the order in which
    they became ready. Equal arguments give equal results.

    Parameters
    ----------
    steps : sequence of Step
        In the order in which a tile takes them. All have the same number of tiles.

    Returns
    -------
    tuple[Span, ...]
        One a step.
    """
    count = len(steps[0].work)
    if any(len(step.work) != count for step in steps):
        raise ValueError("`steps` must all have the same number of tiles")
    last = len(steps) - 1
    server_of = [step.server for step in steps]
    members: list[list[int]] = [[] for _ in range(max(server_of) + 1)]
    for number, server in enumerate(server_of):
        members[server].append(number)
    # What decides about the next tile is plain Python: arrays are slow one element at a time.
    work = [step.work.tolist() for step in steps]
    after = [step.after for step in steps]
    gates = [_Gate(step, count) for step in steps]
    ready: list[deque[int]] = [deque() for _ in steps]
    begin = [[0.0] * count for _ in steps]
    end = [[0.0] * count for _ in steps]
    running = [False] * len(members)
    # The steps of a server from each of them on, so that the search goes round.
    turn = [(steps_of or [0])[0] for steps_of in members]
    order: list[list[int]] = [[] for _ in steps]
    behind = [0] * len(steps)
    for steps_of in members:
        for at, number in enumerate(steps_of):
            order[number] = steps_of[at:] + steps_of[:at]
            behind[number] = steps_of[(at + 1) % len(steps_of)]
    events: list[tuple[float, int, int]] = []

    def serve(server: int, now: float) -> None:
        for step in order[turn[server]]:
            if ready[step]:
                tile = ready[step].popleft()
                turn[server] = behind[step]
                running[server] = True
                begin[step][tile] = now
                heappush(events, (now + work[step][tile], step, tile))
                return
        running[server] = False

    ready[0].extend(range(count))
    if steps[0].wait:
        heappush(events, (steps[0].wait, -1, 0))
    else:
        serve(server_of[0], 0.0)
    # A number below 0 is the opening of a group of the step with that number's complement.
    while events:
        now, step, tile = heappop(events)
        if step < 0:
            if step != -1:
                ready[~step].extend(gates[~step].tiles[tile])
            server = server_of[~step]
            if not running[server]:
                serve(server, now)
            continue
        done = now + after[step]
        end[step][tile] = done
        server = server_of[step]
        if step != last:
            gate = gates[step + 1]
            group = gate.group[tile]
            gate.left[group] -= 1
            # Tiles may finish in another order than they began, but not within a step.
            if not gate.left[group]:
                opens = done + gate.wait
                if opens > now:
                    heappush(events, (opens, ~(step + 1), group))
                else:
                    ready[step + 1].extend(gate.tiles[group])
                    other = server_of[step + 1]
                    if other != server and not running[other]:
                        serve(other, now)
        serve(server, now)
    return tuple(
        Span(
            name=step.name,
            server=step.server,
            begin=np.array(begin[number]),
            end=np.array(end[number]),
            busy=float(step.work.sum()),
        )
        for number, step in enumerate(steps)
    )


class _Gate:
    """The groups of one step: their tiles, and how many of these are still missing."""

    def __init__(self, step: Step, count: int) -> None:
        self.group: list[int] = (
            list(range(count)) if step.group is None else [int(g) for g in step.group]
        )
        self.wait = step.wait
        self.tiles: list[list[int]] = [[] for _ in range(max(self.group) + 1)]
        for tile, group in enumerate(self.group):
            self.tiles[group].append(tile)
        self.left = [len(tiles) for tiles in self.tiles]
