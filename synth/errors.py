# SPDX-License-Identifier: Apache-2.0
"""The one exception of the synthesis flow that a user can cause."""

__all__ = ["FlowError"]


class FlowError(Exception):
    """A wrong input or a failed tool, told in one line.

    Every message names what is wrong and where; the command line prints it and ends with exit
    code 2.
    """
