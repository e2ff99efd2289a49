# SPDX-License-Identifier: Apache-2.0
"""The one form of the JSON files that are written."""

import json
from enum import Enum
from typing import Any

__all__ = ["json_text"]


def json_text(report: Any) -> str:
    """Return plain data as the text of a file; members of enumerations are told by their names."""
    return json.dumps(report, indent=2, default=_plain) + "\n"


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.name
    raise TypeError(f"`value` must be plain data, not {value!r}")
