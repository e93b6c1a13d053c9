"""Merges: how fast they are written beside puts, and what a get costs over operands that are not folded yet."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import slate_async
from slate_async.merge_operators.values import AddI64, pack_i64
from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.rounds import Turn, require

PUT, INCREMENT, MERGE = "put", "increment of what was put", "merge"
MEMORY, STORED, FOLDED = "get over 1,000 operands in memory", "over 1,000 stored ones", "of a folded value"
CALLS = "operator calls of a get over 1,000 operands"
OPERANDS = 1_000
ONE = pack_i64(1)


class Counted(AddI64):
    """``add_i64`` that counts how often a value is made, and has no fold, so that a flush leaves operands apart."""

    name = "bench_counted"
    applied = 0

    def fold(self, operands: Sequence[bytes]) -> None:  # type: ignore[override]
        """See `MergeOperator`."""

    def apply(self, base: bytes | None, operands: Sequence[bytes]) -> bytes:
        """See `MergeOperator`."""
        Counted.applied += 1
        return AddI64.fold(self, operands if base is None else [base, *operands])


COUNTED = Counted()


async def one_round(turn: Turn) -> None:
    writes, gets = turn.plan.choose(500, 20_000, 50_000), turn.plan.choose(5, 100, 300)
    slate_async.register_merge_operator(COUNTED)
    settings = slate_async.Settings(merge_operator=COUNTED.name, auto_compaction=False)
    with tempfile.TemporaryDirectory() as folder:
        async with slate_async.open(Path(folder).as_uri(), settings=settings) as db:
            keys = [b"key-%06d" % number for number in range(writes)]
            with turn.timed(PUT, OURS, writes):
                for key in keys:
                    await db.put(key, ONE, await_durable=False)
            with turn.timed(INCREMENT, OURS, writes):
                for key in keys:
                    await db.increment(key, await_durable=False)
            with turn.timed(MERGE, OURS, writes):
                for key in keys:
                    await db.merge(key, ONE, await_durable=False)
            for _ in range(OPERANDS):
                await db.merge(b"hot", ONE, await_durable=False)
            await _gets(turn, db, MEMORY, gets)
            await db.flush(l0=True)
            await _gets(turn, db, STORED, gets)
            await db.compact(full=True)
            await _gets(turn, db, FOLDED, gets)


async def _gets(turn: Turn, db: slate_async.Db, measure: str, gets: int) -> None:
    await db.get(b"hot")
    Counted.applied = 0
    began = time.perf_counter()
    for _ in range(gets):
        require(await db.get(b"hot") == pack_i64(OPERANDS), OURS, measure)
    turn.record(measure, OURS, 1e6 * (time.perf_counter() - began) / gets, "us")
    if measure == MEMORY:
        turn.record(CALLS, OURS, Counted.applied / gets, "calls")


FAMILY = Family(
    "merge",
    "Merges, and gets of what was merged",
    (Goal(16, MERGE, 0.8, (PUT, OURS)), Goal(16, CALLS, 1, most=True)),
    one_round,
    notes=("Writes are not waited for; keys are in memory. Compaction by itself is off, so operands stay apart.",),
)
