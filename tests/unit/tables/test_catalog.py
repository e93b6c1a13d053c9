"""Catalogs as users see them: databases, and tables that are created, dropped, brought back and renamed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest

from slate_async.errors import ConflictError, InvalidError, NotFoundError, UnavailableError
from slate_async.tables.catalog import Catalog
from slate_async.tables.core.edits import SetDrops
from slate_async.tables.table import Table
from tests.engine import StoreInHand
from tests.support.tables import ORDERS, SHOP, created, fail_puts, opened, rows, store_in_hand

FAULTS = ("request lost", "answer lost", "refused")


@pytest.fixture
def store() -> StoreInHand:
    return store_in_hand()


@pytest.fixture
async def catalog(store: StoreInHand) -> AsyncIterator[Catalog]:
    async with opened(store) as catalog:
        yield catalog


async def ids_of(table: Table) -> list[int]:
    found = await table.scan(columns=["id"]).read()
    return [int(at) for at in found.column("id").to_pylist()]


async def test_databases_come_and_go(catalog: Catalog) -> None:
    assert await catalog.list_databases() == []
    await catalog.create_database("b")
    await catalog.create_database("a")
    await catalog.create_database("a", if_not_exists=True)
    assert await catalog.list_databases() == ["a", "b"]
    with pytest.raises(ConflictError, match="database 'a' already"):
        await catalog.create_database("a")
    await catalog.drop_database("a")
    assert await catalog.list_databases() == ["b"]
    with pytest.raises(NotFoundError, match="no database 'a'"):
        await catalog.drop_database("a")


async def test_a_database_with_tables_is_not_dropped(catalog: Catalog) -> None:
    await created(catalog)
    with pytest.raises(ConflictError, match="drop them first"):
        await catalog.drop_database(SHOP)
    await catalog.drop_table(SHOP, "orders")
    await catalog.drop_database(SHOP)
    with pytest.raises(NotFoundError, match="no database"):
        await catalog.undrop_table(SHOP, "orders")


async def test_databases_have_tables_of_their_own(catalog: Catalog) -> None:
    first = await created(catalog)
    await catalog.create_database("other")
    second = await catalog.create_table("other", "orders", ORDERS)
    await first.append(rows(1))
    await second.append(rows(2))
    assert (await ids_of(first), await ids_of(await catalog.table("other", "orders"))) == ([1], [2])
    assert (first.database, first.name) == (SHOP, "orders")
    assert repr(second) == "<Table other.orders, version 2>"


async def test_names_that_are_not_there_are_named_with_the_nearest(catalog: Catalog) -> None:
    await created(catalog)
    for call in (
        catalog.table("shpo", "orders"),
        catalog.create_table("shpo", "t", ORDERS),
        catalog.list_tables("shpo"),
        catalog.drop_table("shpo", "orders"),
        catalog.rename_table(SHOP, "orders", "x", new_database="shpo"),
    ):
        with pytest.raises(NotFoundError, match="is 'shop' meant"):
            await call
    for call in (catalog.table(SHOP, "order"), catalog.drop_table(SHOP, "order")):
        with pytest.raises(NotFoundError, match="is 'orders' meant"):
            await call
    await catalog.drop_table(SHOP, "orders")
    with pytest.raises(NotFoundError, match="undrop_table brings it back"):
        await catalog.table(SHOP, "orders")
    with pytest.raises(NotFoundError, match="is 'orders' meant"):
        await catalog.undrop_table(SHOP, "order")


async def test_a_dropped_table_refuses_everything_and_comes_back_whole(store: StoreInHand, catalog: Catalog) -> None:
    table = await created(catalog)
    await table.append(rows(1, 2))
    async with opened(store) as others:
        other = await others.table(SHOP, "orders")
        await catalog.drop_table(SHOP, "orders")
        assert (await catalog.list_tables(SHOP), await catalog.list_dropped(SHOP)) == ([], ["orders"])
        for call in (other.append(rows(3)), other.scan().read(), other.version(), table.append(rows(3))):
            with pytest.raises(NotFoundError):
                await call
        with pytest.raises(NotFoundError):
            await catalog.drop_table(SHOP, "orders")
        back = await others.undrop_table(SHOP, "orders")
        assert await ids_of(back) == await ids_of(other) == await ids_of(table) == [1, 2]
        await table.append(rows(3))
        assert await catalog.list_dropped(SHOP) == []
        with pytest.raises(NotFoundError, match="no dropped table"):
            await catalog.undrop_table(SHOP, "elsewhere")


async def test_a_name_that_is_given_again_is_another_table(catalog: Catalog) -> None:
    first = await created(catalog)
    await first.append(rows(1))
    await catalog.drop_table(SHOP, "orders")
    second = await created(catalog)
    assert await ids_of(second) == []
    with pytest.raises(ConflictError, match="already"):
        await catalog.undrop_table(SHOP, "orders", new_name="orders")
    assert await ids_of(await catalog.undrop_table(SHOP, "orders", new_name="old")) == [1]
    assert await catalog.list_tables(SHOP) == ["old", "orders"]
    await catalog.drop_table(SHOP, "orders")
    await catalog.drop_table(SHOP, "old")
    assert await catalog.list_dropped(SHOP) == ["old", "orders"]


@pytest.mark.parametrize("cut", ["drop", "undrop"])
async def test_what_was_cut_off_between_its_steps_is_completed(catalog: Catalog, cut: str) -> None:
    table = await created(catalog)
    await table.append(rows(1))
    loop = table._context.heads.commits
    if cut == "drop":
        await loop.commit(SetDrops(1, 0))
        with pytest.raises(NotFoundError, match="drop_table again completes it"):
            await catalog.table(SHOP, "orders")
        await catalog.drop_table(SHOP, "orders")
        assert await catalog.list_tables(SHOP) == []
        return
    await catalog.drop_table(SHOP, "orders")
    loop.commit, commit = None, loop.commit  # type: ignore[method-assign, assignment]
    with pytest.raises(TypeError):
        await catalog.undrop_table(SHOP, "orders")
    loop.commit = commit  # type: ignore[method-assign]
    assert await catalog.list_tables(SHOP) == ["orders"]
    with pytest.raises(NotFoundError):
        await table.append(rows(2))
    assert await ids_of(await catalog.table(SHOP, "orders")) == [1]
    await table.append(rows(2))


async def test_a_drop_that_is_late_does_not_drop_what_came_back(catalog: Catalog) -> None:
    table = await created(catalog)
    await catalog.drop_table(SHOP, "orders")
    await catalog.undrop_table(SHOP, "orders")
    await table._context.heads.commits.commit(SetDrops(1, 0))
    await table.append(rows(1))
    assert await ids_of(table) == [1]


async def test_tables_are_renamed(store: StoreInHand, catalog: Catalog) -> None:
    table = await created(catalog)
    await created(catalog, "taken")
    await catalog.create_database("archive")
    await table.append(rows(1))
    await catalog.rename_table(SHOP, "orders", "sales")
    assert await ids_of(await catalog.table(SHOP, "sales")) == [1]
    assert (await catalog.table(SHOP, "sales")).name == "sales"
    with pytest.raises(ConflictError, match="already"):
        await catalog.rename_table(SHOP, "sales", "taken")
    await catalog.rename_table(SHOP, "sales", "sales", new_database="archive")
    assert (await catalog.list_tables(SHOP), await catalog.list_tables("archive")) == (["taken"], ["sales"])
    await table.append(rows(2))  # processes that have it open go on
    async with opened(store) as others:
        assert await ids_of(await others.table("archive", "sales")) == [1, 2]


STEPS: dict[str, Callable[[Catalog], Awaitable[Any]]] = {
    "drop": lambda catalog: catalog.drop_table(SHOP, "orders"),
    "rename": lambda catalog: catalog.rename_table(SHOP, "orders", "sales"),
    "create": lambda catalog: catalog.create_table(SHOP, "more", ORDERS),
    "create_database": lambda catalog: catalog.create_database("more"),
    "drop_database": lambda catalog: catalog.drop_database("empty"),
    "undrop": lambda catalog: catalog.undrop_table(SHOP, "old"),
}


@pytest.mark.parametrize("part", ["/manifest/", "catalog/"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("step", STEPS)
async def test_a_step_is_done_once_whatever_is_lost(store: StoreInHand, part: str, fault: str, step: str) -> None:
    async with opened(store) as catalog:
        await (await created(catalog)).append(rows(1))
        await created(catalog, "old")
        await catalog.drop_table(SHOP, "old")
        await catalog.create_database("empty")
        fail_puts(store, part, fault)
        await STEPS[step](catalog)
    async with opened(store) as catalog:
        tables, databases = await catalog.list_tables(SHOP), await catalog.list_databases()
    expected = {"drop": [], "rename": ["sales"], "create": ["more", "orders"], "undrop": ["old", "orders"]}
    assert tables == expected.get(step, ["orders"])
    assert databases == {"create_database": ["empty", "more", SHOP], "drop_database": [SHOP]}.get(step, ["empty", SHOP])


async def test_processes_that_do_the_same_at_once_agree(store: StoreInHand) -> None:
    async with opened(store) as catalog:
        await (await created(catalog)).append(rows(1))

    async def tried(step: str) -> str:
        async with opened(store) as catalog:
            try:
                await STEPS[step](catalog)
            except (NotFoundError, ConflictError) as error:
                return type(error).__name__
            return "done"

    assert "done" in await asyncio.gather(*(tried("drop") for _ in range(4)))
    async with opened(store) as catalog:
        assert await catalog.list_dropped(SHOP) == ["orders"]
        assert await ids_of(await catalog.undrop_table(SHOP, "orders")) == [1]
    found = await asyncio.gather(*(tried("create_database") for _ in range(4)))
    assert found.count("done") == 1
    found = await asyncio.gather(*(tried("create") for _ in range(4)))
    assert found.count("done") == 1


async def test_a_step_without_an_answer_says_so(store: StoreInHand) -> None:
    async with opened(store, retry_deadline_ms=300) as catalog:
        await created(catalog)
        fail_puts(store, "catalog/", "request lost", times=10_000)
        with pytest.raises(UnavailableError) as caught:
            await catalog.rename_table(SHOP, "orders", "sales")
        assert caught.value.outcome == "unknown"


KEYED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("part", pa.string(), nullable=False),
        pa.field("rate", pa.float64(), nullable=False),
        pa.field("tags", pa.list_(pa.string())),
    ]
)


async def test_keys_and_orders_are_columns_that_have_one(catalog: Catalog) -> None:
    table = await created(catalog, schema=KEYED, key=["part", "id"], sort_by=["rate"])
    head = await table._context.newest()
    assert (head.key, head.sort_by) == ((2, 1), (3,))
    await created(catalog, schema=KEYED, key=["part", "id"], sort_by=["rate"], if_not_exists=True)
    for key, sort_by in ((["id"], ["rate"]), (["part", "id"], [])):
        with pytest.raises(InvalidError, match="key or order"):
            await created(catalog, schema=KEYED, key=key, sort_by=sort_by, if_not_exists=True)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"key": ["idd"]}, "did you mean 'id'"),
        ({"key": "id"}, "a list of names"),
        ({"key": ["id", "id"]}, "twice"),
        ({"key": ["tags"]}, "may be null"),
        ({"key": ["rate"]}, "identifies no row"),
        ({"sort_by": ["tags"]}, "has no order"),
        ({"properties": {"a": 1}}, "a map of strings"),
    ],
)
async def test_tables_that_make_no_sense_are_not_created(catalog: Catalog, asked: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidError, match=words):
        await created(catalog, schema=KEYED, **asked)
    assert await catalog.list_tables(SHOP) == []


@pytest.mark.parametrize("name", ["", "a/b", "x" * 256, 7, "a\n"])
async def test_names_are_printable_and_short(catalog: Catalog, name: Any) -> None:
    await created(catalog)
    for call in (
        catalog.create_database(name),
        catalog.create_table(SHOP, name, ORDERS),
        catalog.table(name, "orders"),
        catalog.rename_table(SHOP, "orders", name),
    ):
        with pytest.raises(InvalidError, match="name"):
            await call
