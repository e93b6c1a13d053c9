"""What the command line as a whole does with its arguments: options of every command anywhere, usage errors as JSON
too, and the version. Everything else of parsing is typer's."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

import slate_async
from slate_async.cli.exit_codes import USAGE
from slate_async.cli.output import Output

JSON = "--json"
FLAGS = (JSON, "--verbose", "-v")
WITH_VALUE = ("--path", "--metastore", "--settings")
BadCommandLine: type[Exception] = typer.BadParameter.__mro__[2]
"""Base of what the parser raises for a command line it does not understand (click's ``ClickException``)."""


class CommonOptions(TyperGroup):
    """A group of commands whose own options may stand before or after the command."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Parse and run; see click's ``BaseCommand.main``."""
        given, as_json = hoisted(sys.argv[1:] if args is None else args)
        separate = standalone_mode and as_json
        try:
            code = super().main(
                given,
                prog_name,
                complete_var,
                standalone_mode=standalone_mode and not separate,
                windows_expand_args=windows_expand_args,
                **extra,
            )
        except BadCommandLine as error:
            if not separate:
                raise
            code = _report(error)
        if not separate:
            return code
        sys.exit(code if isinstance(code, int) else 0)


def hoisted(arguments: Sequence[str]) -> tuple[list[str], bool]:
    """The arguments with the options of every command in front, wherever before a ``--`` they stood, and whether
    ``--json`` was among them. An option that lacks its value is left alone, at the end: the parser then says so."""
    given = list(arguments)
    end = given.index("--") if "--" in given else len(given)
    common: list[str] = []
    others: list[str] = []
    lacking: list[str] = []
    at = 0
    while at < end:
        argument = given[at]
        values = 1 if argument in WITH_VALUE else 0
        if values and (at + 1 == end or given[at + 1].partition("=")[0] in (*FLAGS, *WITH_VALUE)):
            lacking, values = lacking or [argument], 0
        else:
            is_common = argument in FLAGS or values or (argument.partition("=")[0] in WITH_VALUE and "=" in argument)
            (common if is_common else others).extend(given[at : at + 1 + values])
        at += 1 + values
    rest = lacking or [*others, *given[end:]]
    return [*common, *rest], JSON in common


def _report(error: Any) -> int:
    Output(as_json=True).error("InvalidError", error.format_message(), None, USAGE)
    return USAGE


def print_version(wanted: bool) -> None:
    """The callback of ``--version``."""
    if wanted:
        typer.echo(f"slate {slate_async.__version__}")
        raise typer.Exit
