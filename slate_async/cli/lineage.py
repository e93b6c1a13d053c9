"""``clone`` and ``destroy``."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import asdict
from typing import Annotated, Any

import typer

from slate_async.cli.failures import OK
from slate_async.cli.session import Session

commands = typer.Typer()


@commands.command(
    help="Make a clone of the database at TARGET, an empty place in the same kind of store: it shares the SSTs and goes"
    " its own way. A clone that was broken off goes on. A writer that runs elsewhere is not disturbed."
)
def clone(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="TARGET")],
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", "-s", metavar="ID", help="Clone this checkpoint (id or name), not the head."),
    ] = None,
) -> None:
    """See ``help``."""
    _finish(context, make(context.obj, target, checkpoint))


@commands.command(
    help="Destroy the database: all of it but a small tombstone is deleted. A writer that runs elsewhere is fenced."
    " Refused while a checkpoint of a user, a reader or a clone is alive."
)
def destroy(
    context: typer.Context,
    soft: Annotated[
        bool,
        typer.Option("--soft", help="Only close it to all; collectors delete it later, if no checkpoint holds it."),
    ] = False,
) -> None:
    """See ``help``."""
    _finish(context, unmake(context.obj, soft=soft))


def _finish(context: typer.Context, command: Coroutine[Any, Any, int]) -> None:
    session: Session = context.obj
    raise typer.Exit(session.run(command))


async def make(session: Session, target: str, checkpoint: str | None) -> int:
    """Make ``target`` a clone, and show it."""
    async with session.administering() as admin:
        made = await admin.clone(target, checkpoint=checkpoint)
    ids = {"database_id": str(made.database_id), "checkpoint_id": made.checkpoint_id and str(made.checkpoint_id)}
    session.output.fields("clone", {**asdict(made), **ids})
    return OK


async def unmake(session: Session, *, soft: bool) -> int:
    """Destroy the database, or mark it."""
    async with session.administering() as admin:
        await admin.destroy(soft=soft)
    if session.output.as_json:
        session.output.json({"destroyed": True, "removed": not soft})
    session.output.note("the database is closed; a garbage collector removes it" if soft else "the database is gone")
    return OK
