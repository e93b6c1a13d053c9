"""Writes into memory: one by one, and in batches of 1,000; and until all of it is in an SST."""

from __future__ import annotations

from tests.benchmarks.engines import Dict, Lmdb, Rocks, RocksNoWal, SlateAsync, SlateDB, taking_turns
from tests.benchmarks.engines.protocol import Engine, started
from tests.benchmarks.family import Family
from tests.benchmarks.goals import Goal
from tests.benchmarks.rounds import Turn, require
from tests.benchmarks.rows import Pair, cut, make_rows

ENGINES = (SlateAsync, SlateDB, Rocks, RocksNoWal, Lmdb, Dict)
BATCH_ROWS = 1_000
PUT, WRITE, SUSTAINED = "put", "write of 1,000 rows", "put, then flush to an SST"


async def check(engine: Engine, rows: list[Pair]) -> None:
    found = await engine.get_all([key for key, _ in rows])
    require(found == [value for _, value in rows], engine.name, "a read of what was put")


async def one_round(turn: Turn) -> None:
    rows = make_rows(turn.plan.choose(300, 50_000, 200_000), turn.number)
    few = rows[: turn.plan.choose(100, 10_000, 20_000)]
    batches = list(cut(rows, BATCH_ROWS))
    for kind in taking_turns(turn, *ENGINES):
        mine = few if kind is SlateDB else rows
        async with started(kind) as engine:
            with turn.timed(PUT, engine.name, len(mine)):
                await engine.put_all(mine)
            await check(engine, mine)
        async with started(kind) as engine:
            with turn.timed(WRITE, engine.name, len(rows)):
                await engine.write_all(batches)
            await check(engine, mine)
        if kind in (Dict, Lmdb):
            continue
        async with started(kind) as engine:
            with turn.timed(SUSTAINED, engine.name, len(mine)):
                await engine.put_all(mine)
                await engine.flush()


FAMILY = Family(
    "put",
    "Writes into memory",
    (
        Goal(1, PUT, 1.2, (PUT, "rocksdict")),
        Goal(1, PUT, 40, (PUT, "slatedb")),
        Goal(1, WRITE, 1_000_000),
    ),
    one_round,
    notes=(
        "rocksdict: raw mode, default options: a put is in its WAL, not synced.",
        "slate_async and slatedb: the log is uploaded meanwhile to a local folder, and synced there by slate_async.",
        "lmdb: everything in one transaction, not synced. slatedb puts a tenth of the rows, the rate is the same.",
    ),
)
