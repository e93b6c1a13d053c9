"""The commit driver: every answer but `Committed` leads back to the head, and an edit goes in exactly once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from threading import get_ident
from uuid import UUID

import pytest

from metastores.errors import MetaStoreUnavailableError
from metastores.protocol import CommitOutcome, Conflict, Record, Unknown, VersionRef
from metastores.put_if_absent import PutIfAbsentMetaStore
from slate_async.errors import CorruptionError, FencedError, InternalError, UnavailableError
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.meta_objects import MetaObjects
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.system import SystemClock, system_runtime
from slate_async.storage.manifest import codec
from slate_async.storage.manifest import driver as driver_module
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.writer import AddL0, ClaimWriter
from slate_async.storage.manifest.state import ManifestState
from tests.support.sst_refs import sst

NEW = ManifestState(database_id=UUID(int=1), log_protocol="contiguous", wal_enabled=True, created_ms=0)


class Moody(PutIfAbsentMetaStore):
    """Follows a script of moods, one per commit, then behaves."""

    moods: tuple[str, ...] = ()

    async def commit(self, ref: VersionRef, payload: bytes) -> CommitOutcome:
        mood, self.moods = (self.moods[0], self.moods[1:]) if self.moods else ("well", ())
        if mood == "silent":
            await asyncio.Event().wait()
        if mood == "throttled":
            raise MetaStoreUnavailableError("slow down")
        if mood == "raced":
            return Conflict(None)
        if mood == "lost request":
            return Unknown("no answer")
        outcome = await super().commit(ref, payload)
        return Unknown("no answer") if mood == "lost answer" else outcome


def driver_of(store: MemoryStore, *moods: str, full_every: int = 4, deadline_ms: int = 5_000) -> ManifestDriver:
    metastore = Moody(MetaObjects(store))
    metastore.moods = moods
    supervisor = Supervisor("test", lambda cause: pytest.fail(f"a task failed: {cause!r}"))
    return ManifestDriver(
        metastore, system_runtime(1), supervisor, name="memory://db", full_every=full_every, deadline_ms=deadline_ms
    )


def add(number: int, state: ManifestState) -> AddL0:
    start = state.log_start
    return AddL0(state.writer_epoch, start, start, sst(number), sst(number).max_seq, 0, 1, 0)


async def grown(store: MemoryStore, ssts: int) -> ManifestState:
    driver = driver_of(store)
    await driver.create(NEW)
    state = await driver.commit(ClaimWriter("t", 1))
    for number in range(1, ssts + 1):
        state = await driver.commit(add(number, state))
    return state


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(SystemClock())


async def test_every_version_reads_back_whether_full_or_delta(store: MemoryStore) -> None:
    writer = driver_of(store)
    await writer.create(NEW)
    state = await writer.commit(ClaimWriter("t", 1))
    kinds = []
    for number in range(1, 20):
        state = await writer.commit(add(number, state))
        assert await driver_of(store).load() == state
        body = (await store.get(f"manifest/{state.version:020}.manifest")).data
        kinds.append(body[body.index(codec.MAGIC) + 10])
    assert set(kinds) == {codec.FULL, codec.DELTA}
    assert kinds.count(codec.FULL) in (4, 5)


async def test_a_large_full_version_waits_until_the_changes_cost_as_much(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "SMALL_FULL_BYTES", 0)
    writer = driver_of(store, full_every=2)
    await writer.create(replace(NEW, properties={"large": "x" * 20_000}))
    state = await writer.commit(ClaimWriter("t", 1))
    sizes: list[int] = []
    for number in range(1, 40):
        before = writer.stats.bytes_written
        state = await writer.commit(add(number, state))
        sizes.append(writer.stats.bytes_written - before)
        assert await driver_of(store).load() == state
    fulls = [at for at, size in enumerate(sizes) if size > 20_000]
    assert fulls
    changes = sum(sizes[: fulls[0]])
    assert 15_000 < changes < 30_000


async def test_a_driver_for_full_versions_only_writes_them_however_large(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tombstone must stand without a base, whatever there was before it."""
    monkeypatch.setattr(driver_module, "SMALL_FULL_BYTES", 0)
    state = await grown(store, 10)
    driver = driver_of(store, full_every=1)
    await driver.load()
    for number in range(11, 14):
        state = await driver.commit(add(number, state))
        stored = await driver_of(store).read_stored(state.ref)
        assert stored is not None
        assert stored.base is None


async def test_large_versions_are_decoded_off_the_loop(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    state = await grown(store, 1)
    threads: list[int] = []
    decode, apply_delta = codec.decode, codec.apply_delta

    def decoded(data: bytes, *, object_name: str) -> ManifestState | codec.Delta:
        threads.append(get_ident())
        return decode(data, object_name=object_name)

    def applied(base: ManifestState, delta: codec.Delta, *, object_name: str) -> ManifestState:
        threads.append(get_ident())
        return apply_delta(base, delta, object_name=object_name)

    monkeypatch.setattr(driver_module, "OFFLOAD_SSTS", 0)
    monkeypatch.setattr(codec, "decode", decoded)
    monkeypatch.setattr(codec, "apply_delta", applied)
    assert await driver_of(store).load() == state
    assert len(threads) == 3  # the delta, its base, and the one applied to the other
    assert get_ident() not in threads


async def test_old_versions_read_back_with_their_bases(store: MemoryStore) -> None:
    writer = driver_of(store, full_every=4)
    states = [await writer.create(NEW), await writer.commit(ClaimWriter("t", 1))]
    for number in range(1, 8):
        states.append(await writer.commit(add(number, states[-1])))
    reader = driver_of(store)
    await reader.load()
    fulls = {None}
    for state in states:
        stored = await reader.read_stored(state.ref)
        assert stored is not None
        assert stored.state == state == await reader.read(state.ref)
        fulls.add(stored.base)
    assert len(fulls) > 2
    assert await reader.read(VersionRef(3, "f" * 32)) is None
    await writer.metastore.delete([states[0].ref])
    assert await reader.read(states[0].ref) is None
    assert await driver_of(store).read(states[1].ref) is None  # a change to version 1
    assert (await reader.load()) == states[-1]


@pytest.mark.parametrize("mood", ["throttled", "lost request", "lost answer"])
async def test_an_edit_goes_in_exactly_once(store: MemoryStore, mood: str) -> None:
    await grown(store, 1)
    driver = driver_of(store, mood, mood)
    state = await driver.load()
    assert state is not None
    added = await driver.commit(add(2, state))
    assert [sst.location for sst in added.l0] == ["sst/2", "sst/1"]
    assert added.version == state.version + 1
    claimed = await driver_of(store, mood).commit(ClaimWriter("u", 1))
    assert claimed.writer_epoch == 2


@pytest.mark.parametrize("mood", ["throttled", "lost request", "lost answer"])
async def test_creation_survives_lost_answers_too(store: MemoryStore, mood: str) -> None:
    state = await driver_of(store, mood).create(NEW)
    assert state.version == 1
    assert (await driver_of(store).create(replace(NEW, database_id=UUID(int=9)))).database_id == UUID(int=1)


async def test_an_edit_judged_on_a_stale_head_is_judged_again(store: MemoryStore) -> None:
    state = await grown(store, 1)
    sleeper, other = driver_of(store), driver_of(store)
    await sleeper.load()
    state = await other.commit(add(2, state))
    assert (await sleeper.commit(add(3, state))).log_start == state.log_start + 1  # from its cached head: a gap
    with pytest.raises(InternalError):
        await sleeper.commit(add(9, replace(state, log_start=50)))


async def test_an_edit_that_is_in_already_is_answered_with_the_head(store: MemoryStore) -> None:
    one, other = driver_of(store), driver_of(store)
    await one.create(NEW)
    claimed = await one.commit(ClaimWriter("t", 1))
    await other.load()
    newest = await other.commit(add(1, claimed))
    assert one.head == claimed
    assert await one.commit(ClaimWriter("t", 1)) == newest


async def test_a_fenced_writers_edit_is_refused(store: MemoryStore) -> None:
    state = await grown(store, 1)
    zombie = driver_of(store)
    await zombie.load()
    await driver_of(store).commit(ClaimWriter("new", 1))
    with pytest.raises(FencedError):
        await zombie.commit(add(2, state))


async def test_past_the_deadline_the_outcome_is_unknown(store: MemoryStore) -> None:
    state = await grown(store, 1)
    driver = driver_of(store, *["lost request"] * 10_000, deadline_ms=200)
    with pytest.raises(UnavailableError) as caught:
        await driver.commit(add(2, state))
    assert caught.value.outcome == "unknown"


async def test_the_deadline_counts_from_the_call_though_another_commit_goes_before(store: MemoryStore) -> None:
    state = await grown(store, 1)
    driver = driver_of(store, *["silent"] * 2, deadline_ms=50)
    await driver.load()
    async with asyncio.timeout(20):
        async with driver.commits._lock:  # as a commit has it whose requests are not answered
            with pytest.raises(UnavailableError) as caught:
                await driver.commit(add(2, state))
            assert caught.value.outcome == "not_applied"
            with pytest.raises(UnavailableError) as caught:
                await driver.create(NEW)
            assert caught.value.outcome == "not_applied"
        assert await driver_of(store).load() == state
        for _ in range(2):  # nobody left the lock behind
            with pytest.raises(UnavailableError) as caught:
                await driver.commit(add(2, state))
            assert caught.value.outcome == "unknown"
    assert (await driver.commit(add(2, state))).log_start == state.log_start + 1


async def test_the_deadline_holds_though_no_request_is_ever_answered(store: MemoryStore) -> None:
    """Whatever time the metastore gives its requests and their repetitions."""
    driver = driver_of(store)
    await driver.create(NEW)
    silent = driver_of(store, "silent", deadline_ms=30)
    assert await silent.load() is not None
    with pytest.raises(UnavailableError) as caught:
        await silent.commit(ClaimWriter("token", 1))
    assert caught.value.outcome == "unknown"
    assert silent.contact.last_ms >= 0


async def test_a_cancelled_caller_abandons_the_wait_not_the_commit(store: MemoryStore) -> None:
    state = await grown(store, 1)
    driver = driver_of(store)
    await driver.load()
    task = asyncio.create_task(driver.commit(add(2, state)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for _ in range(1000):
        await asyncio.sleep(0.001)
        head = await driver_of(store).load()
        if head is not None and len(head.l0) == 2:
            return
    pytest.fail("the commit was given up with its caller")


async def manifest_keys(store: MemoryStore) -> dict[str, bytes]:
    """Key to kind of every stored version."""
    kinds = {}
    async for info in store.list("manifest/"):
        body = (await store.get(info.key)).data
        kinds[info.key] = body[body.index(codec.MAGIC) + 10 :][:1]
    return kinds


async def test_a_missing_base_is_a_broken_chain(store: MemoryStore) -> None:
    await grown(store, 4)
    kinds = await manifest_keys(store)
    assert kinds[max(kinds)] == b"\x02"
    await store.delete([max(key for key, kind in kinds.items() if kind == b"\x01")])
    with pytest.raises(CorruptionError, match="base is missing"):
        await driver_of(store).load()


async def test_a_base_of_another_commit_is_a_broken_chain(store: MemoryStore) -> None:
    await grown(store, 4)
    kinds = await manifest_keys(store)
    base = max(key for key, kind in kinds.items() if kind == b"\x01")
    other = MemoryStore(SystemClock())
    await grown(other, 4)
    await store.put(base, (await other.get(base)).data)  # the same version number, another token
    with pytest.raises(CorruptionError):
        await driver_of(store).load()


async def test_a_base_that_is_a_delta_is_a_broken_chain(store: MemoryStore) -> None:
    state = await grown(store, 4)
    metastore = PutIfAbsentMetaStore(MetaObjects(store))
    fake_base = replace(state, ref=state.ref)
    ref = VersionRef(state.version + 1, "f" * 32)
    outcome = await metastore.commit(ref, codec.encode_delta(fake_base, replace(state, log_start=99)))
    assert not isinstance(outcome, Conflict | Unknown)
    with pytest.raises(CorruptionError, match="itself a delta"):
        await driver_of(store).load()


async def test_a_poll_overtaken_by_commits_does_not_take_the_base_back(store: MemoryStore) -> None:
    state = await grown(store, 4)  # version 6, a delta of version 4
    driver = driver_of(store)
    reading, go_on = asyncio.Event(), asyncio.Event()
    read = driver.metastore.read

    async def slow_read(ref: VersionRef) -> Record | None:
        driver.metastore.read = read  # type: ignore[method-assign]
        reading.set()
        await go_on.wait()
        return await read(ref)

    driver.metastore.read = slow_read  # type: ignore[method-assign]
    poll = asyncio.ensure_future(driver.load())
    await reading.wait()
    for number in (5, 6):
        state = await driver.commit(add(number, state))
    go_on.set()
    await poll
    state = await driver.commit(add(7, state))
    record = await PutIfAbsentMetaStore(MetaObjects(store)).latest()
    assert record is not None
    decoded = codec.decode(record.payload, object_name="head")
    assert isinstance(decoded, codec.Delta)
    assert (state.version, decoded.base.version) == (9, 8)
