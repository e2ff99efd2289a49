# SPDX-License-Identifier: Apache-2.0
"""Root of the command line: puts the commands of the folders together and reports errors."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer

from ..synth.errors import FlowError
from .errors import UserError

__all__ = ["main"]

_USAGE = 2

# The name of the class stays, its module does not: newer Typer carries its own Click.
_ClickError: Any = next(k for k in typer.BadParameter.__mro__ if k.__name__ == "ClickException")


@dataclass(frozen=True)
class _Source:
    """A module with ``register(app)``, and what to install for it."""

    module: str
    distribution: str = "dysharp"


_SOURCES = (
    _Source("dysharp.gen.commands"),
    _Source("dysharp.gen.trace_commands"),
    _Source("dysharp.gen.layer_commands"),
    _Source("dysharp.synth.commands"),
    _Source("dysharp.verif.commands", "dysharp[sim]"),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit code.

    0 is success, 1 a command that ran and found something wrong (a failed test, a missing tool),
    2 a user error, which is told in one line on the standard error output.
    """
    app, missing = _build()
    try:
        code = app(args=arguments, standalone_mode=False, prog_name="dysharp")
    except (UserError, FlowError) as error:
        _fail(str(error))
    except _ClickError as error:
        message = error.format_message()
        _fail(" ".join([message, *missing]) if "No such command" in message else message)
    except typer.Abort:
        _fail("aborted")
    sys.exit(code if isinstance(code, int) else 0)


def _build(sources: Sequence[_Source] = _SOURCES) -> tuple[typer.Typer, list[str]]:
    """Compose the application.

    Returns
    -------
    app : typer.Typer
        All commands that can be loaded.
    missing : list[str]
        One sentence for every module that cannot.
    """
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    missing = []
    for source in sources:
        reason = _add(app, source)
        if reason:
            missing.append(reason)
    app.callback(invoke_without_command=True, epilog="\n\n".join(missing))(_root)
    return app, missing


def _add(app: typer.Typer, source: _Source) -> str | None:
    try:
        module = import_module(source.module)
    except ImportError as error:
        return (
            f"The commands of {source.module} are not there, {error.name} is missing: "
            f'pip install "{source.distribution}"'
        )
    module.register(app)
    return None


def _root(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.")
    ] = False,
) -> None:
    """Open RTL for in-switch computing in mixture-of-experts systems."""
    if show_version:
        typer.echo(f"dysharp {version('dysharp')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _fail(message: str) -> None:
    typer.echo(f"dysharp: {' '.join(message.split())}", err=True)
    sys.exit(_USAGE)
