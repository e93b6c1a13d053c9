"""What scans read and leave out, how they explain it, and what pulls from them: duckdb, polars, pandas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from slate_async.errors import InvalidError
from slate_async.tables.catalog import Catalog
from slate_async.tables.codec import block
from slate_async.tables.core.predicate import col
from tests.support.tables import ORDERS, created, opened, rows, store_in_hand


@pytest.fixture
async def catalog() -> AsyncIterator[Catalog]:
    async with opened(store_in_hand()) as catalog:
        yield catalog


async def test_row_groups_that_cannot_have_a_match_are_not_read(
    monkeypatch: pytest.MonkeyPatch, catalog: Catalog
) -> None:
    monkeypatch.setattr(block, "GROUP_ROWS", 10)
    table = await created(catalog)
    await table.append(rows(*range(100)))
    await table.append(rows(*range(100, 200)))
    plan = await table.plan((col("id") >= 32) & (col("id") < 45), ["sku"])
    assert (plan.version, plan.columns, plan.blocks_read, plan.row_groups_read) == (3, ("sku", "id"), 1, 2)
    skipped = plan.blocks.to_pylist()
    assert [row["skipped_by"] for row in skipped] == [None, "statistics of the block"]
    assert skipped[0]["row_groups"] == 10
    assert "blocks: 1 of 2 are read\n  1 are left out by statistics of the block" in str(plan)
    found = await table.scan((col("id") >= 32) & (col("id") < 45)).read()
    assert found.column("id").to_pylist() == list(range(32, 45))
    plan = await table.plan((col("id") == 32) & (col("sku") == "s45"))
    assert plan.blocks.column("skipped_by")[0].as_py() == "statistics of its row groups"
    assert plan.nbytes_read < skipped[0]["nbytes"] * 2
    assert (await table.plan()).row_groups_read == 20


async def test_row_ids_are_given_for_ever(monkeypatch: pytest.MonkeyPatch, catalog: Catalog) -> None:
    monkeypatch.setattr(block, "GROUP_ROWS", 3)
    table = await created(catalog)
    await table.append(rows(*range(10)))
    await table.append(rows(10, 11))
    await table.delete(col("id") == 4)
    found = await table.scan(col("id").isin([3, 4, 5, 11]), ["id"], row_ids=True).read()
    assert found.column_names == ["id", "_row"]
    assert found.column("_row").to_pylist() == [3, 5, 11]


async def test_other_libraries_pull_from_a_reader(catalog: Catalog) -> None:
    table = await created(catalog)
    for first in range(0, 50, 10):
        await table.append(rows(*range(first, first + 10)))
    reader = await table.scan(columns=["id", "price"]).reader()

    def by_duckdb() -> list[tuple[int, float]]:
        assert reader.schema.names == ["id", "price"]
        return duckdb.execute("select count(*), sum(price) from reader").fetchall()

    assert await asyncio.to_thread(by_duckdb) == [(50, sum(range(50)) / 2)]
    async with table.snapshot(version=3) as snapshot:
        other = await snapshot.scan(where=col("id") > 15).reader()
        frame = await asyncio.to_thread(pl.from_arrow, other)
        assert isinstance(frame, pl.DataFrame)
        assert frame["id"].to_list() == [16, 17, 18, 19]
        third = await snapshot.scan().reader()
        assert len(await asyncio.to_thread(third.read_pandas)) == 20


async def test_a_reader_in_the_thread_of_its_loop_is_refused(catalog: Catalog) -> None:
    table = await created(catalog)
    await table.append(rows(1))
    reader = await table.scan().reader()
    with pytest.raises(InvalidError, match="another thread"):
        reader.read_all()


async def test_empty_scans_have_columns(catalog: Catalog) -> None:
    table = await created(catalog)
    found = await table.scan(columns=["sku"]).read()
    assert found.schema.remove_metadata() == pa.schema([ORDERS.field("sku")])
    reader = await table.scan().reader()
    assert (await asyncio.to_thread(reader.read_all)).num_rows == 0
