"""Point reads of what is in no cache, from an S3 that takes 20 ms for any request: how long, and how many requests."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence

from slate_async.objectstore.protocol import Span
from slate_async.objectstore.store_url import parse_url
from slate_async.objectstore.url import open_store
from slate_async.runtime.concurrent import map_bounded
from slate_async.runtime.system import system_runtime
from tests.benchmarks.engines import Still, StillSlateDB, taking_turns
from tests.benchmarks.engines.protocol import OnS3
from tests.benchmarks.family import Family
from tests.benchmarks.goals import OURS, Goal
from tests.benchmarks.rounds import Turn, require
from tests.benchmarks.rows import Pair, cut, make_rows
from tests.benchmarks.slow_s3 import SlowS3, slow_s3

BUCKET = "bench"
STORE, RANGES = "the store", "the store by ranges"
DELAY_S = 0.02
BLOCK_BYTES = 32 << 10
APART = 500
"""Rows from one key that is read to the next: further apart than a block is long."""
TOGETHER = 256
FIRST, EACH, LATENCY = "GETs of the first read of an SST", "GETs of a cold read", "cold read, p50"
SAME, NEAR = "GETs of 256 reads of one cold row at once", "GETs of 256 reads of neighbours at once"
SAME_TIME, NEAR_TIME = "256 reads of one cold row at once", "256 reads of neighbours at once"
SCAN = "cold scan in batches, rows of 1,000 bytes"
LARGE, LARGE_VALUE_BYTES = "-large", 1_000
RANGE_BYTES, RANGES_AT_ONCE = 4 << 20, 4


async def build(kind: type[OnS3], s3: SlowS3, path: str, rows: list[Pair]) -> None:
    """``rows`` in one SST. It is closed, so that nothing is cached."""
    engine = await kind.start_on_s3(s3.url, BUCKET, path)
    try:
        await engine.write_all(list(cut(rows, 1_000)))
        await engine.flush()
    finally:
        await engine.stop()


async def read(engine: OnS3, rows: Sequence[Pair]) -> list[float]:
    """Milliseconds each read took, one after the other."""
    took = []
    for key, value in rows:
        started = time.perf_counter()
        found = await engine.get_all([key])
        took.append(1000 * (time.perf_counter() - started))
        require(found == [value], engine.name, "a cold read")
    return took


async def read_together(engine: OnS3, rows: Sequence[Pair]) -> float:
    """Milliseconds for all of them at once."""
    started = time.perf_counter()
    found = await asyncio.gather(*(engine.get_all([key]) for key, _ in rows))
    took = 1000 * (time.perf_counter() - started)
    require(found == [[value] for _, value in rows], engine.name, "cold reads at once")
    return took


async def measure(turn: Turn, s3: SlowS3, kind: type[OnS3], ordered: list[Pair]) -> None:
    """The last part of ``ordered`` is read at once, the rest row by row."""
    spread = ordered[: -4 * APART : APART]
    engine = await kind.start_on_s3(s3.url, BUCKET, kind.name)

    def gets_since(before: int) -> int:
        return s3.counts()["GET"] - before

    try:
        before = s3.counts()["GET"]
        await read(engine, spread[:1])
        turn.record(FIRST, kind.name, gets_since(before), "requests")
        before = s3.counts()["GET"]
        took = await read(engine, spread[1:])
        turn.record(EACH, kind.name, gets_since(before) / len(took), "requests")
        turn.record(LATENCY, kind.name, statistics.median(took), "ms")
        same = [ordered[-3 * APART]] * TOGETHER
        near = ordered[-TOGETHER - APART : -APART]
        for requests, total, rows in ((SAME, SAME_TIME, same), (NEAR, NEAR_TIME, near)):
            before = s3.counts()["GET"]
            turn.record(total, kind.name, await read_together(engine, rows), "ms")
            turn.record(requests, kind.name, gets_since(before), "requests")
    finally:
        await engine.stop()


async def measure_scan(turn: Turn, s3: SlowS3, kind: type[OnS3], rows: int) -> None:
    """Everything in batches, right after opening."""
    engine = await kind.start_on_s3(s3.url, BUCKET, kind.name + LARGE)
    try:
        with turn.timed(SCAN, kind.name, rows):
            count = await engine.scan_batches()
        require(count == rows, kind.name, "a cold scan")
    finally:
        await engine.stop()


async def measure_store(turn: Turn, s3: SlowS3, rows: int) -> None:
    """A range GET of a block of our SST, by our client; and one of a whole large SST, as the rows that it holds."""
    store, _ = open_store(parse_url(f"s3://{BUCKET}?endpoint_url={s3.url}"), system_runtime())
    try:
        (sst,) = [info async for info in store.list(f"{OURS}/sst/")]
        (large,) = [info async for info in store.list(f"{OURS}{LARGE}/sst/")]
        length = min(BLOCK_BYTES, sst.size)
        took = []
        for number in range(turn.plan.choose(3, 60, 100)):
            started = time.perf_counter()
            await store.get(sst.key, Span(number * length % (sst.size - length + 1), length))
            took.append(1000 * (time.perf_counter() - started))
        turn.record(LATENCY, STORE, statistics.median(took), "ms")
        with turn.timed(SCAN, STORE, rows):
            await store.get(large.key)
        starts = range(0, large.size, RANGE_BYTES)
        with turn.timed(SCAN, RANGES, rows):
            await map_bounded(lambda at: store.get(large.key, Span(at, RANGE_BYTES)), starts, RANGES_AT_ONCE)
    finally:
        await store.close()


async def one_round(turn: Turn) -> None:
    rows = make_rows(turn.plan.choose(4_000, 30_000, 50_000), turn.number)
    large = make_rows(turn.plan.choose(100, 20_000, 20_000), turn.number, LARGE_VALUE_BYTES)
    ordered = sorted(rows)
    with slow_s3() as s3:
        s3.make_bucket(BUCKET)
        kinds: Sequence[type[OnS3]] = taking_turns(turn, Still, StillSlateDB)
        for kind in {Still, *kinds}:
            await build(kind, s3, kind.name, rows)
            await build(kind, s3, kind.name + LARGE, large)
        s3.answer_after(turn.plan.choose(0.0, DELAY_S, DELAY_S))
        await measure_store(turn, s3, len(large))
        for kind in kinds:
            await measure(turn, s3, kind, ordered)
            await measure_scan(turn, s3, kind, len(large))


FAMILY = Family(
    "cold",
    "Cold reads, S3 that takes 20 ms",
    (
        Goal(4, EACH, 1, most=True),
        Goal(4, FIRST, 2, most=True),
        Goal(4, LATENCY, 1.2, (LATENCY, STORE), most=True),
        Goal(4, SAME, 1, most=True),
        Goal(4, NEAR, 4, most=True),
        Goal(5, SCAN, 0.7, (SCAN, STORE)),
        Goal(5, SCAN, 0.7, (SCAN, RANGES)),
    ),
    one_round,
    notes=(
        "The first read is also given the index and the filter; the store: a range GET of 32 KiB by our client,"
        " and for the scan one GET of the whole SST (20 MB). By ranges: range GETs of 4 MiB, four at a time; this S3"
        " copies the whole object for each.",
        "256 neighbours lie in two or three blocks of ours (32 KiB), and in eight or nine of slatedb's (4 KiB).",
        "slatedb's scan reads 4 MiB ahead; by default it asks for one block after the other.",
        "Neither asks the store for anything by itself meanwhile: no polls, no compaction.",
    ),
)
