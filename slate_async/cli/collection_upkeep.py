"""``collection inspect``, ``readers``, ``expire``, ``controller``, ``gc``, ``verify`` and ``delete``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

import slate_async
from slate_async.cli.collection_drawing import ages, draw
from slate_async.cli.collections import Name
from slate_async.cli.context import finish
from slate_async.cli.exit_codes import FINDINGS, OK
from slate_async.cli.output import Output, counted
from slate_async.cli.session import Session
from slate_async.collections.verify.report import CollectionVerifyProgress, CollectionVerifyReport
from slate_async.errors import NotFoundError

commands = typer.Typer()
FENCES = "A controller that runs elsewhere is fenced and stops."
LOOK_SECONDS = 0.2


@commands.command("inspect", help="Draw layers, shards, frontiers, and who holds since and floor. Nothing is written.")
def inspect_command(context: typer.Context, name: Name) -> None:
    """See ``help``."""
    finish(context, inspect(context.obj, name))


@commands.command("readers", help="Show who reads: holds, what they keep, and when they were renewed last.")
def readers_command(context: typer.Context, name: Name) -> None:
    """See ``help``."""
    finish(context, readers(context.obj, name))


@commands.command("expire", help="Take their holds from readers: what they read then fails, and is never wrong.")
def expire_command(
    context: typer.Context,
    name: Name,
    reader: Annotated[list[str], typer.Argument(metavar="READER", help="As `readers` shows it.")],
) -> None:
    """See ``help``."""
    finish(context, expire(context.obj, name, reader))


@commands.command(
    "controller",
    help="Compact and collect collections for as long as the command runs: all there are, or those named. A controller"
    " that runs elsewhere is fenced; one that takes over is left alone while it works.",
)
def controller_command(
    context: typer.Context,
    name: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="These collections only.")] = None,
) -> None:
    """See ``help``."""
    finish(context, control(context.obj, name or []))


@commands.command("gc", help=f"Do what a controller would do now, once: absorb, compact, and delete garbage. {FENCES}")
def gc_command(
    context: typer.Context,
    name: Name,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Delete nothing; show what would go, and why.")] = False,
) -> None:
    """See ``help``."""
    finish(context, collect(context.obj, name, dry_run=dry_run))


@commands.command(
    "verify",
    help="Read everything: every checksum, order, sum and bound. All collections by default. Exit code"
    f" {FINDINGS} if something is wrong. Nobody is disturbed.",
)
def verify_command(
    context: typer.Context,
    name: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="These collections only.")] = None,
) -> None:
    """See ``help``."""
    finish(context, verify(context.obj, name or []))


@commands.command("delete", help="Delete a collection with all that it holds.")
def delete_command(
    context: typer.Context,
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="Although readers hold it.")] = False,
) -> None:
    """See ``help``."""
    finish(context, delete(context.obj, name, force=force))


# ---- look


async def inspect(session: Session, name: str) -> int:
    """Draw it."""
    async with session.lake() as lake:
        found = await lake.collection(name).inspect()
    if session.output.as_json:
        session.output.json(asdict(found))
    else:
        draw(session.output, found)
    return OK


async def readers(session: Session, name: str) -> int:
    """Show the holds."""
    async with session.lake() as lake:
        found = await lake.collection(name).inspect()
    if session.output.as_json:
        for hold in found.holds:
            session.output.json(asdict(hold))
        return OK
    if not found.holds:
        session.output.note(f"nobody reads {name}")
    rows = [[hold.reader, hold.note, *ages(hold)] for hold in found.holds]
    session.output.table(name, ("reader", "note", "version", "since", "lease", "renewed", "keeps"), rows)
    for damage in (hold.damage for hold in found.holds if hold.damage):
        session.output.note(damage)
    return OK


async def expire(session: Session, name: str, wanted: Sequence[str]) -> int:
    """Revoke holds."""
    async with session.lake() as lake:
        for reader in wanted:
            await lake.collection(name).expire_reader(reader)
            if session.output.as_json:
                session.output.json({"collection": name, "reader": reader, "expired": True})
    session.output.note(f"{counted(len(wanted), 'reader')} expired")
    return OK


# ---- control


async def control(session: Session, wanted: Sequence[str]) -> int:
    """Be the controller until the command is ended, and say of which collections."""
    async with session.lake() as lake:
        for name in wanted:
            await lake.collection(name).info()
        async with lake.controllers(list(wanted) or None) as service:
            session.output.note("controlling collections; Ctrl-C ends it")
            epochs: dict[str, int] = {}
            while True:
                now = {name: controller.epoch for name, controller in service.controllers.items()}
                for name in sorted(now.keys() | epochs.keys()):
                    if now.get(name) != epochs.get(name):
                        _tell_epoch(session.output, name, now.get(name))
                epochs = now
                await asyncio.sleep(LOOK_SECONDS)


def _tell_epoch(output: Output, name: str, epoch: int | None) -> None:
    if output.as_json:
        output.json({"collection": name, "epoch": epoch})
    else:
        output.line(f"{name}: " + ("no longer its controller" if epoch is None else f"controller of epoch {epoch}"))
    output.flush()  # a reader of the pipe must not wait for a full buffer


async def collect(session: Session, name: str, *, dry_run: bool) -> int:
    """Rounds and merges until nothing is left to do; a dry run shows what one would delete."""
    async with session.lake() as lake, lake.collection(name).controller(background=False) as controller:
        report = await (controller.round(dry_run=True) if dry_run else controller.settle())
    collected = report.collected
    if dry_run and collected is not None:
        rows = [(garbage.key, garbage.why.value) for garbage in collected.garbage]
        if session.output.as_json:
            for key, why in rows:
                session.output.json({"collection": name, "key": key, "why": why})
        else:
            session.output.table(name, ("object", "why it would go"), rows)
    held = report.held_back
    session.output.fields(
        "gc",
        {
            "collection": name,
            "dry_run": dry_run,
            "epoch": report.epoch,
            "version": report.version,
            "upper": str(report.upper),
            "since": str(report.since),
            "since_held_by": list(held.since_by),
            "floor": held.floor,
            "floor_held_by": list(held.floor_by),
        },
    )
    return OK


# ---- verify


async def verify(session: Session, wanted: Sequence[str]) -> int:
    """Verify, and show what was found."""
    clean = True
    async with session.lake() as lake:
        for name in wanted or await _all_there(session, lake):
            with _bar(session.output) as progress:
                bar = progress.add_task(name, total=None)

                def tell(
                    now: CollectionVerifyProgress, name: str = name, bar: Any = bar, progress: Progress = progress
                ) -> None:
                    description = f"{name}: {now.stage} {now.objects}/{now.objects_total}"
                    progress.update(bar, description=description, completed=now.nbytes, total=now.bytes_total)

                report = await lake.collection(name).verify(on_progress=tell)
            _show(session.output, report)
            clean = clean and report.clean
    return OK if clean else FINDINGS


async def _all_there(session: Session, lake: slate_async.Lake) -> list[str]:
    """Collections to verify: all but those that were deleted. One whose register is damaged is verified, too, which
    says so. Raises `NotFoundError` if there never was one: the folder is a wrong one."""
    found = await lake.list()
    if not found:
        raise NotFoundError(f"there is no collection in {session.path}")
    return [info.name for info in found if info.state != "deleted"]


def _show(output: Output, report: CollectionVerifyReport) -> None:
    if output.as_json:
        output.json({**asdict(report), "clean": report.clean})
        return
    alike: dict[str, int] = {}
    for note in report.notes:
        alike[note.what] = alike.get(note.what, 0) + 1
    for what, count in alike.items():
        output.note(f"{report.name}: {counted(count, 'object')}: {what}")
    if report.clean:
        output.note(f"{report.name}: all good: nothing is wrong")
    else:
        rows = [
            (finding.object_name, "-" if finding.offset is None else str(finding.offset), finding.what)
            for finding in report.findings
        ]
        output.table(f"what is wrong in {report.name}", ("object", "byte", "what"), rows)
    counts = {name: value for name, value in asdict(report).items() if name not in ("findings", "notes")}
    output.fields("verified", {**counts, "findings": len(report.findings), "notes": len(report.notes)})


def _bar(output: Output) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    return Progress(*columns, console=output.err, transient=True, disable=output.as_json or not output.err.is_terminal)


# ---- delete


async def delete(session: Session, name: str, *, force: bool) -> int:
    """Delete it."""
    async with session.lake() as lake:
        await lake.delete(name, force=force)
    if session.output.as_json:
        session.output.json({"collection": name, "deleted": True})
    session.output.note(f"{name} is deleted")
    return OK
