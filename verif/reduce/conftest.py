# SPDX-License-Identifier: Apache-2.0
"""The switches of `verif/switch`, for the tests of this folder."""

from dysharp.verif.switch.conftest import bench

__all__ = ["bench"]
