"""`slate_async.collections.lake`: what is created, found and deleted in a folder of collections."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from slate_async.collections.collection import Collection
from slate_async.collections.core.edits import Tombstone
from slate_async.collections.core.errors import LeaseLostError
from slate_async.collections.lake import Lake
from slate_async.collections.open import open_collections
from slate_async.errors import (
    ClosedError,
    ConflictError,
    CorruptionError,
    FencedError,
    InvalidError,
    NotFoundError,
    SlateError,
    UnavailableError,
)
from slate_async.settings.collections import CollectionSettings
from tests.engine import START_MS, StoreInHand, settle, until
from tests.unit.collections.lake import fast_runtime, pace_of

ORDERS = pa.schema([pa.field("customer", pa.string(), nullable=False), pa.field("total", pa.int64())])
SETTINGS = CollectionSettings(version_keep_ms=0)
Opened = Callable[[], Awaitable[Lake]]


@pytest.fixture
async def another(store: StoreInHand) -> AsyncIterator[Opened]:
    """Opens the folder as one more process does."""
    lakes: list[Lake] = []

    async def opened() -> Lake:
        lake = await open_collections(
            store, name="memory://lake", settings=SETTINGS, controller=False, runtime=fast_runtime(pace_of(store))
        )
        lakes.append(lake)
        return lake

    yield opened
    store.release()
    store.fail_before = store.fail_after = lambda key: None
    for lake in lakes:
        with suppress(SlateError):
            await lake.close()


@pytest.fixture
async def lake(another: Opened) -> Lake:
    return await another()


async def keys(store: StoreInHand) -> list[str]:
    return [info.key async for info in store.list()]


async def append(collection: Collection, rows: list[tuple[Any, Any, int]], upper: Any) -> None:
    async with collection.writer("relay-a") as writer:
        await writer.append(rows, upper=upper)


async def entomb(lake: Lake, name: str) -> None:
    """What is left of a deletion that stopped after its first commit."""
    async with lake.collection(name)._stores() as stores:
        await stores.versions.commits.commit(Tombstone("d" * 32))


@pytest.mark.parametrize("appends", ["definite", "compare"])
async def test_what_is_written_to_a_new_collection_is_read(lake: Lake, appends: Any) -> None:
    async with await lake.create("orders", data=ORDERS, appends=appends) as reader:
        await append(lake.collection("orders"), [(("ada", 7), 3, 1), (("bob", 5), 9, 1)], 10)
        async with await reader.snapshot(4) as snapshot:
            assert (await snapshot.to_arrow()).to_pylist() == [{"customer": "ada", "total": 7, "_time": 4, "_diff": 1}]


async def test_times_may_be_pairs(lake: Lake) -> None:
    async with await lake.create("orders", time="u64x2") as reader:
        await append(lake.collection("orders"), [(b"a", (1, 2), 1)], [(4, 0), (0, 4)])
        async with await reader.snapshot((3, 3)) as snapshot:
            assert [row async for row in snapshot.rows()] == [(b"a", 1)]


async def test_one_that_is_there_is_opened(lake: Lake, another: Opened) -> None:
    async with await lake.create("orders", data=ORDERS):
        await append(lake.collection("orders"), [(("ada", 7), 3, 1)], 10)
    async with await (await another()).create("orders", data=ORDERS) as reader, await reader.snapshot(9) as snapshot:
        assert (await snapshot.to_arrow()).num_rows == 1
    [info] = await lake.list()
    assert (info.name, info.state, info.life, info.time, info.appends) == ("orders", "open", 1, "u64", "definite")
    assert info.data == ORDERS
    assert await lake.collection("orders").info() == info


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"time": "u64x2"}, "orders is there already, with time 'u64', not 'u64x2'"),
        ({"appends": "compare"}, "with appends 'definite', not 'compare'"),
        ({"data": ORDERS}, r"with data bytes, not \(customer: string, total: int64\)"),
    ],
)
async def test_another_one_of_that_name_is_refused_by_the_difference(
    lake: Lake, store: StoreInHand, wanted: dict[str, Any], said: str
) -> None:
    await (await lake.create("orders")).expire()
    before = await keys(store)
    with pytest.raises(InvalidError, match=said):
        await lake.create("orders", **wanted)
    assert await keys(store) == before


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda lake: lake.create("Orders"), "'Orders' is no name of a collection"),
        (lambda lake: lake.create("a/b"), "'a/b' is no name of a collection"),
        (lambda lake: lake.create(""), "'' is no name of a collection"),
        (lambda lake: lake.create("a" * 65), "is no name of a collection"),
        (lambda lake: lake.create(3), "3 is no name of a collection"),
        (lambda lake: lake.create("a", data=str), "data is bytes or a pyarrow.Schema, not <class 'str'>"),
        (lambda lake: lake.create("a", data=pa.schema([])), "data take one column or more"),
        (lambda lake: lake.create("a", data=pa.schema([("_x", pa.int64())])), "'_x' is no name of a data column"),
        (lambda lake: lake.create("a", data=pa.schema([("x", pa.list_(pa.int8()))])), "column x is list"),
        (lambda lake: lake.create("a", time="i64"), "time is 'u64' or 'u64x2', not 'i64'"),
        (lambda lake: lake.create("a", appends=None), "appends is 'definite' or 'compare', not None"),
        (lambda lake: lake.delete("a", force="yes"), "force is True or False, not str"),
        (lambda lake: lake.delete("A"), "'A' is no name of a collection"),
        (lambda lake: lake.collection("there").writer("B 1"), "'B 1' is no name of a writer"),
        (lambda lake: lake.collection("there").reader(3), "note is a str, not int"),
    ],
)
async def test_wrong_arguments_are_named_and_change_nothing(
    lake: Lake, store: StoreInHand, call: Callable[[Any], Any], said: str
) -> None:
    with pytest.raises(InvalidError, match=said):
        await call(lake)
    assert await keys(store) == []


async def test_an_unknown_collection_is_an_error_that_says_what_there_is(lake: Lake) -> None:
    calls: list[Callable[[str], Awaitable[Any]]] = [
        lambda name: lake.collection(name).info(),
        lambda name: lake.collection(name).writer().__aenter__(),
        lambda name: lake.collection(name).reader().__aenter__(),
        lambda name: lake.delete(name),
    ]
    for call in calls:
        with pytest.raises(NotFoundError, match=r"no collection ordrs in memory://lake, which has none"):
            await call("ordrs")
    await lake.create("orders")
    for call in calls:
        with pytest.raises(NotFoundError, match="no collection ordrs in memory://lake; is orders meant"):
            await call("ordrs")
    with pytest.raises(NotFoundError, match="no collection xyz in memory://lake; there are orders"):
        await lake.collection("xyz").info()


async def test_names_are_found_whatever_they_begin_with_and_what_is_foreign_is_left_out(
    lake: Lake, store: StoreInHand
) -> None:
    for name in ("a0", "a", "a-b", "ab"):
        await lake.create(name)
    for key in ("A/collection", "a1", "zz/notes.txt", "readme.md", "a/1/notes.txt"):
        await store.put(key, b"foreign")
    assert {info.name for info in await lake.list()} == {"a", "a-b", "a0", "ab"}
    await lake.delete("a", force=True)
    assert {"A/collection", "a1", "zz/notes.txt", "readme.md", "a/1/notes.txt"} < set(await keys(store))


async def test_it_is_looked_at_verified_and_kept(lake: Lake) -> None:
    async with await lake.create("orders", note="billing"):
        collection = lake.collection("orders")
        await append(collection, [(b"a", 3, 1), (b"a", 3, -1), (b"b", 4, 2)], 5)
        assert (await collection.inspect()).epoch == 0
        async with collection.controller(background=False) as controller:
            await controller.settle()
            overview = await collection.inspect()
        assert (overview.epoch, overview.upper, overview.rows, len(overview.layers)) == (1, "5", 1, 1)
        assert [hold.note for hold in overview.holds] == ["billing"]
        report = await collection.verify()
        assert report.clean
        assert "handles=1" in repr(lake)
    async with collection.controller() as first, collection.controller(background=False) as second:
        assert (first.epoch, second.epoch) == (2, 3)
        assert isinstance(await first.wait_ended(), FencedError)
    for call in (collection.controller().__aenter__, collection.verify, collection.inspect):
        await lake.delete("orders")
        with pytest.raises(NotFoundError):
            await call()


async def test_a_damaged_register_is_reported(lake: Lake, store: StoreInHand) -> None:
    await (await lake.create("orders")).expire()
    data = bytearray((await store.get("orders/collection")).data)
    data[-1] ^= 1
    await store.inner.put("orders/collection", bytes(data))
    report = await lake.collection("orders").verify()
    assert not report.clean
    assert report.name == "orders"
    assert "checksum does not match" in report.findings[0].what
    with pytest.raises(CorruptionError, match="collection of orders"):
        await lake.collection("orders").info()


# ---- deletion


async def test_a_collection_is_not_deleted_while_readers_hold_it(lake: Lake) -> None:
    reader = await lake.create("orders", note="billing")
    with pytest.raises(ConflictError, match=r"readers hold the collection \(1\): \w{32} \(leased: billing\)") as raised:
        await lake.delete("orders")
    assert raised.value.outcome == "not_applied"
    await append(lake.collection("orders"), [(b"a", 3, 1)], 5)
    await reader.expire()
    await lake.delete("orders")
    assert [info.state for info in await lake.list()] == ["deleted"]


@pytest.mark.parametrize("appends", ["definite", "compare"])
async def test_a_forced_deletion_closes_its_readers_and_leaves_the_tombstone(
    lake: Lake, store: StoreInHand, appends: Any
) -> None:
    reader = await lake.create("orders", appends=appends)
    await append(lake.collection("orders"), [(b"a", 3, 1)], 5)
    await lake.delete("orders", force=True)
    assert await keys(store) == [f"orders/1/merged_areas/v{1:020}", "orders/collection"]
    with pytest.raises((ClosedError, LeaseLostError)):
        await reader.snapshot(9)
    for opening in (lake.collection("orders").writer, lake.collection("orders").reader, lake.collection("orders").info):
        with pytest.raises(NotFoundError, match="the collection orders of memory://lake was deleted"):
            await opening()
    await lake.delete("orders")
    await reader.expire()


async def test_it_begins_anew_and_knows_nothing_of_the_life_before(
    lake: Lake, another: Opened, store: StoreInHand
) -> None:
    """C28: what a sleeping writer puts goes to the dead life, and the next deletion of that removes it."""
    reader = await lake.create("orders")
    writer = await (await another()).collection("orders").writer("relay-a")
    await writer.append([(b"old", 3, 1)], upper=5)
    await lake.delete("orders", force=True)
    async with await lake.create("orders", data=ORDERS, appends="compare") as second:
        await writer.append([(b"late", 6, 1)], upper=9)
        await append(lake.collection("orders"), [(("ada", 7), 1, 1)], 3)
        async with await second.snapshot(2) as snapshot:
            assert (await snapshot.to_arrow()).num_rows == 1
    assert [(info.life, info.appends, info.created_ms) for info in await lake.list()] == [(2, "compare", START_MS)]
    await reader.expire()
    await lake.delete("orders")
    left = [key for key in await keys(store) if "merged_areas" not in key]
    assert left == ["orders/collection"]


async def test_a_deletion_that_stopped_midway_is_finished_by_the_next_call(lake: Lake, store: StoreInHand) -> None:
    await lake.create("orders")
    await append(lake.collection("orders"), [(b"a", 3, 1)], 5)
    await entomb(lake, "orders")
    for opening in (lake.collection("orders").writer, lake.collection("orders").reader):
        with pytest.raises(NotFoundError, match="was deleted"):
            await opening()
    await lake.delete("orders")
    assert await keys(store) == [f"orders/1/merged_areas/v{1:020}", "orders/collection"]
    assert [info.state for info in await lake.list()] == ["deleted"]


@pytest.mark.parametrize("wanted", [{}, {"appends": "compare"}])
async def test_a_creation_goes_on_where_a_deletion_stopped(lake: Lake, wanted: dict[str, Any]) -> None:
    await lake.create("orders")
    await entomb(lake, "orders")
    await lake.create("orders", **wanted)
    assert [(info.state, info.life) for info in await lake.list()] == [("open", 2)]


# ---- faults and races


@pytest.mark.parametrize("lost", ["fail_before", "fail_after"])
@pytest.mark.parametrize("key", ["collection", "merged_areas"])
async def test_lost_requests_and_answers_change_no_outcome(lake: Lake, store: StoreInHand, lost: str, key: str) -> None:
    """Each conditional put is lost once, before or after it took effect."""
    store.watch, seen = "", set[str]()

    def fail(name: str) -> Exception | None:
        if key not in name or name in seen:
            return None
        seen.add(name)
        return UnavailableError("lost", outcome="unknown")

    setattr(store, lost, fail)
    async with await lake.create("orders") as reader:
        await append(lake.collection("orders"), [(b"a", 3, 1)], 5)
        async with await reader.snapshot(4) as snapshot:
            assert [row async for row in snapshot.rows()] == [(b"a", 1)]
    lost_ones = len(seen)
    seen.clear()
    await lake.delete("orders")
    lost_ones += len(seen)
    seen.clear()
    await lake.create("orders")
    assert [(info.state, info.life) for info in await lake.list()] == [("open", 2)]
    assert lost_ones


@pytest.mark.parametrize("key", ["orders/collection", "readers/"])
async def test_a_cancelled_creation_is_found_by_the_next(lake: Lake, store: StoreInHand, key: str) -> None:
    store.watch, store.hold = "", True
    call = asyncio.ensure_future(lake.create("orders", data=ORDERS))
    if key == "readers/":
        await until(lambda: "orders/collection" in store.held, "the register is on its way")
        store.release("orders/collection")
    await until(lambda: any(key in held for held in store.held), "the put is on its way")
    call.cancel()
    await settle()
    assert call.cancelled()
    store.release()
    async with await lake.create("orders", data=ORDERS):
        assert [(info.state, info.life) for info in await lake.list()] == [("open", 1)]


@pytest.mark.parametrize("key", ["merged_areas", "orders/collection"])
async def test_a_cancelled_deletion_goes_on(lake: Lake, store: StoreInHand, key: str) -> None:
    await lake.create("orders")
    store.watch, store.hold = "", True
    call = asyncio.ensure_future(lake.delete("orders", force=True))
    while not any(key in held for held in store.held):
        await until(lambda: bool(store.held), "a put is on its way")
        if not any(key in held for held in store.held):
            store.release(*store.held)
    call.cancel()
    await settle()
    assert call.cancelled()
    store.release()
    await lake.delete("orders", force=True)
    assert await keys(store) == [f"orders/1/merged_areas/v{1:020}", "orders/collection"]


async def test_of_many_creations_at_once_one_decides(another: Opened) -> None:
    lakes = [await another() for _ in range(8)]
    kinds = [{"appends": "compare"}, {"data": ORDERS}, {"time": "u64x2"}, {}]
    calls = [lake.create("orders", **kinds[number % 4]) for number, lake in enumerate(lakes)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    won = [number % 4 for number, result in enumerate(results) if not isinstance(result, BaseException)]
    assert len(won) == 2
    assert won[0] == won[1]
    assert all(isinstance(result, InvalidError) for result in results if isinstance(result, BaseException))
    assert [(info.state, info.life) for info in await lakes[0].list()] == [("open", 1)]


async def test_creations_deletions_and_appends_at_once_leave_one_life_or_none(
    another: Opened, store: StoreInHand
) -> None:
    lakes = [await another() for _ in range(4)]

    async def creates(lake: Lake) -> None:
        for _ in range(6):
            await (await lake.create("orders")).expire()
            with suppress(NotFoundError, ClosedError):
                async with lake.collection("orders").writer() as writer:
                    await writer.append([], upper=5)

    async def deletes(lake: Lake) -> None:
        for _ in range(6):
            with suppress(NotFoundError):
                await lake.delete("orders", force=True)

    await asyncio.gather(*(work(lake) for lake in lakes for work in (creates, deletes)))
    [info] = await lakes[0].list()
    if info.state == "open":
        async with lakes[0].collection("orders").reader():
            pass
        await lakes[1].delete("orders", force=True)
    await lakes[2].delete("orders")
    async with await lakes[3].create("orders") as reader:
        await append(lakes[3].collection("orders"), [(b"new", 1, 1)], 2)
        async with await reader.snapshot(1) as snapshot:
            assert [row async for row in snapshot.rows()] == [(b"new", 1)]


# ---- the lake itself


async def test_closing_closes_what_was_opened_in_it(lake: Lake, store: StoreInHand) -> None:
    reader = await lake.create("orders")
    collection = lake.collection("orders")
    writer = await collection.writer()
    closing = [asyncio.ensure_future(lake.close()) for _ in range(2)]
    closing[0].cancel()
    await asyncio.wait(closing)
    await lake.close()
    assert not [key for key in await keys(store) if "/readers/" in key]
    for call in (
        lambda: reader.snapshot(1),
        lambda: writer.append([], upper=1),
        lambda: lake.create("orders"),
        lake.list,
        lambda: lake.delete("orders"),
        collection.info,
        lambda: collection.writer().__aenter__(),
    ):
        with pytest.raises(ClosedError):
            await call()


async def test_what_closed_by_itself_is_forgotten(lake: Lake) -> None:
    async with await lake.create("orders"), lake.collection("orders").writer():
        assert "handles=2" in repr(lake)
    assert "handles=0" in repr(lake)
    assert lake._context.lives._users == {}


async def test_clones_and_readers_under_a_critical_hold_are_closed_with_it(lake: Lake, store: StoreInHand) -> None:
    first = await lake.create("orders")
    clone = await first.clone()
    await first.expire()
    assert lake._context.lives._users, "the clone has what it reads by"
    under = await (await lake.collection("orders").critical("billing")).reader()
    assert "handles=2" in repr(lake)
    await append(lake.collection("orders"), [(b"a", 3, 1)], 5)
    async with await clone.snapshot(4) as snapshot:
        assert [row async for row in snapshot.rows()] == [(b"a", 1)]
    await lake.close()
    for reader in (clone, under):
        with pytest.raises(ClosedError):
            await reader.snapshot(4)
    assert [key for key in await keys(store) if "/readers/" in key] == ["orders/1/readers/billing/hold"]


async def test_a_handle_that_cannot_be_closed_leaves_no_other_open(lake: Lake, store: StoreInHand) -> None:
    broken = await lake.create("orders")
    other = await lake.collection("orders").reader()

    async def fail() -> None:
        raise UnavailableError("no answer")

    broken._on_closed(fail)
    with pytest.raises(UnavailableError, match="no answer"):
        await lake.close()
    assert other._ending is not None
    assert other._ending.done()
    assert not [key for key in await keys(store) if "/readers/" in key]


async def test_one_that_opens_while_the_lake_closes_is_closed(lake: Lake, store: StoreInHand) -> None:
    await (await lake.create("orders")).expire()
    store.watch, store.hold = "", True
    call = asyncio.ensure_future(lake.collection("orders").reader().__aenter__())
    await until(lambda: bool(store.held), "its hold is on its way")
    closing = asyncio.ensure_future(lake.close())
    await settle()
    store.release()
    with pytest.raises(ClosedError):
        await call
    await closing
    assert not [key for key in await keys(store) if "/readers/" in key]


async def test_an_opening_is_used_once(lake: Lake) -> None:
    await lake.create("orders")
    opening = lake.collection("orders").writer()
    with pytest.raises(AttributeError, match=r"'append': a writer is not open yet; use .* collection.writer\(\.\.\.\)"):
        opening.append([])  # type: ignore[attr-defined]
    await (await opening).close()
    with pytest.raises(InvalidError, match=r"used already; call collection.writer\(...\) again"):
        await opening
    with pytest.warns(RuntimeWarning, match="a reader was never opened"):  # noqa: PT031
        lake.collection("orders").reader()
        gc.collect()
