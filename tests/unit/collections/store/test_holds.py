"""`slate_async.collections.store.holds` and `.conditional`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from metastores.protocol import Committed, Conflict, Unknown
from slate_async.collections.core.holding import (
    Progress,
    StoredHold,
    attempt,
    registering,
    resolved,
    stands,
    to_write,
    written,
)
from slate_async.collections.core.sweep import revoking
from slate_async.collections.open import open_collections
from slate_async.collections.store.holds import PARALLEL_READS, HoldStore
from slate_async.errors import ConfigError, CorruptionError, UnavailableError
from tests.engine import StoreInHand
from tests.support.collection_bytes import AREA, HOLD, U64, frontier
from tests.unit.collections.faults import next_put
from tests.unit.collections.lake import fast_runtime


async def test_a_hold_is_written_read_listed_and_removed(store: StoreInHand) -> None:
    holds = HoldStore(store, U64)
    assert (await holds.read("a"), await holds.list(), await holds.read_all(["a"])) == (None, {}, {})
    outcome = await holds.write("a", HOLD, None)
    assert isinstance(outcome, Committed)
    assert await holds.read("a") == StoredHold(HOLD, outcome.value)
    await store.put("readers/UPPER/hold", b"foreign")
    await store.put("readers/a/other", b"foreign")
    assert await holds.list() == {"a": outcome.value}
    await holds.remove(["a", "b"])
    assert await holds.list() == {}


async def test_only_one_change_of_a_hold_is_made(store: StoreInHand) -> None:
    """Of two that read the same hold, one changes it; a removed one is not made again by a change."""
    holds = HoldStore(store, U64)
    first = await holds.write("a", HOLD, None)
    assert isinstance(first, Committed)
    assert await holds.write("a", HOLD, None) == Conflict(None)
    second = await holds.write("a", replace(HOLD, beat=4, nonce="1" * 32), first.value)
    assert isinstance(second, Committed)
    assert await holds.write("a", revoking(HOLD, "2" * 32), first.value) == Conflict(None)
    await holds.remove(["a"])
    assert await holds.write("a", HOLD, second.value) == Conflict(None)
    assert await holds.read("a") is None


async def test_many_holds_are_read_at_once(store: StoreInHand) -> None:
    holds = HoldStore(store, U64)
    names = [f"reader-{number}" for number in range(2 * PARALLEL_READS + 3)]
    for name in names:
        await holds.write(name, replace(HOLD, note=name), None)
    found = await holds.read_all([*names, "missing"])
    assert {name: stored.hold.note for name, stored in found.items()} == {name: name for name in names}


@pytest.mark.parametrize(("fault", "landed"), [("request lost", False), ("answer lost", True)])
async def test_an_unknown_outcome_is_resolved_by_the_nonce(store: StoreInHand, fault: str, landed: bool) -> None:
    holds = HoldStore(store, U64)
    handle = attempt(registering("a", AREA, 1000), "1" * 32)
    next_put(store, fault)
    assert isinstance(await holds.write("a", to_write(handle, "1" * 32), None), Unknown)
    progress, handle = resolved(handle, await holds.read("a"))
    assert progress is (Progress.CONFIRMED if landed else Progress.AGAIN)
    assert stands(handle, await holds.read("a")) is landed


async def test_a_move_whose_answer_is_lost_is_found_by_reading(store: StoreInHand) -> None:
    holds = HoldStore(store, U64)
    handle = attempt(registering("a", AREA, 1000), "1" * 32)
    first = await holds.write("a", to_write(handle, "1" * 32), None)
    assert isinstance(first, Committed)
    handle = attempt(written(handle, first.value), "2" * 32, version=AREA.version + 1)
    next_put(store, "answer lost")
    assert isinstance(await holds.write("a", to_write(handle, "2" * 32), handle.etag), Unknown)
    progress, handle = resolved(handle, await holds.read("a"))
    assert (progress, handle.etag == first.value) == (Progress.CONFIRMED, False)


async def test_a_refused_put_is_an_error_and_changes_nothing(store: StoreInHand) -> None:
    holds = HoldStore(store, U64)
    next_put(store, "refused")
    with pytest.raises(UnavailableError) as caught:
        await holds.write("a", HOLD, None)
    assert caught.value.outcome == "not_applied"
    assert await holds.read("a") is None


async def test_a_damaged_hold_is_corruption(store: StoreInHand) -> None:
    await store.put("readers/a/hold", b"damaged")
    with pytest.raises(CorruptionError, match=r"readers/a/hold.*expire_reader\('a'\)"):
        await HoldStore(store, U64).read("a")


async def test_a_damaged_hold_is_looked_at_as_one_that_keeps_everything(store: StoreInHand) -> None:
    holds = HoldStore(store, U64)
    etag = await store.put("readers/a/hold", b"damaged")
    await holds.write("b", HOLD, None)
    looked = await holds.read_all(["a", "b", "missing"])
    assert looked["b"] == await holds.read("b")
    found = looked["a"]
    assert found == await holds.look("a")
    assert (found.etag, "readers/a/hold" in found.damage) == (etag, True)
    assert (found.hold.version, found.hold.since, found.hold.lease_ms) == (0, frontier(0), None)


async def test_reading_where_nothing_may_be_written_says_what_it_takes(store: StoreInHand) -> None:
    async with open_collections(store, name="memory://lake", controller=False, runtime=fast_runtime()) as lake:
        await (await lake.create("orders")).expire()
        store.fail_before = lambda key: ConfigError("the file system is read-only", outcome="not_applied")
        for opening in (lake.collection("orders").reader(), lake.create("orders")):
            with pytest.raises(ConfigError, match=r"takes the right to write.*readers/.*read-only"):
                await opening
        with pytest.raises(ConfigError, match="takes the right to write"):
            await lake.collection("orders").critical("pin")
        store.fail_before = lambda key: None
