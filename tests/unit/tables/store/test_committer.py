"""`slate_async.tables.store`: commits whose marks may have been forgotten, objects below the floor, lost heads."""

from __future__ import annotations

import datetime as dt
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from metastores.protocol import Unknown
from slate_async.errors import ConflictError, CorruptionError, UnavailableError
from slate_async.tables.catalog import Catalog
from slate_async.tables.core import marks
from slate_async.tables.core.edits import Alter, Expire, Keep
from slate_async.tables.core.errors import SnapshotExpiredError
from slate_async.tables.core.head import Head, Kept
from slate_async.tables.core.predicate import col
from slate_async.tables.store.puts import TRIES, put_new
from slate_async.tables.table import Table
from tests.engine import StoreInHand, runtime
from tests.support.tables import ORDERS, SHOP, created, fail_puts, opened, rows, store_in_hand


async def forget(monkeypatch: pytest.MonkeyPatch, store: StoreInHand) -> None:
    """Other writers commit until the marks of all before them are forgotten."""
    monkeypatch.setattr(marks, "MAX_MARKS", 2)
    for at in range(6):
        async with opened(store) as catalog:
            await (await catalog.table(SHOP, "orders")).append(rows(100 + at))


async def both(store: StoreInHand, catalog: Catalog) -> Table:
    table = await created(catalog)
    await table.append(rows(1))
    return table


async def test_a_call_whose_mark_is_forgotten_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_in_hand()
    async with opened(store) as catalog:
        table = await both(store, catalog)
        await forget(monkeypatch, store)
        assert not (await table.append(rows(2))).duplicate
        found = (await table.scan(columns=["id"]).read()).column("id").to_pylist()
        assert found == [1, *range(100, 106), 2]


async def test_it_ends_unknown_if_an_attempt_had_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_in_hand()
    async with opened(store) as catalog:
        table = await both(store, catalog)
        heads = table._context.heads
        write = heads.write

        async def without_answer(old: Head | None, new: Head) -> Any:
            """The first attempt is in, and marks are forgotten before it is looked for."""
            monkeypatch.setattr(heads, "write", write)
            await write(old, new)
            heads.unanswered.update((name, mark.n) for name, mark in new.marks.items() if mark.version == new.version)
            await forget(monkeypatch, store)
            return Unknown("no answer")

        monkeypatch.setattr(heads, "write", without_answer)
        with pytest.raises(ConflictError) as caught:
            await table.append(rows(2))
        assert (caught.value.outcome, caught.value.reason) == ("unknown", marks.FORGOTTEN)
        monkeypatch.setattr(heads, "write", without_answer)
        assert (await table.append(rows(3), append_id=("job", 1))).rows == 1
        monkeypatch.setattr(heads, "write", without_answer)
        assert (await table.append(rows(4), append_id="once")).rows == 1
        found = (await table.scan(columns=["id"]).read()).column("id").to_pylist()
        assert [at for at in found if at < 100] == [1, 2, 3, 4]


async def test_rows_below_the_floor_are_put_again() -> None:
    store = store_in_hand()
    async with opened(store) as catalog, opened(store) as others:
        table = await both(store, catalog)
        other = await others.table(SHOP, "orders")
        for at in range(3):
            await other.append(rows(10 + at))
        head = await other._context.newest()
        await other._context.committer.commit(Expire(0, head.version, 0))  # `table` has an older head in mind
        assert (await table.append(rows(2), append_id=("job", 1))).rows == 1
        assert (await table.scan(columns=["id"]).read()).column("id").to_pylist() == [1, 10, 11, 12, 2]
        keys = (await table._context.contents(await table._context.newest())).blocks.column("key").to_pylist()
        assert int(keys[-1].split("/")[1][:20]) >= head.version


async def test_a_large_delete_below_the_floor_is_put_again() -> None:
    store = store_in_hand()
    async with opened(store) as catalog, opened(store) as others:
        table = await both(store, catalog)
        await table.append(rows(*range(600)))
        other = await others.table(SHOP, "orders")

        async def overtake() -> None:
            for _ in range(2):
                await other.append(rows(1000))
            head = await other._context.newest()
            await other._context.committer.commit(Expire(0, head.version, 0))

        put = table._context.blocks.put_deletes
        first = True

        async def late(ids: Any, base: int) -> Any:
            nonlocal first
            made = await put(ids, base)
            if first:
                first = False
                await overtake()
            return made

        with mock.patch.object(type(table._context.blocks), "put_deletes", lambda self, ids, base: late(ids, base)):
            await table.delete(col("id") < 1000)
        assert len([put for put in store.puts if "/dels/" in put.key]) == 2
        assert (await table.scan(columns=["id"]).read()).column("id").to_pylist() == [1000, 1000]


@pytest.mark.parametrize("kept", [True, False])
async def test_a_version_that_is_not_kept_expires(kept: bool) -> None:
    store = store_in_hand()
    async with opened(store) as catalog:
        table = await both(store, catalog)
        old = await table._context.newest()
        context = table._context
        if kept:
            await context.committer.commit(Keep("mine", Kept(old.version, old.token)))
        await table.append(rows(2))
        await context.committer.commit(Expire(10, 0, 0))
        await store.delete([info.key async for info in store.list() if "/chain/" in info.key])
        context.chain._known.clear()
        with pytest.raises(CorruptionError if kept else SnapshotExpiredError):
            await context.contents(old)


async def test_heads_that_are_lost_are_corruption() -> None:
    store = store_in_hand()
    async with opened(store) as catalog:
        table = await both(store, catalog)
        await store.delete([info.key async for info in store.list() if "/manifest/" in info.key])
        with pytest.raises(CorruptionError, match=r"(there was version 2|neither it nor a newer one is there)"):
            await table.version()


async def test_a_put_is_tried_under_new_names() -> None:
    store = store_in_hand()
    for faults in range(TRIES):
        fail_puts(store, "data/", "answer lost", times=faults)
        store.puts.clear()
        key = await put_new(store, b"x", lambda token: f"data/{token}", runtime())
        assert len({put.key for put in store.puts}) == faults + 1
        assert (await store.get(key)).data == b"x"
    fail_puts(store, "data/", "refused", times=TRIES)
    with pytest.raises(UnavailableError) as caught:
        await put_new(store, b"x", lambda token: f"data/{token}", runtime())
    assert caught.value.outcome == "not_applied"


async def test_each_attempt_puts_a_link_of_its_own() -> None:
    """T4: its rows' ids are those of the head that it extends."""
    store = store_in_hand()
    async with opened(store) as catalog, opened(store) as others:
        table, other = await both(store, catalog), await others.table(SHOP, "orders")
        await other.append(rows(2))
        await table.append(rows(3))  # by a head that is old by now
        links = {put.key for put in store.puts if put.landed and put.key.endswith(".chain")}
        assert len(links) == 4
        head = await table._context.newest()
        blocks = (await table._context.contents(head)).blocks
        assert blocks.column("first_row").to_pylist() == [0, 1, 2]


async def test_old_blocks_are_read_by_the_newest_schema() -> None:
    store = store_in_hand()
    async with opened(store) as catalog:
        table = await both(store, catalog)
        changes: dict[str, Any] = {
            "add": {"n": ORDERS.field("id").type},
            "defaults": {"n": 7},
            "rename": {"sku": "name"},
        }
        await table._context.committer.commit(Alter(changes))
        found = await table.scan(where=[("n", "==", 7)]).read()
        assert found.to_pylist() == [{"id": 1, "name": "s1", "price": 0.5, "n": 7}]


async def test_a_column_of_dates_becomes_one_of_timestamps() -> None:
    day, later = dt.date(2026, 1, 2), dt.datetime.fromisoformat("2026-01-03T04:00")
    store = store_in_hand()
    async with opened(store) as catalog:
        table = await created(catalog, "days", pa.schema([("day", pa.date32())]))
        await table.append(pa.table({"day": [day]}))
        await table._context.committer.commit(Alter({"widen": {"day": pa.timestamp("us")}}))
        await table.append(pa.table({"day": pa.array([later], pa.timestamp("us"))}))
        midnight = dt.datetime.fromisoformat("2026-01-02")
        for where, days in (([], [midnight, later]), (col("day") < later, [midnight]), (col("day") >= later, [later])):
            assert (await table.scan(where).read()).column("day").to_pylist() == days


async def test_a_version_is_found_by_number_and_token() -> None:
    store = store_in_hand()
    async with opened(store) as catalog:
        table = await both(store, catalog)
        heads = table._context.heads
        refs = await heads.stored()
        assert [ref.version for ref in refs] == [1, 2]
        found = await heads.read(refs[0])
        assert isinstance(found, Head)
        assert found.version == 1
        assert await heads.read(refs[1]._replace(token="0" * 32)) is None
