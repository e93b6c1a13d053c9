"""Where micro-batches end: what `Planner` answers, and that whatever it says, each change is in one micro-batch."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import slate_async as slate
from slate_async.engine.read.bounds import EVERY_KEY
from slate_async.spark.changes import ARROW_CHANGE
from slate_async.spark.stream_options import StreamOptions
from slate_async.spark.stream_plan import Offset, Planner
from slate_async.spark.stream_reader import ChangesReader
from slate_async.spark.typed_rows import LAST_MS
from tests.engine import KINDS, Kind

KIND = pytest.mark.parametrize("kind", KINDS, ids=str)
Fits = Callable[[int, int], bool]


def everything(rows: int, nbytes: int) -> bool:
    return True


def at_most(limit: int) -> Fits:
    return lambda rows, nbytes: rows <= limit


@asynccontextmanager
async def planning(path: Path, **options: object) -> AsyncIterator[Planner]:
    """A planner in an environment of its own, as in a process beside a driver."""
    given = {"path": str(path), **{name: str(value) for name, value in options.items()}}
    async with slate.Environment() as environment:
        planner = Planner(StreamOptions.of(given), environment)
        try:
            yield planner
        finally:
            await planner.close()


async def write(db: slate.Db, rng: random.Random, batches: int) -> None:
    for _ in range(batches):
        batch = slate.WriteBatch()
        for _ in range(rng.randint(1, 9)):
            batch.put(b"%d" % rng.randrange(50), rng.randbytes(rng.randrange(40)))
        batch.delete(b"%d" % rng.randrange(50))
        await db.write(batch)
    await db.flush(l0=True)


async def seqs_of(path: Path, begin: Offset, end: Offset, planner: Planner) -> list[int]:
    """What the tasks of a micro-batch read, in order."""
    async with slate.open_admin(path) as admin:
        found = [
            seq
            for after, until, (first, last) in await planner.ranges(begin, end)
            async for batch in admin.read_changes(end.subscription, after, until, start=first, end=last)
            for seq in batch.column("seq").to_pylist()
        ]
    return sorted(found)


@KIND
async def test_each_change_is_in_one_micro_batch_whichever_process_plans(kind: Kind, tmp_path: Path) -> None:
    """Planners come and go, done or not done with a micro-batch, while everything is compacted and collected."""
    rng = random.Random(3)
    settings = kind.settings(manifest_poll_interval_ms=20, gc_min_age_ms=0, version_keep_ms=0, retention_ms=3_600_000)
    async with slate.open(tmp_path, settings=settings) as db:
        await write(db, rng, 10)
        async with planning(tmp_path) as planner:
            offset = await planner.begin()
        seen: list[int] = []
        for _ in range(4):
            await write(db, rng, 10)
            await db.compact(full=True)
            async with slate.open_gc(tmp_path, settings=settings, periodic=False) as collector:
                await collector.collect()
            async with planning(tmp_path, partitionBytes=300) as planner:
                for _ in range(rng.randint(1, 3)):
                    end = await planner.latest(offset, at_most(20))
                    seen += await seqs_of(tmp_path, offset, end, planner)
                    offset = end
                if rng.random() < 0.7:
                    await planner.done(offset)
        async with planning(tmp_path) as planner:
            await planner.stop_at_present()
            while (end := await planner.latest(offset, at_most(50))) is not offset:
                seen += await seqs_of(tmp_path, offset, end, planner)
                offset = end
        assert seen == list(range(1, db.status().last_seq + 1))


async def test_micro_batches_have_the_rows_asked_for_and_no_torn_writes(tmp_path: Path) -> None:
    async with slate.open(tmp_path) as db, planning(tmp_path, maxRowsPerTrigger=10) as planner:
        ends = set()
        for _ in range(30):
            batch = slate.WriteBatch()
            for key in range(4):
                batch.put(b"%d" % key, b"v")
            ends.add((await db.write(batch)).seq)
        offset = await planner.begin()
        await planner.stop_at_present()
        found = [offset.seq]
        while (end := await planner.latest(offset, at_most(10))) is not offset:
            found.append(end.seq)
            offset = end
        sizes = [after - before for before, after in pairwise(found)]
        assert set(found[1:]) <= ends
        assert max(sizes) <= 10
        assert sum(sizes) == 120


async def test_what_was_compacted_is_cut_by_keys_and_the_log_by_numbers(tmp_path: Path) -> None:
    """Each task would read all of the SSTs otherwise."""
    async with slate.open(tmp_path, settings=KINDS[0].settings(block_bytes=64)) as db:
        await write(db, random.Random(1), 40)
        await db.compact(full=True)
        stored = db.status().last_seq
        async with planning(tmp_path, partitionBytes=300, maxRowsPerTrigger=30) as planner:
            offset = await planner.begin()
            await write(db, random.Random(2), 20)
            await planner.stop_at_present()
            end = await planner.latest(offset, everything)
            ranges = await planner.ranges(offset, end)
            first = [part for part in ranges if part.after == offset.position]
            assert len(first) > 1
            assert {part.until for part in first} == {stored}
            bounds = [part.span for part in first]
            assert [bounds[0].start, bounds[-1].end] == [None, None]
            assert all(one.end == two.start for one, two in pairwise(bounds))
            rest = ranges[len(first) :]
            assert len(rest) > 1
            assert all(part.span == EVERY_KEY for part in rest)
            assert [part.after.seq for part in rest] == [stored, *(part.until for part in rest[:-1])]
            found = await seqs_of(tmp_path, offset, end, planner)
            assert len(set(found)) == len(found)
            assert found[-1] == end.seq == db.status().last_seq
            assert found[-(end.seq - stored) :] == list(range(stored + 1, end.seq + 1))


async def test_the_same_start_may_be_asked_for_again(tmp_path: Path) -> None:
    async with slate.open(tmp_path) as db, planning(tmp_path) as planner:
        start = await planner.begin()
        for _ in range(5):
            await db.put(b"k", b"v")
        await planner.stop_at_present()
        first = await planner.latest(start, everything)
        assert first.seq == 5
        assert await planner.latest(start, everything) == first
        assert await planner.latest(first, everything) is first


async def test_what_is_done_is_not_held_any_more(tmp_path: Path) -> None:
    async with slate.open(tmp_path) as db:
        for _ in range(5):
            await db.put(b"k", b"v")
        async with planning(tmp_path) as planner:
            start = await planner.begin()
            await planner.stop_at_present()
            end = await planner.latest(start, everything)
            await planner.done(end)
        async with planning(tmp_path) as planner:
            with pytest.raises(slate.InvalidError, match="acknowledged up to sequence number 5"):
                await planner.latest(start, everything)


async def test_a_query_that_ends_at_present_gives_its_last_micro_batch_back(tmp_path: Path) -> None:
    """Spark never says of that one that it is done; it asks whether there is more."""
    async with slate.open(tmp_path) as db:
        for _ in range(5):
            await db.put(b"k", b"v")

        async def acknowledged(end: Offset) -> int:
            async with db.changes(subscription=end.subscription, follow=False) as feed:
                return feed.acknowledged

        async with planning(tmp_path) as planner:
            start = await planner.begin()
            await planner.stop_at_present()
            end = await planner.latest(start, everything)
        assert await acknowledged(end) == 0, "it may have to be repeated"
        async with planning(tmp_path) as planner:
            await planner.stop_at_present()
            assert await planner.latest(end, everything) is end
        assert await acknowledged(end) == end.seq == 5


async def feed_subscriptions(path: Path) -> list[slate.CheckpointInfo]:
    async with slate.open_admin(path) as admin:
        return [checkpoint for checkpoint in await admin.checkpoints.list() if checkpoint.owner == "feed"]


def life_s(subscription: slate.CheckpointInfo) -> float:
    assert subscription.expire_time is not None
    return subscription.expire_time - time.time()


async def test_a_query_that_plans_nothing_leaves_no_subscription_and_one_that_does_a_lasting_one(
    tmp_path: Path,
) -> None:
    async with slate.open(tmp_path) as db:
        async with planning(tmp_path) as planner:
            await planner.begin()
            [subscription] = await feed_subscriptions(tmp_path)
            assert life_s(subscription) < 3_600, "who is killed now has told Spark nothing"
        assert await feed_subscriptions(tmp_path) == []
        await db.put(b"k", b"v")
        async with planning(tmp_path) as planner:
            start = await planner.begin()
            await planner.stop_at_present()
            end = await planner.latest(start, everything)
            [subscription] = await feed_subscriptions(tmp_path)
            assert (subscription.name, life_s(subscription) > 6 * 86_400) == (end.subscription, True), (
                "before Spark writes it down"
            )
        assert [subscription.name for subscription in await feed_subscriptions(tmp_path)] == [end.subscription]


async def test_the_subscription_of_an_empty_first_micro_batch_lasts(tmp_path: Path) -> None:
    """Spark writes down where it ends, and begins there when the query comes back."""
    async with slate.open(tmp_path, settings=KINDS[0].settings()) as db:
        async with planning(tmp_path) as planner:
            start = await planner.begin()
            await planner.stop_at_present()
            assert await planner.latest(start, everything) is start
            assert await planner.ranges(start, start) == []
            await planner.done(start)
            [subscription] = await feed_subscriptions(tmp_path)
            assert (subscription.name, life_s(subscription) > 6 * 86_400) == (start.subscription, True)
        for value in (b"1", b"2"):
            await db.put(b"k", value)
            await db.flush(l0=True)
        await db.compact(full=True)
        async with planning(tmp_path) as planner:
            end = await planner.latest(start, everything)
            assert await seqs_of(tmp_path, start, end, planner) == [1, 2]


async def test_a_query_does_not_read_on_in_another_database(tmp_path: Path) -> None:
    """Whatever Spark asks for first when the query comes back."""
    ids = []
    for place in (tmp_path / "a", tmp_path / "b"):
        async with slate.open(place) as db:
            ids.append(db.status().database_id)
            await db.put(b"k", b"v")
    async with planning(tmp_path / "a") as planner:
        begin = await planner.begin()
        end = await planner.latest(begin, everything)
    assert {begin.database_id, end.database_id} == {ids[0]}
    async with planning(tmp_path / "b") as planner:
        for ask in (planner.latest(end, everything), planner.ranges(begin, end), planner.done(end)):
            with pytest.raises(slate.InvalidError, match=f"of database {ids[0]}, and .* is database {ids[1]}"):
                await ask
    assert await feed_subscriptions(tmp_path / "b") == []


async def test_a_subscription_that_was_deleted_already_does_not_keep_a_query_from_ending(tmp_path: Path) -> None:
    async with slate.open(tmp_path), planning(tmp_path) as planner:
        start = await planner.begin()
        async with slate.open_admin(tmp_path) as admin:
            await admin.checkpoints.delete(start.subscription)
    assert await feed_subscriptions(tmp_path) == []


async def test_a_query_killed_in_its_first_micro_batch_begins_where_it_began(tmp_path: Path) -> None:
    """Then Spark knows the end of that micro-batch alone, and asks for the beginning once more."""
    async with slate.open(tmp_path) as db:
        await db.put(b"k", b"before")
        async with planning(tmp_path, startingSeq="now") as planner:
            begun = await planner.begin()
            assert await planner.begin() == begun
            await db.put(b"k", b"1")
            await db.put(b"k", b"2")
            await planner.stop_at_present()
            planned = await planner.latest(begun, everything)
        await db.put(b"k", b"3")
        async with planning(tmp_path, startingSeq="now") as planner:
            again = await planner.begin()
            assert again.seq == 4
            assert await seqs_of(tmp_path, again, planned, planner) == [2, 3]
            await planner.done(planned)
            await planner.stop_at_present()
            end = await planner.latest(planned, everything)
            assert await seqs_of(tmp_path, planned, end, planner) == [4]
        async with slate.open_admin(tmp_path) as admin:
            assert [checkpoint.name for checkpoint in await admin.checkpoints.list() if checkpoint.owner == "feed"] == [
                begun.subscription
            ]


@pytest.mark.parametrize("retention_ms", [3_600_000, 0])
async def test_a_query_whose_subscription_was_deleted_goes_on_if_history_is_exact(
    retention_ms: int, tmp_path: Path
) -> None:
    """Spark begins with the micro-batch that was not done: nobody asks where that ends."""
    async with slate.open(tmp_path, settings=slate.Settings(retention_ms=retention_ms)) as db:
        for seed in range(3):
            await write(db, random.Random(seed), 5)
        async with planning(tmp_path, subscriptionLifetime=60, maxRowsPerTrigger=20) as planner:
            begin = await planner.begin()
            middle = await planner.latest(begin, at_most(20))
            await planner.done(middle)
            end = await planner.latest(middle, at_most(20))
            assert 0 < middle.seq < end.seq < db.status().last_seq
        async with slate.open_admin(tmp_path) as admin:
            await admin.checkpoints.delete(begin.subscription)
        await db.compact(full=True)
        async with planning(tmp_path, subscriptionLifetime=60, maxRowsPerTrigger=20) as planner:
            if not retention_ms:
                with pytest.raises(slate.InvalidError, match="changes are kept from sequence number"):
                    await planner.ranges(middle, end)
                return
            assert await seqs_of(tmp_path, middle, end, planner) == list(range(middle.seq + 1, end.seq + 1))
            async with slate.open_admin(tmp_path) as admin:
                [subscription] = [
                    checkpoint for checkpoint in await admin.checkpoints.list() if checkpoint.owner == "feed"
                ]
            assert subscription.name == begin.subscription


async def test_a_query_that_comes_back_takes_its_subscription_at_once(tmp_path: Path) -> None:
    """A subscription that is about to expire lives on while the tasks read; the planner before it can let nothing
    go."""
    async with slate.open(tmp_path) as db:
        await write(db, random.Random(6), 10)
        async with (
            planning(tmp_path, subscriptionLifetime=1_000) as before,
            planning(tmp_path, subscriptionLifetime=9_000) as planner,
        ):
            begin = await before.begin()
            end = await before.latest(begin, everything)
            await planner.ranges(begin, end)
            async with slate.open_admin(tmp_path) as admin:
                [subscription] = [
                    checkpoint for checkpoint in await admin.checkpoints.list() if checkpoint.owner == "feed"
                ]
            assert subscription.expire_time is not None
            assert subscription.expire_time - subscription.create_time > 8_000
            await before.done(end)
            await before.close()
            assert len(await seqs_of(tmp_path, begin, end, planner)) == end.seq


async def test_a_reader_gives_batches_as_spark_takes_them(tmp_path: Path) -> None:
    async with slate.open(tmp_path) as db:
        await db.put(b"a", b"1", ttl=1e15)  # beyond the last time that Spark knows
        await db.delete(b"a")
        reader = ChangesReader(StreamOptions.of({"path": str(tmp_path)}))
        start = reader.initialOffset()
        assert reader.latestOffset(reader.latestOffset(start, ReadMaxRows(10)), ReadMaxRows(10))["seq"] == 2
        end = reader.latestOffset(start, ReadAllAvailable())
        assert end == reader.latestOffset(start, ReadMaxRows(10))
        batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
        reader.commit(end)
        reader.stop()
    rows = pa.Table.from_batches(batches, schema=ARROW_CHANGE).drop_columns(["create_time"])
    assert rows.column("expire_time").cast(pa.int64()).to_pylist() == [LAST_MS * 1000, None]
    assert rows.drop_columns(["expire_time"]).to_pylist() == [
        {"op": "put", "key": b"a", "value": b"1", "seq": 1},
        {"op": "delete", "key": b"a", "value": None, "seq": 2},
    ]


@pytest.mark.parametrize(("max_rows", "max_bytes", "most_rows"), [(40, 1 << 20, 40), (10_000, 12_000, 100)])
async def test_a_micro_batch_is_within_both_limits(
    max_rows: int, max_bytes: int, most_rows: int, tmp_path: Path
) -> None:
    options = {"path": str(tmp_path), "maxRowsPerTrigger": str(max_rows), "maxBytesPerTrigger": str(max_bytes)}
    async with slate.open(tmp_path) as db:
        for _ in range(100):
            batch = slate.WriteBatch()
            for key in range(4):
                batch.put(b"%d" % key, b"v" * 100)
            await db.write(batch)
        reader = ChangesReader(StreamOptions.of(options))
        found = [reader.initialOffset()]
        while (end := reader.latestOffset(found[-1], reader.getDefaultReadLimit())) != found[-1]:
            found.append(end)
        assert reader.reportLatestOffset() == {"seq": 400}
        assert reader.latestOffset(found[0], ReadAllAvailable())["seq"] == 400
        reader.stop()
    sizes = [after["seq"] - before["seq"] for before, after in pairwise(found)]
    assert (sum(sizes), max(sizes) <= most_rows) == (400, True)
    assert max(sizes) > most_rows / 2


async def test_a_stream_begins_after_a_time(tmp_path: Path) -> None:
    async with slate.open(tmp_path) as db, slate.open_reader(tmp_path) as reader:
        for value in (b"1", b"2", b"3"):
            await db.put(b"k", value)
            await asyncio.sleep(0.005)
        await reader.refresh()
        second = reader.seq_to_time(2)
        async with planning(tmp_path, startingTime=second) as planner:
            begin = await planner.begin()
            assert await seqs_of(tmp_path, begin, await planner.latest(begin, everything), planner) == [3]
        async with planning(tmp_path, startingTime=time.time() + 3_600) as planner:
            with pytest.raises(slate.InvalidError, match="is in the future"):
                await planner.begin()


async def test_now_is_what_comes_from_now_on(tmp_path: Path) -> None:
    async with slate.open(tmp_path) as db, planning(tmp_path, startingSeq="now") as planner:
        await db.put(b"k", b"before")
        start = await planner.begin()
        assert start.seq == 1
        assert Offset.of(start.fields()) == start


def test_what_is_no_offset_is_said() -> None:
    position = {"seq": 3, "log_seq": 3, "log_position": 1, "log_floor": 0}
    for fields in ({"seq": 3}, {"hold": "spark", **position, "begin": position}):
        with pytest.raises(slate.InvalidError, match="no offset of a slate stream, which names its database"):
            Offset.of(fields)
