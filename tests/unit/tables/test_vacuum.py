"""Vacuums as users see them: what goes, what stays, and what readers and writers meet beside them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from slate_async.errors import CorruptionError, InvalidError
from slate_async.tables.core.edits import HoldFloor, Keep
from slate_async.tables.core.errors import SnapshotExpiredError
from slate_async.tables.core.head import Job, Kept
from slate_async.tables.core.predicate import col
from slate_async.tables.scan import TableScan
from slate_async.tables.scan_plan import Wanted
from slate_async.tables.table import Table
from slate_async.tables.vacuum import VacuumReport
from tests.engine import StoreInHand
from tests.support.tables import SHOP, created, opened, rows, store_in_hand

EVERYTHING: dict[str, Any] = {"retain_ms": 0, "retain_versions": 0, "min_age_ms": 0}


async def keys_of(store: StoreInHand) -> list[str]:
    """All objects of tables but the boundary of their heads."""
    return [info.key async for info in store.list() if info.key.startswith("tables/") and "/boundary/" not in info.key]


async def ids_of(table: Table) -> list[int]:
    found = await table.scan(columns=["id"]).read()
    return sorted(int(at) for at in found.column("id").to_pylist())


@pytest.mark.parametrize("metastore", ["put-if-absent", "if-match"])
async def test_only_what_the_newest_version_needs_is_left(metastore: str) -> None:
    store = store_in_hand()
    async with opened(store, metastore, version_keep_ms=0) as tables:
        table = await created(tables)
        for at in range(5):
            await table.append(rows(at))
        await table.delete(col("id") == 1)
        await table.compact()
        before = await keys_of(store)
        planned = await table.vacuum(**EVERYTHING, dry_run=True)
        assert await keys_of(store) == before
        report = await table.vacuum(**EVERYTHING)
        assert (planned.objects, planned.nbytes, planned.kept) == (report.objects, report.nbytes, report.kept)
        assert (report.complete, report.oldest, report.kept) == (True, report.version, 2)
        left = await keys_of(store)
        assert sum("/data/" in key for key in left) == 1
        assert [key[-12:] for key in left if "/chain/" in key] == [".chain.whole"]
        assert len([key for key in left if "/manifest/" in key]) <= 2
        assert await ids_of(table) == [0, 2, 3, 4]
        await table.append(rows(9))
    async with opened(store, metastore, version_keep_ms=0) as tables:
        again = await tables.table(SHOP, "orders")
        assert await ids_of(again) == [0, 2, 3, 4, 9]
        assert (await again.vacuum(**EVERYTHING)).objects == 0


async def test_versions_are_kept_by_number_and_by_age() -> None:
    store = store_in_hand()
    async with opened(store, version_keep_ms=0) as tables:
        table = await created(tables)
        for at in range(6):
            await table.append(rows(at))
        assert (await table.vacuum()).objects == 0
        report = await table.vacuum(retain_ms=0, retain_versions=3)
        assert (report.version, report.oldest) == (9, 7)
        assert report.heads == 6
        report = await table.vacuum(retain_ms=3_600_000, retain_versions=0)
        assert report.oldest == 7  # all of them are younger than an hour


async def test_named_versions_are_kept_until_their_leases_end() -> None:
    store = store_in_hand()
    async with opened(store, version_keep_ms=0) as tables:
        table = await created(tables)
        await table.append(rows(1))
        context = table._context
        head = await context.newest()
        now_ms = context.runtime.clock.now_ms()
        await context.committer.commit(Keep("tag", Kept(head.version, head.token)))
        await table.overwrite(rows(2))
        second = await context.newest()
        await context.committer.commit(Keep("pin", Kept(second.version, second.token, now_ms + 3_600_000)))
        await context.committer.commit(Keep("over", Kept(second.version + 1, second.token, now_ms - 1)))
        await table.overwrite(rows(3))
        await table.vacuum(**EVERYTHING)
        newest = await context.newest()
        assert sorted(newest.pins) == ["pin"]
        assert (await context.contents(head)).rows == (await context.contents(second)).rows == 1
        assert sum("/data/" in key for key in await keys_of(store)) == 3


async def test_what_jobs_have_put_is_kept() -> None:
    store = store_in_hand()
    async with opened(store, version_keep_ms=0) as tables:
        table = await created(tables)
        await table.append(rows(1))
        context = table._context
        base = (await context.newest()).version
        now_ms = context.runtime.clock.now_ms()
        await context.committer.commit(HoldFloor("load", Job(base, now_ms + 3_600_000)))
        block = await context.blocks.put(rows(2), (await context.newest()).schema, base)
        assert (await table.vacuum(**EVERYTHING)).objects == 0
        await context.committer.commit(HoldFloor("load", None))
        assert (await table.vacuum(**EVERYTHING)).objects == 1
        assert not any(block.column("key")[0].as_py() in key for key in await keys_of(store))


async def test_a_reader_of_a_version_that_is_given_up_is_told_so() -> None:
    store = store_in_hand()
    async with opened(store, version_keep_ms=0) as tables, opened(store, version_keep_ms=0) as others:
        table = await created(tables)
        await table.append(rows(1))
        other = await others.table(SHOP, "orders")
        head = await other._context.newest()
        await table.overwrite(rows(7))
        await table.vacuum(**EVERYTHING)
        with pytest.raises(SnapshotExpiredError, match="not kept any more"):
            async for _ in TableScan(other._context, Wanted.of(None, None, None, row_ids=False))._at(head):
                pass
        assert await ids_of(await others.table(SHOP, "orders")) == [7]


async def test_an_append_that_a_vacuum_overtakes_is_put_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_in_hand()
    async with opened(store, version_keep_ms=0) as tables, opened(store, version_keep_ms=0) as others:
        table = await created(tables)
        other = await others.table(SHOP, "orders")
        blocks, put = table._context.blocks, type(table._context.blocks).put
        passed: list[VacuumReport] = []

        async def slow(self: Any, *given: Any) -> Any:
            stored = await put(self, *given)
            if self is blocks and not passed:
                await other.append(rows(100))
                passed.append(await other.vacuum(**EVERYTHING))
            return stored

        monkeypatch.setattr(type(blocks), "put", slow)
        await table.append(rows(1))
        assert passed[0].objects == 1  # the block that it had put
        assert await ids_of(table) == [1, 100]
        await table.vacuum(**EVERYTHING)
        assert await ids_of(table) == [1, 100]


async def test_a_vacuum_that_is_cut_off_anywhere_is_completed_by_the_next_one() -> None:
    for steps in range(0, 60, 3):
        store = store_in_hand()
        async with opened(store, version_keep_ms=0) as tables:
            table = await created(tables)
            for at in range(4):
                await table.append(rows(at))
            await table.compact()
            work = asyncio.ensure_future(table.vacuum(**EVERYTHING))
            for _ in range(steps):
                await asyncio.sleep(0)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            assert await ids_of(table) == [0, 1, 2, 3]
        async with opened(store, version_keep_ms=0) as tables:
            table = await tables.table(SHOP, "orders")
            await table.vacuum(**EVERYTHING)
            await table.vacuum(**EVERYTHING)
            assert await ids_of(table) == [0, 1, 2, 3]
            assert sum("/data/" in key or "/chain/" in key for key in await keys_of(store)) == 2


async def test_many_vacuums_at_once_beside_appends_and_compactions() -> None:
    store = store_in_hand()

    async def work(process: int) -> list[VacuumReport]:
        done = []
        async with opened(store, version_keep_ms=0) as tables:
            table = await tables.table(SHOP, "orders")
            for at in range(4):
                if process < 2:
                    await table.append(rows(process * 100 + at))
                elif process == 2:
                    await table.compact()
                else:
                    done.append(await table.vacuum(**{**EVERYTHING, "min_age_ms": 600_000}))
        return done

    async with opened(store, version_keep_ms=0) as tables:
        table = await created(tables)
        await asyncio.gather(*(work(process) for process in range(5)))
        assert await ids_of(table) == [0, 1, 2, 3, 100, 101, 102, 103]
        await table.vacuum(**EVERYTHING)
        assert await ids_of(table) == [0, 1, 2, 3, 100, 101, 102, 103]


async def test_what_is_lost_ends_a_vacuum_before_it_deletes() -> None:
    store = store_in_hand()
    async with opened(store, version_keep_ms=0) as tables:
        table = await created(tables)
        for at in range(3):
            await table.append(rows(at))
        await table.overwrite(rows(5))
        await table.append(rows(6))
        chain = [key for key in await keys_of(store) if key.endswith(".chain")]
        kept = (await store.get(chain[-1])).data
        await store.delete([chain[-1]])
        before = await keys_of(store)
        with pytest.raises(CorruptionError, match="missing"):
            await table.vacuum(**EVERYTHING)
        assert [key for key in await keys_of(store) if "/manifest/" not in key] == [
            key for key in before if "/manifest/" not in key
        ]
        await store.put(chain[-1], kept[:-1])
        with pytest.raises(CorruptionError):
            await table.vacuum(**EVERYTHING)


async def test_foreign_objects_are_left_alone() -> None:
    store = store_in_hand()
    async with opened(store, version_keep_ms=0) as tables:
        table = await created(tables)
        await table.append(rows(1))
        folder = next(key for key in await keys_of(store) if "/data/" in key).rpartition("/")[0]
        await store.put(f"{folder}/notes.txt", b"mine")
        await table.overwrite(rows(2))
        assert (await table.vacuum(**EVERYTHING)).objects == 2
        assert (await store.get(f"{folder}/notes.txt")).data == b"mine"


@pytest.mark.parametrize("name", ["retain_ms", "retain_versions", "min_age_ms"])
@pytest.mark.parametrize("value", [-1, 1.5, True, None, "7"])
async def test_arguments_are_numbers(name: str, value: Any) -> None:
    async with opened(store_in_hand()) as tables:
        table = await created(tables)
        with pytest.raises(InvalidError, match=name):
            await table.vacuum(**{name: value})
