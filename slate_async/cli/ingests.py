"""Bulk ingests beside a writer: begun, listed, aborted, their objects; and the streams whose batches are counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import typer

from slate_async.cli.context import finish
from slate_async.cli.durations import parse_duration
from slate_async.cli.exit_codes import OK, AppliedError
from slate_async.cli.output import Output, counted, utc
from slate_async.cli.session import Session
from slate_async.engine.ingest.manage import IngestInfo, IngestPendingError
from slate_async.engine.ingest.rows import COLUMNS
from slate_async.engine.ingest.watch import IngestMode
from slate_async.errors import InvalidError, NotFoundError, SlateError

commands = typer.Typer()
BATCH_ROWS = 65_536
ARROW = (".arrow", ".feather", ".ipc")


@dataclass(frozen=True, slots=True)
class IngestRequest:
    """What ``slate ingest`` was asked to do.

    wait: until it is applied, ``timeout_s`` long; replace: delete every key that the file does not have"""

    file: Path
    job_id: str | None
    sort: bool
    wait: bool
    timeout_s: float
    exclusive: bool
    replace: bool


@commands.command(
    "ingest",
    help="Let the rows of a Parquet or Arrow IPC file in as one step, beside the live writer. Columns: key, value, and"
    " if wanted op (put or delete) and expire_time; sorted by key.",
)
def ingest_command(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A .parquet, .arrow, .feather or .ipc file.")],
    job: Annotated[
        str | None, typer.Option("--job", metavar="ID", help="The job's name; a job that exists is resumed.")
    ] = None,
    sort: Annotated[bool, typer.Option("--sort", help="Sort the rows first, in memory.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Until the writer has applied it.")] = True,
    timeout: Annotated[str, typer.Option("--timeout", metavar="DURATION", help="How long to wait.")] = "2min",
    exclusive: Annotated[
        bool, typer.Option("--exclusive", help="Become the writer for it: one that runs elsewhere is fenced and stops.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Delete every key that is there now and that the file does not have.")
    ] = False,
) -> None:
    """See ``help``."""
    session: Session = context.obj

    async def command() -> int:
        seconds = parse_duration(timeout, what="--timeout") / 1000
        return await ingest(session, IngestRequest(file, job, sort, wait, seconds, exclusive, replace))

    raise typer.Exit(session.run(command()))


@commands.command("list-ingests", help="Show bulk ingests on their way, and the last ones that have ended.")
def list_ingests(context: typer.Context) -> None:
    """See ``help``."""
    finish(context, listed(context.obj))


@commands.command(
    "list-orphans",
    help="Show SSTs that were uploaded for bulk ingests and that nothing names: of attempts that failed or lost, of"
    " jobs on their way, or compacted since. A garbage collector deletes them once nothing may name them any more.",
)
def list_orphans(
    context: typer.Context,
    job: Annotated[str | None, typer.Option("--job", metavar="ID", help="Those of one job.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Those that are in use, too.")] = False,
) -> None:
    """See ``help``."""
    finish(context, orphans(context.obj, job, every=every))


@commands.command("abort-ingest", help="End a bulk ingest that was not applied yet.")
def abort_ingest(context: typer.Context, job: Annotated[str, typer.Argument(metavar="JOB")]) -> None:
    """See ``help``."""
    finish(context, abort(context.obj, job))


@commands.command("list-streams", help="Show the streams whose batches were ingested, with the newest that is in.")
def list_streams(context: typer.Context) -> None:
    """See ``help``."""
    finish(context, streams(context.obj))


@commands.command(
    "forget-stream",
    help="Forget a stream that has ended, by its app id: a batch of it is taken again. Refused while one waits.",
)
def forget_stream(context: typer.Context, app: Annotated[str, typer.Argument(metavar="APP")]) -> None:
    """See ``help``."""
    finish(context, forget(context.obj, app))


async def ingest(session: Session, wanted: IngestRequest) -> int:
    """Write the file's rows, commit, and say what became of them."""
    batches = _batches(wanted.file, sort=wanted.sort)
    mode: IngestMode = "exclusive" if wanted.exclusive else "auto"
    async with session.ingesting(wanted.job_id, replace=wanted.replace, mode=mode) as job:
        try:
            info = await job.info()
            if info.state == "registered":
                await job.write(batches)
            info = await job.commit(wait=wanted.wait, timeout=wanted.timeout_s)
        except IngestPendingError as error:
            if wanted.job_id is None:
                raise  # it says all there is to say
            raise IngestPendingError(
                f"ingest {job.job_id!r} is committed, and no writer has applied it within {wanted.timeout_s:g} s. It"
                " stays: a writer applies it soon after it opens the database. To have it at once, repeat the command"
                f" with --job {job.job_id} --exclusive, which fences a writer that lives; or abort it:"
                f" slate abort-ingest {job.job_id}",
                error.info,
            ) from error
        except BaseException:
            if wanted.job_id is None:  # no later command resumes this job, which would hold collectors up
                with suppress(SlateError):
                    await job.abort(unless_committed=True)
            raise
    _show(session.output, info)
    return OK


async def listed(session: Session) -> int:
    """Show all, one a line."""
    async with session.administering() as admin:
        found = await admin.ingests.list()
    if session.output.as_json:
        for info in found:
            session.output.json(_fields(info))
        return OK
    columns = ("job", "state", "rows", "deletes", "seq", "since")
    rows = [_row(info) for info in found]
    session.output.table("ingests", columns, rows)
    return OK


async def orphans(session: Session, job_id: str | None, *, every: bool) -> int:
    """Show objects, one a line."""
    async with session.administering() as admin:
        found = [info for info in await admin.ingests.objects(job_id) if every or not info.named]
    if session.output.as_json:
        for info in found:
            session.output.json(asdict(info))
        return OK
    rows = [(info.key, info.job_id, f"{info.size:,}", "in use" if info.named else "-") for info in found]
    session.output.table("objects of ingests", ("object", "job", "bytes", "named"), rows)
    return OK


async def abort(session: Session, job_id: str) -> int:
    """End one and show it. Raises `AppliedError` if it is too late for that."""
    async with session.administering() as admin:
        info = await admin.ingests.abort(job_id)
    if info.state == "applied":
        rows = counted(info.rows + info.deletes, "row")
        raise AppliedError(
            f"ingest {job_id!r} was applied, with sequence number {info.seq}: its {rows} stay",
            outcome="not_applied",
        )
    _show(session.output, info)
    return OK


async def streams(session: Session) -> int:
    """Show all, one a line."""
    async with session.administering() as admin:
        found = await admin.ingests.apps()
    if session.output.as_json:
        for app in found:
            session.output.json(asdict(app))
        return OK
    rows = [(app.app_id, str(app.batch_id), app.query_id or "-") for app in found]
    session.output.table("streams", ("app", "batch", "query"), rows)
    return OK


async def forget(session: Session, app_id: str) -> int:
    """Forget one that is known."""
    async with session.administering() as admin:
        known = await admin.ingests.apps()
        if all(app.app_id != app_id for app in known):
            raise NotFoundError(f"no batch of a stream {app_id!r} is in; slate list-streams shows those that are known")
        await admin.ingests.forget_app(app_id)
    return OK


def _batches(file: Path, *, sort: bool) -> Iterator[pa.RecordBatch]:
    """The columns of ``file`` that an ingest takes. Raises `InvalidError` if it cannot be read, or lacks some."""
    if not file.is_file():
        raise InvalidError(f"there is no file {file}")
    try:
        if file.suffix.lower() in ARROW:
            table = pa.ipc.open_file(str(file)).read_all()
            return _in_batches(table.select(_columns(file, table.column_names)), sort=sort)
        parquet = pq.ParquetFile(file)
        names = _columns(file, parquet.schema_arrow.names)
        if sort:
            return _in_batches(parquet.read(columns=names), sort=True)
        batches: Iterator[pa.RecordBatch] = parquet.iter_batches(BATCH_ROWS, columns=names)
        return batches
    except (pa.ArrowException, OSError) as error:
        raise InvalidError(f"{file} is no Parquet or Arrow IPC file that can be read: {error}") from error


def _columns(file: Path, found: Sequence[str]) -> list[str]:
    """Those of the columns ``found`` that an ingest takes."""
    missing = [repr(name) for name in ("key", "value") if name not in found]
    if missing:
        raise InvalidError(
            f"{file} has no column {' and no column '.join(missing)}; it has {', '.join(map(repr, found)) or 'none'}."
            f" An ingest takes {', '.join(COLUMNS)} (the last two optional)"
        )
    return [name for name in COLUMNS if name in found]


def _in_batches(table: pa.Table, *, sort: bool) -> Iterator[pa.RecordBatch]:
    return iter((table.sort_by("key") if sort else table).to_batches(BATCH_ROWS))


def _show(output: Output, info: IngestInfo) -> None:
    output.fields("ingest", _fields(info))


def _row(info: IngestInfo) -> tuple[str, ...]:
    known = "rows" not in _unknown(info)
    rows, deletes = (f"{number:,}" if known else "-" for number in (info.rows, info.deletes))
    return (info.job_id, info.state, rows, deletes, str(info.seq or "-"), utc(info.since_ms))


def _fields(info: IngestInfo) -> dict[str, Any]:
    unknown = _unknown(info)
    fields = {name: value for name, value in asdict(info).items() if name not in unknown}
    times = {
        "since": utc(fields.pop("since_ms")),
        "expires": None if (expire_ms := fields.pop("expire_ms")) is None else utc(expire_ms),
    }
    if fields.pop("digest") is not None:
        fields["digest"] = f"{info.digest:016x}"
    return {**fields, **times}


def _unknown(info: IngestInfo) -> frozenset[str]:
    """Fields of which the record of such a job says nothing; see `IngestInfo`."""
    if info.state in ("pending", "applied"):  # a pending one with a number is in, and may not be reported yet
        return frozenset() if info.seq else frozenset({"seq"})
    return frozenset({"rows", "deletes", "ssts", "size", "seq"})
