"""An opening that fails has fenced no writer; a log whose tail is missing is reported before anything is claimed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

import slate_async as slate
from metastores.if_match import ObjectRegister
from metastores.memory import MemoryFactory
from metastores.protocol import Register
from slate_async.codec.header import HEADER_BYTES
from slate_async.engine.context import DatabaseContext
from slate_async.engine.write import open as opening_of_writers
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.protocol import OVERWRITE, ObjectInfo, ObjectStore, PutMode
from slate_async.storage.log.missing import LogLook, MissingObject
from slate_async.storage.manifest.state import ManifestState
from slate_async.types import Buffer
from tests.engine import CONTIGUOUS, EPOCHS, KINDS, Kind, contents, memory_store, on, open_db, runtime
from tests.support.towns import Life, MortalStore

NAME = "s3://bucket/db"


@dataclass
class Forbidding(MortalStore):
    """A store with credentials that do not allow everything."""

    put_of: str | None = None
    list_of: str | None = None

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        if self.put_of is not None and key.startswith(self.put_of):
            raise slate.ConfigError("these credentials may not put", outcome="not_applied")
        return await self.inner.put(key, data, mode=mode, metadata=metadata)

    async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        if self.list_of is not None and prefix.startswith(self.list_of):
            raise slate.ConfigError("these credentials may not list")
        async for info in self.inner.list(prefix, start_after=start_after):
            yield info


Damage = Callable[[MemoryStore], Awaitable[ObjectStore]]


async def _one(store: ObjectStore, prefix: str, at: int = 0) -> str:
    return [info.key async for info in store.list(prefix) if info.size > HEADER_BYTES][at]


async def missing_sst(store: MemoryStore) -> ObjectStore:
    await store.delete([await _one(store, "sst/")])
    return store


async def foreign_sst(store: MemoryStore) -> ObjectStore:
    other = memory_store()
    async with open_db(other) as db:
        await db.put(b"k", b"v")
        await db.flush(l0=True)
    await store.put(await _one(store, "sst/"), (await other.get(await _one(other, "sst/"))).data)
    return store


async def foreign_log(store: MemoryStore) -> ObjectStore:
    key = await _one(store, "log/", -1)
    data = bytearray((await store.get(key)).data)
    data[20] ^= 1
    await store.put(key, bytes(data))
    return store


async def no_put(store: MemoryStore) -> ObjectStore:
    return Forbidding(store, Life(), put_of="")


async def no_list(store: MemoryStore) -> ObjectStore:
    return Forbidding(store, Life(), list_of="log/")


async def as_it_is(store: MemoryStore) -> ObjectStore:
    return store


FAILING: dict[str, tuple[Damage, dict[str, Any]]] = {
    "missing-sst": (missing_sst, {}),
    "foreign-sst": (foreign_sst, {}),
    "foreign-log": (foreign_log, {}),
    "no-put": (no_put, {}),
    "no-list": (no_list, {}),
    "other-log": (as_it_is, {"log_protocol": "other"}),
    "other-wal": (as_it_is, {"wal_enabled": "other"}),
}


@pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
@pytest.mark.parametrize("failing", FAILING)
@pytest.mark.parametrize("elsewhere", [False, True], ids=["beside", "elsewhere"])
async def test_an_opening_that_fails_has_fenced_nobody(kind: Kind, failing: str, elsewhere: bool) -> None:
    store, factory = memory_store(), MemoryFactory() if elsewhere else None
    damage, wrong = FAILING[failing]

    def opened(place: ObjectStore, **settings: Any) -> Any:
        return on(runtime()).open(place, name=NAME, metastore=factory, settings=kind.settings(**settings))

    async with opened(store) as db:
        for number in range(3):
            await db.put(b"%d" % number, b"v")
            if number == 1:
                await db.flush(l0=True)
        damaged = await damage(store)
        if "log_protocol" in wrong:
            other = "contiguous" if kind.log_protocol == "epoch_prefixed" else "epoch_prefixed"
            mistaken = Kind(other, kind.wal_enabled).settings()  # type: ignore[arg-type]
        else:
            mistaken = Kind(kind.log_protocol, kind.wal_enabled is not ("wal_enabled" in wrong)).settings()
        before = db.status().epoch
        with pytest.raises((slate.InvalidError, slate.CorruptionError)):
            await on(runtime()).open(damaged, name=NAME, metastore=factory, settings=mistaken)
        await db.put(b"more", b"v")
        await db.confirm()
        assert db.status().epoch == before


# ---- the end of the log


async def data_objects(store: ObjectStore) -> list[str]:
    return [info.key async for info in store.list("log/") if info.size > HEADER_BYTES]


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_tail_that_is_missing_is_corruption_and_nobody_is_fenced(kind: Kind) -> None:
    store = memory_store()
    async with open_db(store, kind) as db:
        for number in range(5):
            await db.put(b"%d" % number, b"v")
    tail = await data_objects(store)
    kept = {key: (await store.get(key)).data for key in tail}
    assert kept
    for lost in (tail, tail[-1:], tail[:1]):
        await store.delete(lost)
        for _ in range(2):
            with pytest.raises(slate.CorruptionError, match="missing") as caught:
                await open_db(store, kind)
            assert caught.value.object_name == lost[0]
        looks = ("open_reader", "open_admin") if kind.log_protocol == "contiguous" else ("open_reader",)
        for look in looks:  # an epoch-prefixed log's end is in the register, so a checkpoint needs no look at it
            opening = getattr(on(runtime()), look)
            with pytest.raises(slate.CorruptionError):
                async with opening(store, settings=kind.settings(), name="memory://test") as other:
                    await other.checkpoints.create()
        for key in lost:
            await store.put(key, kept[key])
    async with open_db(store, kind) as db:
        assert len(await contents(db)) == 5
        assert db.status().epoch == 2


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_tail_that_was_flushed_and_collected_under_the_look_is_no_damage(kind: Kind) -> None:
    """Between the listing of the log and its judgement the rows go into SSTs, and a collector takes the log."""
    store = memory_store()
    async with open_db(store, kind) as db:
        for number in range(5):
            await db.put(b"%d" % number, b"v")
    collected: list[int] = []

    @dataclass
    class Slow(MortalStore):
        async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
            if prefix.startswith("log/") and not collected:
                collected.append(0)
                async with open_db(store, kind) as other:
                    await (other.flush(l0=True) if kind.wal_enabled else other.compact())
                ended = on(runtime()).open_gc(
                    store,
                    name="memory://test",
                    settings=kind.settings(gc_min_age_ms=0, gc_clock_skew_ms=0),
                    periodic=False,
                )
                async with ended as collector:
                    collected.append(len((await collector.collect()).objects))
            async for info in self.inner.list(prefix, start_after=start_after):
                yield info

    async with open_db(Slow(store, Life()), kind) as db:
        assert len(await contents(db)) == 5
    [_, objects] = collected
    assert objects or not kind.wal_enabled


async def test_an_opening_that_ends_after_its_last_look_closes_its_register(monkeypatch: pytest.MonkeyPatch) -> None:
    store = memory_store()
    async with open_db(store, EPOCHS) as db:
        epoch = db.status().epoch
    made, closed, looks = [0], [0], [0]
    make, close = DatabaseContext.register, ObjectRegister.close

    def counted(context: DatabaseContext, state: ManifestState) -> Register | None:
        made[0] += 1
        return make(context, state)

    async def counted_close(register: ObjectRegister) -> None:
        closed[0] += 1
        await close(register)

    async def always_missing(*_: object) -> LogLook:
        looks[0] += 1
        return LogLook(0, None, MissingObject(1, "log/1", 1))

    async def moved(_: MissingObject, state: ManifestState, *__: object) -> ManifestState:
        return state

    with monkeypatch.context() as patch:
        patch.setattr(DatabaseContext, "register", counted)
        patch.setattr(ObjectRegister, "close", counted_close)
        patch.setattr(opening_of_writers, "look_at_log", always_missing)
        patch.setattr(opening_of_writers, "judge_missing", moved)
        with pytest.raises(slate.UnavailableError, match="moved during each"):
            await open_db(store, EPOCHS)
    assert (made, closed, looks) == ([1], [1], [opening_of_writers.TAKEOVERS])
    async with open_db(store, EPOCHS) as db:
        assert db.status().epoch == epoch + 1
