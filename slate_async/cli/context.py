"""What every command does with the context it is called in: run to an exit code, and choose how keys are written."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import typer

from slate_async.cli.encoding import Encoding, encoding_of
from slate_async.cli.exit_codes import USAGE
from slate_async.cli.session import Session
from slate_async.errors import InvalidError


def finish(context: typer.Context, command: Coroutine[Any, Any, int]) -> None:
    """Run ``command`` and leave with its exit code."""
    session: Session = context.obj
    raise typer.Exit(session.run(command))


def chosen_encoding(context: typer.Context, hexadecimal: bool, base64_: bool) -> Encoding:
    """What ``--hex`` and ``--base64`` choose; leaves with an exit code if both are given."""
    try:
        return encoding_of(hexadecimal=hexadecimal, base64_=base64_)
    except InvalidError as error:
        session: Session = context.obj
        session.report(error)
        raise typer.Exit(USAGE) from error
