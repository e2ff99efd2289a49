# SPDX-License-Identifier: Apache-2.0
"""The base of all errors that are the user's to mend."""

__all__ = ["UserError"]


class UserError(Exception):
    """A mistake in a command, a file or the environment, not in this program.

    The message is one line that names the place (option, file and line, tool). The command line
    prints it and ends with exit code 2; every folder derives its own errors from this class.
    """
