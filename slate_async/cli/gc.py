"""``gc``: garbage collection from the command line, once or as a service, of one database or several."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import slate_async
from slate_async.cli.durations import parse_duration
from slate_async.cli.exit_codes import OK, exit_code
from slate_async.cli.output import counted
from slate_async.cli.session import Session
from slate_async.database.garbage_collector import GarbageCollector
from slate_async.engine.gc.report import GcReport
from slate_async.errors import InvalidError, SlateError


@dataclass(frozen=True, slots=True)
class CollectRequest:
    """What ``slate gc`` was asked for. ``also``: databases besides that of ``--path``; ``interval``: a duration."""

    also: Sequence[str]
    once: bool
    interval: str | None
    dry_run: bool


async def collect(session: Session, wanted: CollectRequest) -> int:
    """Collect once, or for as long as the process lives; all databases side by side.

    One that fails is reported and left; the others go on. The exit code is that of the first that failed, also when
    SIGTERM ends the command later."""
    if wanted.once == (wanted.interval is not None) and not wanted.dry_run:
        raise InvalidError("say either --once or --interval, such as --interval 5min; or look with --dry-run")
    if wanted.dry_run and wanted.interval is not None:
        raise InvalidError("--dry-run looks once; it goes without --interval")
    settings = session.settings()
    if wanted.interval is not None:
        settings = settings.replace(gc_interval_ms=parse_duration(wanted.interval, what="--interval"))
    paths = list(dict.fromkeys([*([session.path] if session.path else []), *wanted.also]))
    if not paths:
        raise InvalidError("which database? Give --path URL, set SLATE_PATH, or name them after it")
    codes: list[int] = []

    async def one(environment: slate_async.Environment, path: str) -> None:
        periodic = wanted.interval is not None
        each = _follow if periodic else _once
        opening = environment.open_gc(path, metastore=session.metastore, settings=settings, periodic=periodic)
        try:
            async with opening as collector:
                await each(session, path, collector, wanted.dry_run)
        except SlateError as error:
            session.report(error, path=path)
            codes.append(exit_code(error))

    try:
        async with slate_async.Environment(block_cache_bytes=0) as environment, asyncio.TaskGroup() as group:
            for path in paths:
                group.create_task(one(environment, path))
    except asyncio.CancelledError:
        if not codes:
            raise  # else a collector failed before the command was ended, and the exit code reports that failure
    return next(iter(codes), OK)


async def _once(session: Session, path: str, collector: GarbageCollector, dry_run: bool) -> None:
    """Rounds until nothing is left that may go now; a dry run tells of one."""
    while True:
        report = await collector.collect(dry_run=dry_run)
        if dry_run:
            _list_objects(session, path, report)
        session.output.fields("garbage", summary(path, report))
        if dry_run or not report.truncated:
            return


async def _follow(session: Session, path: str, collector: GarbageCollector, dry_run: bool) -> None:
    """What each round did, for ever."""
    session.output.note(f"collecting the garbage of {path}; Ctrl-C ends it")
    async for report in collector.rounds():
        if session.output.as_json:
            session.output.json(summary(path, report))
        else:
            for line in deeds(report):
                session.output.line(f"{path}: {line}")


def deeds(report: GcReport) -> list[str]:
    """What a round did, in words; nothing if there was nothing to do."""
    done: list[str] = []
    if report.objects or report.manifest_versions or report.expired_checkpoints:
        done.append(
            f"deleted {counted(len(report.objects), 'object')} of {report.deleted_bytes} bytes and"
            f" {counted(report.manifest_versions, 'manifest version')}"
        )
    if report.evicted:
        done.append(f"gave up compactions that no compactor resumed: {', '.join(map(str, report.evicted))}")
    if report.abandoned:
        done.append(f"removed clones that were never finished: {', '.join(report.abandoned)}")
    if report.detached:
        done.append("detached from its parents")
    if report.removed:
        done.append("removed for good, as it was destroyed")
    return done


def _list_objects(session: Session, path: str, report: GcReport) -> None:
    if session.output.as_json:
        for garbage in report.objects:
            session.output.json({"path": path, **asdict(garbage)})
    else:
        rows = [(garbage.key, str(garbage.size), garbage.why) for garbage in report.objects]
        session.output.table(path, ("object", "bytes", "why it would go"), rows)


def summary(path: str, report: GcReport) -> dict[str, Any]:
    """A round in a few numbers."""
    return {
        "path": path,
        "dry_run": report.dry_run,
        "objects": len(report.objects),
        "deleted_bytes": report.deleted_bytes,
        "manifest_versions": report.manifest_versions,
        "expired_checkpoints": [str(checkpoint) for checkpoint in report.expired_checkpoints],
        "waiting": report.waiting,
        "blocked_by": [str(blocking) for blocking in report.blocked_by],
        "evicted": [str(compaction) for compaction in report.evicted],
        "truncated": report.truncated,
        "detached": report.detached,
        "removed": report.removed,
        "abandoned": list(report.abandoned),
        "manifest_version": report.manifest_version,
    }
