"""``verify`` and ``mirror``: a database read whole, and copied. ``seq-to-time`` and ``time-to-seq``.

They claim no role, so they work beside writers and readers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from slate_async.cli.context import finish
from slate_async.cli.exit_codes import FINDINGS, OK
from slate_async.cli.output import Output
from slate_async.cli.session import Session
from slate_async.engine.read.time_travel import TimeLike, iso_time
from slate_async.errors import InvalidError
from slate_async.maintenance.mirror.report import MirrorProgress, MirrorReport
from slate_async.maintenance.verify.report import VerifyProgress, VerifyReport
from slate_async.runtime.system import SystemClock
from slate_async.types import Finding

commands = typer.Typer()

BESIDE = "A writer that runs elsewhere is not disturbed."
NOW = "now"


@commands.command(
    help=f"Read everything: every checksum, order, reference and filter. Exit code {FINDINGS} if something is wrong."
    f" {BESIDE}"
)
def verify(context: typer.Context) -> None:
    """See ``help``."""
    finish(context, check(context.obj))


@commands.command(
    help="Copy what a checkpoint keeps to TARGET, an empty place or an earlier mirror, in any store. Only what is new"
    f" is copied; broken off, it goes on. {BESIDE}"
)
def mirror(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="TARGET")],
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", "-s", metavar="ID", help="The checkpoint to copy, by id or name. Required."),
    ] = None,
    target_metastore: Annotated[
        str | None, typer.Option(help="Where the mirror's metadata lives; default: beside its data.")
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="At the end, delete what the mirror does not need any more.")
    ] = False,
) -> None:
    """See ``help``."""
    finish(context, copy(context.obj, target, checkpoint, target_metastore=target_metastore, prune=prune))


@commands.command("seq-to-time", help=f"Print by which time the row with sequence number SEQ was written. {BESIDE}")
def seq_to_time(context: typer.Context, seq: Annotated[int, typer.Argument(metavar="SEQ")]) -> None:
    """See ``help``."""
    finish(context, tell_time(context.obj, seq))


@commands.command(
    "time-to-seq",
    help=f"Print the highest sequence number known to be written at TIME or before. {BESIDE}",
)
def time_to_seq(
    context: typer.Context,
    time: Annotated[
        str, typer.Argument(metavar="TIME", help='Like "2026-05-17T08:00:00Z", seconds since the epoch, or now.')
    ],
) -> None:
    """See ``help``."""
    finish(context, tell_seq(context.obj, time))


# ---- verify


async def check(session: Session) -> int:
    """Verify, and show what was found."""
    with _bar(session.output) as progress:
        bar = progress.add_task("manifest", total=None)

        def tell(now: VerifyProgress) -> None:
            description = f"{now.stage} {now.objects}/{now.objects_total}"
            progress.update(bar, description=description, completed=now.nbytes, total=now.bytes_total)

        async with session.administering() as admin:
            report = await admin.verify(on_progress=tell)
    _show(session.output, report)
    return OK if report.clean else FINDINGS


def _show(output: Output, report: VerifyReport) -> None:
    if output.as_json:
        output.json({**asdict(report), "clean": report.clean})
        return
    alike: dict[str, list[Finding]] = {}
    for note in report.notes:
        alike.setdefault(note.what, []).append(note)
    for what, notes in alike.items():
        output.note(f"{_named(notes)}: {what}")
    if report.clean:
        output.note("all good: nothing is wrong")
    if report.findings:
        output.table(
            "what is wrong", ("object", "byte", "what"), [_finding_row(finding) for finding in report.findings]
        )
    counts = {name: value for name, value in asdict(report).items() if name not in ("findings", "notes")}
    output.fields("verified", {**counts, "findings": len(report.findings), "notes": len(report.notes)})


def _named(notes: Sequence[Finding]) -> str:
    """The object that ``notes`` are about; of several the first one, how many more, and how large they are together."""
    if len(notes) == 1:
        return notes[0].object_name
    nbytes = sum(note.size or 0 for note in notes)
    return f"{notes[0].object_name} and {len(notes) - 1} more" + (f" ({nbytes} bytes together)" if nbytes else "")


def _finding_row(finding: Finding) -> tuple[str, str, str]:
    return finding.object_name, "-" if finding.offset is None else str(finding.offset), finding.what


# ---- mirror


async def copy(
    session: Session, target: str, checkpoint: str | None, *, target_metastore: str | None, prune: bool
) -> int:
    """Mirror, and show what that came to."""
    if checkpoint is None:
        raise InvalidError(
            "--checkpoint: a mirror shows what a checkpoint keeps; make one with create-checkpoint first"
        )
    with _bar(session.output) as progress:
        bar = progress.add_task("log", total=None)

        def tell(now: MirrorProgress) -> None:
            description = f"SSTs {now.ssts}/{now.ssts_total}"
            progress.update(bar, description=description, completed=now.nbytes, total=now.bytes_total)

        async with session.administering() as admin:
            report = await admin.mirror(checkpoint, target, metastore=target_metastore, prune=prune, on_progress=tell)
    session.output.fields("mirror", _fields(report))
    return OK


def _fields(report: MirrorReport) -> dict[str, Any]:
    ids = {"database_id": str(report.database_id), "checkpoint_id": str(report.checkpoint_id)}
    return {**asdict(report), **ids}


def _bar(output: Output) -> AbstractContextManager[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    hidden = output.as_json or not output.err.is_terminal
    return Progress(*columns, console=output.err, transient=True, disable=hidden)


# ---- times


async def tell_time(session: Session, seq: int) -> int:
    """Show the time of a sequence number."""
    async with session.administering() as admin:
        time = await admin.seq_to_time(seq)
    _tell(session.output, {"seq": seq, "time": iso_time(time)}, "time")
    return OK


async def tell_seq(session: Session, text: str) -> int:
    """Show the sequence number of a time."""
    time = parse_time(text)
    async with session.administering() as admin:
        seq = await admin.time_to_seq(time)
    _tell(session.output, {"time": text, "seq": seq}, "seq")
    return OK


def _tell(output: Output, values: dict[str, Any], wanted: str) -> None:
    if output.as_json:
        output.json(values)
    else:
        output.line(str(values[wanted]))


def parse_time(text: str) -> TimeLike:
    """A time as people write it. Raises `InvalidError`."""
    if text == NOW:
        return SystemClock().now_ms() / 1000
    try:
        return float(text)
    except ValueError:
        pass
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidError(
            f"TIME: {text!r} is no time; write it like 2026-05-17T08:00:00Z, as seconds since the epoch, or now"
        ) from None
    if time.tzinfo is None:
        raise InvalidError(f"TIME: {text!r} has no time zone; end it with Z for UTC, or with an offset like +02:00")
    return time
