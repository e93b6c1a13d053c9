"""Mirrors: equal to the checkpoint, incremental, whole at every time, resumed wherever they were killed."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import slate_async as slate
from slate_async.codec.header import HEADER_BYTES
from slate_async.errors import CorruptionError, InvalidError
from slate_async.maintenance.mirror.make import make_mirror
from slate_async.maintenance.mirror.report import MirrorProgress, MirrorReport
from slate_async.storage.manifest.edits.mirror import ShowMirrored
from slate_async.storage.manifest.state import ABORTED, APPLIED, AppBatch, IngestRecord
from slate_async.storage.sst.cache import BlockCache
from slate_async.storage.sst.locate import SstOpener
from tests.engine import CONTIGUOUS, InlineOffload, Kind, contents, on, runtime
from tests.support.settled_town import admin, alter, bytes_of, compact, remove, settled
from tests.support.towns import CLONE, PARENT, Killed, Life, Town, numbered

MIRROR = CLONE
THEN = {**numbered(0, 20, b"old"), **numbered(20, 40, b"new"), b"0050": b"then"}
del THEN[b"0001"], THEN[b"0002"]
NOW = {**THEN, b"0050": b"now", b"0051": b"logged", b"0052": b"logged"}
"""What the database of `town` held at its checkpoint, and holds."""


async def mirror(town: Town, checkpoint: str = "then", **options: Any) -> MirrorReport:
    async with admin(town) as opened:
        return await opened.mirror(checkpoint, MIRROR, **options)


async def checkpoint_now(town: Town, name: str) -> None:
    async with admin(town) as opened:
        await opened.checkpoints.create(name=name)


async def read(town: Town, name: str = MIRROR) -> dict[bytes, bytes]:
    """Everything, as a reader that writes nothing sees it."""
    stores = {path: town.store(path) for path in town.objects}
    environment = slate.Environment(stores=stores)
    async with environment, environment.open_reader(town.store(name), name=name, pin=False) as reader:
        return await contents(reader)


async def clean(town: Town, name: str = MIRROR) -> None:
    async with admin(town, name) as opened:
        assert (await opened.verify()).findings == ()


async def test_a_mirror_is_the_database_at_the_checkpoint(town: Town) -> None:
    told: list[MirrorProgress] = []
    report = await mirror(town, on_progress=told.append)
    source, state = await town.state(PARENT), await town.state(MIRROR)
    assert await read(town) == THEN
    await clean(town)
    assert (state.database_id, state.properties, state.created_ms) == (
        source.database_id, source.properties, source.created_ms
    )  # fmt: skip
    assert (report.database_id, report.manifest_version) == (state.database_id, state.version)
    assert (report.kept, report.copied) == (0, len(list(state.ssts())))
    assert report.copied_bytes == sum(sst.size for sst in state.ssts())
    assert (told[-1].ssts, told[-1].nbytes) == (told[-1].ssts_total, told[-1].bytes_total)


async def test_mirrored_again_only_what_is_new_is_copied(town: Town) -> None:
    first = await mirror(town)
    again = await mirror(town)
    assert (again.copied, again.manifest_version) == (0, first.manifest_version)
    await checkpoint_now(town, "now")
    second = await mirror(town, "now")
    assert await read(town) == NOW
    await clean(town)
    assert second.kept > 0
    assert second.copied < second.kept + second.copied
    with pytest.raises(InvalidError, match="later state"):
        await mirror(town, "then")


async def test_what_is_needed_no_more_goes_only_when_asked_to(town: Town) -> None:
    await mirror(town)
    await compact(town, PARENT)
    await checkpoint_now(town, "now")
    await mirror(town, "now")
    ssts = [key for key in town.keys(MIRROR) if key.startswith("sst/")]
    state = await town.state(MIRROR)
    named = sorted(sst.location for sst in state.ssts())
    assert set(named) < set(ssts)
    report = await mirror(town, "now", prune=True)
    assert report.pruned > 0
    assert [key for key in town.keys(MIRROR) if key.startswith("sst/")] == named
    assert await read(town) == NOW
    await clean(town)


async def test_opened_to_write_it_is_a_database_of_its_own(town: Town) -> None:
    await mirror(town)
    await town.write(MIRROR, {b"mine": b"1"}, l0=True)
    assert await read(town) == {**THEN, b"mine": b"1"}
    await clean(town)
    await checkpoint_now(town, "now")
    with pytest.raises(InvalidError, match="opened to write"):
        await mirror(town, "now")
    assert await read(town) == {**THEN, b"mine": b"1"}


async def test_a_mirror_mirrored_on_and_then_opened_continues(town: Town) -> None:
    """Its log starts behind all of the source's, and its register is not in the way."""
    await mirror(town)
    for turn in range(2):
        await town.write(PARENT, numbered(100 * turn, 100 * turn + 3))
        await checkpoint_now(town, f"turn {turn}")
        await mirror(town, f"turn {turn}")
    expected = {**NOW, **numbered(0, 3), **numbered(100, 103)}
    await town.write(MIRROR, {b"mine": b"1"})
    await town.write(MIRROR, {b"mine": b"2", b"0000": None})
    expected = {**expected, b"mine": b"2"}
    del expected[b"0000"]
    assert await town.rows(MIRROR) == expected
    await clean(town)


async def test_readers_follow_a_mirror(town: Town) -> None:
    await mirror(town)
    settings = slate.Settings(manifest_poll_interval_ms=60_000)
    environment = slate.Environment()
    async with environment, environment.open_reader(town.store(MIRROR), name=MIRROR, settings=settings) as reader:
        scan = reader.snapshot()
        await checkpoint_now(town, "now")
        await mirror(town, "now", prune=True)
        await reader.refresh()
        assert await contents(reader) == NOW
        assert await contents(scan) == THEN
        scan.close()


async def test_a_clones_mirror_stands_by_itself(town: Town) -> None:
    grandchild = "memory://third"
    town.objects[grandchild] = type(town.objects[PARENT])()
    async with admin(town) as opened:
        await opened.clone(MIRROR, checkpoint="then")
    await town.write(MIRROR, {b"clone": b"1"}, l0=True)
    async with admin(town, MIRROR) as opened:
        await opened.checkpoints.create(name="mine")
        await opened.mirror("mine", grandchild)
        with pytest.raises(InvalidError):
            await opened.mirror("mine", PARENT)
        again = await opened.mirror("mine", grandchild)
    assert again.copied == 0
    del town.objects[PARENT], town.objects[MIRROR]
    assert (await town.state(grandchild)).parents == ()
    assert await read(town, grandchild) == {**THEN, b"clone": b"1"}
    await clean(town, grandchild)


# ---- killed


async def mirror_in(town: Town, life: Life, checkpoint: str = "now") -> MirrorReport:
    """Mirror in a process that may die. Every request of it counts, those to the source, too."""
    async with town.process(life) as open_at, open_at(PARENT) as source, open_at(MIRROR) as target:

        def ssts(database_id: Any) -> SstOpener:
            return SstOpener(source.store, database_id, lambda path: source.store, BlockCache(0), InlineOffload())

        return await make_mirror(source, target, checkpoint, ssts)


async def test_killed_between_any_two_requests_it_shows_one_state_and_goes_on(kind: Kind) -> None:
    town = await settled(Town(kind))
    await mirror(town)
    await checkpoint_now(town, "now")
    requests = 0
    for requests in range(1_000):
        other = town.copy()
        try:
            await mirror_in(other, Life(requests))
        except Killed:
            assert await read(other) in (THEN, NOW), f"killed before request {requests}"
            if requests % 3 == 0:
                await mirror_in(other, Life())
                assert await read(other) == NOW
        else:
            break
    assert requests > 15
    await clean(other)


async def test_killed_before_the_first_is_whole_it_cannot_be_opened_and_goes_on(kind: Kind) -> None:
    town = await settled(Town(kind))
    for requests in range(0, 1_000, 3):
        other = town.copy()
        try:
            await mirror_in(other, Life(requests), "then")
        except Killed:
            if any(key.startswith("manifest/") for key in other.keys(MIRROR)):
                state = await other.state(MIRROR)
                if not state.initialized:
                    with pytest.raises(InvalidError, match="not finished"):
                        await read(other)
            again = await mirror_in(other, Life(), "then")
            assert await read(other) == THEN
            assert again.copied + again.kept >= 0
        else:
            return
    raise AssertionError("it never ended")


async def test_killed_before_the_first_is_whole_it_goes_on_at_any_checkpoint(kind: Kind) -> None:
    """Also at an older one: nothing of the first mirroring says where the log ends."""
    town = await settled(Town(kind))
    await checkpoint_now(town, "now")
    for requests in range(1_000):
        other = town.copy()
        try:
            await mirror_in(other, Life(requests), "now")
        except Killed:
            if (
                any(key.startswith("manifest/") for key in other.keys(MIRROR))
                and (await other.state(MIRROR)).initialized
            ):
                return  # it shows the newer one: see below
            await mirror_in(other, Life(), "then")
            assert await read(other) == THEN, f"killed before request {requests}"
            await clean(other)
            if requests % 9 == 0:
                await other.write(MIRROR, {b"mine": b"1"})
                assert await other.rows(MIRROR) == {**THEN, b"mine": b"1"}, f"killed before request {requests}"
        else:
            return
    raise AssertionError("it never ended")


def open_job(town: Town) -> Any:
    """An ingest into the mirror."""
    settings = town.kind.settings(manifest_poll_interval_ms=10)
    return on(runtime(town.clock)).open_ingest(town.store(MIRROR), job_id="job", name=MIRROR, settings=settings)


async def test_an_ingest_that_waits_in_a_mirror_stays(kind: Kind) -> None:
    """It is committed there: whatever the mirror shows next, it comes in once somebody opens it to write."""
    town = await settled(Town(kind))
    await mirror(town)
    async with open_job(town) as job:
        await job.write([pa.table({"key": ["9000"], "value": ["ingested"]})])
        await job.commit(wait=False)
    await town.write(PARENT, {b"0050": b"later"}, l0=True)
    await compact(town, PARENT)
    await checkpoint_now(town, "later")
    await mirror(town, "later", prune=True)
    assert [ingest.id for ingest in (await town.state(MIRROR)).ingests] == ["job"]
    await clean(town)
    async with admin(town, MIRROR) as opened:
        [info] = await opened.ingests.list()
    assert info.state == "pending"
    async with town.open(MIRROR) as db, open_job(town) as job:
        await db.confirm()
        assert (await job.wait()).state == "applied"
        assert await contents(db) == {**NOW, b"0050": b"later", b"9000": b"ingested"}


async def test_one_that_was_broken_off_is_collected(kind: Kind) -> None:
    """Its collector takes what was copied and nobody goes on with, and does not fail."""
    begun = await settled(Town(kind))
    begun.store(MIRROR)
    town, requests = begun, 0
    while not town.data(MIRROR):
        town, requests = begun.copy(), requests + 1
        with pytest.raises(Killed):
            await mirror_in(town, Life(requests), "then")
    settings = kind.settings(gc_min_age_ms=1000, gc_clock_skew_ms=0)
    environment = slate.Environment(runtime=runtime(town.clock), stores={MIRROR: town.store(MIRROR)})
    store = town.store(MIRROR)
    async with environment, environment.open_gc(store, name=MIRROR, settings=settings, periodic=False) as collector:
        assert (await collector.collect()).objects == (), "somebody may still be at work on it"
        for _ in range(4):
            town.clock.wall_ms += 2000
            await collector.collect()
    assert town.data(MIRROR) == []
    await mirror_in(town, Life(), "then")
    assert await read(town) == THEN
    await clean(town)


async def test_one_that_was_never_finished_is_destroyed(kind: Kind) -> None:
    begun = await settled(Town(kind))
    begun.store(MIRROR)
    town, requests = begun, 0
    while not town.data(MIRROR):
        town, requests = begun.copy(), requests + 1
        with pytest.raises(Killed):
            await mirror_in(town, Life(requests), "then")
    assert not (await town.state(MIRROR)).initialized
    async with admin(town, MIRROR) as opened:
        await opened.destroy()
    assert town.data(MIRROR) == []
    await town.write(MIRROR, {b"another": b"1"})
    assert await town.rows(MIRROR) == {b"another": b"1"}
    assert await town.rows(PARENT) == NOW


async def test_what_was_copied_before_it_was_killed_is_not_copied_again() -> None:
    town = await settled(Town(CONTIGUOUS))
    whole = await mirror_in(town.copy(), Life(), "then")
    kept = 0
    for requests in range(60):
        other = town.copy()
        try:
            await mirror_in(other, Life(requests), "then")
        except Killed:
            kept = max(kept, (await mirror_in(other, Life(), "then")).kept)
    assert 0 < kept <= whole.copied


async def test_a_mirrorer_that_sleeps_through_anything_does_no_harm(kind: Kind) -> None:
    """The mirror is pruned, or opened to write, while another mirrorer sleeps before any of its requests."""
    town = await settled(Town(kind))
    await mirror(town)
    await checkpoint_now(town, "now")

    for requests in range(0, 200, 4):
        other = town.copy()

        async def meanwhile(other: Town = other) -> None:
            await mirror(other, "now", prune=True)
            await other.write(MIRROR, {b"mine": b"1"}, l0=True)

        life = Life(requests, meanwhile)
        with contextlib.suppress(InvalidError):  # "the mirror was opened to write"
            await mirror_in(other, life)
        if life.requests is not None:
            return
        assert await read(other) == {**NOW, b"mine": b"1"}, f"asleep before request {requests}"
        await clean(other)
    raise AssertionError("it never ended")


# ---- refused


async def test_damage_in_the_source_is_not_copied(town: Town) -> None:
    async with admin(town) as opened:
        [then] = [checkpoint for checkpoint in await opened.checkpoints.list() if checkpoint.name == "then"]
    state = await town.state(PARENT)
    sst = state.runs[-1].ssts[0]
    sound = bytes_of(town, sst.location)
    alter(town, sst.location, sound[:200] + bytes([sound[200] ^ 1]) + sound[201:])
    with pytest.raises(CorruptionError, match="body checksum"):
        await mirror(town)
    remove(town, sst.location)
    with pytest.raises(CorruptionError, match=f"checkpoint {then.id} names it"):
        await mirror(town)
    assert [key for key in town.keys(MIRROR) if sst.object_id.hex() in key] == []
    await town.store(PARENT).put(sst.location, sound)
    await mirror(town)
    assert await read(town) == THEN


async def test_a_damaged_copy_is_made_anew(town: Town) -> None:
    await mirror(town)
    state = await town.state(MIRROR)
    sst = state.runs[-1].ssts[0]
    alter(town, sst.location, bytes_of(town, sst.location, MIRROR)[: HEADER_BYTES + 9], MIRROR)
    await checkpoint_now(town, "now")
    await mirror(town, "now")
    assert await read(town) == NOW
    await clean(town)


async def test_places_that_hold_something_else_are_refused() -> None:
    town = await settled(Town(CONTIGUOUS))
    for refused, said in ((PARENT, "itself"), ("ftp://host/x", "ftp")):
        async with admin(town) as opened:
            with pytest.raises(InvalidError, match=said):
                await opened.mirror("then", refused)
    with pytest.raises(InvalidError, match="no checkpoint"):
        await mirror(town, "never")
    await town.store(MIRROR).put("notes.txt", b"mine")
    with pytest.raises(InvalidError, match=r"notes\.txt"):
        await mirror(town)
    remove(town, "notes.txt", MIRROR)
    await town.write(MIRROR, {b"k": b"v"})
    with pytest.raises(InvalidError, match="another database"):
        await mirror(town)


async def test_an_expired_or_moving_checkpoint_is_no_source() -> None:
    town = await settled(Town(CONTIGUOUS))
    async with admin(town) as opened:
        short = await opened.checkpoints.create(lifetime=1)
        town.clock.wall_ms += 2_000
        with pytest.raises(InvalidError, match="expired"):
            await opened.mirror(short.id, MIRROR)
        async with town.open(PARENT):
            [own] = [checkpoint for checkpoint in await opened.checkpoints.list() if checkpoint.owner == "writer"]
            with pytest.raises(InvalidError, match=r"checkpoints\.create"):
                await opened.mirror(own.id, MIRROR)


async def test_the_edit_asks_for_another_look_when_gc_was_there() -> None:
    town = await settled(Town(CONTIGUOUS))
    await mirror(town)
    state = await town.state(MIRROR)
    assert state.mirrored is not None
    later = replace(state.mirrored, checkpoint_id=state.database_id)
    named = frozenset(sst.location for sst in state.ssts())
    for edit in (
        ShowMirrored(state, later, base_version=0, kept=named, store_id=None),
        ShowMirrored(state, later, base_version=state.version, kept=named | {"sst/gone"}, store_id=None),
    ):
        with pytest.raises(slate.ConflictError):
            edit.apply(replace(state, sst_floor=1))
    fine = ShowMirrored(state, later, base_version=1, kept=named, store_id=None)
    with pytest.raises(slate.FencedError, match="another place"):
        replace(fine, store_id=state.database_id).apply(state)
    shown = fine.apply(state)
    assert shown is not None
    assert fine.apply(shown) is None


async def test_a_mirror_forgets_the_jobs_of_a_stream_that_its_source_forgot() -> None:
    """Else a stream that begins anew in the mirror, under the same names, would find its batches done."""
    town = await settled(Town(CONTIGUOUS))
    await mirror(town)
    state = await town.state(MIRROR)
    assert state.mirrored is not None
    batches = [(app_id, batch_id, outcome) for app_id in "ab" for batch_id in (0, 1) for outcome in (APPLIED, ABORTED)]
    records = [
        IngestRecord(f"{app_id}/{batch_id}/{outcome}", outcome, 1, app_id=app_id, batch_id=batch_id)
        for app_id, batch_id, outcome in batches
    ]
    state = replace(state, ingest_records=(IngestRecord("load", APPLIED, 1), *records))
    contents = replace(state, ingest_records=(), ingest_apps=(AppBatch("b", 0),))
    later = replace(state.mirrored, checkpoint_id=state.database_id)
    named = frozenset(sst.location for sst in state.ssts())
    shown = ShowMirrored(contents, later, state.version, named, state.store_id).apply(state)
    assert shown is not None
    assert [record.id for record in shown.ingest_records if record.outcome == APPLIED] == ["load", f"b/0/{APPLIED}"]
    assert len([record for record in shown.ingest_records if record.outcome == ABORTED]) == 4
