"""A database whose metadata is elsewhere is opened, and worked on, in its own place only; see `manifest.marker`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

import slate_async as slate
from metastores.memory import MemoryFactory
from metastores.names import MANIFEST, Layout
from metastores.protocol import CasOutcome, Cell, ConditionalObjects, MetaStore, Needs, Register
from metastores.register_store import RegisterMetaStore
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.supervisor import Supervisor
from slate_async.storage.format.marker import decode_marker
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.features import MARKER_FEATURE
from slate_async.storage.manifest.marker import MARKER
from slate_async.storage.manifest.state import ManifestState
from tests.engine import CONTIGUOUS, EPOCHS, KINDS, Kind, contents, memory_store, on, runtime
from tests.support.towns import Killed, Life, MortalStore

NAME = "s3://bucket/db"
ROWS = {b"k%d" % number: b"v" for number in range(5)}


@dataclass
class Town:
    """Metadata in one service; the same URL leads to one of several places."""

    kind: Kind
    factory: Any

    def open(self, store: ObjectStore, *, factory: Any = None, **settings: Any) -> Any:
        return on(runtime()).open(
            store,
            name=NAME,
            metastore=self.factory if factory is None else factory,
            settings=self.kind.settings(**settings),
        )

    @asynccontextmanager
    async def admin(self, store: ObjectStore) -> AsyncIterator[slate.Admin]:
        settings = self.kind.settings()
        async with on(runtime()).open_admin(store, name=NAME, metastore=self.factory, settings=settings) as admin:
            yield admin

    def driver(self) -> ManifestDriver:
        supervisor = Supervisor("test", lambda cause: None)
        return ManifestDriver(
            self.factory.manifest(None, NAME), runtime(), supervisor, name=NAME, full_every=1, deadline_ms=9_000
        )

    async def head(self) -> ManifestState:
        return await self.driver().existing()


@pytest.fixture(params=KINDS, ids=str)
def town(request: pytest.FixtureRequest) -> Town:
    return Town(request.param, MemoryFactory())


async def fill(town: Town, store: ObjectStore, *, l0: bool = False) -> None:
    async with town.open(store) as db:
        for key, value in ROWS.items():
            await db.put(key, value)
        if l0:
            await db.flush(l0=True)


async def keys(store: ObjectStore) -> list[str]:
    return [info.key async for info in store.list("")]


async def marker_of(store: ObjectStore) -> Any:
    return decode_marker((await store.get(MARKER)).data, object_name=MARKER)


async def test_creation_marks_the_place(town: Town) -> None:
    store = memory_store()
    await fill(town, store)
    head = await town.head()
    found = await marker_of(store)
    assert (head.marked, head.required_features) == (True, (MARKER_FEATURE,))
    assert (found.database_id, found.store_id) == (head.database_id, head.store_id)


async def test_metadata_in_the_same_store_needs_no_marker() -> None:
    store = memory_store()
    async with on(runtime()).open(store, name=NAME, settings=CONTIGUOUS.settings()) as db:
        await db.put(b"k", b"v")
    assert MARKER not in await keys(store)


def _works(town: Town, store: ObjectStore) -> dict[str, Callable[[], Awaitable[Any]]]:
    """All that can be done with a database, at ``store``."""
    there = {"name": NAME, "metastore": town.factory, "settings": town.kind.settings()}
    opener = on(runtime())

    async def opened(opening: Any) -> None:
        async with opening:
            pass

    async def asked(what: Callable[[slate.Admin], Awaitable[Any]]) -> None:
        async with town.admin(store) as admin:
            await what(admin)

    return {
        "write": lambda: opened(opener.open(store, **there)),
        "read": lambda: opened(opener.open_reader(store, **there)),
        "compact": lambda: opened(opener.open_compactor(store, **there)),
        "collect": lambda: opened(opener.open_gc(store, periodic=False, **there)),
        "ingest": lambda: opened(opener.open_ingest(store, job_id="job", **there)),
        "destroy": lambda: asked(lambda admin: admin.destroy()),
        "destroy softly": lambda: asked(lambda admin: admin.destroy(soft=True)),
        "checkpoint": lambda: asked(lambda admin: admin.checkpoints.create()),
        "verify": lambda: asked(lambda admin: admin.verify()),
    }


@pytest.mark.parametrize("l0", [False, True])
async def test_in_another_place_nothing_is_done_and_nobody_fenced(town: Town, l0: bool) -> None:
    here, empty = memory_store(), memory_store()
    await fill(town, here, l0=l0)
    async with town.open(here) as db:
        head = await town.head()
        for what, work in _works(town, empty).items():
            with pytest.raises(slate.ConfigError, match="is not the place") as caught:
                await work()
            assert str(head.store_id) in str(caught.value), what
            assert "there is none" in str(caught.value)
        assert await keys(empty) == []
        assert await town.head() == head
        await db.put(b"more", b"v")
    async with town.open(here) as db:
        assert await contents(db) == {**ROWS, b"more": b"v"}


async def test_another_databases_place_is_named(town: Town) -> None:
    here, there, other = memory_store(), memory_store(), Town(town.kind, MemoryFactory())
    await fill(town, here)
    await fill(other, there)
    theirs = await other.head()
    for work in _works(town, there).values():
        with pytest.raises(slate.ConfigError, match=f"database {theirs.database_id}, store {theirs.store_id}"):
            await work()
    with pytest.raises(slate.InvalidError, match=str(theirs.database_id)):
        await Town(town.kind, MemoryFactory()).open(there)
    assert await other.head() == theirs


async def test_objects_copied_to_another_url_differ_from_no_database(town: Town) -> None:
    """The metastore finds a database by its URL; that its objects are here does not help."""
    here = memory_store()
    await fill(town, here)
    before = await keys(here)
    elsewhere = Town(town.kind, MemoryFactory())  # the same metastore by another URL: it knows nothing
    works = _works(elsewhere, here) | {"adopt": lambda: _adopt(elsewhere, here)}
    for what, work in works.items():
        with pytest.raises(slate.ConfigError, match=r"by the URL it was made under.*slate mirror"):
            await work()
        assert await keys(here) == before, what
    settings, named = town.kind.settings(), {"name": NAME, "metastore": elsewhere.factory}
    with pytest.raises(slate.ConfigError, match="by the URL it was made under"):
        await on(runtime()).open(here, create=False, settings=settings, **named)


async def _adopt(town: Town, store: ObjectStore) -> None:
    async with town.admin(store) as admin:
        await admin.adopt_place()


async def test_a_place_that_is_lost_under_an_opening_is_not_fenced(town: Town) -> None:
    """An unmounted disk: the marker was there before the claim, and the log's end is looked for in an empty folder."""
    here = memory_store()
    await fill(town, here)
    emptied: list[str] = []

    class Unmounted(MortalStore):
        async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[Any]:
            if prefix.startswith("log/") and (await town.head()).writer_epoch > 1:
                emptied.append(prefix)
            async for info in (memory_store() if emptied else self.inner).list(prefix, start_after=start_after):
                yield info

        async def get(self, key: str, byte_range: Any = None) -> Any:
            return await (memory_store() if emptied else self.inner).get(key, byte_range)

        async def put(self, key: str, data: Any, **more: Any) -> str:
            assert not (emptied and key.startswith("log/")), "something was put in an empty place"
            return await self.inner.put(key, data, **more)

    with pytest.raises(slate.ConfigError, match="is not the place"):
        await town.open(Unmounted(here, Life()))
    assert emptied or town.kind.log_protocol == "epoch_prefixed"


async def test_gc_leaves_the_marker(town: Town) -> None:
    store = memory_store()
    await fill(town, store, l0=True)
    settings = town.kind.settings(gc_min_age_ms=0, gc_clock_skew_ms=0)
    ahead = runtime()
    ahead.clock.wall_ms += 10**9  # type: ignore[attr-defined]
    async with on(ahead).open_gc(
        store, name=NAME, metastore=town.factory, settings=settings, periodic=False
    ) as collector:
        for _ in range(3):
            await collector.collect()
    async with town.open(store) as db:
        assert await contents(db) == ROWS


async def test_destroyed_and_recreated_it_has_a_new_store_id(town: Town) -> None:
    store, empty = memory_store(), memory_store()
    await fill(town, store, l0=True)
    before = await town.head()
    async with town.admin(store) as admin:
        await admin.destroy()
    with pytest.raises(slate.ConfigError, match="is not the place"):
        await town.open(empty)
    async with town.open(store) as db:
        assert await contents(db) == {}
        await db.put(b"new", b"v")
    after = await town.head()
    assert after.store_id not in (None, before.store_id)
    assert (await marker_of(store)).store_id == after.store_id
    with pytest.raises(slate.ConfigError, match="is not the place"):
        await town.open(empty)
    async with town.open(store) as db:
        assert await contents(db) == {b"new": b"v"}


async def test_two_creations_at_once_agree_on_one_marker(town: Town) -> None:
    store = memory_store()
    both = await asyncio.gather(*(_opened(town, store) for _ in range(4)), return_exceptions=True)
    assert any(isinstance(result, slate.Db) for result in both)
    assert all(isinstance(result, slate.Db | slate.FencedError) for result in both), both
    for result in both:
        if isinstance(result, slate.Db):
            await result.close()
    await fill(town, store)


async def _opened(town: Town, store: ObjectStore) -> slate.Db:
    db: slate.Db = await town.open(store)
    return db


# ---- before there were markers


async def unmark(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the manifest as an older release left it."""

    @dataclass(frozen=True)
    class Unmark:
        def apply(self, state: ManifestState) -> ManifestState | None:
            features = tuple(feature for feature in state.required_features if feature != MARKER_FEATURE)
            return replace(state, store_id=None, marked=False, required_features=features) if state.marked else None

    monkeypatch.setattr("slate_async.storage.manifest.driver.check_successor", lambda old, new: None)
    await town.driver().commit(Unmark())
    monkeypatch.undo()


async def test_an_older_database_is_recognised_by_an_sst_and_marked(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = memory_store()
    await fill(town, store, l0=True)
    await unmark(town, monkeypatch)
    await store.delete([MARKER])
    if town.kind.wal_enabled:
        with pytest.raises(slate.CorruptionError, match="missing"):
            await town.open(memory_store())
        async with town.open(store) as db:
            assert await contents(db) == ROWS
        assert (await town.head()).marked
    else:  # nothing that is named lies in SSTs yet
        with pytest.raises(slate.ConfigError, match="adopt-place"):
            await town.open(store)


async def test_an_older_database_that_nothing_proves_is_adopted(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    store, empty = memory_store(), memory_store()
    await fill(town, store)
    await unmark(town, monkeypatch)
    await store.delete([MARKER])
    for place in (store, empty):
        for what, work in _works(town, place).items():
            if what != "verify":
                with pytest.raises(slate.ConfigError, match="slate adopt-place --yes"):
                    await work()
    async with town.admin(empty) as admin:
        with pytest.raises(slate.ConfigError, match=r"nothing of database .* is here"):
            await admin.adopt_place()
    async with town.admin(store) as admin:
        await admin.adopt_place()
        await admin.adopt_place()
    async with town.open(store) as db:
        assert await contents(db) == ROWS


async def test_a_place_that_was_moved_is_adopted_and_the_old_writer_fenced(town: Town) -> None:
    here, there = memory_store(), memory_store()
    await fill(town, here)
    async with town.open(here) as db:
        for key in await keys(here):
            if key != MARKER:
                await there.put(key, (await here.get(key)).data)
        with pytest.raises(slate.ConfigError, match="there is none"):
            await town.open(there)
        async with town.admin(there) as admin:
            await admin.adopt_place()
        with pytest.raises(slate.ConfigError, match="is not the place"):
            await town.open(here)
        async with town.open(there) as new:
            assert await contents(new) == ROWS
        with pytest.raises(slate.FencedError):
            await db.confirm()


async def test_another_databases_place_is_not_adopted(town: Town) -> None:
    here, there, other = memory_store(), memory_store(), Town(town.kind, MemoryFactory())
    await fill(other, there)
    async with town.open(here):
        pass
    before = await town.head()
    await town.driver().load()
    async with town.admin(there) as admin:
        with pytest.raises(slate.SlateError) as caught:
            await admin.adopt_place()
    assert isinstance(caught.value, slate.ConfigError | slate.CorruptionError)
    assert await town.head() == before
    async with other.open(there) as db:
        assert await contents(db) == ROWS


async def test_a_damaged_marker_is_corruption_until_the_place_is_adopted(town: Town) -> None:
    store = memory_store()
    await fill(town, store)
    data = bytearray((await store.get(MARKER)).data)
    data[-1] ^= 1
    await store.put(MARKER, bytes(data))
    with pytest.raises(slate.CorruptionError) as caught:
        await town.open(store)
    assert caught.value.object_name == MARKER
    async with town.admin(store) as admin:
        await admin.adopt_place()
    async with town.open(store) as db:
        assert await contents(db) == ROWS


# ---- killed between any two requests


@dataclass
class MortalRegister:
    inner: Register
    life: Life

    async def read(self) -> Cell | None:
        await self.life.request()
        return await self.inner.read()

    async def compare_and_set(self, expected_tag: str | None, value: bytes) -> CasOutcome:
        await self.life.request()
        return await self.inner.compare_and_set(expected_tag, value)

    async def close(self) -> None:
        pass


@dataclass
class MortalFactory:
    """``factory`` as a process uses it that may die."""

    factory: MemoryFactory
    life: Life
    needs = Needs()

    def manifest(self, objects: ConditionalObjects, name: str, layout: Layout = MANIFEST) -> MetaStore:
        inner = self.factory.manifest(objects, name, layout)
        assert isinstance(inner, RegisterMetaStore)
        return RegisterMetaStore(MortalRegister(inner._register, self.life), inner._bodies, layout=layout)

    def register(self, objects: ConditionalObjects, name: str) -> Register:
        return MortalRegister(self.factory.register(objects, name), self.life)

    async def close(self) -> None:
        pass


async def _first_life(town: Town, store: ObjectStore, requests: int) -> bool:
    """Open it in a process that dies after so many requests; whether it lived."""
    life = Life(requests)
    try:
        db = await town.open(MortalStore(store, life), factory=MortalFactory(town.factory, life))
    except Killed:
        return False
    life.requests = None
    await db.put(b"k", b"v")
    await db.close()
    return True


@pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
@pytest.mark.parametrize("again", [False, True])
async def test_killed_anywhere_while_it_is_made_it_is_made_in_one_place(kind: Kind, again: bool) -> None:
    """``again``: in place of a destroyed one. The next opening is in the same place, or by mistake in another one: as
    long as nothing is marked, either may become the place, and then the other one is refused."""
    for mistaken in (False, True):
        for requests in range(100):
            town, here, other = Town(kind, MemoryFactory()), memory_store(), memory_store()
            if again:
                await fill(town, here)
                async with town.admin(here) as admin:
                    await admin.destroy()
            lived = await _first_life(town, here, requests)
            if mistaken:
                if lived or again or (await _marked(town)):
                    with pytest.raises(slate.ConfigError):
                        await town.open(other)
                else:
                    here, other = other, here
            async with town.open(here) as db:
                assert await contents(db) == ({b"k": b"v"} if lived else {})
                await db.put(b"last", b"v")
            with pytest.raises(slate.ConfigError):
                await town.open(other)
            async with town.open(here) as db:
                assert await db.get(b"last") == b"v"
            if lived:
                break
        else:
            raise AssertionError("it never lived")


async def _marked(town: Town) -> bool:
    head = await town.driver().load()
    return head is not None and head.marked


@pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
async def test_killed_anywhere_an_adoption_goes_on(kind: Kind) -> None:
    for requests in range(100):
        town, here, there = Town(kind, MemoryFactory()), memory_store(), memory_store()
        await fill(town, here)
        for key in await keys(here):
            if key != MARKER:
                await there.put(key, (await here.get(key)).data)
        life = Life(requests)
        mortal = Town(kind, MortalFactory(town.factory, life))
        try:
            async with mortal.admin(MortalStore(there, life)) as admin:
                await admin.adopt_place()
            lived = True
        except Killed:
            lived = False
        async with town.admin(there) as admin:
            await admin.adopt_place()
        async with town.open(there) as db:
            assert await contents(db) == ROWS
        if lived:
            return
    raise AssertionError("it never lived")


# ---- recreated, without a marker


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_recreated_database_answers_for_its_whole_history(kind: Kind) -> None:
    store = memory_store()
    there = {"name": "memory://test", "settings": kind.settings(retention_ms=10**9)}
    async with on(runtime()).open(store, **there) as db:
        for key, value in ROWS.items():
            await db.put(key, value)
    async with on(runtime()).open_admin(store, **there) as admin:
        await admin.destroy()
    later = runtime()
    later.clock.wall_ms += 60_000  # type: ignore[attr-defined]
    async with on(later).open(store, **there) as db:
        made_s = later.clock.now_ms() / 1000
        later.clock.wall_ms += 1_000  # type: ignore[attr-defined]
        await db.put(b"new", b"1")
        later.clock.wall_ms += 1_000  # type: ignore[attr-defined]
        await db.put(b"new", b"2")
        seq = db.status().last_seq
        async with db.as_of(time=made_s) as past:
            assert await past.get(b"new") is None
        async with db.as_of(seq=seq - 1) as past:
            assert await past.get(b"new") == b"1"
        async with db.changes(from_seq=0, follow=False, initial="error") as feed:
            assert [change.value async for change in feed] == [b"1", b"2"]
