"""Places that change, and databases that are recreated, while other processes open them or work in them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pyarrow
import pytest

import slate_async as slate
from metastores.memory import MemoryFactory
from slate_async.codec.header import HEADER_BYTES
from slate_async.engine.clone import adopt
from slate_async.objectstore.protocol import ObjectStore
from slate_async.storage.log import extent
from slate_async.storage.manifest.marker import MARKER
from slate_async.storage.manifest.state import ManifestState
from tests.engine import CONTIGUOUS, EPOCHS, KINDS, Kind, contents, memory_store, on, runtime
from tests.support.towns import Life, MortalStore
from tests.unit.database.test_places import NAME, ROWS, MortalFactory, Town, fill, keys, marker_of, unmark


@pytest.fixture(params=KINDS, ids=str)
def town(request: pytest.FixtureRequest) -> Town:
    return Town(request.param, MemoryFactory())


async def _copy(town: Town, here: ObjectStore, there: ObjectStore) -> None:
    for key in await keys(here):
        if key != MARKER:
            await there.put(key, (await here.get(key)).data)


@pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
async def test_two_openings_that_mark_an_older_database_agree_on_one_marker(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them sleeps before any of its requests while the other one does all of it."""
    for requests in range(60):
        town, store = Town(kind, MemoryFactory()), memory_store()
        await fill(town, store, l0=True)
        await unmark(town, monkeypatch)
        await store.delete([MARKER])
        slept: list[int] = []

        async def meanwhile(town: Town = town, store: ObjectStore = store, slept: list[int] = slept) -> None:
            slept.append(1)
            async with town.open(store):
                pass

        life = Life(requests, meanwhile)
        try:
            await (await town.open(MortalStore(store, life), factory=MortalFactory(town.factory, life))).close()
        except slate.FencedError:
            assert slept
        async with town.open(store) as db:
            assert await contents(db) == ROWS
        assert (await marker_of(store)).store_id == (await town.head()).store_id
        if not slept:
            return
    raise AssertionError("it always slept")


@pytest.mark.parametrize("lost", ["no answer", "an answer"])
@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
async def test_two_adoptions_of_one_place_at_once_need_no_repeat(kind: Kind, damaged: bool, lost: str) -> None:
    """One of them sleeps before any of its requests, or gets no answer to it, while the other one does all of it."""
    for requests in range(60):
        town, here, there = Town(kind, MemoryFactory()), memory_store(), memory_store()
        await fill(town, here, l0=True)
        await _copy(town, here, there)
        if damaged:
            await there.put(MARKER, b"damaged")
        slept: list[int] = []

        async def meanwhile(town: Town = town, there: ObjectStore = there, slept: list[int] = slept) -> None:
            slept.append(1)
            async with town.admin(there) as admin:
                await admin.adopt_place()

        life = Life(requests, meanwhile, unanswered=requests - 1 if lost == "an answer" else None)
        other = Town(kind, MortalFactory(town.factory, life))
        async with other.admin(MortalStore(there, life)) as admin:
            try:
                await admin.adopt_place()
            except slate.UnavailableError:
                assert lost == "an answer"
        head = await town.head()
        assert (await marker_of(there)).store_id == head.store_id, requests
        with pytest.raises(slate.ConfigError, match="is not the place"):
            await town.open(here)
        async with town.open(there) as db:
            assert await contents(db) == ROWS
        if not slept:
            return
    raise AssertionError("it always slept")


@pytest.mark.parametrize("l0", [False, True])
@pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
async def test_a_copy_that_lacks_what_was_written_under_the_look_is_not_adopted(kind: Kind, l0: bool) -> None:
    """A writer works in the right place, and closes, while the process that adopts a copy sleeps before any of its
    requests."""
    refused = 0
    for requests in range(60):
        town, here, there = Town(kind, MemoryFactory()), memory_store(), memory_store()
        await fill(town, here)
        await _copy(town, here, there)
        rows, slept = dict(ROWS), list[int]()

        async def meanwhile(
            town: Town = town, here: ObjectStore = here, rows: dict[bytes, bytes] = rows, slept: list[int] = slept
        ) -> None:
            slept.append(1)
            with contextlib.suppress(slate.ConfigError):
                async with town.open(here) as db:
                    await db.put(b"new", b"v")
                    if l0:
                        await db.flush(l0=True)
                    rows[b"new"] = b"v"

        life, right = Life(requests, meanwhile), there
        async with Town(kind, MortalFactory(town.factory, life)).admin(MortalStore(there, life)) as admin:
            try:
                await admin.adopt_place()
            except slate.CorruptionError as error:
                refused += "is missing" in str(error)
                right = here
        async with town.open(right) as db:
            assert await contents(db) == rows, requests
        if not slept:
            assert refused
            return
    raise AssertionError("it always slept")


@pytest.mark.parametrize("l0", [False, True])
async def test_a_place_is_not_adopted_without_all_that_is_known_to_be_needed(town: Town, l0: bool) -> None:
    here, there = memory_store(), memory_store()
    await fill(town, here, l0=l0)
    before = await town.head()
    async with town.admin(there) as admin:
        with pytest.raises(slate.ConfigError, match=r"nothing of database .* is here .* nothing was changed"):
            await admin.adopt_place()
    await _copy(town, here, there)
    objects = [info for info in [info async for info in here.list("")] if info.size > HEADER_BYTES]
    of_the_log = [info.key for info in objects if info.key.startswith("log/")]
    await there.delete([info.key for info in objects if info.key.startswith("sst/")] or of_the_log[-1:])
    async with town.admin(there) as admin:
        with pytest.raises(slate.CorruptionError, match="is missing"):
            await admin.adopt_place()
    assert await town.head() == before


@pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
async def test_of_two_adoptions_of_two_places_at_once_one_is_refused(kind: Kind) -> None:
    refused = 0
    for requests in range(60):
        town, here = Town(kind, MemoryFactory()), memory_store()
        there, elsewhere = memory_store(), memory_store()
        await fill(town, here, l0=True)
        await _copy(town, here, there)
        await _copy(town, here, elsewhere)
        slept: list[int] = []

        async def meanwhile(town: Town = town, other: ObjectStore = elsewhere, slept: list[int] = slept) -> None:
            slept.append(1)
            async with town.admin(other) as admin:
                await admin.adopt_place()

        life = Life(requests, meanwhile)
        right, wrong = there, elsewhere
        async with Town(kind, MortalFactory(town.factory, life)).admin(MortalStore(there, life)) as admin:
            try:
                await admin.adopt_place()
            except slate.ConflictError as error:
                refused += "another place" in str(error) and error.outcome == "not_applied"
                right, wrong = elsewhere, there
        for place in (here, wrong) if slept else (here,):
            with pytest.raises(slate.ConfigError, match="is not the place"):
                await town.open(place)
        async with town.open(right) as db:
            assert await contents(db) == ROWS
        if not slept:
            assert refused
            return
    raise AssertionError("it always slept")


@pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
async def test_a_compactor_of_the_old_place_does_not_claim_after_an_adoption(kind: Kind) -> None:
    for requests in range(60):
        town, here, there = Town(kind, MemoryFactory()), memory_store(), memory_store()
        await fill(town, here, l0=True)
        await _copy(town, here, there)
        adopted: list[int] = []

        async def meanwhile(town: Town = town, there: ObjectStore = there, adopted: list[int] = adopted) -> None:
            async with town.admin(there) as admin:
                await admin.adopt_place()
            adopted.append((await town.head()).compactor_epoch)

        life = Life(requests, meanwhile)
        factory = MortalFactory(town.factory, life)
        store = MortalStore(here, life)
        with contextlib.suppress(slate.FencedError, slate.ConfigError):
            async with on(runtime()).open_compactor(store, name=NAME, metastore=factory, settings=kind.settings()):
                pass
        if not adopted:
            return
        assert (await town.head()).compactor_epoch == adopted[0], requests
    raise AssertionError("it was always adopted")


async def test_after_an_adoption_nothing_that_lies_in_the_old_place_is_committed(town: Town) -> None:
    here, there = memory_store(), memory_store()
    await fill(town, here)
    async with on(runtime()).open_ingest(
        here, job_id="job", name=NAME, metastore=town.factory, settings=town.kind.settings()
    ) as job:
        await job.write(pyarrow.table({"key": [b"ingested"], "value": [b"v"]}))
        await _copy(town, here, there)
        await here.delete([key for key in await keys(there) if key.startswith("sst/")])
        async with town.admin(there) as admin:
            await admin.adopt_place()
        with pytest.raises(slate.ConflictError):
            await job.commit(wait=False)
    head = await town.head()
    assert head.ingests == ()
    async with town.open(there) as db:
        assert await contents(db) == ROWS
        await db.put(b"new", b"v")
        await db.flush(l0=True)
    async with town.open(there) as db:
        assert await contents(db) == {**ROWS, b"new": b"v"}


async def test_a_database_recreated_under_an_opening_is_not_claimed(town: Town) -> None:
    """It may have other settings, and another place, than what was looked at."""
    store = memory_store()
    await fill(town, store)
    other = Town(CONTIGUOUS if town.kind.log_protocol == "contiguous" else EPOCHS, town.factory)
    made: list[ManifestState] = []

    class Slow(MortalStore):
        async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[Any]:
            if prefix.startswith("log/") and not made:
                async with town.admin(store) as admin:
                    await admin.destroy()
                async with other.open(store):
                    pass
                made.append(await town.head())
            async for info in self.inner.list(prefix, start_after=start_after):
                yield info

    with pytest.raises(slate.FencedError, match="recreated"):
        await town.open(Slow(store, Life()))
    assert (await town.head()).writer_epoch == made[0].writer_epoch
    async with other.open(store) as db:
        assert await contents(db) == {}


async def test_a_checkpoint_does_not_take_an_empty_place_for_the_end_of_the_log() -> None:
    """The rows were acknowledged after the last commit: only the log itself knows of them."""
    town, here = Town(CONTIGUOUS, MemoryFactory()), memory_store()
    emptied: list[str] = []

    class Unmounted(MortalStore):
        async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[Any]:
            if prefix.startswith("log/"):
                emptied.append(prefix)
            async for info in (memory_store() if emptied else self.inner).list(prefix, start_after=start_after):
                yield info

        async def get(self, key: str, byte_range: Any = None) -> Any:
            return await (memory_store() if emptied else self.inner).get(key, byte_range)

    async with town.open(here) as db:
        head = await town.head()
        for key, value in ROWS.items():
            await db.put(key, value)
        assert head.log_start > head.log_last_seen
        async with town.admin(Unmounted(here, Life())) as admin:
            with pytest.raises(slate.ConfigError, match="is not the place"):
                await admin.checkpoints.create()


async def _verified(town: Town, store: ObjectStore) -> slate.VerifyReport | None:
    """``None`` if it says that this is no more the database, or its place, that it began with."""
    try:
        async with town.admin(store) as admin:
            return await admin.verify()
    except slate.InvalidError:
        return None


async def test_a_place_that_is_lost_under_a_verification_is_no_damage(town: Town) -> None:
    here = memory_store()
    await fill(town, here, l0=True)
    async with town.open(here) as db:
        await db.put(b"more", b"in the log")
    lost = 0
    for requests in range(200):
        store = MortalStore(here, Life())

        async def unmount(store: MortalStore = store) -> None:
            store.inner = memory_store()

        store.life = Life(requests, unmount)
        report = await _verified(town, store)
        lost += report is None
        assert report is None or report.findings == (), requests
        if store.inner is here:
            assert report is not None
            assert lost > 3
            return
    raise AssertionError("it was always lost")


async def test_a_database_recreated_under_a_verification_is_no_damage(town: Town) -> None:
    for requests in range(200):
        town, store = Town(town.kind, MemoryFactory()), memory_store()
        await fill(town, store, l0=True)
        made: list[int] = []

        async def make_again(town: Town = town, store: ObjectStore = store, made: list[int] = made) -> None:
            async with town.admin(store) as admin:
                await admin.destroy()
            async with town.open(store) as db:
                await db.put(b"new", b"v")
            made.append(1)

        report = await _verified(town, MortalStore(store, Life(requests, make_again)))
        assert report is None or report.findings == (), requests
        if not made:
            assert report is not None
            return
    raise AssertionError("it was recreated each time")


@pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
async def test_an_adoption_under_which_the_log_moves_on_looks_at_the_rest_of_it(kind: Kind) -> None:
    """What it misses first need not be there any more; what was written since is not there either."""
    for requests in range(60):
        town, here, there = Town(kind, MemoryFactory()), memory_store(), memory_store()
        await fill(town, here)
        async with town.open(here) as db:
            await _copy(town, here, there)
            await there.delete([info.key async for info in there.list("log/") if info.size > HEADER_BYTES])
            place = (await town.head()).store_id
            moved: list[int] = []

            async def move_on(db: slate.Db = db, moved: list[int] = moved) -> None:
                await db.flush(l0=True)
                await db.put(b"more", b"v")
                await db.close()
                moved.append(1)

            with pytest.raises((slate.CorruptionError, slate.ConfigError)):
                async with town.admin(MortalStore(there, Life(requests, move_on))) as admin:
                    await admin.adopt_place()
        assert (await town.head()).store_id == place, requests
        if not moved:
            return
    raise AssertionError("the log always moved on")


@pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
async def test_an_adoption_under_which_the_log_moves_for_ever_is_given_up(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    town, here, there = Town(kind, MemoryFactory()), memory_store(), memory_store()
    await fill(town, here)
    async with town.open(here):
        await _copy(town, here, there)
    await there.delete([info.key async for info in there.list("log/") if info.size > HEADER_BYTES])
    before = await town.head()

    async def moved(missing: object, seen: ManifestState, load_head: object, *_: object) -> ManifestState:
        return seen

    for module in (adopt, extent):
        monkeypatch.setattr(module, "judge_missing", moved)
    async with town.admin(there) as admin:
        with pytest.raises(slate.UnavailableError):
            await admin.adopt_place()
    assert await town.head() == before


async def test_a_database_whose_place_is_lost_is_given_up_and_made_anew(town: Town) -> None:
    lost, empty = memory_store(), memory_store()
    await fill(town, lost, l0=True)
    writer = await town.open(lost)
    async with town.admin(lost) as admin:
        with pytest.raises(slate.ConfigError, match=r"is not lost: .* is here"):
            await admin.destroy(lost=True)
    async with town.admin(empty) as admin:
        with pytest.raises(slate.InvalidError, match="not both"):
            await admin.destroy(lost=True, soft=True)
        await admin.destroy(lost=True)
        with pytest.raises(slate.NotFoundError):
            await admin.destroy(lost=True)
    with pytest.raises(slate.SlateError):
        await writer.checkpoints.create()
    with pytest.raises(slate.ConfigError, match="whose manifest is kept elsewhere"):
        await town.open(lost)
    async with town.open(empty) as db:
        assert await contents(db) == {}
        await db.put(b"k", b"v")
    with contextlib.suppress(slate.SlateError):
        await writer.close()
    with pytest.raises(slate.ConfigError, match="is not the place"):
        await town.open(lost)
    async with town.open(empty) as db:
        assert await contents(db) == {b"k": b"v"}


async def test_metadata_that_is_lost_with_the_objects_is_not_given_up() -> None:
    async with on(runtime()).open_admin(memory_store(), name=NAME) as admin:
        with pytest.raises(slate.InvalidError, match="metadata with its objects"):
            await admin.destroy(lost=True)


@pytest.mark.parametrize("by", ["the writer", "an operator"])
async def test_after_an_adoption_no_checkpoint_notes_how_far_the_old_places_log_goes(by: str) -> None:
    """An opening of the new place would miss log objects that never were there."""
    for requests in range(60):
        town, here, there = Town(CONTIGUOUS, MemoryFactory()), memory_store(), memory_store()
        await fill(town, here)
        await _copy(town, here, there)
        slept: list[int] = []

        async def adopt_it(town: Town = town, there: ObjectStore = there, slept: list[int] = slept) -> None:
            async with town.admin(there) as admin:
                await admin.adopt_place()
            slept.append(1)

        life = Life()
        other = Town(town.kind, MortalFactory(town.factory, life))
        writer = await other.open(MortalStore(here, life) if by == "the writer" else here)
        await writer.put(b"unknown to the manifest", b"v")
        life.requests, life.meanwhile = life.made + requests, adopt_it
        with contextlib.suppress(slate.FencedError, slate.ConflictError, slate.ConfigError):
            if by == "the writer":
                await writer.checkpoints.create()
            else:
                async with other.admin(MortalStore(here, life)) as admin:
                    await admin.checkpoints.create()
        with contextlib.suppress(slate.SlateError):
            await writer.close()
        if not slept:
            return
        async with town.open(there) as db:
            assert await contents(db) == ROWS, requests
    raise AssertionError("it always slept")
