"""``clone``, ``destroy`` and ``adopt-place``."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from slate_async.cli.context import finish
from slate_async.cli.exit_codes import OK, exit_code
from slate_async.cli.session import Session
from slate_async.errors import CorruptionError, InvalidError
from slate_async.runtime.system import SystemClock

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
    finish(context, make(context.obj, target, checkpoint))


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
    fence: Annotated[
        bool, typer.Option("--fence", help="Although a writer lives, or may: it is fenced, and loses the database.")
    ] = False,
    lost: Annotated[
        bool,
        typer.Option(
            "--lost", help="Its folder is lost with all objects: erase its metadata, which is kept elsewhere, for good."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for the database's path first.")] = False,
) -> None:
    """See ``help``."""
    session: Session = context.obj
    if not yes:
        try:
            _ask(session, lost)
        except (InvalidError, KeyboardInterrupt) as error:
            session.report(error)
            raise typer.Exit(exit_code(error)) from error
    finish(context, unmake(session, soft=soft, fence=fence, lost=lost))


@commands.command(
    "adopt-place",
    help="Say that the database is here, whose metadata is kept elsewhere: after its objects were moved, or if it was"
    " made before places had markers. A writer that runs, here or in another place, is fenced.",
)
def adopt_place(
    context: typer.Context,
    yes: Annotated[
        bool, typer.Option("--yes", help="The objects here are this database's, all of them. Required.")
    ] = False,
) -> None:
    """See ``help``."""
    finish(context, adopt(context.obj, sure=yes))


async def make(session: Session, target: str, checkpoint: str | None) -> int:
    """Make ``target`` a clone, and show it."""
    async with session.administering() as admin:
        made = await admin.clone(target, checkpoint=checkpoint)
    ids = {"database_id": str(made.database_id), "checkpoint_id": made.checkpoint_id and str(made.checkpoint_id)}
    session.output.fields("clone", {**asdict(made), **ids})
    return OK


async def unmake(session: Session, *, soft: bool, fence: bool, lost: bool) -> int:
    """Destroy the database, or mark it."""
    if soft and lost:
        raise InvalidError("--lost excludes --soft")
    if not fence:
        await _refuse_living(session)
    async with session.administering() as admin:
        await admin.destroy(soft=soft, lost=lost)
    if session.output.as_json:
        session.output.json({"destroyed": True, "removed": not soft})
    session.output.note(
        "the database is closed; a garbage collector removes it" if soft else "the database is destroyed"
    )
    return OK


async def _refuse_living(session: Session) -> None:
    """Raise `InvalidError` if a writer has the database open, as far as its beats and the clocks tell. What cannot be
    opened to be read, for it is damaged or destroyed already, has none."""
    try:
        async with session.reading() as database:
            life = await database.writer_life()
    except (InvalidError, CorruptionError):
        return
    now_ms = SystemClock().now_ms()
    state = life.guess(now_ms)
    if state in ("alive", "unknown"):
        heard = "" if life.seen_ms is None else f", heard of {max(0, now_ms - life.seen_ms) / 1000:.0f} s ago"
        may = "lives" if state == "alive" else "may live: it was not closed, and does not say"
        raise InvalidError(
            f"a writer of epoch {life.epoch} {may}{heard}; close it, or wait if it died, or give --fence"
        )


def _ask(session: Session, lost: bool) -> None:
    """Raise `InvalidError` unless the user types the name of what is to be destroyed at the terminal."""
    path = session.database()
    if not sys.stdin.isatty():
        raise InvalidError("this deletes the database; say so with --yes, or on a terminal type its path when asked")
    what = f"This deletes {'all that is known of ' if lost else ''}{path} for good"
    also = ", and no copy of its objects can be opened again" if lost else ""
    session.output.problem(f"{what}{also}. Type its path to go on:")
    if sys.stdin.readline().strip() != path:
        raise InvalidError("that is not its path; nothing was done")


async def adopt(session: Session, *, sure: bool) -> int:
    """Adopt the place."""
    if not sure:
        raise InvalidError(
            "--yes: this makes the folder here the database's place, and no other one; be sure that all its objects are"
            " here, then say --yes"
        )
    async with session.administering() as admin:
        await admin.adopt_place()
    if session.output.as_json:
        session.output.json({"adopted": True})
    session.output.note("the database is here")
    return OK
