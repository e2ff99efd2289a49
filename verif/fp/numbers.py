# SPDX-License-Identifier: Apache-2.0
"""Numbers that are worth adding: by exponent class and by distance, not uniform."""

import random

from .reference import Format

__all__ = ["random_number", "specials"]


def specials(form: Format) -> list[int]:
    """Both signs of zeros, ends of the subnormal and normal ranges, ones, infinities, NaNs."""
    one = form.exponents // 2 << form.fraction
    least = 1 << form.fraction  # the smallest normal number
    sizes = [
        0,
        1,
        2,
        least // 2,
        least - 1,
        least,
        least + 1,
        2 * least - 1,
        one - 1,
        one,
        one + 1,
        one + least,
        # A half and nearly a half of the last place of one.
        one - (form.fraction + 1 << form.fraction),
        one - (form.fraction + 1 << form.fraction) + 1,
        one - (form.fraction + 2 << form.fraction),
        form.infinity - least,
        form.infinity - 1,
        form.infinity,
        form.infinity + 1,
        form.nan,
        form.nan + 5,
        2 * form.infinity - form.infinity + least - 1,
    ]
    return [size | sign << form.bits - 1 for size in sizes for sign in (0, 1)]


def random_number(rng: random.Random, form: Format) -> int:
    """Make a number whose exponent is often special and whose fraction often has few ones."""
    one = form.exponents // 2
    exponent = rng.choice(
        (0, 1, 2, one, one, one + 1, rng.randint(one - 3, one + 3), form.exponents - 1)
        + (rng.randint(0, form.exponents), rng.randint(max(one - 26, 0), min(one + 26, 2 * one)))
        + ((form.exponents,) if rng.random() < 0.2 else ())
    )
    last = (1 << form.fraction) - 1
    bit = 1 << rng.randrange(form.fraction)
    fraction = rng.choice((0, 1, last, last - 1, bit, last ^ bit, bit - 1, last & -bit))
    if rng.random() < 0.5:
        fraction = rng.getrandbits(form.fraction)
    return rng.getrandbits(1) << form.bits - 1 | exponent << form.fraction | fraction
