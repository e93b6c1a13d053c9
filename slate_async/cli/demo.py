"""``demo``: the life of a small database on a temporary folder, each step checked and timed."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slate_async.cli.exit_codes import BUG, OK
from slate_async.cli.session import ReadableDatabase, Session, WritableDatabase
from slate_async.cli.transfer import Bar, progress_bar
from slate_async.runtime.protocol import Clock
from slate_async.runtime.system import SystemClock

WRITERS = 64
PREFIX = b"user:"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the demo: what it did, how many rows, how long, and whether all was as it must be."""

    name: str
    rows: int
    seconds: float
    good: bool


async def demo(session: Session, rows: int) -> int:
    """Run the demo. Whatever ``--path`` says is left alone."""
    with tempfile.TemporaryDirectory(prefix="slate-demo-") as folder:
        here = Session(str(Path(folder) / "db"), None, session.settings_file, session.verbose, session.output)
        steps = await _steps(here, rows)
    _report(session, steps)
    return OK if all(step.good for step in steps) else BUG


async def _steps(session: Session, rows: int) -> list[Step]:
    clock: Clock = SystemClock()
    steps = []
    with progress_bar(session, rows, "writing") as bar:
        async with session.writing(create=True) as database:
            steps.append(await _timed(clock, f"put durably from {WRITERS} tasks", lambda: _write(database, rows, bar)))
    async with session.reading() as again:
        steps.append(await _timed(clock, "get every row after opening again", lambda: _get(again, rows)))
        steps.append(await _timed(clock, "scan in key order", lambda: _scan(again, rows)))
    return steps


async def _timed(clock: Clock, name: str, work: Callable[[], Any]) -> Step:
    begin = clock.monotonic()
    count, good = await work()
    return Step(name, count, clock.monotonic() - begin, good)


def key_of(number: int) -> bytes:
    """The demo's key of row ``number``."""
    return PREFIX + b"%08d" % number


def value_of(number: int) -> bytes:
    """The demo's value of row ``number``."""
    return b'{"id":%d,"name":"name %d"}' % (number, number)


async def _write(database: WritableDatabase, rows: int, bar: Bar) -> tuple[int, bool]:
    done = 0

    async def writer(first: int) -> None:
        nonlocal done
        for number in range(first, rows, WRITERS):
            await database.put(key_of(number), value_of(number))
            done += 1
            bar.to(done)

    async with asyncio.TaskGroup() as group:
        for first in range(min(WRITERS, rows)):
            group.create_task(writer(first), name=f"demo writer {first}")
    return done, done == rows


async def _get(database: ReadableDatabase, rows: int) -> tuple[int, bool]:
    good = 0
    for number in range(rows):
        good += await database.get(key_of(number)) == value_of(number)
    return good, good == rows


async def _scan(database: ReadableDatabase, rows: int) -> tuple[int, bool]:
    number = 0
    good = True
    async for key, value in database.scan(prefix=PREFIX):
        good = good and key == key_of(number) and value == value_of(number)
        number += 1
    return number, good and number == rows


def _report(session: Session, steps: list[Step]) -> None:
    if session.output.as_json:
        for step in steps:
            session.output.json(
                {"step": step.name, "rows": step.rows, "seconds": round(step.seconds, 3), "good": step.good}
            )
        return
    cells = [
        (
            step.name,
            f"{step.rows:,}",
            f"{step.seconds:.2f} s",
            f"{step.rows / max(step.seconds, 1e-9):,.0f}/s",
            "all there" if step.good else "ROWS MISSING OR WRONG",
        )
        for step in steps
    ]
    session.output.table("a database's life", ("step", "rows", "time", "rate", "result"), cells)
