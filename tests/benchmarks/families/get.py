"""Point reads of warm data: from the memtable, from one sorted run, from 8 L0 SSTs above 4 runs, of missing keys."""

from __future__ import annotations

import random

from tests.benchmarks.engines import (
    Dict,
    Lmdb,
    PromptSlateDB,
    Rocks,
    RocksTuned,
    SlateAsync,
    SlateDB,
    Uncompacted,
    taking_turns,
)
from tests.benchmarks.engines.protocol import Compacts, Engine, ManyGets, started
from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.rounds import Turn, require
from tests.benchmarks.rows import Pair, cut, make_rows, missing_keys

ENGINES = (SlateAsync, SlateDB, Rocks, RocksTuned, Lmdb, Dict)
FLUSHED_ENGINES = (SlateAsync, PromptSlateDB, Rocks, RocksTuned)
RUNS, L0_SSTS = 4, 8
MANY = 100
MEMTABLE, RUN, RUN_MISSING, RUN_MANY = "memtable", "one run", "one run, missing key", "one run, get_many of 100"
SHAPE, SHAPE_MISSING, SHAPE_MANY = "8 L0 and 4 runs", "8 L0 and 4 runs, missing key", "8 L0 and 4 runs, get_many of 100"


async def measure(turn: Turn, engine: Engine, measure: str, rows: list[Pair], subject: str) -> None:
    """Get ``rows`` one by one, warm, and check them."""
    keys = [key for key, _ in rows]
    await engine.get_all(keys)
    with turn.timed(measure, subject, len(keys)):
        found = await engine.get_all(keys)
    require(found == [value for _, value in rows], subject, f"get, {measure}")


async def measure_missing(turn: Turn, engine: Engine, measure: str, count: int, subject: str) -> None:
    keys = missing_keys(count, turn.number)
    await engine.get_all(keys)
    with turn.timed(measure, subject, count):
        found = await engine.get_all(keys)
    require(found == [None] * count, subject, f"get, {measure}")


async def measure_many(turn: Turn, engine: Engine, measure: str, rows: list[Pair], subject: str) -> None:
    if not isinstance(engine, ManyGets):
        return
    pieces = list(cut([key for key, _ in rows], MANY))
    with turn.timed(measure, subject, len(rows)):
        found = [await engine.get_many(piece) for piece in pieces]
    require([value for part in found for value in part] == [value for _, value in rows], subject, measure)


async def build_shape(engine: Engine, rows: list[Pair]) -> None:
    """Half of ``rows`` in four runs (of ours; others do as they do by default), the rest in eight L0 SSTs above."""
    half = len(rows) // 2
    for part in cut(rows[:half], -(-half // RUNS)):
        await engine.put_all(part)
        await engine.flush()
        if isinstance(engine, Uncompacted):
            await engine.db.compact(level=0)
    for part in cut(rows[half:], -(-(len(rows) - half) // L0_SSTS)):
        await engine.put_all(part)
        await engine.flush()
    if isinstance(engine, Uncompacted):
        status = engine.db.status()
        require((status.l0_ssts, status.sorted_runs) == (L0_SSTS, RUNS), OURS, "the shape of the test")


async def one_round(turn: Turn) -> None:
    rows = make_rows(turn.plan.choose(200, 50_000, 100_000), turn.number)
    sample = random.Random(turn.number).sample(rows, turn.plan.choose(100, 10_000, 50_000))
    slow = sample[: turn.plan.choose(100, 2_000, 5_000)]
    for kind in taking_turns(turn, *ENGINES):
        mine = slow if issubclass(kind, SlateDB) else sample
        async with started(kind) as engine:
            await engine.write_all(list(cut(rows, 1_000)))
            if isinstance(engine, SlateAsync):
                await engine.db.flush()  # the log; the rows stay in the memtable
            await measure(turn, engine, MEMTABLE, mine, kind.name)
            if kind in (Lmdb, Dict):
                continue
            await (engine.compact() if isinstance(engine, Compacts) else engine.flush())
            await measure(turn, engine, RUN, mine, kind.name)
            await measure_missing(turn, engine, RUN_MISSING, len(mine), kind.name)
            await measure_many(turn, engine, RUN_MANY, mine, kind.name)
    for kind in taking_turns(turn, *FLUSHED_ENGINES):
        mine = slow if issubclass(kind, SlateDB) else sample
        async with started(Uncompacted if kind is SlateAsync else kind) as engine:
            await build_shape(engine, rows)
            await measure(turn, engine, SHAPE, mine, kind.name)
            await measure_missing(turn, engine, SHAPE_MISSING, len(mine), kind.name)
            await measure_many(turn, engine, SHAPE_MANY, mine, kind.name)


FAMILY = Family(
    "get",
    "Point reads, warm",
    (
        Goal(3, MEMTABLE, 1_500_000),
        Goal(3, RUN, 1, (RUN, "rocksdict")),
        Goal(3, RUN, 25, (RUN, "slatedb")),
        Goal(3, SHAPE, 0.5, (SHAPE, "rocksdict")),
        Goal(3, RUN_MISSING, 2, (RUN, OURS)),
        Goal(3, SHAPE_MISSING, 2, (SHAPE, OURS)),
        Goal(3, RUN_MANY, 2, (RUN, OURS)),
        Goal(3, SHAPE_MANY, 2, (SHAPE, OURS)),
    ),
    one_round,
    notes=(
        "Of slate_async there are 8 L0 SSTs and 4 runs; the others get the same 12 flushes and do as they do.",
        "slatedb's compactor looks for work every 50 ms there, not every 5 s, for its flushes wait for it.",
        "rocksdict: default options, no filters; tuned: filters of 10 bits a key, a block cache of 64 MiB.",
        "lmdb and dict are ceilings, not engines on an object store; lmdb reads in one transaction.",
    ),
)
