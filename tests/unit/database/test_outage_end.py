"""The errors of writes while the store is away, or refuses, and what the status says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

import slate_async as slate
from slate_async.storage.liveness.heartbeat import ALIVE_KEY
from slate_async.storage.manifest.state import ManifestState
from tests.engine import (
    CONTIGUOUS,
    CONTIGUOUS_SST,
    EPOCHS_SST,
    Kind,
    ManualClock,
    commit_elsewhere,
    contents,
    memory_store,
    open_db,
    starts,
    until,
)
from tests.unit.database.away import SHORT, back, failed, outages


@pytest.mark.parametrize("kind", [CONTIGUOUS, CONTIGUOUS_SST, EPOCHS_SST], ids=str)
async def test_a_place_that_is_not_its_own_is_not_claimed(kind: Kind) -> None:
    """A disk that is not mounted is an empty folder: the writer waits until its own objects are there."""
    store = outages()
    async with open_db(store, kind, **SHORT) as db:
        await db.put(b"a", b"1")
        store.down = True
        (sent,) = starts(db.put(b"b", b"1"))
        await failed(sent)
        real, store.inner = store.inner, memory_store()
        async for info in real.list("manifest"):  # metadata that is elsewhere
            await store.inner.put(info.key, (await real.get(info.key)).data)
        store.down = False
        await until(lambda: "is it another store" in str(db.status().outage), "it to look")
        assert [info.key async for info in store.inner.list("log/")] == []
        store.inner = real
        await back(db)
        assert await contents(db) == {b"a": b"1"}


def forbidden() -> Exception:
    return slate.ConfigError("the store answered 403 AccessDenied", outcome="not_applied")


def no_bucket() -> Exception:
    return slate.NotFoundError("the store answered 404 NoSuchBucket", outcome="not_applied")


@pytest.mark.parametrize("answer", [forbidden, no_bucket])
@pytest.mark.parametrize("puts_alone", [False, True])
async def test_a_store_that_refuses_before_it_is_well_is_waited_for(
    answer: Callable[[], Exception], puts_alone: bool
) -> None:
    store = outages()
    async with open_db(store, CONTIGUOUS, **SHORT) as db:
        await db.put(b"a", b"1")
        store.down = True
        (sent,) = starts(db.put(b"b", b"1"))
        await failed(sent)
        store.answer, store.refuses_puts_alone, store.down = answer, puts_alone, False
        await until(lambda: "the store answered 40" in str(db.status().outage), "it to be told")
        assert db.status().state == "degraded"
        store.answer = None
        await back(db)
        await db.put(b"c", b"1")
        assert await contents(db) == {b"a": b"1", b"c": b"1"}


async def test_a_store_that_refuses_puts_is_tried_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where metadata is elsewhere, each try is a claim."""
    store, pauses = outages(), list[float]()

    async def noted(clock: ManualClock, seconds: float) -> None:
        if seconds >= 2:
            pauses.append(seconds)
        await asyncio.sleep(min(seconds, 0.001))

    async with open_db(store, CONTIGUOUS, **SHORT, heartbeat_interval_ms=0) as db:
        store.down = True
        (sent,) = starts(db.put(b"b", b"1"))
        await failed(sent)
        monkeypatch.setattr(ManualClock, "sleep", noted)
        store.answer, store.refuses_puts_alone, store.down = forbidden, True, False
        await until(lambda: len(pauses) > 7, "tries")
        store.answer = None
        await back(db)
    assert pauses[:8] == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


class Upgrade:
    """What a newer release's writer leaves."""

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Its mark is the feature."""
        return None if state.required_features else replace(state, required_features=("of-tomorrow",))


async def test_a_manifest_of_a_newer_release_is_not_waited_for() -> None:
    """Another writer must have written it, though that cannot be read here."""
    store = outages()
    db = await open_db(store, CONTIGUOUS, **SHORT)
    store.down = True
    (sent,) = starts(db.put(b"b", b"1"))
    await failed(sent)
    await commit_elsewhere(store.inner, Upgrade())
    store.down = False
    with pytest.raises(slate.ClosedError, match="of-tomorrow"):
        await db.wait_closed()
    await db.close()


async def test_the_status_tells_of_a_store_that_does_not_answer(kind: Kind) -> None:
    store = outages()
    async with open_db(store, kind, **{**SHORT, "retry_deadline_ms": 20_000}) as db:
        assert (db.status().state, db.status().oldest_unacknowledged_ms) == ("open", None)
        store.down = True
        (sent,) = starts(db.put(b"a", b"1"))
        await until(lambda: db.status().state == "degraded", "it to be noticed")
        status = db.status()
        assert status.oldest_unacknowledged_ms is not None
        assert (status.outage, status.last_contact_ms >= 900) == (None, True)
        store.down = False
        await sent
        await until(lambda: db.status().state == "open", "it to be noticed")
        assert db.status().oldest_unacknowledged_ms is None


def _sst(key: str) -> bool:
    return key.startswith("sst/")


async def test_the_status_tells_of_ssts_that_cannot_be_read() -> None:
    store = outages()
    async with open_db(store, CONTIGUOUS, **SHORT) as db:
        await db.put(b"a", b"1")
        await db.flush(l0=True)
    store.down, store.away = True, _sst
    with pytest.raises(slate.UnavailableError):
        await open_db(store, CONTIGUOUS, **SHORT)  # looks at one, to see whose it is
    store.down = False
    async with open_db(store, CONTIGUOUS, **SHORT) as db:
        store.down = True
        with pytest.raises(slate.UnavailableError):
            await db.get(b"a")
        await until(lambda: db.status().state == "degraded", "it to be noticed")
        await db.put(b"b", b"1")  # log and manifest answer
        assert (db.status().state, db.status().outage) == ("degraded", None)
        store.down = False
        assert await db.get(b"a") == b"1"
        await until(lambda: db.status().state == "open", "it to be noticed")


async def test_the_status_tells_of_ssts_that_cannot_be_written() -> None:
    store = outages()
    async with open_db(store, CONTIGUOUS, **{**SHORT, "retry_deadline_ms": 20_000}) as db:
        await db.put(b"a", b"1")
        store.down, store.away = True, _sst
        (flushing,) = starts(db.flush(l0=True))
        await until(lambda: db.status().state == "degraded", "it to be noticed")
        await db.put(b"b", b"1")
        assert (db.status().state, db.status().outage) == ("degraded", None)
        store.down = False
        await flushing
        await until(lambda: db.status().state == "open", "it to be noticed")


async def test_the_status_tells_of_beats_that_do_not_get_through() -> None:
    store = outages()
    async with open_db(store, CONTIGUOUS, heartbeat_interval_ms=20, **SHORT) as db:
        store.down, store.away = True, lambda key: key == ALIVE_KEY
        await until(lambda: db.status().state == "degraded", "it to be noticed")
        await db.put(b"a", b"1")
        assert (db.status().state, db.status().outage) == ("degraded", None)
        store.down = False
        await until(lambda: db.status().state == "open", "a beat")
