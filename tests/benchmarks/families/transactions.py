"""Transactions in memory: one beside a get and a put, and how many commit a second when many tasks want few keys."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from tests.benchmarks.engines import SlateAsync, SlateDB, taking_turns
from tests.benchmarks.engines.protocol import Engine, Transacts, started
from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.rounds import Samples, Turn, require
from tests.benchmarks.rows import make_rows

ENGINES = (SlateAsync, SlateDB)
READ_WRITE, TRANSACTION, UPDATE = "get, then put", "transaction of a get and a put", "update"
HOT_KEYS = [b"hot%d" % number for number in range(10)]
SERIAL = "increments, one after another"
TASKS = (4, 16, 64, 256)


def of_tasks(tasks: int) -> str:
    """The measure of so many tasks."""
    return f"increments of 10 keys, {tasks} tasks"


async def increments(engine: Transacts, total: int, tasks: int, seed: int) -> None:
    """``total`` increments of random keys, each task as many as the others."""
    rng = random.Random(seed)
    keys = [[rng.choice(HOT_KEYS) for _ in range(total // tasks)] for _ in range(tasks)]

    async def work(mine: list[bytes]) -> None:
        for key in mine:
            await engine.increment(key)

    await asyncio.gather(*map(work, keys))


async def measure_contention(turn: Turn, engine: Any, total: int) -> None:
    done = 0
    for tasks in (1, *TASKS):
        with turn.timed(SERIAL if tasks == 1 else of_tasks(tasks), engine.name, total, "increments/s"):
            await increments(engine, total, tasks, turn.number)
        done += total // tasks * tasks
        found = await engine.get_all(HOT_KEYS)
        require(sum(int(value or b"0") for value in found) == done, engine.name, "a count of increments")


async def one_round(turn: Turn) -> None:
    rows = make_rows(turn.plan.choose(200, 20_000, 50_000), turn.number)
    few = rows[: turn.plan.choose(100, 2_000, 5_000)]
    for kind in taking_turns(turn, *ENGINES):
        mine = few if kind is SlateDB else rows
        async with started(kind) as engine:
            assert isinstance(engine, Transacts)
            await engine.put_all(mine)
            for measure, call in ((READ_WRITE, engine.read_write_all), (TRANSACTION, engine.transact_all)):
                with turn.timed(measure, engine.name, len(mine)):
                    await call(mine)
            if isinstance(engine, SlateAsync):
                with turn.timed(UPDATE, engine.name, len(mine)):
                    await engine.update_all(mine)
            await check(engine, mine)
        async with started(kind) as engine:
            slower = 8 if kind is SlateDB else 1
            await measure_contention(turn, engine, turn.plan.choose(256, 5_120, 25_600) // slower // 256 * 256 or 256)


async def check(engine: Engine, rows: list[tuple[bytes, bytes]]) -> None:
    found = await engine.get_all([key for key, _ in rows])
    require(found == [value for _, value in rows], engine.name, "a read of what transactions wrote")


def plot(samples: Samples) -> Any:
    """Goodput against contention: increments that committed a second, by the number of tasks over ten keys."""
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 4), layout="constrained")
    for subject in sorted(samples.found[SERIAL], key=lambda name: (name != OURS, name)):
        points = [(1, SERIAL), *((tasks, of_tasks(tasks)) for tasks in TASKS)]
        known = [
            (tasks, samples.median(measure, subject)) for tasks, measure in points if samples.has(measure, subject)
        ]
        axis.plot(*zip(*known, strict=True), marker="o", label=subject)
        if subject == OURS:
            axis.axhline(known[0][1] / 2, linestyle=":", color="#475569", label="half of one after another")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xlabel("tasks over 10 keys")
    axis.set_ylabel("increments a second")
    axis.legend()
    return figure


FAMILY = Family(
    "transactions",
    "Transactions",
    (
        Goal(15, TRANSACTION, 0.35, (READ_WRITE, OURS)),
        Goal(15, TRANSACTION, 10, (TRANSACTION, "slatedb")),
        Goal(15, of_tasks(256), 0.5, (SERIAL, OURS)),
    ),
    one_round,
    notes=(
        "One task, nothing waits for durability. Increments give every other task a turn between read and write, and"
        " run again until they commit: ours by `transact`, slatedb's at once.",
        "All increments are counted afterwards. slatedb does an eighth of them, and a tenth of the transactions.",
    ),
    plot=plot,
)
