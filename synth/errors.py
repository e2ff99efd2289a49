# SPDX-License-Identifier: Apache-2.0
"""The one exception of the synthesis flow that a user can cause."""

from dysharp.gen.errors import UserError

__all__ = ["FlowError"]


class FlowError(UserError):
    """A wrong input or a failed tool, told in one line.

    Every message names what is wrong and where; the command line prints it and ends with exit
    code 2.
    """
