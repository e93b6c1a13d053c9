"""What processes that slept put into lives of a collection that are over."""

from __future__ import annotations

import pytest

from slate_async.collections.lake import Lake
from slate_async.collections.open import open_collections
from tests.engine import StoreInHand
from tests.unit.collections.lake import fast_runtime, pace_of


async def opened(store: StoreInHand) -> Lake:
    return await open_collections(store, name="memory://lake", controller=False, runtime=fast_runtime(pace_of(store)))


async def late(store: StoreInHand) -> list[str]:
    """Objects of the first life but its tombstone."""
    return [info.key async for info in store.list("orders/1/") if "merged_areas" not in info.key]


@pytest.mark.parametrize("how", ["a controller", "a deletion"])
async def test_it_is_removed_however_many_lives_there_were_since(store: StoreInHand, how: str) -> None:
    async with await opened(store) as lake, await opened(store) as sleeping:
        await (await lake.create("orders")).expire()
        async with sleeping.collection("orders").writer("relay-a") as writer:
            for _ in range(20):
                await lake.delete("orders", force=True)
                await lake.create("orders")
            await store.put("orders/1/readers/zombie/hold", b"late")
            await writer.append([(b"late", 6, 1)], upper=9)
        async with lake.collection("orders").writer() as present:
            await present.append([(b"tea", 1, 1)], upper=3)
        assert len(await late(store)) == 2
        if how == "a deletion":
            await lake.delete("orders", force=True)
            assert await late(store) == []
            return
        async with lake.controllers():
            for _ in range(20_000):
                if not await late(store):
                    return
            pytest.fail("it is still there")
