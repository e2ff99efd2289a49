# SPDX-License-Identifier: Apache-2.0
"""Where the data and libraries of others lie, which are not part of the project."""

import os
from pathlib import Path

__all__ = ["shared_folder"]


def shared_folder() -> Path:
    """Return what `DYSHARP_SHARED` names, else `shared` beside the checkout; it may not exist."""
    beside = Path(__file__).resolve().parents[3] / "shared"
    return Path(os.environ.get("DYSHARP_SHARED") or beside)
