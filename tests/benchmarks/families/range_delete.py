"""Range deletes: how long one takes, what the next compaction gives back, and gets beside 1,000 of them."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import slate_async
from tests.benchmarks.engines import Rocks, RocksTuned, Uncompacted, taking_turns
from tests.benchmarks.engines.protocol import started
from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.rounds import Turn, require
from tests.benchmarks.rows import Pair

RANGES = 1_000
DELETE, COMPACTION, LEFT = "delete of all rows", "the compaction after it", "stored bytes after it, of those before"
MEMORY, STORED, ABOVE = "get in memory", "get of stored rows", "get of stored rows, range deletes in memory"
BESIDE, MISSING = "{}, beside 1,000 range deletes", "{}, of deleted keys"
VALUE = b"v" * 100
BATCH_ROWS = 1_000


def key_of(number: int) -> bytes:
    return b"key-%012d" % number


class RangeDeletes:
    """``count`` rows, of which 1,000 ranges are deleted: in each 1,000th of them every tenth row."""

    def __init__(self, count: int, seed: int, gets: int) -> None:
        self.width = count // RANGES
        deleted = max(1, self.width // 10)
        self.rows = [(key_of(number), VALUE) for number in range(count)]
        self.ranges = [(key_of(at), key_of(at + deleted)) for at in range(0, count, self.width)]
        rng = random.Random(seed)
        rng.shuffle(self.rows)
        live = [number for number in range(count) if number % self.width >= deleted]
        self.sample = [(key_of(number), VALUE) for number in rng.sample(live, min(gets, len(live)))]
        self.missing = [key_of(number) for number in range(count) if number % self.width < deleted][:gets]


async def write_all(db: slate_async.Db, rows: Sequence[Pair]) -> None:
    for at in range(0, len(rows), BATCH_ROWS):
        batch = slate_async.WriteBatch()
        for key, value in rows[at : at + BATCH_ROWS]:
            batch.put(key, value)
        await db.write(batch, await_durable=False)


async def get_all(turn: Turn, engine: Uncompacted | Rocks, measure: str, work: RangeDeletes, covered: bool) -> None:
    """Get the sample, warm; where ranges are deleted, keys of those, too."""
    keys = [key for key, _ in work.sample]
    await engine.get_all(keys)
    name = BESIDE.format(measure) if covered else measure
    with turn.timed(name, engine.name, len(keys)):
        found = await engine.get_all(keys)
    require(found == [value for _, value in work.sample], engine.name, name)
    if covered:
        name = MISSING.format(measure)
        await engine.get_all(work.missing)
        with turn.timed(name, engine.name, len(work.missing)):
            found = await engine.get_all(work.missing)
        require(found == [None] * len(work.missing), engine.name, name)


async def ours(turn: Turn, work: RangeDeletes, covered: bool) -> None:
    async with started(Uncompacted) as engine:
        await write_all(engine.db, work.rows)
        if covered:
            await delete_all(engine.db, work)
        await get_all(turn, engine, MEMORY, work, covered)
    async with started(Uncompacted) as engine:
        await write_all(engine.db, work.rows)
        await engine.flush()
        if covered:
            await delete_all(engine.db, work)
            await get_all(turn, engine, ABOVE, work, covered)
            await engine.flush()
            stored = engine.db._writer.state.manifest.range_deletes
            require(len(stored or ()) == RANGES, OURS, "range deletes are stored")
        await get_all(turn, engine, STORED, work, covered)


async def delete_all(db: slate_async.Db, work: RangeDeletes) -> None:
    for start, end in work.ranges:
        await db.delete_range(start, end, await_durable=False)
    await db.flush()


async def rocks(turn: Turn, kind: type[Rocks], work: RangeDeletes, covered: bool) -> None:
    for measure in (MEMORY, STORED):
        async with started(kind) as engine:
            await engine.write_all([work.rows])
            if measure == STORED:
                await engine.flush()
            if covered:
                for start, end in work.ranges:
                    await engine.delete_range(start, end)
                if measure == STORED:
                    await engine.flush()
            await get_all(turn, engine, measure, work, covered)


async def delete_many(turn: Turn, count: int) -> None:
    """All of ``count`` rows, which are in one run."""
    async with started(Uncompacted) as engine:
        db = engine.db
        for at in range(0, count, 100_000):
            await write_all(db, [(key_of(number), VALUE) for number in range(at, min(count, at + 100_000))])
        await db.compact(full=True)
        before = db.status().sst_bytes
        began = time.perf_counter()
        await db.delete_range(None, None)
        turn.record(DELETE, OURS, 1e3 * (time.perf_counter() - began), "ms")
        began = time.perf_counter()
        await db.compact()
        turn.record(COMPACTION, OURS, 1e3 * (time.perf_counter() - began), "ms")
        turn.record(LEFT, OURS, db.status().sst_bytes / before, "of the bytes")
        require([row async for row in db.scan(limit=1)] == [], OURS, DELETE)


async def one_round(turn: Turn) -> None:
    if not turn.number:
        await delete_many(turn, turn.plan.choose(2_000, 200_000, 10_000_000))
    work = RangeDeletes(turn.plan.choose(2_000, 50_000, 80_000), turn.number, turn.plan.choose(100, 10_000, 10_000))
    for kind in taking_turns(turn, Uncompacted, Rocks, RocksTuned):
        for covered in turn.in_order((False, True)):
            if issubclass(kind, Rocks):
                await rocks(turn, kind, work, covered)
            else:
                await ours(turn, work, covered)


FAMILY = Family(
    "range-delete",
    "Range deletes, and gets beside them",
    (
        Goal(15, DELETE, 100, most=True),
        Goal(15, LEFT, 0.001, most=True),
        Goal(15, BESIDE.format(MEMORY), 0.8, (MEMORY, OURS)),
        Goal(15, BESIDE.format(STORED), 0.8, (STORED, OURS)),
        Goal(15, BESIDE.format(ABOVE), 0.8, (STORED, OURS)),
    ),
    one_round,
    notes=(
        "10 million rows of 100 bytes in one run go by one call, in the first round; the quick size has 200,000.",
        "1,000 range deletes lie between the keys that are read, and hide a tenth of the rows. No compaction runs.",
        "slatedb has no range deletes. rocksdict: as in the family get.",
    ),
)
