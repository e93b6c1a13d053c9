"""Range deletes where they meet the other parts: feeds, watches, transactions, compaction, copies, refusals."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest

import slate_async as slate
from slate_async.engine.write import range_rows
from slate_async.types import ABOVE_ALL_KEYS
from tests.engine import CONTIGUOUS_SST, contents, memory_store, on, open_db, open_reader, runtime

ROWS = {b"k%02d" % number: b"v%d" % number for number in range(20)}


async def fill(db: slate.Db) -> None:
    batch = slate.WriteBatch()
    for key, value in ROWS.items():
        batch.put(key, value)
    await db.write(batch)


def without(start: bytes, end: bytes) -> dict[bytes, bytes]:
    return {key: value for key, value in ROWS.items() if not start <= key < end}


# ---- feeds and watches


@pytest.mark.parametrize("flushed", [False, True])
async def test_a_feed_gives_one_change_for_each_range(flushed: bool) -> None:
    async with open_db(memory_store()) as db:
        await db.put(b"a", b"1")
        batch = slate.WriteBatch()
        batch.put(b"b", b"2")
        batch.delete_range(b"a", b"c")
        batch.delete_prefix(b"\xff")
        batch.delete(b"z")
        await db.write(batch)
        if flushed:
            await db.flush(l0=True)
        async with db.changes(from_seq=0, until_seq=5, follow=True) as feed:
            found = [(change.op, change.key, change.value, change.seq) async for change in feed]
        expected = [
            ("put", b"a", b"1", 1),
            ("put", b"b", b"2", 2),
            ("delete_range", b"a", b"c", 3),
            ("delete_range", b"\xff", None, 4),
            ("delete", b"z", None, 5),
        ]
        assert found == expected
        async with db.changes(from_seq=0, until_seq=5, follow=True) as feed:
            batches = [batch async for batch in feed.batches()]
        columns = [batch.select(["op", "key", "value", "seq"]).to_pylist() for batch in batches]
        assert [tuple(row.values()) for rows in columns for row in rows] == expected


async def test_a_snapshot_of_a_feed_is_without_what_was_deleted() -> None:
    async with open_db(memory_store()) as db:
        await fill(db)
        await db.delete_range(b"k05", b"k15")
        await db.compact(full=True)
        async with db.changes(from_seq=0, until_seq=21, follow=True) as feed:
            found = [change.key async for change in feed if change.op == "put"]
        assert found == list(without(b"k05", b"k15"))


async def test_a_watch_is_told_of_ranges_that_meet_its_prefix() -> None:
    async with open_db(memory_store()) as db:
        watches = {prefix: db.watch(prefix=prefix) for prefix in (b"", b"a", b"b", b"c", b"bx")}
        await db.delete_range(b"ax", b"c")
        await db.put(b"a", b"")
        await db.put(b"b", b"")
        await db.put(b"bx", b"")
        await db.put(b"c", b"")
        for prefix, watch in watches.items():
            first = await anext(watch)
            assert first.op == ("put" if prefix == b"c" else "delete_range"), prefix


# ---- transactions


async def test_a_transaction_conflicts_with_ranges_over_what_it_read() -> None:
    async with open_db(memory_store()) as db:
        await fill(db)
        for read, meets in ((b"k05", True), (b"k09", True), (b"k10", False), (b"k04", False)):
            tx = db.transaction()
            await tx.get(read)
            tx.put(b"other", b"1")
            await db.delete_range(b"k05", b"k10")
            if meets:
                with pytest.raises(slate.ConflictError, match=read.decode()):
                    await tx.commit()
            else:
                await tx.commit()
        tx = db.transaction()
        assert [key async for key, _ in tx.scan(b"k11", b"k13")] == [b"k11", b"k12"]
        tx.put(b"other", b"2")
        await db.delete_range(b"k12", None)
        with pytest.raises(slate.ConflictError):
            await tx.commit()


async def test_a_condition_sees_what_a_range_deleted() -> None:
    async with open_db(memory_store()) as db:
        await fill(db)
        await db.delete_prefix(b"k0")
        await db.put(b"k05", b"new", if_absent=True)
        with pytest.raises(slate.ConflictError):
            await db.put(b"k06", b"new", if_value=b"v6")
        assert (await db.update(b"k07", lambda value: b"none" if value is None else value)).value == b"none"


# ---- compaction


async def test_compaction_drops_ssts_that_are_hidden_whole_and_the_range_delete_with_them() -> None:
    async with open_db(memory_store(), sst_bytes=1, block_bytes=1) as db:
        await fill(db)
        await db.compact(full=True)
        await db.delete_range(b"k03", b"k17")
        await db.flush(l0=True)
        state = db._writer.state.manifest
        assert [(delete.start, delete.end) for delete in state.range_deletes or ()] == [(b"k03", b"k17")]
        assert await contents(db) == without(b"k03", b"k17")
        read = dict(db.metrics())
        await db.compact()
        state = db._writer.state.manifest
        assert sum(sst.rows for sst in state.ssts()) == 7
        assert not state.range_deletes
        assert db.metrics()["compaction.rows_in"] == read["compaction.rows_in"], "nothing was read to drop them"
        assert await contents(db) == without(b"k03", b"k17")


async def test_a_range_delete_stays_until_everything_below_it_is_swept() -> None:
    async with open_db(memory_store()) as db:
        await fill(db)
        await db.compact(full=True)
        await db.put(b"k10", b"newer")
        await db.delete_range(b"k05", b"k12")
        await db.put(b"k11", b"newest")
        await db.flush(l0=True)
        assert db._writer.state.manifest.range_deletes
        await db.compact(level=0)  # L0 becomes a run; the one below it is not swept
        assert db._writer.state.manifest.range_deletes
        assert await contents(db) == {**without(b"k05", b"k12"), b"k11": b"newest"}
        await db.compact()
        assert not db._writer.state.manifest.range_deletes
        assert await contents(db) == {**without(b"k05", b"k12"), b"k11": b"newest"}


async def test_what_a_snapshot_or_the_history_needs_stays() -> None:
    async with open_db(memory_store(), retention_ms=3_600_000) as db:
        await fill(db)
        await db.compact(full=True)
        await db.delete_range(None, None)
        await db.compact(full=True)
        assert await contents(db) == {}
        assert db._writer.state.manifest.range_deletes
        past = db.as_of(seq=20)
        assert [row async for row in past.scan()] == list(ROWS.items())
    async with open_db(memory_store()) as db:
        await fill(db)
        await db.compact(full=True)
        snapshot = db.snapshot()
        await db.delete_range(None, None)
        await db.compact(full=True)
        assert await snapshot.get(b"k05") == b"v5"
        assert [row async for row in snapshot.scan(reverse=True)] == list(ROWS.items())[::-1]


async def test_operands_below_a_range_delete_are_not_merged() -> None:
    async with open_db(memory_store(), merge_operator="append") as db:
        await db.put(b"k", b"a")
        await db.merge(b"k", b"b")
        await db.flush(l0=True)
        await db.delete_range(b"a", b"z")
        assert await db.get(b"k") is None
        await db.merge(b"k", b"c")
        assert await db.get(b"k") == b"c"
        assert await db.get_many([b"k"]) == [b"c"]
        await db.compact(full=True)
        assert await contents(db) == {b"k": b"c"}


# ---- copies of a database


async def test_clones_mirrors_checkpoints_and_readers_show_the_same(tmp_path: Path) -> None:
    async with await slate.open(tmp_path / "a", settings=slate.Settings(auto_compaction=False)) as db:
        await fill(db)
        await db.flush(l0=True)
        await db.delete_range(b"k03", b"k08")
        await db.flush(l0=True)
        await db.delete_range(b"k10", b"k12")  # in the log
        checkpoint = await db.checkpoints.create(name="then")
        await db.delete_range(None, None)
    expected = {key: value for key, value in without(b"k03", b"k08").items() if not b"k10" <= key < b"k12"}
    async with await slate.open_admin(tmp_path / "a") as admin:
        await admin.clone(tmp_path / "clone", checkpoint=checkpoint.id)
        await admin.mirror("then", tmp_path / "mirror")
        report = await admin.verify()
        assert not report.findings
    for copy in ("clone", "mirror"):
        async with await slate.open(tmp_path / copy) as db:
            assert await contents(db) == expected, copy
            await db.compact(full=True)
            assert await contents(db) == expected, copy
    async with await slate.open_reader(tmp_path / "a", checkpoint="then") as reader:
        assert await contents(reader) == expected
    async with await slate.open_reader(tmp_path / "a") as reader:
        assert await contents(reader) == {}


async def test_a_reader_that_follows_learns_of_them() -> None:
    store = memory_store()
    async with open_db(store) as db:
        await fill(db)
        async with open_reader(store) as reader:
            assert await contents(reader) == ROWS
            await db.delete_range(b"k03", b"k08")
            await reader.refresh()
            assert await contents(reader) == without(b"k03", b"k08")
            assert await reader.get(b"k05") is None
            await db.flush(l0=True)
            await reader.refresh()
            assert await contents(reader) == without(b"k03", b"k08")


async def test_an_ingest_comes_above_earlier_range_deletes_and_below_later_ones() -> None:
    store = memory_store()
    async with open_db(store) as db:
        await fill(db)
        await db.delete_range(None, None)
        async with on(runtime()).open_ingest(store, job_id="load", name="memory://test") as job:
            await job.write([pa.table({"key": [b"k01", b"k05"], "value": [b"i", b"j"]})])
            await job.commit(wait=False)
        await db.confirm()
        await taken_in(db)
        assert await contents(db) == {b"k01": b"i", b"k05": b"j"}
        await db.delete_range(b"k00", b"k03")
        assert await contents(db) == {b"k05": b"j"}


async def taken_in(db: slate.Db) -> None:
    while db.status().pending_ingests:
        await db.confirm()


# ---- refusals


async def test_what_is_no_range_is_refused_and_nothing_applied() -> None:
    async with open_db(memory_store()) as db:
        await fill(db)
        for start, end, said in (
            (b"b", b"a", "holds no key"),
            (b"b", b"b", "holds no key"),
            (None, b"\0", "holds no key"),
            ("a", b"b", "bytes-like"),
            (b"a", 7, "bytes-like"),
            (b"a", b"b" * 65_536, "at most 65535"),
            (b"a" * 65_536, None, "at most 65535"),
        ):
            with pytest.raises(slate.InvalidError, match=said) as refused:
                await db.delete_range(start, end)  # type: ignore[arg-type]
            assert refused.value.outcome == "not_applied"
            with pytest.raises(slate.InvalidError, match=said):
                slate.WriteBatch().delete_range(start, end)  # type: ignore[arg-type]
        for prefix in (None, "a", 1):
            with pytest.raises(slate.InvalidError, match="bytes-like"):
                await db.delete_prefix(prefix)  # type: ignore[arg-type]
        assert await contents(db) == ROWS
        await db.delete_range(b"k19", ABOVE_ALL_KEYS[:65_535])
        await db.delete_prefix(b"")
        assert await contents(db) == {}


async def test_a_database_without_a_write_ahead_log_refuses_them_by_name() -> None:
    async with open_db(memory_store(), CONTIGUOUS_SST) as db:
        await fill(db)
        with pytest.raises(slate.InvalidError, match="write-ahead log"):
            await db.delete_range(b"k01", b"k05")
        assert await contents(db) == ROWS


async def test_too_many_that_wait_for_compaction_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_rows, "MOST_RANGE_DELETES", 3)
    async with open_db(memory_store()) as db:
        await fill(db)
        for number in range(3):
            await db.delete_range(b"k0%d" % number, b"k1")
        with pytest.raises(slate.UnavailableError, match="compact") as refused:
            await db.delete_range(b"k03", b"k1")
        assert refused.value.outcome == "not_applied"
        await db.compact(full=True)
        await db.delete_range(b"k11", b"k2")
        assert await contents(db) == {b"k10": b"v10"}


@pytest.mark.parametrize("kind", ["calls", "batches", "transactions"])
async def test_concurrent_ones_together_stay_within_the_limit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them waits for room in memory, after it was found that there may be one more."""
    monkeypatch.setattr(range_rows, "MOST_RANGE_DELETES", 3)
    async with open_db(memory_store(), max_unflushed_bytes=1_000) as db:
        await fill(db)
        await db.flush(l0=True)  # so that range deletes over these rows are not used up before a compaction
        await db.delete_range(b"k18", b"k19")

        async def delete(number: int) -> None:
            start, end = b"k%02d" % number, b"k%02d\0" % number
            if kind == "calls":
                await db.delete_range(start, end)
            elif kind == "batches":
                batch = slate.WriteBatch()
                batch.put(b"row", start)
                batch.delete_range(start, end)
                await db.write(batch)
            else:
                async with db.transaction(isolation="snapshot") as tx:
                    tx.delete_range(start, end)

        row = asyncio.create_task(db.put(b"big", b"v" * 900))
        found = await asyncio.gather(*(delete(number) for number in range(8)), return_exceptions=True)
        await row
        refused = [error for error in found if error is not None]
        assert len(refused) == 6
        for error in refused:
            assert isinstance(error, slate.UnavailableError)
            assert "compact" in str(error)
            assert error.outcome == "not_applied"
        stored = db._writer.state.manifest.range_deletes or ()
        assert len(stored) + sum(table.range_count for table in db._writer.state.memtables.newest_first()) <= 3
        async with db.changes(from_seq=0, follow=False) as feed:
            assert len([change async for change in feed if change.op == "delete_range"]) == 3
        await db.put(b"after", b"", await_durable=False)  # those that were refused gave their room back
        await db.flush(l0=True)
        assert db.status().unflushed_bytes == 0


async def test_namespaces_and_prefixes_of_batches(tmp_path: Path) -> None:
    async with open_db(memory_store()) as db:
        one, two = db.namespace("one"), db.namespace("two")
        for space in (one, two):
            for key in (b"\0", b"a", b"b", b"\xff"):
                await space.put(key, b"")
        await db.put(b"plain", b"")
        await one.delete_range(b"a", b"b")
        assert [key async for key, _ in one.scan()] == [b"\0", b"b", b"\xff"]
        await one.delete_range(None, None)
        assert [key async for key, _ in one.scan()] == []
        await two.delete_prefix(b"\xff")
        assert [key async for key, _ in two.scan()] == [b"\0", b"a", b"b"]
        assert await db.get(b"plain") == b""
