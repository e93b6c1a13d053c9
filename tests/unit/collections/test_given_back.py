"""Frontiers that a collection gave are taken back, however they came about."""

from __future__ import annotations

from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.times import TimeKind
from slate_async.collections.lake import Lake
from slate_async.collections.open import open_collections
from tests.engine import StoreInHand
from tests.unit.collections.lake import fast_runtime, pace_of


async def opened(store: StoreInHand) -> Lake:
    return await open_collections(store, name="memory://lake", controller=False, runtime=fast_runtime(pace_of(store)))


async def test_where_several_writers_came_to_can_be_given_back(store: StoreInHand) -> None:
    """The join of two frontiers of 16 elements has more."""
    stairs = [[(2 * n + odd, 60 - 2 * n - odd) for n in range(16)] for odd in (0, 1)]
    lake, other = await opened(store), await opened(store)
    async with lake, other, await lake.create("orders", time="u64x2") as reader:
        orders = lake.collection("orders")
        for name, upper in zip("ab", stairs, strict=True):
            async with orders.writer(name) as writer:
                await writer.append([(b"a", (0, 0), 1)], upper=upper)
        end = Frontier(stairs[0]).join(Frontier(stairs[1]))
        assert len(end.elements) == 31
        async for delta in reader.listen(start=Frontier.minimum(TimeKind.U64X2)):
            await reader.downgrade_since(delta.upper)
            if delta.upper == end:
                break
        async with orders.controller(background=False) as controller:
            await controller.settle()
        later = other.collection("orders")
        async with later.writer("a") as writer:
            assert writer.upper == end
            await writer.append([(b"b", (70, 70), 1)], upper=(80, 80))
        for start in (end, Frontier.parse(str(end), TimeKind.U64X2)):
            async for delta in reader.listen(start=start):
                assert delta.updates.column("data").to_pylist() == [b"b"]
                break
