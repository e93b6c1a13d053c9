"""Tables in a local folder beside delta-rs and pyiceberg: appends, scans, upserts, and opening after many commits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.benchmarks.engines import installed
from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.rounds import Turn, folder, require
from tests.benchmarks.tables.lakes import LAKES, Delta, Iceberg, Lake, Ours, rows_of
from tests.benchmarks.tables.planning import open_and_plan

APPEND, SCAN, RANGE = "append at once", "scan of all", "scan of 1 %, in blocks of their own"
ONE, MANY = "appends of a row, one after another", "appends of a row, from 64 tasks"
UPSERT, PLAN = "upsert of 1 % of the rows", "open and plan after many commits"
TASKS = 64


def _lakes(turn: Turn, *kinds: type[Lake]) -> list[type[Lake]]:
    return [kind for kind in turn.in_order(kinds) if installed(kind.module) and turn.plan.takes(kind.name)]


async def _large(turn: Turn, kind: type[Lake]) -> None:
    """An append of many rows at once, a scan of them, and an upsert into them."""
    count = turn.plan.choose(2_000, 200_000, 1_000_000)
    rows, changed = rows_of(0, count), rows_of(count // 2, count // 100)
    with folder() as path:
        lake = kind()
        await lake.create(path)
        with turn.timed(APPEND, kind.name, count):
            await lake.append(rows)
        with turn.timed(SCAN, kind.name, count):
            found = await lake.scan()
        require(found.num_rows == count, kind.name, SCAN)
        if kind is not Iceberg:
            with turn.timed(UPSERT, kind.name, changed.num_rows):
                await lake.upsert(changed)
            require((await lake.scan()).num_rows == count, kind.name, UPSERT)
        await lake.close()


async def _pruned(turn: Turn, kind: type[Lake]) -> None:
    """A hundred blocks, of which one has the rows that are asked for."""
    each = turn.plan.choose(20, 2_000, 20_000)
    with folder() as path:
        lake = kind()
        await lake.create(path)
        for block in range(100):
            await lake.append(rows_of(block * each, each))
        times = turn.plan.choose(1, 5, 10)
        with turn.timed(RANGE, kind.name, times, "scans/s"):
            for at in range(times):
                found = await lake.range(at * 7 * each, at * 7 * each + each)
        require(found.num_rows == each, kind.name, RANGE)
        await lake.close()


async def _small(turn: Turn, kind: type[Lake]) -> None:
    """Appends of a row."""
    count = turn.plan.choose(2, 20, 50) if kind is not Iceberg else turn.plan.choose(1, 5, 10)
    rows = [rows_of(at, 1) for at in range(count)]
    with folder() as path:
        lake = kind()
        await lake.create(path)
        with turn.timed(ONE, kind.name, count):
            for row in rows:
                await lake.append(row)
        if kind is Ours:
            await _from_tasks(turn, lake)
        await lake.close()


async def _from_tasks(turn: Turn, lake: Lake) -> None:
    each = turn.plan.choose(1, 10, 20)
    before = (await lake.scan()).num_rows

    async def work(task: int) -> None:
        for at in range(each):
            await lake.append(rows_of(task * each + at, 1))

    with turn.timed(MANY, OURS, TASKS * each):
        await asyncio.gather(*(work(task) for task in range(TASKS)))
    require((await lake.scan()).num_rows == before + TASKS * each, OURS, MANY)


async def _planned(turn: Turn, kind: type[Lake]) -> None:
    commits = turn.plan.choose(3, 100, 1_000)
    with folder() as path:
        await open_and_plan(turn, PLAN, kind, path, commits)


STEPS: tuple[tuple[Callable[[Turn, type[Lake]], Coroutine[Any, Any, None]], tuple[type[Lake], ...]], ...] = (
    (_large, LAKES),
    (_pruned, LAKES),
    (_small, LAKES),
    (_planned, LAKES),
)


async def one_round(turn: Turn) -> None:
    for step, kinds in STEPS:
        for kind in _lakes(turn, *kinds):
            await step(turn, kind)


FAMILY = Family(
    "tables",
    "Tables: appends, scans, upserts, opening",
    (
        Goal(1, APPEND, 0.9, (APPEND, Delta.name)),
        Goal(2, SCAN, 0.9, (SCAN, Delta.name)),
        Goal(3, RANGE, 2, (RANGE, Delta.name)),
        Goal(4, RANGE, 5, (RANGE, Iceberg.name)),
        Goal(5, ONE, 2, (ONE, Delta.name)),
        Goal(6, ONE, 15, (ONE, Iceberg.name)),
        Goal(7, MANY, 20, (ONE, Delta.name)),
        Goal(8, PLAN, 3, (PLAN, Delta.name)),
        Goal(9, PLAN, 10, (PLAN, Iceberg.name)),
        Goal(10, UPSERT, 2, (UPSERT, Delta.name)),
    ),
    one_round,
    notes=(
        "A local folder. Each scan opens the table again. pyiceberg keeps its catalog in SQLite; its upsert takes"
        " minutes, and is left out.",
        "Opening and planning: ten blocks a commit, of which only the metadata exist.",
    ),
    most_rounds=5,
)
