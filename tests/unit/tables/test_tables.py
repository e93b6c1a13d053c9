"""Tables as users see them: created, appended to, scanned, deleted from, by several processes, whatever is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from slate_async.errors import (
    ClosedError,
    ConflictError,
    CorruptionError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from slate_async.tables.catalog import Catalog
from slate_async.tables.core.predicate import col
from slate_async.tables.incoming import BLOCK_BYTES
from slate_async.tables.open import open_catalog
from slate_async.tables.results import AppendResult
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


async def ids_of(table: Table, **asked: Any) -> list[int]:
    found = await table.scan(**{"columns": ["id"], **asked}).read()
    return [int(at) for at in found.column("id").to_pylist()]


async def ids_of_all(store: StoreInHand) -> list[int]:
    """By a process that knows nothing yet."""
    async with opened(store) as catalog:
        return await ids_of(await catalog.table(SHOP, "orders"))


async def test_rows_come_back_in_the_order_of_appends(catalog: Catalog) -> None:
    table = await created(catalog)
    assert await ids_of(table) == []
    first = await table.append(rows(3, 1, 2))
    assert first == AppendResult(2, 3, 1, first.nbytes, False)
    assert (await table.append(rows(5, 4))).version == 3
    assert await ids_of(table) == [3, 1, 2, 5, 4]
    assert (await table.scan().read()).equals(pa.concat_tables([rows(3, 1, 2), rows(5, 4)]).cast(await table.schema()))
    assert await table.version() == 3


async def test_a_scan_gives_columns_rows_and_no_more(catalog: Catalog) -> None:
    table = await created(catalog)
    for first in range(0, 40, 10):
        await table.append(rows(*range(first, first + 10)))
    assert await ids_of(table, where=col("id") >= 35) == [35, 36, 37, 38, 39]
    assert await ids_of(table, where=[("price", "<", 1.0), ("sku", "!=", "s0")]) == [1]
    found = await table.scan(where=col("price") == 6.0, columns=["sku", "id"]).read()
    assert found.to_pylist() == [{"sku": "s12", "id": 12}]
    for limit in (0, 1, 10, 11, 40, 50):
        assert await ids_of(table, limit=limit) == list(range(min(limit, 40)))
    assert [batch.num_rows async for batch in table.scan(columns=["id"])] == [10] * 4


async def test_blocks_that_cannot_have_a_match_are_not_read(store: StoreInHand, catalog: Catalog) -> None:
    table = await created(catalog)
    for at in range(5):
        await table.append(rows(at))
    store.gets.clear()
    assert await ids_of(table, where=col("id") == 3) == [3]
    assert len([key for key in store.gets if "/data/" in key]) == 1


async def test_deleted_rows_stay_deleted(store: StoreInHand, catalog: Catalog) -> None:
    table = await created(catalog)
    await table.append(rows(1, 2, 3, 4))
    await table.append(rows(5, 6))
    assert (await table.delete(col("id").isin([2, 5]))).rows == 2
    assert (await table.delete(col("id") == 2)).rows == 0
    await table.append(rows(2))
    assert await ids_of(table) == [1, 3, 4, 6, 2]
    assert (await table.overwrite(rows(9))).rows == 1
    assert await ids_of(table) == [9]
    assert (await table.delete([])).rows == 1
    async with opened(store) as others:
        assert await ids_of(await others.table(SHOP, "orders")) == []


async def test_large_deletes_are_files(store: StoreInHand, catalog: Catalog) -> None:
    table = await created(catalog)
    for first in (0, 1000):
        await table.append(rows(*range(first, first + 1000)))
    assert (await table.delete([("id", ">=", 300), ("id", "<", 1700)])).rows == 1400
    assert (await table.delete(col("id") == 5)).rows == 1
    files = [put.key for put in store.puts if "/dels/" in put.key]
    assert len(files) == 1
    kept = [at for at in (*range(300), *range(1700, 2000)) if at != 5]
    assert await ids_of(table) == kept
    assert await ids_of_all(store) == kept
    assert (await table.delete(col("id") < 1000)).rows == 299
    assert await ids_of_all(store) == list(range(1700, 2000))
    data = (await store.get(files[0])).data
    for damaged in (data[:-1], data[:50] + b"\x55" + data[51:], b""):
        await store.put(files[0], damaged)
        with pytest.raises(CorruptionError):
            await ids_of_all(store)
    await store.delete(files)
    with pytest.raises(CorruptionError, match="missing"):
        await ids_of_all(store)


@pytest.mark.parametrize("fault", FAULTS)
async def test_large_deletes_are_in_whatever_is_lost(store: StoreInHand, catalog: Catalog, fault: str) -> None:
    table = await created(catalog)
    await table.append(rows(*range(1000)))
    fail_puts(store, "/dels/", fault)
    await table.delete(col("id") < 999)
    assert await ids_of_all(store) == [999]


async def test_an_append_id_is_in_once(store: StoreInHand, catalog: Catalog) -> None:
    table = await created(catalog)
    first = await table.append(rows(1), append_id=("job", 1))
    assert (await table.append(rows(1), append_id=("job", 1))) == AppendResult(first.version, 1, 0, 0, True)
    async with opened(store) as others:
        other = await others.table(SHOP, "orders")
        assert (await other.append(rows(1), append_id=("job", 1))).duplicate
        assert (await other.append(rows(2), append_id=("job", 2))).version == 3
        assert (await other.append(rows(1), append_id=("job", 1))) == AppendResult(None, 0, 0, 0, True)
    assert not (await table.append(rows(3), append_id=("another", 1))).duplicate
    assert await ids_of(table) == [1, 2, 3]


@pytest.mark.parametrize("part", ["/data/", "/chain/", "/manifest/"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_what_is_acknowledged_is_in_once_whatever_is_lost(store: StoreInHand, part: str, fault: str) -> None:
    async with opened(store) as catalog:
        table = await created(catalog)
        for at in range(4):
            fail_puts(store, part, fault, times=at % 3)
            await table.append(rows(at))
        fail_puts(store, part, fault)
        await table.delete(col("id") == 1)
        assert await ids_of(table) == [0, 2, 3]
    async with opened(store) as catalog:
        assert await ids_of(await catalog.table(SHOP, "orders")) == [0, 2, 3]


@pytest.mark.parametrize("metastore", ["put-if-absent", "if-match"])
async def test_processes_that_append_at_once_lose_nothing(store: StoreInHand, metastore: str) -> None:
    async def append(process: int) -> None:
        async with opened(store, metastore) as catalog:
            table = await created(catalog, if_not_exists=True)
            for at in range(8):
                await table.append(rows(process * 100 + at))
                if at % 4 == 3:
                    await table.delete(col("id") == process * 100 + at - 1)

    await asyncio.gather(*(append(process) for process in range(4)))
    async with opened(store, metastore) as catalog:
        found = await ids_of(await catalog.table(SHOP, "orders"))
    assert sorted(found) == [process * 100 + at for process in range(4) for at in range(8) if at not in (2, 6)]


async def test_tasks_that_append_at_once_lose_nothing(catalog: Catalog) -> None:
    table = await created(catalog)
    done = await asyncio.gather(*(table.append(rows(at)) for at in range(20)))
    assert {result.version for result in done} == {2}  # those that wait go in together
    assert sorted(await ids_of(table)) == list(range(20))


async def test_a_long_chain_is_read_from_a_whole_link(store: StoreInHand, catalog: Catalog) -> None:
    table = await created(catalog)
    for at in range(70):
        await table.append(rows(at))
    assert any(put.key.endswith(".chain.whole") for put in store.puts)
    head = table._context.heads.head
    assert head is not None
    assert len(head.links) < 20
    store.gets.clear()
    async with opened(store) as others:
        assert await ids_of(await others.table(SHOP, "orders")) == list(range(70))
    assert len([key for key in store.gets if "/chain/" in key]) < 20


async def test_a_whole_link_is_not_needed(store: StoreInHand) -> None:
    """It may be deleted at any time: the chain goes on behind it."""
    async with opened(store) as catalog:
        table = await created(catalog)
        for at in range(40):
            await table.append(rows(at))
    await store.delete([info.key async for info in store.list() if info.key.endswith(".whole")])
    async with opened(store) as catalog:
        assert await ids_of(await catalog.table(SHOP, "orders")) == list(range(40))


async def test_the_chain_below_a_whole_link_is_not_needed(store: StoreInHand) -> None:
    async with opened(store) as catalog:
        table = await created(catalog)
        for at in range(16):
            await table.append(rows(at))
        head = table._context.heads.head
        assert head is not None
        await asyncio.sleep(0.01)
        wholes = [info.key async for info in store.list() if info.key.endswith(".whole")]
        assert len(wholes) == 1
        await store.delete([info.key async for info in store.list() if info.key.endswith(".chain")])
    async with opened(store) as catalog:
        assert await ids_of(await catalog.table(SHOP, "orders")) == list(range(16))


async def test_every_damaged_object_is_noticed(store: StoreInHand) -> None:
    async with opened(store) as catalog:
        table = await created(catalog)
        await table.append(rows(1, 2))
        await table.delete(col("id") == 1)
    kept = {info.key: (await store.get(info.key)).data async for info in store.list()}
    for key, data in kept.items():
        if "/manifest/" in key and not key.endswith("03.head"):
            continue
        if "catalog/" in key and not key.endswith("2"):
            continue
        for damaged in (data[:-1], data[: len(data) // 2] + b"\x55" + data[len(data) // 2 + 1 :], b""):
            await store.put(key, damaged)
            with pytest.raises(CorruptionError):
                await ids_of_all(store)
        await store.put(key, data)
        if "/data/" in key or "/chain/" in key:
            await store.delete([key])
            with pytest.raises(CorruptionError, match="missing"):
                await ids_of_all(store)
            await store.put(key, data)


async def test_data_comes_in_every_form(catalog: Catalog) -> None:
    table = await created(catalog)
    whole = rows(1, 2)

    async def later() -> AsyncIterator[pa.RecordBatch]:
        for batch in whole.to_batches():
            yield batch

    class Frame:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return whole.__arrow_c_stream__(requested_schema)

    for data in (whole, whole.to_batches()[0], whole.to_reader(), whole.to_batches(), iter([whole]), later(), Frame()):
        assert (await table.append(data)).rows == 2
    assert await ids_of(table) == [1, 2] * 7
    assert (await table.append([])).rows == 0
    assert (await table.append(pa.table({"id": [7]}))).rows == 1
    narrow = pa.table({"id": pa.array([8], pa.int8()), "sku": pa.array(["x"], pa.large_string())})
    assert (await table.append(narrow)).rows == 1
    assert (await table.scan(where=col("id") >= 7).read()).column("sku").to_pylist() == [None, "x"]


BAD_ROWS: list[tuple[Any, str]] = [
    (7, "not int"),
    ("text", "not str"),
    ([7], "not int"),
    (pa.table({"id": [1], "prise": [1.0]}), "is 'price' meant"),
    (pa.table({"sku": ["a"]}), "'id' is missing"),
    (pa.table({"id": pa.array([None], pa.int64())}), "'id' cannot be null"),
    (pa.table({"id": ["1"]}), "type int64, and what is given of type string"),
    (pa.table({"id": [1.0]}), "of type double"),
    (pa.table([pa.array([1]), pa.array([2])], ["id", "id"]), "is there twice"),
]


@pytest.mark.parametrize(("data", "words"), BAD_ROWS)
async def test_rows_that_do_not_fit_are_refused_before_anything_is_stored(
    store: StoreInHand, data: Any, words: str
) -> None:
    async with opened(store) as catalog:
        table = await created(catalog)
        before = len(store.puts)
        with pytest.raises(InvalidError, match=words) as caught:
            await table.append(data)
        assert caught.value.outcome == "not_applied"
        assert len(store.puts) == before


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"columns": ["idd"]}, "did you mean 'id'"),
        ({"columns": "id"}, "a list of names"),
        ({"columns": ["id", "id"]}, "asked for twice"),
        ({"columns": []}, "at least one column"),
        ({"limit": -1}, "a number of rows"),
        ({"where": col("skuu") == "a"}, "did you mean 'sku'"),
        ({"where": col("id") == "a"}, "does not compare"),
        ({"where": 7}, "is no predicate"),
    ],
)
async def test_scans_that_make_no_sense_are_refused(catalog: Catalog, asked: dict[str, Any], words: str) -> None:
    table = await created(catalog)
    with pytest.raises(InvalidError, match=words):
        await table.scan(**asked).read()


@pytest.mark.parametrize(
    "append_id", [7, "", "a" * 256, "\ud800", ("a",), (1, 1), ("a", None), ("", 1), ("a", 0), ("a", True), ("a", 2**63)]
)
async def test_append_ids_are_names_and_numbers(catalog: Catalog, append_id: Any) -> None:
    table = await created(catalog)
    with pytest.raises(InvalidError, match=r"append_id|application"):
        await table.append(rows(1), append_id=append_id)


async def test_names_lead_to_one_table_each(store: StoreInHand, catalog: Catalog) -> None:
    await created(catalog)
    await created(catalog, "día", ORDERS)
    assert await catalog.list_tables(SHOP) == ["día", "orders"]
    with pytest.raises(ConflictError, match="already"):
        await created(catalog)
    await created(catalog, if_not_exists=True)
    with pytest.raises(InvalidError, match="other columns"):
        await created(catalog, "orders", pa.schema([("id", pa.int64())]), if_not_exists=True)
    with pytest.raises(NotFoundError, match="is 'orders' meant"):
        await catalog.table(SHOP, "order")
    for name in ("", "a/b", "x" * 256, 7, "a\n"):
        with pytest.raises(InvalidError, match="name"):
            await catalog.table(SHOP, name)  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["/manifest/", "catalog/"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_table_is_created_once_whatever_is_lost(store: StoreInHand, part: str, fault: str) -> None:
    async with opened(store) as catalog:
        fail_puts(store, part, fault)
        table = await created(catalog)
        await table.append(rows(1))
    async with opened(store) as catalog:
        assert await catalog.list_tables(SHOP) == ["orders"]
        assert await ids_of(await catalog.table(SHOP, "orders")) == [1]


async def test_processes_that_create_the_same_table_at_once_find_one(store: StoreInHand) -> None:
    async def create(at: int) -> None:
        async with opened(store) as catalog:
            await (await created(catalog, if_not_exists=True)).append(rows(at))

    await asyncio.gather(*(create(at) for at in range(5)))
    async with opened(store) as catalog:
        assert sorted(await ids_of(await catalog.table(SHOP, "orders"))) == list(range(5))


async def test_nothing_works_once_it_is_closed(store: StoreInHand) -> None:
    catalog = await opened(store)
    table = await created(catalog)
    await table.append(rows(1))
    await catalog.close()
    for call in (
        table.append(rows(2)),
        table.version(),
        table.delete([]),
        table.scan().read(),
        catalog.list_tables(SHOP),
    ):
        with pytest.raises(ClosedError):
            await call
    with pytest.raises(ClosedError):
        await anext(aiter(table.scan()))


async def test_a_store_that_does_not_answer_says_whether_it_may_be_in(store: StoreInHand) -> None:
    async with opened(store, retry_deadline_ms=300) as catalog:
        table = await created(catalog)
        fail_puts(store, "/manifest/", "request lost", times=10_000)
        with pytest.raises(UnavailableError) as caught:
            await table.append(rows(1))
        assert caught.value.outcome == "unknown"
        fail_puts(store, "/data/", "request lost", times=10_000)
        with pytest.raises(UnavailableError) as caught:
            await table.append(rows(1))
        assert caught.value.outcome == "not_applied"


async def test_a_folder_on_disk(tmp_path: Path) -> None:
    async with open_catalog(tmp_path) as catalog:
        table = await created(catalog)
        await table.append(rows(*range(1000)))
        assert await ids_of(table, where=col("id") > 990) == list(range(991, 1000))
    async with open_catalog(tmp_path) as catalog:
        assert len(await ids_of(await catalog.table(SHOP, "orders"))) == 1000


async def test_a_small_piece_before_a_large_one_is_in_with_it() -> None:
    schema = pa.schema([("id", pa.int64())])
    large = pa.table({"id": np.arange(BLOCK_BYTES // 8, dtype=np.int64)}, schema)
    async with opened(store_in_hand()) as catalog:
        table = await created(catalog, schema=schema)
        done = await table.append([pa.table({"id": [-1]}, schema), large])
        assert done.rows == large.num_rows + 1
        assert (await table.scan(col("id") < 1).read()).column("id").to_pylist() == [-1, 0]
