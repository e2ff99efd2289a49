# SPDX-License-Identifier: Apache-2.0
"""Back-pressure for unit tests."""

import random
from collections.abc import Iterator

__all__ = ["PRESSURES", "pressure"]

PRESSURES = ("none", "light", "heavy", "bursty")


def pressure(level: str, rng: random.Random) -> Iterator[bool]:
    """Whether to go on, for one cycle after the other.

    ``none``: always; ``light``: in 80 % of cycles; ``heavy``: in 25 %; ``bursty``: in runs of up to
    20 cycles, with pauses as long.
    """
    shares = {"none": 1.0, "light": 0.8, "heavy": 0.25}
    while level == "bursty":
        for go in (True, False):
            for _ in range(rng.randint(1, 20)):
                yield go
    share = shares[level]
    while True:
        yield rng.random() < share
