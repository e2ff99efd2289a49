# SPDX-License-Identifier: Apache-2.0
"""Checks of parameters; the messages name the parameter and what it may be."""

__all__ = ["check_choice", "check_int", "check_power"]


def check_int(name: str, value: object, low: int, high: int) -> None:
    """Refuse what is not an integer from `low` to `high`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"`{name}` must be an integer, not {value!r}")
    if not low <= value <= high:
        raise ValueError(f"`{name}` must be {low} to {high}, not {value!r}")


def check_choice(name: str, value: object, choices: tuple[int, ...]) -> None:
    """Refuse what is none of `choices`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"`{name}` must be an integer, not {value!r}")
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {choices}, not {value!r}")


def check_power(name: str, value: object, low: int, high: int) -> None:
    """Refuse what is not a power of two from `low` to `high`."""
    check_int(name, value, low, high)
    assert isinstance(value, int)
    if value & (value - 1):
        raise ValueError(f"`{name}` must be a power of two, not {value!r}")
