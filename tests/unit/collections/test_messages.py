"""What errors of a collection say: the collection, and what became of the call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from slate_async.collections.lake import Lake
from slate_async.collections.open import open_collections
from slate_async.errors import InvalidError, SlateError, UnavailableError
from tests.engine import StoreInHand, memory_store
from tests.unit.collections.lake import fast_runtime, pace_of


@pytest.fixture
async def lake(store: StoreInHand) -> AsyncIterator[Lake]:
    opened = await open_collections(store, name="memory://lake", controller=False, runtime=fast_runtime(pace_of(store)))
    yield opened
    with suppress(SlateError):
        await opened.close()


@pytest.mark.parametrize("appends", ["definite", "compare"])
async def test_a_full_disk_is_said_to_have_taken_nothing(appends: Any) -> None:
    store = StoreInHand(memory_store(), watch="")
    opening = open_collections(store, name="memory://lake", controller=False, runtime=fast_runtime())
    async with opening as lake, await lake.create("orders", appends=appends):
        orders = lake.collection("orders")
        [hold] = (await orders.inspect()).holds
        async with orders.writer() as writer:
            full = UnavailableError("no space left", outcome="not_applied")
            store.fail_before = lambda key: full
            appending = writer.append([(b"a", 0, 1)], lower=0, upper=1)
            for call in (appending, orders.critical("pin"), orders.expire_reader(hold.reader)):
                with pytest.raises(UnavailableError, match=r"nothing was written.*: no space left") as caught:
                    await call
                assert caught.value.outcome == "not_applied"
                assert "may" not in str(caught.value)
            store.fail_before = lambda key: None


async def test_a_read_that_is_not_answered_says_nothing_of_writes(
    lake: Lake, store: StoreInHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = await lake.create("orders")

    def refused(*_: Any, **__: Any) -> Any:
        raise UnavailableError("no answer")

    monkeypatch.setattr(store, "list", refused)
    with pytest.raises(UnavailableError, match="of orders did not succeed within") as caught:
        await reader.clone()
    assert caught.value.outcome is None
    assert "take effect" not in str(caught.value)
    monkeypatch.undo()


@pytest.mark.parametrize("appends", ["definite", "compare"])
@pytest.mark.parametrize(
    ("rows", "upper", "said"),
    [
        ([(b"a", 9, 1)], 7, "orders: row 0 .*its time is at or beyond upper 7"),
        ([(b"a", 1, 2**62), (b"a", 1, 2**62)], 7, "orders: a sum of differences does not fit int64"),
        ([("text", 1, 1)], 7, "orders: row 0: 'text' is no value of column data, which is binary: it is a str"),
        ([(b"a", 1, 1), ("text", 1, 1)], 7, "orders: row 1: 'text' is no value of column data"),
        ([7], 7, "orders: row 0 is 7"),
        ([], (1, 2), "orders: "),
        (pa.table({"data": ["text"], "_time": [1], "_diff": [1]}), 7, "orders: column data is string, but binary"),
    ],
)
async def test_what_cannot_be_appended_names_the_collection(
    lake: Lake, appends: Any, rows: Any, upper: Any, said: str
) -> None:
    await (await lake.create("orders", appends=appends)).expire()
    async with lake.collection("orders").writer() as writer:
        with pytest.raises(InvalidError, match=f"^{said}") as caught:
            await writer.append(rows, upper=upper)
        assert caught.value.outcome == "not_applied"
        with pytest.raises(InvalidError, match=f"^{said}") as caught:
            async with writer.batch(upper=upper) as batch:
                await batch.add(rows)
        assert caught.value.outcome == "not_applied"
        await writer.append([(b"a", 0, 1)], upper=1)
