"""Writes that wait are committed together, upserts keep one row a key, transactions are one version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pytest

from slate_async.errors import ClosedError, InvalidError, UnavailableError
from slate_async.tables import writes
from slate_async.tables.catalog import Catalog
from slate_async.tables.core.edits import Expire
from slate_async.tables.core.predicate import col
from slate_async.tables.results import DeleteResult, UpsertResult
from slate_async.tables.table import Table
from slate_async.tables.transaction import TableTransaction
from tests.engine import StoreInHand
from tests.support.tables import SHOP, fail_puts, opened, rows, store_in_hand

ITEMS = pa.schema(
    [pa.field("shop", pa.string(), nullable=False), pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())]
)
FAULTS = ("request lost", "answer lost", "refused")


@pytest.fixture
def store() -> StoreInHand:
    return store_in_hand()


@pytest.fixture
async def catalog(store: StoreInHand) -> AsyncIterator[Catalog]:
    async with opened(store) as catalog:
        await catalog.create_database(SHOP, if_not_exists=True)
        yield catalog


async def items_in(catalog: Catalog, key: tuple[str, ...] = ("shop", "id")) -> Table:
    return await catalog.create_table(SHOP, "items", ITEMS, key=list(key), if_not_exists=True)


async def orders_in(catalog: Catalog) -> Table:
    return await catalog.create_table(SHOP, "orders", rows(1).schema, if_not_exists=True)


def items(*found: tuple[str, int, int]) -> pa.Table:
    columns: list[Any] = [list(column) for column in zip(*found, strict=True)] or [[], [], []]
    return pa.table({"shop": columns[0], "id": columns[1], "n": columns[2]}, ITEMS)


async def found_in(table: Table) -> list[tuple[str, int, int]]:
    found = await table.scan().read()
    return sorted((row["shop"], row["id"], row["n"]) for row in found.to_pylist())


async def ids_in(table: Table) -> list[int]:
    return sorted((await table.scan(columns=["id"]).read()).column("id").to_pylist())


# group commits


async def test_what_waits_shares_a_link_a_head_and_a_block(store: StoreInHand, catalog: Catalog) -> None:
    table = await orders_in(catalog)
    await table.append(rows(0))
    store.puts.clear()
    done = await asyncio.gather(*(table.append(rows(at, at + 100)) for at in range(1, 30)))
    assert {result.version for result in done} == {3}
    assert {(result.rows, result.blocks) for result in done} == {(2, 1)}
    folders = [put.key.split("/")[-2] for put in store.puts]
    assert sorted(folders) == ["chain", "data", "manifest"]
    assert await ids_in(table) == [0, *range(1, 30), *range(101, 130)]


async def test_each_of_a_group_has_its_own_outcome(catalog: Catalog) -> None:
    table = await orders_in(catalog)
    await table.append(rows(0), append_id=("job", 1))
    small, twice, named, bad, gone = await asyncio.gather(
        table.append(rows(1)),
        table.append(rows(2), append_id=("job", 1)),
        table.append(rows(3), append_id="day 7"),
        table.append(pa.table({"id": ["x"]})),
        table.delete(col("id") == 0),
        return_exceptions=True,
    )
    assert not isinstance(small, BaseException)
    assert not isinstance(twice, BaseException)
    assert (twice.duplicate, twice.version, twice.rows) == (True, 2, 1)
    assert not isinstance(named, BaseException)
    assert named.version == small.version == 3
    assert isinstance(bad, InvalidError)
    assert isinstance(gone, DeleteResult)
    assert await ids_in(table) == [1, 3]


async def test_a_duplicate_that_another_process_committed_meanwhile_is_left_out_of_the_block(
    store: StoreInHand, catalog: Catalog
) -> None:
    table = await orders_in(catalog)
    await table.append(rows(0))
    async with opened(store) as others:
        first = await (await orders_in(others)).append(rows(1), append_id="one")
    again, new = await asyncio.gather(table.append(rows(1), append_id="one"), table.append(rows(2)))
    assert (again.duplicate, again.version, again.rows) == (True, first.version, 1)
    assert not new.duplicate
    assert await ids_in(table) == [0, 1, 2]


async def test_a_caller_that_is_cancelled_does_not_break_the_others(catalog: Catalog) -> None:
    table = await orders_in(catalog)
    for turns in range(12):
        tasks = [asyncio.ensure_future(table.append(rows(turns * 10 + at))) for at in range(4)]
        for _ in range(turns):
            await asyncio.sleep(0)
        tasks[1].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(result, asyncio.CancelledError) for result in done] in (
            [False, True, False, False],
            [False] * 4,
        )
    found = await ids_in(table)
    assert len(set(found)) == len(found)
    assert {turns * 10 + at for turns in range(12) for at in (0, 2, 3)} <= set(found)


@pytest.mark.parametrize("part", ["/data/", "/chain/", "/manifest/"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_group_is_in_once_whatever_is_lost(store: StoreInHand, catalog: Catalog, part: str, fault: str) -> None:
    table = await items_in(catalog)
    for at in range(3):
        fail_puts(store, part, fault, times=at % 3 + 1)
        await asyncio.gather(
            table.append(items(("a", at, 0))),
            table.append(items(("b", at, 0)), append_id=f"b{at}"),
            table.upsert(items(("c", 1, at))),
            table.delete(col("id") == 7),
            table.append(items(("d", at, 0)), append_id=("d", at + 1)),
        )
    fail_puts(store, part, None)
    assert await found_in(table) == sorted([(name, at, 0) for name in "abd" for at in range(3)] + [("c", 1, 2)])


async def test_what_waits_when_it_is_closed_ends(store: StoreInHand) -> None:
    async with opened(store) as catalog:
        await catalog.create_database(SHOP)
        table = await orders_in(catalog)
        fail_puts(store, "/chain/", "request lost", times=10_000)
        tasks = [asyncio.ensure_future(table.append(rows(1)))]
        await asyncio.sleep(0.01)
        tasks += [asyncio.ensure_future(table.append(rows(at))) for at in range(2, 5)]
        await asyncio.sleep(0.01)
    outcomes = [
        error.outcome
        for error in await asyncio.gather(*tasks, return_exceptions=True)
        if isinstance(error, ClosedError)
    ]
    assert outcomes == ["unknown", "not_applied", "not_applied", "not_applied"]


async def test_a_group_that_cannot_be_committed_says_so_to_each(store: StoreInHand) -> None:
    async with opened(store, retry_deadline_ms=200) as catalog:
        await catalog.create_database(SHOP)
        table = await orders_in(catalog)
        for part, outcome in (("/manifest/", "unknown"), ("/data/", "not_applied")):
            fail_puts(store, part, "request lost", times=10_000)
            failed = await asyncio.gather(*(table.append(rows(at)) for at in range(3)), return_exceptions=True)
            assert [(type(error), getattr(error, "outcome", None)) for error in failed] == [
                (UnavailableError, outcome)
            ] * 3
            fail_puts(store, part, None)
        await table.append(rows(9))


# append_id


async def test_every_write_takes_an_append_id(store: StoreInHand, catalog: Catalog) -> None:
    table = await items_in(catalog)
    await table.append(items(("a", 1, 0), ("a", 2, 0)), append_id="first")
    for given in ("again", ("job", 1)):
        for _ in range(2):
            upserted = await table.upsert(items(("a", 1, 5)), append_id=given)
            assert (upserted.version, upserted.rows) == (await table.version(), 1)
    for given in ("gone", ("job", 2)):
        results = [await table.delete(col("id") == (2 if given == "gone" else 1), append_id=given) for _ in range(2)]
        assert [(result.rows, result.duplicate) for result in results] == [(1, False), (1, True)]
    for given in ("all", ("job", 3)):
        replaced = [await table.overwrite(items(("z", 1, 1)), append_id=given) for _ in range(2)]
        assert [(result.rows, result.duplicate) for result in replaced] == [(1, False), (1, True)]
    assert (await table.append(items(("a", 1, 0)), append_id="first")).duplicate, "an overwrite keeps them"
    async with opened(store) as others:
        other = await items_in(others)
        assert (await other.append(items(("a", 1, 0)), append_id="first")).version == 2
        assert await found_in(other) == [("z", 1, 1)]


async def test_a_plain_string_counts_for_seven_days(catalog: Catalog) -> None:
    table = await orders_in(catalog)
    clock = table._context.runtime.clock
    await table.append(rows(1), append_id="one")
    start, now_ms = clock.now_ms(), clock.now_ms
    for days, duplicate in ((6.9, True), (7.1, False), (7.2, True)):
        clock.now_ms = lambda days=days: start + int(days * 86_400_000)  # type: ignore[method-assign,misc]
        assert (await table.append(rows(1), append_id="one")).duplicate is duplicate
    clock.now_ms = now_ms  # type: ignore[method-assign]
    assert await ids_in(table) == [1, 1]


# upserts


@pytest.mark.parametrize("key", [("id",), ("shop", "id"), ("shop",)])
async def test_an_upsert_leaves_one_row_a_key(catalog: Catalog, key: tuple[str, ...]) -> None:
    def key_of(row: tuple[str, int, int]) -> tuple[Any, ...]:
        return tuple(value for name, value in zip(ITEMS.names, row, strict=True) if name in key)

    table = await items_in(catalog, key)
    before = [(shop, at, 0) for shop in ("a", "b" * 40, "c") for at in range(3)]
    await table.append(items(*before))
    given = [("a", 1, 1), ("b" * 40, 1, 2), ("a", 7, 3), ("a", 1, 4)]
    result = await table.upsert(items(*given))
    last = {key_of(row): row for row in given}
    kept = [row for row in before if key_of(row) not in last]
    assert await found_in(table) == sorted([*kept, *last.values()])
    assert (result.rows, result.replaced) == (len(last), len(before) - len(kept))


async def test_upserts_of_one_row_at_once_leave_one(store: StoreInHand, catalog: Catalog) -> None:
    async def work(process: int) -> None:
        async with opened(store, retry_deadline_ms=60_000) as others:
            table = await items_in(others)
            for at in range(2):
                await asyncio.gather(*(table.upsert(items(("a", 1, process), ("b", task, at))) for task in range(3)))

    await asyncio.gather(*(work(process) for process in range(3)))
    found = await found_in(await items_in(catalog))
    assert [row[:2] for row in found] == [("a", 1), ("b", 0), ("b", 1), ("b", 2)]


async def test_an_upsert_reads_only_blocks_that_may_have_its_keys(store: StoreInHand, catalog: Catalog) -> None:
    table = await items_in(catalog, ("id",))
    for at in range(5):
        await table.append(items(*(("a", at * 10 + more, 0) for more in range(10))))
    store.gets.clear()
    assert (await table.upsert(items(("a", 13, 1), ("a", 99, 1)))).replaced == 1
    assert len([key for key in store.gets if "/data/" in key]) == 1


async def test_large_upserts_come_in_pieces(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = await items_in(catalog)
    given = [items(*(("a", at % 700, number) for at in range(1000))) for number in range(3)]
    monkeypatch.setattr("slate_async.tables.incoming.BLOCK_BYTES", given[0].nbytes)
    result = await table.upsert(iter(given))
    assert result == UpsertResult(result.version, 700, 0, False)
    assert await found_in(table) == [("a", at, 2) for at in range(700)]
    assert (await table.upsert(given[0])).replaced == 700
    assert await found_in(table) == [("a", at, 0) for at in range(700)]


async def test_upserts_that_make_no_sense_are_refused(store: StoreInHand, catalog: Catalog) -> None:
    table = await items_in(catalog)
    with pytest.raises(InvalidError, match="'id' cannot be null"):
        await table.upsert(pa.table({"shop": ["a"], "id": pa.array([None], pa.int64())}))
    with pytest.raises(InvalidError, match="has no key"):
        await (await orders_in(catalog)).upsert(rows(1))
    assert (await table.upsert([])).rows == 0


async def test_an_upsert_below_the_floor_is_put_again(store: StoreInHand, catalog: Catalog) -> None:
    table = await items_in(catalog)
    await table.append(items(("a", 1, 0)))
    async with opened(store) as others:
        other = await items_in(others)
        for at in range(3):
            await other.append(items(("b", at, 0)))
        head = await other._context.newest()
        await other._context.committer.commit(Expire(0, head.version, 0))
    assert (await table.upsert(items(("a", 1, 9), ("b", 2, 9)))).replaced == 2
    assert await found_in(table) == [("a", 1, 9), ("b", 0, 0), ("b", 1, 0), ("b", 2, 9)]


# strict deletes


async def test_a_strict_delete_finds_what_was_added_since_it_looked(store: StoreInHand, catalog: Catalog) -> None:
    table = await orders_in(catalog)
    await table.append(rows(1, 2))
    async with opened(store) as others:
        other = await orders_in(others)
        newest = table._context.heads.newest

        async def look_first() -> Any:
            head = await newest()
            await other.append(rows(1, 3))
            return head

        for strict in (False, True):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(table._context.heads, "newest", look_first)
                result = await table.delete(col("id") == 1, strict=strict)
            assert result.rows == (2 if strict else 1)
        assert await ids_in(table) == [2, 3, 3]
    assert (await table.delete(col("id") == 77, strict=True)).rows == 0


# transactions


async def test_a_transaction_is_one_version(catalog: Catalog) -> None:
    table = await items_in(catalog)
    await table.append(items(("a", 1, 0), ("a", 2, 0), ("a", 3, 0)))
    for duplicate in (False, True):
        async with table.transaction(append_id="tx") as tx:
            tx.append(items(("b", 1, 0), ("b", 2, 0)))
            tx.delete(col("id") == 2)
            tx.upsert(items(("b", 1, 5), ("a", 3, 5), ("b", 9, 5)))
            tx.delete((col("n") == 5) & (col("id") == 9), strict=True)
        assert (tx.result.version, tx.result.rows, tx.result.duplicate) == (3, 5, duplicate)
    assert tx.result.deleted == 0
    assert await found_in(table) == [("a", 1, 0), ("a", 3, 5), ("b", 1, 5)]


def raise_after(tx: TableTransaction) -> None:
    tx.append(rows(1))
    raise ZeroDivisionError


async def test_a_transaction_that_raises_does_nothing(store: StoreInHand, catalog: Catalog) -> None:
    table = await orders_in(catalog)
    before = len(store.puts)
    tx = table.transaction()
    with pytest.raises(ZeroDivisionError):
        async with tx:
            raise_after(tx)
    with pytest.raises(ClosedError, match="not committed"):
        assert tx.result
    with pytest.raises(ClosedError):
        tx.append(rows(1))
    with pytest.raises(InvalidError, match="no predicate"):
        async with table.transaction() as tx:
            tx.delete(7)  # type: ignore[arg-type]
    with pytest.raises(InvalidError, match="did you mean"):
        async with table.transaction() as tx:
            tx.delete(col("idd") == 1)
    async with table.transaction() as tx:
        pass
    assert tx.result.version == 1
    assert len([put for put in store.puts[before:] if "/manifest/" in put.key]) == 0


async def test_large_appends_have_blocks_of_their_own(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "SMALL_BYTES", 0)
    table = await orders_in(catalog)
    done = await asyncio.gather(*(table.append(rows(at)) for at in range(4)))
    assert {result.version for result in done} <= {2, 3}
    blocks = (await table._context.contents(await table._context.newest())).blocks
    assert blocks.num_rows == 4
    assert sorted(blocks.column("first_row").to_pylist()) == [0, 1, 2, 3]
