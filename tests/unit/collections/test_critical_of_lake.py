"""`Collection.critical`: holds that outlive the lake that made them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from slate_async.collections.lake import Lake
from slate_async.collections.open import open_collections
from slate_async.errors import ClosedError, InvalidError, NotFoundError
from tests.engine import StoreInHand
from tests.unit.collections.lake import fast_runtime, pace_of


async def opened(store: StoreInHand) -> Lake:
    return await open_collections(store, name="memory://lake", runtime=fast_runtime(pace_of(store)))


@pytest.fixture
async def lake(store: StoreInHand) -> AsyncIterator[Lake]:
    async with await opened(store) as made:
        yield made


async def test_a_critical_hold_outlives_the_lake_that_made_it(lake: Lake, store: StoreInHand) -> None:
    first = await lake.create("orders")
    async with lake.collection("orders").writer() as writer:
        await writer.append([(b"a", 3, 1)], upper=5)
    pin = await lake.collection("orders").critical("billing", note="for people")
    await pin.compare_and_downgrade("", "half", 2)
    again = await lake.collection("orders").critical("billing")
    assert (again.token, str(again.since)) == ("half", "2")
    await first.expire()
    await lake.close()
    with pytest.raises(ClosedError, match="lake"):
        await lake.collection("orders").critical("billing")
    other = await opened(store)
    found = await other.collection("orders").critical("billing")
    assert (found.token, str(found.since)) == ("half", "2")
    async with await found.reader() as reader, await reader.snapshot(4) as snapshot:
        assert [row async for row in snapshot.rows()] == [(b"a", 1)]
    await other.close()


async def test_a_critical_hold_of_what_is_not_there_is_an_error(lake: Lake) -> None:
    with pytest.raises(NotFoundError, match="there is no collection orders"):
        await lake.collection("orders").critical("billing")
    await (await lake.create("orders")).expire()
    with pytest.raises(InvalidError, match="critical hold"):
        await lake.collection("orders").critical("Billing!")
    with pytest.raises(InvalidError, match="note is a str"):
        await lake.collection("orders").critical("billing", note=7)  # type: ignore[arg-type]
    await lake.delete("orders")
    with pytest.raises(NotFoundError, match="was deleted"):
        await lake.collection("orders").critical("billing")
