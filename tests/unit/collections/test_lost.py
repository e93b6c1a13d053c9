"""Collections of which something was lost: registers, versions, folders. None of them is taken for an empty one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from metastores.memory import MemoryFactory
from slate_async.collections.info import DamagedCollection
from slate_async.collections.lake import Lake
from slate_async.collections.open import open_collections
from slate_async.errors import CorruptionError
from slate_async.objectstore.protocol import ObjectInfo
from slate_async.runtime.opening import Opening
from tests.engine import StoreInHand
from tests.unit.collections.lake import fast_runtime


async def opened(store: StoreInHand) -> Lake:
    return await open_collections(store, name="memory://lake", controller=False, runtime=fast_runtime())


@pytest.fixture
async def lake(store: StoreInHand) -> AsyncIterator[Lake]:
    async with await opened(store) as made:
        yield made


async def keys(store: StoreInHand) -> list[str]:
    return [info.key async for info in store.list()]


async def used(lake: Lake) -> None:
    """A row is merged."""
    orders = lake.collection("orders")
    async with orders.writer() as writer:
        await writer.append([(b"a", 3, 1)], upper=5)
    async with orders.controller(background=False) as controller:
        await controller.settle()


async def test_one_whose_register_was_lost_is_not_created_again(lake: Lake, store: StoreInHand) -> None:
    """C28: it would show the merged rows of the one before, which bear no uuid."""
    async with await lake.create("orders"):
        await used(lake)
    register = (await store.get("orders/collection")).data
    await store.delete(["orders/collection"])
    newcomer = await opened(store)
    collection = newcomer.collection("orders")
    calls = [lambda: newcomer.create("orders"), collection.info, collection.writer, collection.reader]
    for call in [*calls, lambda: newcomer.delete("orders", force=True)]:
        with pytest.raises(
            CorruptionError, match=r"register of the collection orders is missing.* choose another name"
        ):
            await call()
    assert not (await collection.verify()).clean
    await store.put("orders/collection", register)
    async with await newcomer.create("orders") as reader, await reader.snapshot(4) as snapshot:
        assert [row async for row in snapshot.rows()] == [(b"a", 1)]


async def test_one_whose_versions_were_lost_is_not_empty(lake: Lake, store: StoreInHand) -> None:
    async with await lake.create("orders"):
        await used(lake)
    await store.delete([key for key in await keys(store) if "merged_areas" in key])
    other = await opened(store)
    newcomer = other.collection("orders")
    for call in (newcomer.reader, newcomer.writer, newcomer.controller, newcomer.inspect):
        with pytest.raises(CorruptionError, match=r"orders.*all versions are missing, and there is .*merged_batches"):
            await call()
    assert not (await newcomer.verify()).clean


async def test_versions_that_outlived_the_folder_are_an_obstacle(store: StoreInHand) -> None:
    """The folder was removed, and a metastore outside of the store was forgotten."""
    metastores, runtime = MemoryFactory(), fast_runtime()

    def lake() -> Opening[Lake]:
        return open_collections(store, name="memory://lake", metastore=metastores, controller=False, runtime=runtime)

    async with lake() as first, await first.create("orders"):
        await used(first)
    await store.delete(await keys(store))
    async with lake() as second:
        with pytest.raises(
            CorruptionError, match=r"older than version [0-9]+ of memory://lake/orders/1 in its metastore"
        ):
            await second.create("orders")
        await second.create("others")
    assert [key for key in await keys(store) if key.startswith("orders")] == []


@pytest.mark.parametrize("kind", ["register", "version"])
async def test_damage_names_the_collection_and_the_object_once(lake: Lake, store: StoreInHand, kind: str) -> None:
    async with await lake.create("orders"):
        await used(lake)
    head = max(key for key in await keys(store) if "merged_areas/v0" in key)
    damaged = "orders/collection" if kind == "register" else head
    data = bytearray((await store.get(damaged)).data)
    data[-1] ^= 1
    await store.put(damaged, bytes(data))
    async with await opened(store) as other:
        with pytest.raises(CorruptionError) as raised:
            await other.collection("orders").reader()
    text, where = str(raised.value), raised.value.object_name
    assert where == ("collection of orders" if kind == "register" else head.removeprefix("orders/1/"))
    assert text.startswith(f"{where} at byte ")
    assert (text.count("orders"), text.count(where), text.count(" at byte ")) == (1, 1, 1), text


async def test_a_missing_object_is_named_once(lake: Lake, store: StoreInHand) -> None:
    async with await lake.create("orders") as reader:
        await used(lake)
        await store.delete([key for key in await keys(store) if "batch_" in key])
        async with await opened(store) as other, other.collection("orders").reader() as reader:
            with pytest.raises(CorruptionError, match=r"it is missing, and the hold of [0-9a-f]+ stands") as raised:
                await (await reader.snapshot(4)).to_arrow()
    assert str(raised.value).count("batch_") == 1
    assert str(raised.value).startswith("orders/1/merged_batches/")


@pytest.mark.parametrize("how", ["missing", "damaged"])
async def test_one_without_a_sound_register_is_listed_as_damaged(lake: Lake, store: StoreInHand, how: str) -> None:
    """It was left out, or hid all others."""
    async with await lake.create("orders"), await lake.create("parts"):
        await used(lake)
    for key in ("photos/1.jpg", "photos/1/a.jpg", "photos/a.jpg"):
        await store.put(key, b"foreign")
    if how == "missing":
        await store.delete(["orders/collection"])
    else:
        await store.put("orders/collection", b"damaged")
    async with await opened(store) as other:
        damaged, sound = await other.list()
        assert isinstance(damaged, DamagedCollection)
        with pytest.raises(CorruptionError) as raised:
            await other.collection("orders").info()
    assert (damaged.name, damaged.state, damaged.what) == ("orders", "damaged", str(raised.value))
    assert (sound.name, sound.state) == ("parts", "open")


async def test_of_a_foreign_folder_few_objects_are_listed(
    lake: Lake, store: StoreInHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        await store.put(f"photos/beach-{number}.jpg", b"foreign")
    listed, whole = [], store.list

    async def counted(prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        async for info in whole(prefix, start_after=start_after):
            listed.append(info.key)
            yield info

    monkeypatch.setattr(store, "list", counted)
    assert await lake.list() == []
    assert len(listed) == 2
