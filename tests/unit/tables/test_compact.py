"""Compactions as users see them: fewer blocks, the same rows under the same ids, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from slate_async.errors import InvalidError, UnavailableError
from slate_async.tables import draft
from slate_async.tables import merge as merge_module
from slate_async.tables.codec import merged_block
from slate_async.tables.compact import CompactResult
from slate_async.tables.core.edits import Alter, Expire
from slate_async.tables.core.predicate import col
from slate_async.tables.core.schema import ROW_ID
from slate_async.tables.scan import TableScan
from slate_async.tables.scan_plan import Wanted
from slate_async.tables.table import Table
from tests.support.tables import ORDERS, SHOP, created, fail_puts, opened, rows, store_in_hand


async def with_ids(table: Table) -> dict[int, dict[str, Any]]:
    """Each row by its id."""
    found = await TableScan(table._context, Wanted.of(None, None, None, row_ids=True)).read()
    made = {row.pop(ROW_ID): row for row in found.to_pylist()}
    assert len(made) == found.num_rows
    return made


async def blocks_of(table: Table) -> pa.Table:
    return (await table._context.contents(await table._context.newest())).blocks


async def test_small_blocks_become_one_with_the_same_rows() -> None:
    store = store_in_hand()
    async with opened(store) as tables:
        table = await created(tables)
        for at in range(5):
            await table.append(rows(at, at + 100))
        await table.delete(col("id").isin([3, 101]))
        before = await with_ids(table)
        result = await table.compact()
        assert (result.merges, result.blocks_read, result.blocks_written, result.rows_dropped) == (1, 5, 1, 2)
        assert (await blocks_of(table)).num_rows == 1
        assert await with_ids(table) == before
        assert await table.compact() == CompactResult()
        await table.delete(col("id") == 4)
        await table.append(rows(7))
        assert sorted((await table.scan(columns=["id"]).read()).column("id").to_pylist()) == [
            *(0, 1, 2, 7),
            *(100, 102, 103, 104),
        ]
        head = await table._context.newest()
        assert head.totals.rows == 9  # of eight that were merged one is deleted, and not yet dropped
    async with opened(store) as tables:
        again = await tables.table(SHOP, "orders")
        assert len(await with_ids(again)) == 8
        assert any(put.key.endswith(".whole") for put in store.puts)


async def test_files_of_deletes_end_with_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft, "INLINE_DELETED", 0)
    store = store_in_hand()
    async with opened(store) as tables:
        table = await created(tables)
        await table.append(rows(*range(10)))
        await table.append(rows(*range(10, 20)))
        await table.delete(col("id").isin([1, 11]))
        await table.delete(col("id") == 2)
        before = await with_ids(table)
        await table.compact()
        context = table._context
        contents = await context.contents(await context.newest())
        assert (contents.delete_files.num_rows, len(contents.retired), len(contents.deleted)) == (0, 0, 0)
        assert await with_ids(table) == before
    async with opened(store) as tables:
        assert await with_ids(await tables.table(SHOP, "orders")) == before


async def test_blocks_without_live_rows_vanish() -> None:
    async with opened(store_in_hand()) as tables:
        table = await created(tables)
        await table.append(rows(1, 2))
        await table.delete([])
        result = await table.compact()
        assert (result.merges, result.blocks_written, result.rows_dropped) == (1, 0, 2)
        assert (await blocks_of(table)).num_rows == 0
        await table.append(rows(5))
        assert list(await with_ids(table)) == [2]


async def test_merged_blocks_are_cut_into_row_groups_and_keep_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_module, "GROUP_ROWS", 7)
    monkeypatch.setattr(merge_module, "WHOLE_BYTES", 0)
    async with opened(store_in_hand()) as tables:
        table = await created(tables)
        given = pa.table(
            {"id": range(20), "sku": [None, "a" * 40, *"bcdefghijklmnopqrs"], "price": [float("nan"), *range(19)]},
            ORDERS,
        )
        await table.append(given.slice(0, 9))
        await table.append(given.slice(9))
        await table.compact()
        [block] = (await blocks_of(table)).to_pylist()
        assert (block["carried"], block["rows"], block["first_row"], block["last_row"]) == (True, 20, 0, 19)
        assert (block["low.1"], block["high.1"], block["nulls.2"], block["low.2"]) == (0, 19, 1, "a" * 32)
        assert (block["low.3"], np.isnan(block["high.3"])) == (0, True)
        assert (await table.scan().read()).column("id").to_pylist() == list(range(20))
        await table.delete(col("id") < 10)
        await table.append(rows(99))
        result = await table.compact()
        assert (result.blocks_read, result.rows_dropped) == (2, 10)
        assert sorted(await with_ids(table)) == list(range(10, 21))


async def test_merges_write_by_the_newest_schema() -> None:
    async with opened(store_in_hand()) as tables:
        table = await created(tables)
        await table.append(rows(1, 2))
        context = table._context
        changes = {
            "add": {"more": pa.int32()},
            "rename": {"sku": "article"},
            "drop": ["price"],
            "defaults": {"more": 7},
        }
        await context.committer.commit(Alter(changes))
        await table.append(pa.table({"id": [3], "article": ["x"], "more": pa.array([None], pa.int32())}))
        before = await with_ids(table)
        await table.compact()
        assert await with_ids(table) == before
        assert (await blocks_of(table)).column("schema_id").to_pylist() == [1]


async def test_a_sorted_table_is_merged_in_order() -> None:
    async with opened(store_in_hand()) as tables:
        table = await created(tables)
        await _sort_by(table, 1)
        for ids in ((9, 1, 5), (2, 8, 5), (7, 3)):
            await table.append(rows(*ids))
        before = await with_ids(table)
        await table.compact()
        assert (await table.scan().read()).column("id").to_pylist() == [1, 2, 3, 5, 5, 7, 8, 9]
        assert await with_ids(table) == before


async def _sort_by(table: Table, field_id: int) -> None:
    class SortBy:
        def apply(self, head: Any) -> Any:
            return replace(head, sort_by=(field_id,))

    await table._context.committer.commit(SortBy())


async def test_appends_and_deletes_go_on_while_blocks_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed between the reading and the commit of a merge is there afterwards."""
    async with opened(store_in_hand()) as tables:
        table = await created(tables)
        for at in range(4):
            await table.append(rows(at))
        await table.delete(col("id") == 1)
        add, meanwhile = merged_block.MergedBlock.finish, []

        def finish(self: merged_block.MergedBlock) -> Any:
            meanwhile.append(asyncio.get_running_loop().create_task(_between(table)))
            return add(self)

        monkeypatch.setattr(merged_block.MergedBlock, "finish", finish)
        fail_puts_of_blocks = table._context.blocks.put_merged

        async def put(block: Any, base: int) -> pa.Table:
            stored = await fail_puts_of_blocks(block, base)
            await asyncio.gather(*meanwhile)
            return stored

        monkeypatch.setattr(type(table._context.blocks), "put_merged", lambda self, block, base: put(block, base))
        result = await table.compact()
        assert (result.merges, result.rows_dropped) == (1, 1)
        assert sorted((await table.scan().read()).column("id").to_pylist()) == [0, 3, 50]


async def _between(table: Table) -> None:
    await table.append(rows(50))
    await table.delete(col("id") == 2)


async def test_of_two_merges_of_the_same_blocks_one_is_in() -> None:
    store = store_in_hand()
    async with opened(store) as tables, opened(store) as others:
        table = await created(tables)
        for at in range(6):
            await table.append(rows(at))
        other = await others.table(SHOP, "orders")
        done = await asyncio.gather(table.compact(), other.compact())
        assert sorted(result.merges for result in done) == [0, 1]
        assert sum(result.abandoned for result in done) <= 1
        assert len(await with_ids(table)) == 6


async def test_a_merge_that_a_vacuum_passed_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(store_in_hand()) as tables:
        table = await created(tables)
        for at in range(3):
            await table.append(rows(at))
        context = table._context
        put = context.blocks.put_merged

        async def slow(block: Any, base: int) -> pa.Table:
            stored = await put(block, base)
            head = await context.newest()
            await context.committer.commit(Expire(head.version, head.version + 1, 0))
            return stored

        monkeypatch.setattr(type(context.blocks), "put_merged", lambda self, block, base: slow(block, base))
        result = await table.compact()
        assert (result.merges, result.abandoned) == (0, 1)
        assert len(await with_ids(table)) == 3


@pytest.mark.parametrize("part", ["/data/", "/chain/", "/manifest/"])
@pytest.mark.parametrize("fault", ["request lost", "answer lost", "refused"])
async def test_a_merge_is_in_once_whatever_is_lost(part: str, fault: str) -> None:
    store = store_in_hand()
    async with opened(store) as tables:
        table = await created(tables)
        for at in range(3):
            await table.append(rows(at))
        fail_puts(store, part, fault)
        assert (await table.compact()).merges == 1
        assert sorted(await with_ids(table)) == [0, 1, 2]


async def test_a_compaction_that_cannot_write_raises_and_changes_nothing() -> None:
    store = store_in_hand()
    async with opened(store, retry_deadline_ms=300) as tables:
        table = await created(tables)
        for at in range(3):
            await table.append(rows(at))
        fail_puts(store, "/data/", "request lost", times=10_000)
        with pytest.raises(UnavailableError):
            await table.compact()
        assert (await blocks_of(table)).num_rows == 3


@pytest.mark.parametrize("target", [0, -1, 1.5, True, "1"])
async def test_a_target_is_a_number_of_bytes(target: Any) -> None:
    async with opened(store_in_hand()) as tables:
        table = await created(tables)
        with pytest.raises(InvalidError, match="target_bytes"):
            await table.compact(target_bytes=target)
