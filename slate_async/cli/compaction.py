"""``compactor`` and ``compact``: compaction from the command line, as a service or once."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Self
from uuid import UUID

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from slate_async.cli.encoding import Encoding, parse
from slate_async.cli.executors import ExecutorRequest, executing
from slate_async.cli.exit_codes import OK
from slate_async.cli.output import Output, counted
from slate_async.cli.session import Session
from slate_async.engine.compaction.progress import CompactionEvent


@dataclass(frozen=True, slots=True)
class CompactRequest:
    """What ``slate compact`` was asked for; ``span``: first key, inclusive, and end, exclusive, as typed."""

    full: bool
    span: tuple[str, str] | None
    level: int | None
    encoding: Encoding


async def compactor(session: Session, where: ExecutorRequest) -> int:
    """Compact for as long as the process lives, or until another compactor takes over (exit code 5)."""
    with Progressing(session.output, lines=True) as progressing:
        async with (
            executing(session, where) as executor,
            session.compacting(progressing.tell, executor=executor) as running,
        ):
            session.output.note(f"compacting {running.status().path}, epoch {running.status().epoch}; Ctrl-C ends it")
            await running.wait_closed()
    return OK


async def compact(session: Session, wanted: CompactRequest, where: ExecutorRequest) -> int:
    """Compact once, and say what that came to."""
    start, end = (
        (None, None) if wanted.span is None else (parse(key, wanted.encoding, what="--range") for key in wanted.span)
    )
    with Progressing(session.output, lines=False) as progressing:
        async with (
            executing(session, where) as executor,
            session.compacting(progressing.tell, auto_compaction=False, executor=executor) as running,
        ):
            count = await running.compact(full=wanted.full, start=start, end=end, level=wanted.level)
            metrics, status = running.metrics(), running.status()
    session.output.fields(
        "compact",
        {
            "compactions": count,
            "resumed": metrics["compaction.resumed"],
            "rows_in": metrics["compaction.rows_in"],
            "rows_out": metrics["compaction.rows_out"],
            "written_bytes": metrics["compaction.written_bytes"],
            "l0_ssts": status.l0_ssts,
            "sorted_runs": status.sorted_runs,
            "sst_bytes": status.sst_bytes,
            "range_deletes": status.range_deletes,
        },
    )
    if wanted.full and not status.l0_ssts + status.sorted_runs and (rows := await _logged_rows(session)):
        session.output.note(
            f"there was nothing to compact: the log has {counted(rows, 'row')}, which a writer makes SSTs of when there"
            " are more"
        )
    return OK


async def _logged_rows(session: Session) -> int:
    async with session.administering() as admin:
        log = await admin.inspect.log()
    return sum(logged.rows or 0 for logged in log.objects if logged.status == "valid")


class Progressing:
    """Shows compactions as they go: a bar for each where standard error is a terminal; with ``lines`` also one line of
    result for each that begins, ends or fails."""

    def __init__(self, output: Output, *, lines: bool) -> None:
        self._output = output
        self._lines = lines
        self._bars: dict[UUID, TaskID] = {}
        self._progress = Progress(
            TextColumn("level {task.fields[level]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rows"),
            TextColumn("{task.fields[ranges]}"),
            TimeElapsedColumn(),
            console=output.err,
            transient=True,
            disable=output.as_json or not output.err.is_terminal,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def tell(self, event: CompactionEvent) -> None:
        """See `slate_async.engine.compaction.progress.EventSink`."""
        self._bar(event)
        if self._lines and event.kind not in ("progress", "range"):
            self._line(event)

    def _bar(self, event: CompactionEvent) -> None:
        if event.id is None:
            return
        if event.kind in ("committed", "dropped", "failed"):
            bar = self._bars.pop(event.id, None)
            if bar is not None:
                self._progress.remove_task(bar)
            return
        ranges = f"range {event.ranges_done} of {event.ranges_total}"
        bar = self._bars.get(event.id)
        if bar is None:
            bar = self._progress.add_task("", total=event.rows_total, level=event.level, ranges=ranges)
            self._bars[event.id] = bar
        self._progress.update(bar, completed=event.rows_done, ranges=ranges)

    def _line(self, event: CompactionEvent) -> None:
        if self._output.as_json:
            self._output.json(asdict(event))
        else:
            name = "SSTs" if event.id is None else str(event.id)
            rows = f", {event.rows_total} rows" if event.rows_total else ""
            reason = f": {event.message}" if event.message else ""
            place = f"level {event.level}" if event.level else "a sorted run"
            self._output.line(f"{event.kind} {name} to {place}{rows}{reason}")
        self._output.flush()  # a reader of the pipe must not wait for a full buffer
