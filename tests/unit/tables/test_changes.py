"""What versions changed, as users see it: rows added and ids deleted, from any version on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pyarrow as pa
import pytest

from slate_async.errors import InvalidError, NotFoundError
from slate_async.tables.catalog import Catalog
from slate_async.tables.core.edits import Expire
from slate_async.tables.core.errors import SnapshotExpiredError
from slate_async.tables.core.predicate import col
from slate_async.tables.table import Table
from tests.engine import StoreInHand
from tests.support.tables import SHOP, created, opened, rows, store_in_hand


@pytest.fixture
def store() -> StoreInHand:
    return store_in_hand()


@pytest.fixture
async def catalog(store: StoreInHand) -> AsyncIterator[Catalog]:
    async with opened(store) as catalog:
        yield catalog


async def said(table: Table, since: int, until: int | None = None) -> list[tuple[int, list[int], list[int]]]:
    """Of each version the ids of added rows and of deleted ones."""
    found = []
    async for change in table.changes(since, until=until, columns=["id"]):
        added = await change.read()
        found.append((change.version, added.column("_row").to_pylist(), change.deleted.to_pylist()))
    return found


async def test_each_version_says_what_it_changed(store: StoreInHand, catalog: Catalog) -> None:
    table = await created(catalog)
    await table.append(rows(10, 11, 12))
    await table.delete(col("id") == 11)
    await table.set_properties({"a": "b"})
    await table.append(rows(13))
    await table.compact()
    expected = [(2, [0, 1, 2], []), (3, [], [1]), (5, [3], [])]
    assert await said(table, 0) == expected
    assert await said(table, 2) == expected[1:]
    assert await said(table, 2, until=3) == expected[1:2]
    assert await said(table, await table.version()) == []
    async with opened(store) as others:
        assert await said(await others.table(SHOP, "orders"), 0) == expected
    async for change in table.changes(4):
        assert [batch.to_pylist() async for batch in change] == [[{"id": 13, "sku": "s13", "price": 6.5, "_row": 3}]]


async def test_an_overwrite_and_a_restore_say_what_differs(catalog: Catalog) -> None:
    table = await created(catalog)
    await table.append(rows(0, 1, 2))
    await table.append(rows(3))
    await table.delete(col("id") == 1)
    await table.overwrite(rows(4))
    await table.restore(4)
    await table.restore(2)
    await table.append(rows(5))
    assert await said(table, 2) == [
        (3, [3], []),
        (4, [], [1]),
        (5, [4], [0, 2, 3]),
        (6, [0, 2, 3], [4]),
        (7, [1], [3]),
        (8, [5], []),
    ]


async def test_a_restore_across_a_merge_says_what_differs(catalog: Catalog) -> None:
    table = await created(catalog)
    for at in range(3):
        await table.append(rows(at))
    await table.delete(col("id") == 1)
    await table.compact()
    merged = await table.version()
    await table.append(rows(3))
    await table.restore(4)
    assert await said(table, merged) == [(merged + 1, [3], []), (merged + 2, [1], [3])]


async def test_a_change_holds_its_own_deletes(catalog: Catalog) -> None:
    table = await created(catalog)
    await table.append(rows(0, 1))
    async with table.transaction() as tx:
        tx.append(rows(2, 3))
        tx.delete(col("id").isin([0, 2]))
    [change] = await said(table, 2)
    live = (await table.scan(row_ids=True).read()).column("_row").to_pylist()
    assert sorted({0, 1} - set(change[2]) | set(change[1])) == live


async def test_a_long_chain_is_walked(store: StoreInHand, catalog: Catalog) -> None:
    table = await created(catalog)
    for at in range(80):
        await table.append(rows(at))
    async with opened(store) as others:
        found = await said(await others.table(SHOP, "orders"), 3)
    assert found == [(at + 2, [at], []) for at in range(2, 80)]


async def test_large_deletes_are_said_whole(catalog: Catalog) -> None:
    table = await created(catalog)
    await table.append(rows(*range(1000)))
    await table.delete(col("id") < 900)
    assert await said(table, 2) == [(3, [], list(range(900)))]


async def test_what_is_not_kept_is_refused(catalog: Catalog) -> None:
    table = await created(catalog)
    for at in range(4):
        await table.append(rows(at))
    await table._context.committer.commit(Expire(4, 0, 0))
    with pytest.raises(SnapshotExpiredError, match="read version 4 or a newer one whole"):
        await said(table, 2)
    assert await said(table, 3) == [(4, [2], []), (5, [3], [])]
    with pytest.raises(NotFoundError, match="no version 9 yet"):
        await said(table, 9)
    for since in (-1, True, "1"):
        with pytest.raises(InvalidError, match="since= is a version"):
            await said(table, since)  # type: ignore[arg-type]
    with pytest.raises(InvalidError, match="did you mean 'id'"):
        [change async for change in table.changes(3, columns=["idd"])]


async def test_rows_have_the_columns_of_the_last_version(catalog: Catalog) -> None:
    table = await created(catalog)
    await table.append(rows(1))
    await table.alter(add={"note": pa.string()}, drop=["sku"])
    [change] = [change async for change in table.changes(0)]
    assert (await change.read()).to_pylist() == [{"id": 1, "price": 0.5, "note": None, "_row": 0}]
