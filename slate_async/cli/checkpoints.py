"""``create-checkpoint``, ``refresh-checkpoint``, ``delete-checkpoint`` and ``list-checkpoints``.

They claim no role, so they work beside writers and readers."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from slate_async.cli.context import finish
from slate_async.cli.durations import parse_duration
from slate_async.cli.exit_codes import OK
from slate_async.cli.output import Output
from slate_async.cli.session import Session
from slate_async.engine.checkpoint.info import CheckpointInfo
from slate_async.runtime.system import SystemClock

commands = typer.Typer()

BESIDE = "A writer that runs elsewhere is not disturbed."
NEVER = "never"
Id = Annotated[str, typer.Option("--id", "-i", metavar="ID", help="The checkpoint's id or name.")]
Lifetime = Annotated[
    str | None,
    typer.Option("--lifetime", "-l", metavar="DURATION", help='Like "7days 30min 10s"; without, it never expires.'),
]


@commands.command("create-checkpoint", help=f"Keep the database as it is now readable, and print the id. {BESIDE}")
def create_checkpoint(
    context: typer.Context,
    lifetime: Lifetime = None,
    source: Annotated[
        str | None,
        typer.Option("--source", "-s", metavar="ID", help="Keep what this checkpoint (id or name) keeps instead."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", "-n", help="A name, for people; need not be unique.")] = None,
) -> None:
    """See ``help``."""
    finish(context, create(context.obj, lifetime=lifetime, source=source, name=name))


@commands.command("refresh-checkpoint", help=f"Let a checkpoint live for a time from now, or for ever. {BESIDE}")
def refresh_checkpoint(context: typer.Context, checkpoint: Id, lifetime: Lifetime = None) -> None:
    """See ``help``."""
    finish(context, refresh(context.obj, checkpoint, lifetime=lifetime))


@commands.command("delete-checkpoint", help=f"Remove a checkpoint; what only it kept is then collected. {BESIDE}")
def delete_checkpoint(
    context: typer.Context,
    checkpoint: Id,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also one that a writer, reader or clone made for itself: that one loses it."),
    ] = False,
) -> None:
    """See ``help``."""
    finish(context, delete(context.obj, checkpoint, force=force))


@commands.command("list-checkpoints", help=f"Show all checkpoints: users', writers', readers' and clones'. {BESIDE}")
def list_checkpoints(context: typer.Context) -> None:
    """See ``help``."""
    finish(context, listed(context.obj))


async def create(session: Session, *, lifetime: str | None, source: str | None, name: str | None) -> int:
    """Make one and show it."""
    seconds = _seconds(lifetime)
    async with session.administering() as admin:
        made = await admin.checkpoints.create(lifetime=seconds, source=source, name=name)
    _show(session.output, made)
    return OK


async def refresh(session: Session, checkpoint: str, *, lifetime: str | None) -> int:
    """Lengthen one and show it."""
    seconds = _seconds(lifetime)
    async with session.administering() as admin:
        lengthened = await admin.checkpoints.refresh(checkpoint, seconds)
    _show(session.output, lengthened)
    return OK


async def delete(session: Session, checkpoint: str, *, force: bool) -> int:
    """Remove one."""
    async with session.administering() as admin:
        await admin.checkpoints.delete(checkpoint, force=force)
    if session.output.as_json:
        session.output.json({"checkpoint": checkpoint, "deleted": True})
    session.output.note(f"checkpoint {checkpoint} is deleted")
    return OK


async def listed(session: Session) -> int:
    """Show all, one a line."""
    async with session.administering() as admin:
        found = await admin.checkpoints.list()
    if session.output.as_json:
        for checkpoint in found:
            session.output.json(fields_of(checkpoint))
        return OK
    columns = ("id", "name", "owner", "version", "made", "expires")
    now = SystemClock().now_ms() / 1000
    session.output.table("checkpoints", columns, [_row(checkpoint, now) for checkpoint in found])
    return OK


def _show(output: Output, info: CheckpointInfo) -> None:
    fields = fields_of(info)
    output.fields("checkpoint", fields if output.as_json else {**fields, "expire_time": fields["expire_time"] or NEVER})


def fields_of(info: CheckpointInfo) -> dict[str, Any]:
    """What is printed of a checkpoint; times in ISO 8601, UTC."""
    times = {"create_time": _time(info.create_time), "expire_time": _time(info.expire_time)}
    return {**asdict(info), "id": str(info.id), **times}


def _row(info: CheckpointInfo, now: float) -> tuple[str, ...]:
    expires = _time(info.expire_time) or NEVER
    if info.expire_time is not None and info.expire_time <= now:
        expires += " (expired)"
    return (
        str(info.id), info.name or "-", info.owner, str(info.manifest_id), _time(info.create_time) or "-", expires
    )  # fmt: skip


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _seconds(lifetime: str | None) -> float | None:
    return None if lifetime is None else parse_duration(lifetime, what="--lifetime") / 1000
