"""Versions of a table as users see them: snapshots, tags, pins, history, restores, and changes of columns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from slate_async.errors import CorruptionError, InvalidError, NotFoundError
from slate_async.tables.catalog import Catalog
from slate_async.tables.core.edits import Expire
from slate_async.tables.core.errors import SnapshotExpiredError
from slate_async.tables.core.predicate import col
from slate_async.tables.scan import TableScan
from slate_async.tables.table import Table
from tests.engine import StoreInHand
from tests.support.tables import ORDERS, SHOP, created, opened, rows, store_in_hand


@pytest.fixture
def store() -> StoreInHand:
    return store_in_hand()


@pytest.fixture
async def catalog(store: StoreInHand) -> AsyncIterator[Catalog]:
    async with opened(store) as catalog:
        yield catalog


async def ids_of(scan: TableScan) -> list[int]:
    return [int(at) for at in (await scan.read()).column("id").to_pylist()]


async def expire(table: Table, oldest: int) -> None:
    """Give up versions below ``oldest``, as a vacuum does."""
    now_ms = table._context.runtime.clock.now_ms()
    await table._context.committer.commit(Expire(oldest, 0, now_ms))


def later(table: Table, ms: int) -> None:
    """The clock of the table's process goes on."""
    table._context.runtime.clock.wall_ms += ms  # type: ignore[attr-defined]


async def five(catalog: Catalog) -> Table:
    """Versions 1 to 5, of which each has one row more."""
    table = await created(catalog)
    for at in range(4):
        await table.append(rows(at))
    return table


async def test_snapshots_are_of_any_version(store: StoreInHand, catalog: Catalog) -> None:
    table = await five(catalog)
    await table.delete(col("id") == 0)
    for version in range(1, 6):
        async with table.snapshot(version=version) as snapshot:
            assert await ids_of(snapshot.scan(columns=["id"])) == list(range(version - 1))
            assert snapshot.version == version
    async with table.snapshot() as snapshot:
        await table.append(rows(9))
        assert await ids_of(snapshot.scan(where=col("id") > 1)) == [2, 3]
        assert await ids_of(table.scan()) == [1, 2, 3, 9]
    async with opened(store) as others:
        other = await others.table(SHOP, "orders")
        async with other.snapshot(version=2) as snapshot:
            assert await ids_of(snapshot.scan()) == [0]
            assert snapshot.schema.names == ORDERS.names


async def test_versions_that_are_not_there_are_refused(catalog: Catalog) -> None:
    table = await five(catalog)
    with pytest.raises(NotFoundError, match="the newest is 5"):
        await table.snapshot(version=6).__aenter__()
    await table.tag("day", 3)
    with pytest.raises(NotFoundError, match="no tag 'dya'; is 'day' meant"):
        await table.snapshot(tag="dya").__aenter__()
    await expire(table, 4)
    with pytest.raises(SnapshotExpiredError, match="those from 4 to 7"):
        await table.snapshot(version=2).__aenter__()
    async with table.snapshot(version=3) as snapshot:  # the tag keeps it
        assert await ids_of(snapshot.scan()) == [0, 1]
    for version in (0, -1, True, 1.0, "2"):
        with pytest.raises(InvalidError, match="numbered from 1"):
            await table.snapshot(version=version).__aenter__()  # type: ignore[arg-type]
    with pytest.raises(InvalidError, match="give one of them"):
        table.snapshot(version=1, tag="day")
    with pytest.raises(InvalidError, match="inside its async with"):
        table.snapshot().scan()


async def test_a_version_counts_only_if_a_newer_head_keeps_it(catalog: Catalog) -> None:
    table = await five(catalog)
    read = table._context.heads.read

    async def late(ref: Any) -> Any:
        head = await read(ref)
        await expire(table, 5)
        return head

    table._context.heads.read = late  # type: ignore[method-assign]
    with pytest.raises(SnapshotExpiredError):
        await table.snapshot(version=2).__aenter__()


async def test_a_kept_version_without_its_head_is_damage(store: StoreInHand, catalog: Catalog) -> None:
    table = await five(catalog)
    await store.delete([info.key async for info in store.list() if info.key.endswith("3.head")])
    with pytest.raises(CorruptionError, match="version 3 is kept"):
        await table.snapshot(version=3).__aenter__()


async def test_snapshots_are_found_by_time(catalog: Catalog) -> None:
    table, times = await created(catalog), []
    for at in range(6):
        await table.append(rows(at))
        async with table.snapshot() as snapshot:
            times.append(snapshot.time)
        later(table, 3)
    for version, time in enumerate(times, 2):
        async with table.snapshot(at=time + timedelta(milliseconds=1)) as snapshot:
            assert snapshot.version == version
        async with table.snapshot(at=time.timestamp() + 0.001) as snapshot:
            assert snapshot.version == version
    with pytest.raises(SnapshotExpiredError, match="no version"):
        await table.snapshot(at=datetime(2020, 1, 1, tzinfo=UTC)).__aenter__()
    for wrong in (datetime(2026, 1, 1), "yesterday", True, float("nan")):  # noqa: DTZ001
        with pytest.raises(InvalidError, match=r"time zone|seconds"):
            await table.snapshot(at=wrong).__aenter__()  # type: ignore[arg-type]


async def test_tags_keep_versions(catalog: Catalog) -> None:
    table = await five(catalog)
    assert await table.tag("start", 1) == 1
    assert await table.tag("now") == 6
    await expire(table, 7)
    async with table.snapshot(tag="start") as snapshot:
        assert await ids_of(snapshot.scan()) == []
    assert await table.tags() == {"now": 6, "start": 1}
    await table.tag("now")
    assert (await table.tags())["now"] == 8
    await table.untag("start")
    with pytest.raises(NotFoundError, match="no tag"):
        await table.untag("start")
    with pytest.raises(SnapshotExpiredError):
        await table.tag("again", 1)
    with pytest.raises(InvalidError, match="name of a tag"):
        await table.tag("")


async def test_a_pin_is_renewed_while_it_is_used(catalog: Catalog) -> None:
    table = await five(catalog)
    async with table.snapshot(version=3, pin=0.3) as snapshot:
        [(name, first)] = (await table.pins()).items()
        assert first.version == 3
        await expire(table, 5)
        later(table, 100)
        async with asyncio.timeout(60):
            while (await table.pins())[name].until == first.until:  # noqa: ASYNC110 - another task commits it
                await asyncio.sleep(0.01)
        assert await ids_of(snapshot.scan()) == [0, 1]
    assert await table.pins() == {}
    with pytest.raises(InvalidError, match="pin is a positive number"):
        table.snapshot(pin=0)


async def test_a_pin_of_a_process_that_died_ends(store: StoreInHand, catalog: Catalog) -> None:
    table = await five(catalog)
    others = await opened(store)
    await (await others.table(SHOP, "orders")).snapshot(version=2, pin=0.05).__aenter__()
    await others.close()
    assert [pin.version for pin in (await table.pins()).values()] == [2]
    later(table, 60)
    await expire(table, 4)
    assert await table.pins() == {}


async def test_history_and_status(catalog: Catalog) -> None:
    table = await five(catalog)
    await table.tag("day", 2)
    await table.delete(col("id") < 2)
    await table.set_properties({"owner": "shop"})
    found = await table.history()
    assert [(each.version, each.rows, each.blocks) for each in found] == [
        (8, 4, 4),
        (7, 4, 4),
        (6, 4, 4),
        (5, 4, 4),
        (4, 3, 3),
        (3, 2, 2),
        (2, 1, 1),
        (1, 0, 0),
    ]
    assert [each.version for each in found if each.tags == ("day",)] == [2]
    assert [each.version for each in await table.history(limit=2)] == [8, 7]
    await expire(table, 6)
    assert [each.version for each in await table.history()] == [9, 8, 7, 6, 2]
    status = await table.status()
    assert (status.version, status.rows, status.deleted_rows, status.blocks, status.oldest) == (9, 4, 2, 4, 6)
    assert (status.properties, status.tags, status.schema.names) == ({"owner": "shop"}, {"day": 2}, ORDERS.names)
    with pytest.raises(InvalidError, match="number of versions"):
        await table.history(limit=0)


async def test_a_restore_brings_rows_back_and_row_ids_go_on(store: StoreInHand, catalog: Catalog) -> None:
    table = await five(catalog)
    await table.overwrite(rows(7, 8))
    await table.delete(col("id") == 7)
    assert await table.restore(3) == 8
    assert await ids_of(table.scan()) == [0, 1]
    await table.append(rows(9))
    found = await table.scan(row_ids=True).read()
    assert found.column("_row").to_pylist() == [0, 1, 6]
    assert await table.restore(6) == 10
    async with opened(store) as others:
        assert await ids_of((await others.table(SHOP, "orders")).scan()) == [7, 8]
    assert (await table.status()).restores == 2
    await expire(table, 9)
    with pytest.raises(SnapshotExpiredError):
        await table.restore(3)


async def test_columns_change_and_old_versions_keep_theirs(catalog: Catalog) -> None:
    table = await five(catalog)
    await table.alter(
        add={"note": pa.string(), "rate": pa.field("rate", pa.int32(), nullable=False)},
        defaults={"rate": 5},
        drop=["sku"],
        rename={"price": "cost"},
    )
    assert (await table.schema()).names == ["id", "cost", "note", "rate"]
    await table.alter(reorder=["rate", "id", "note", "cost"], widen={"rate": pa.int64()}, nullable=["id"])
    await table.append(pa.table({"id": [9], "rate": [2**40], "note": ["new"]}))
    found = await table.scan(where=col("id") >= 3).read()
    assert found.to_pylist() == [
        {"rate": 5, "id": 3, "note": None, "cost": 1.5},
        {"rate": 2**40, "id": 9, "note": "new", "cost": None},
    ]
    async with table.snapshot(version=5) as snapshot:
        assert (await snapshot.scan(where=col("sku") == "s3").read()).to_pylist() == rows(3).to_pylist()


async def test_an_append_by_an_older_schema_is_in(store: StoreInHand, catalog: Catalog) -> None:
    table = await five(catalog)
    async with opened(store) as others:
        other = await others.table(SHOP, "orders")
        await table.alter(add={"note": pa.string()}, rename={"sku": "item"}, drop=["price"])
        await other.append(rows(9))
        assert (await table.scan(where=col("id") == 9).read()).to_pylist() == [{"id": 9, "item": "s9", "note": None}]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "nothing is to be changed"),
        ({"drop": "id"}, "a list of names"),
        ({"drop": ["idd"]}, "did you mean 'id'"),
        ({"drop": ["id"]}, "key or sort column"),
        ({"rename": {"price": "cost"}}, "key or sort column"),
        ({"rename": {"sku": 7}}, "the new name"),
        ({"rename": ["sku"]}, "a map by names"),
        ({"add": {"must": pa.field("must", pa.int8(), nullable=False)}}, "without a default"),
        ({"widen": {"sku": pa.int64()}}, "cannot go from"),
        ({"reorder": ["id"]}, "names each column once"),
    ],
)
async def test_changes_that_rows_would_not_survive_are_refused(
    catalog: Catalog, asked: dict[str, Any], words: str
) -> None:
    table = await created(catalog, key=["id"], sort_by=["price"])
    with pytest.raises(InvalidError, match=words):
        await table.alter(**asked)
    assert await table.version() == 1


async def test_properties_are_set_and_unset(catalog: Catalog) -> None:
    table = await created(catalog, properties={"a": "1", "b": "2"})
    await table.set_properties({"c": "3", "a": "4"}, unset=["b", "never"])
    assert await table.properties() == {"a": "4", "c": "3"}
    for given, unset in (({"a": 1}, ()), ({"a": "1"}, ["a"]), (None, "a"), (7, ())):
        with pytest.raises(InvalidError, match=r"map of strings|set and unset|list of names"):
            await table.set_properties(given, unset=unset)  # type: ignore[arg-type]
