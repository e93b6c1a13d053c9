"""``load``: the file, the loader, the progress bar and the report, put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from slate_async.cli.failures import NEGATIVE, OK
from slate_async.cli.keyvalue import check_ttl
from slate_async.cli.load import BadRows, LoadCounts, Loader
from slate_async.cli.mapping import Mapper
from slate_async.cli.session import Session
from slate_async.cli.sources import Format, format_of, open_source
from slate_async.errors import InvalidError


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
    if job.rejects is not None and job.rejects.exists() and job.rejects.samefile(job.file):
        raise InvalidError("--rejects must not be the file that is loaded")
    mapper = Mapper(job.key_columns, job.value_column, job.key_separator, job.key_prefix)
    counts = LoadCounts()
    output = session.output
    with open_source(job.file, job.form or format_of(job.file)) as source:
        mapper.check(source.columns)
        with BadRows(output.problem, job.rejects) as bad_rows, progress_bar(session, source.total) as bar:
            try:
                async with session.writing(create=job.create) as database:
                    loader = Loader(database, mapper, job.concurrency, bad_rows.add, bar.to, job.ttl)
                    await loader.run(source, counts)
            except BaseException:
                output.problem(f"broken off: {counts.loaded:,} rows are durable; the load may be repeated as a whole")
                raise
    if output.as_json:
        output.json(asdict(counts))
    else:
        output.fields(job.file.name, {"rows loaded": f"{counts.loaded:,}", "bad rows": f"{counts.bad:,}"})
    return NEGATIVE if counts.bad and not job.allow_bad else OK


class Bar:
    """A progress bar that is told positions, not steps."""

    def __init__(self, progress: Progress, total: int, what: str) -> None:
        self._progress = progress
        self._task = progress.add_task(what, total=total)

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
