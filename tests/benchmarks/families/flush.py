"""Flush of a memtable to an SST, and compaction of three SSTs into a run: megabytes of rows in, by time and by core."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from tests.benchmarks.engines import PromptSlateDB, Rocks, Uncompacted, Uncompressed, taking_turns
from tests.benchmarks.engines.protocol import Compacts, Engine, started
from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.rounds import Turn, require, stopwatch
from tests.benchmarks.rows import ROW_BYTES, Pair, compressible_rows, cut

ENGINES = (Uncompacted, Uncompressed, PromptSlateDB, Rocks)
SSTS = 3
"""Fewer than any engine compacts by itself."""
SAMPLE = 1_000
FLUSH, FLUSH_CORE, COMPACT, COMPACT_CORE = "flush", "flush, a core", "compaction", "compaction, a core"


@contextmanager
def timed_both(turn: Turn, measures: tuple[str, str], subject: str, rows: int) -> Iterator[None]:
    """Record megabytes of rows for each second, and for each second of any core."""
    with stopwatch() as watch:
        yield
    for measure, clock in zip(measures, ("wall", "cpu"), strict=True):
        turn.record(measure, subject, rows * ROW_BYTES / 1e6 / watch.seconds[clock], "MB/s")


async def check(engine: Engine, rows: list[Pair], seed: int) -> None:
    sample = random.Random(seed).sample(rows, min(len(rows), SAMPLE))
    found = await engine.get_all([key for key, _ in sample])
    require(found == [value for _, value in sample], engine.name, "a read")


async def one_round(turn: Turn) -> None:
    each = turn.plan.choose(500, 50_000, 150_000)
    rows = compressible_rows(each * SSTS, turn.number)
    *earlier, last = cut(rows, each)
    for kind in taking_turns(turn, *ENGINES):
        async with started(kind) as engine:
            for part in earlier:
                await engine.write_all(list(cut(part, 1_000)))
                await engine.flush()
            await engine.write_all(list(cut(last, 1_000)))
            if isinstance(engine, Uncompacted):
                await engine.db.flush()  # the log, which others have in place by now
            with timed_both(turn, (FLUSH, FLUSH_CORE), engine.name, each):
                await engine.flush()
            assert isinstance(engine, Compacts)
            with timed_both(turn, (COMPACT, COMPACT_CORE), engine.name, len(rows)):
                await engine.compact()
            await check(engine, rows, turn.number)
            if isinstance(engine, Uncompacted):
                status = engine.db.status()
                require((status.l0_ssts, status.sorted_runs) == (0, 1), OURS, "compaction")


FAMILY = Family(
    "flush",
    "Flush and compaction",
    (Goal(6, FLUSH_CORE, 150), Goal(6, COMPACT_CORE, 150), Goal(6, COMPACT, 1, (COMPACT, "slatedb"))),
    one_round,
    notes=(
        "Megabytes of keys and values, whose values halve when compressed; slate_async: zstd by default, and none.",
        "A core: for each second of processor time of the whole process, background threads included.",
        "slatedb compacts uncompressed, as by default, looking for work every 50 ms; rocksdict compact_range.",
    ),
)
