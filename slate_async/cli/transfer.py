"""``load``: the file, the loader, the progress bar and the report, put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from slate_async.cli.exit_codes import NEGATIVE, OK
from slate_async.cli.keyvalue import check_ttl
from slate_async.cli.load import BadRows, LoadCounts, Loader
from slate_async.cli.mapping import Mapper
from slate_async.cli.output import Output
from slate_async.cli.session import Session
from slate_async.cli.sources import BadRow, Format, Source, format_of, open_source, open_standard_input
from slate_async.errors import InvalidError
from slate_async.types import RowLimits

DASH = Path("-")
"""Standard input, as the file that is loaded."""


@dataclass(frozen=True, slots=True)
class LoadJob:
    """What ``slate load`` was asked to do."""

    file: Path
    key_columns: Sequence[str]
    value_column: str | None
    key_separator: str
    key_prefix: str
    form: Format | None
    ttl: float | None
    rejects: Path | None
    allow_bad: bool
    concurrency: int
    create: bool


async def load(session: Session, job: LoadJob) -> int:
    """Load the file; says how much is durable even when it ends early."""
    check_ttl(job.ttl)
    from_pipe = job.file == DASH
    if not from_pipe and job.rejects is not None and job.rejects.exists() and job.rejects.samefile(job.file):
        raise InvalidError("--rejects must not be the file that is loaded")
    if job.rejects == DASH:
        raise InvalidError("--rejects must be a file; standard output has the result")
    settings = session.settings()
    limits = RowLimits(settings.max_key_bytes, settings.max_value_bytes)
    mapper = Mapper(job.key_columns, job.value_column, job.key_separator, job.key_prefix, limits)
    counts = LoadCounts()
    output = session.output
    with await _opened(job) as source:
        mapper.check(source.columns)
        say = output.note if output.as_json else output.problem
        shown = BadRows(lambda row: _show_bad(output, row), say, job.rejects)
        with shown as bad_rows, progress_bar(session, source.total) as bar:
            try:
                async with session.writing(create=job.create) as database:
                    loader = Loader(database, mapper, job.concurrency, bad_rows.add, bar.to, job.ttl)
                    await loader.run(source, counts)
            except BaseException:
                _tell_broken_off(output, counts)
                raise
    if output.as_json:
        output.json(_members(counts))
    else:
        name = "standard input" if from_pipe else job.file.name
        output.fields(name, {"rows loaded": f"{counts.loaded:,}", "bad rows": f"{counts.bad:,}"})
    return NEGATIVE if counts.bad and not job.allow_bad else OK


async def _opened(job: LoadJob) -> Source:
    if job.file == DASH:
        return await open_standard_input(job.form)
    return open_source(job.file, job.form or format_of(job.file))


def _members(counts: LoadCounts) -> dict[str, int]:
    return {"loaded": counts.loaded, "bad_rows": counts.bad, "bytes": counts.nbytes}


def _show_bad(output: Output, row: BadRow) -> None:
    if output.as_json:
        output.problem_json({"line": row.line, "reason": row.reason})
    else:
        output.problem(f"line {row.line}: {row.reason}")


def _tell_broken_off(output: Output, counts: LoadCounts) -> None:
    if output.as_json:
        output.problem_json({"broken_off": True, **_members(counts)})
    else:
        output.problem(f"broken off: {counts.loaded:,} rows are durable; the load may be repeated as a whole")


class Bar:
    """A progress bar that takes positions, not steps."""

    def __init__(self, progress: Progress, total: int, what: str) -> None:
        self._progress = progress
        self._task = progress.add_task(what, total=total or None)

    def to(self, position: int) -> None:
        """Show that ``position`` of the total is done."""
        self._progress.update(self._task, completed=position)


@contextmanager
def progress_bar(session: Session, total: int, what: str = "loading") -> Iterator[Bar]:
    """A bar on standard error while the body runs; none with ``--json`` or where it is not a terminal."""
    output = session.output
    hidden = output.as_json or not output.err.is_terminal
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=output.err, disable=hidden) as progress:
        yield Bar(progress, total, what)
