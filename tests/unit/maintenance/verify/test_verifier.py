"""Verification: clean where all is well, also beside writers and collectors; each kind of damage is found and named."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from msgspec import structs

import slate_async as slate
from slate_async.codec.columns import Columns, concat
from slate_async.codec.header import HEADER_BYTES
from slate_async.engine.read.merge import key_at
from slate_async.engine.stored_database import StoredDatabase
from slate_async.maintenance.verify.report import VerifyProgress, VerifyReport
from slate_async.maintenance.verify.states import check_state
from slate_async.maintenance.verify.verifier import Verifier
from slate_async.storage.format.heartbeat import Beat, encode_beat
from slate_async.storage.format.sst_builder import SstBuilder
from slate_async.storage.liveness.heartbeat import ALIVE_KEY
from slate_async.storage.log import register as registers
from slate_async.storage.manifest.features import RANGE_DELETES_FEATURE
from slate_async.storage.manifest.state import ManifestState, SortedRun, SstRef
from slate_async.storage.sst.cache import BlockCache
from slate_async.storage.sst.locate import SstOpener
from slate_async.storage.sst.names import sst_key
from slate_async.storage.sst.reader import SstReader
from slate_async.types import NO_END, RangeDelete
from tests.engine import CONTIGUOUS, EPOCHS, InlineOffload, Kind, memory_store, on, open_db, runtime
from tests.support.settled_town import admin, alter, bytes_of, compact, remove, settled
from tests.support.towns import CLONE, PARENT, Life, Town, numbered


async def verified(town: Town, name: str = PARENT) -> VerifyReport:
    async with admin(town, name) as opened:
        return await opened.verify()


def about(report: VerifyReport) -> set[str]:
    return {finding.object_name for finding in report.findings}


async def test_a_sound_database_is_clean_and_all_of_it_is_read(town: Town) -> None:
    told: list[VerifyProgress] = []
    async with admin(town) as opened:
        report = await opened.verify(on_progress=told.append)
    assert report.findings == ()
    state = await town.state(PARENT)
    assert report.manifest_version == state.version
    assert report.ssts >= len(list(state.ssts())) > 0
    assert report.log_objects > 0
    assert report.versions == 1 + len({checkpoint.ref for checkpoint in state.checkpoints})
    assert report.rows >= sum(sst.rows for sst in state.ssts())
    assert (told[-1].objects, told[-1].nbytes) == (told[-1].objects_total, told[-1].bytes_total)
    assert told[-1].nbytes == report.nbytes


async def test_whatever_byte_changes_it_is_found(town: Town) -> None:
    """In data objects that live: any byte; in the manifest, the register: it cannot be read."""
    state = await town.state(PARENT)
    named = {sst.location for sst in state.ssts()}
    keys = [key for key in town.data(PARENT) if key in named or key.startswith("log/")]
    assert len(keys) > 3
    for key in keys:
        sound = bytes_of(town, key)
        notes = [note.object_name for note in (await verified(town)).notes]
        if key in notes:
            continue
        step = max(1, len(sound) // 12)
        for at in [*range(0, len(sound), step), len(sound) - 1]:
            alter(town, key, sound[:at] + bytes([sound[at] ^ 0x20]) + sound[at + 1 :])
            assert about(await verified(town)) == {key}, f"byte {at} of {len(sound)} of {key}"
        for wrong in (sound[:-1], sound + b"\0", sound[: HEADER_BYTES - 1]):
            alter(town, key, wrong)
            assert key in about(await verified(town)), f"{len(wrong)} of {len(sound)} bytes of {key}"
        alter(town, key, sound)
    assert (await verified(town)).clean


async def test_what_is_lost_is_missed(town: Town) -> None:
    """But for the end of a contiguous log, which nothing tells of: here fences follow it."""
    async with town.open(PARENT):
        pass
    waiting = {note.object_name for note in (await verified(town)).notes}
    for key in [key for key in town.data(PARENT) if key not in waiting]:
        poorer = town.copy()
        remove(poorer, key)
        report = await verified(poorer)
        assert [
            finding.what for finding in report.findings if finding.object_name == key and "is missing" in finding.what
        ], key


async def test_a_lost_manifest_version_is_missed(town: Town) -> None:
    async with admin(town) as opened:
        [then] = [checkpoint for checkpoint in await opened.checkpoints.list() if checkpoint.name == "then"]
    remove(town, f"manifest/{then.manifest_id:020}.manifest")
    assert f"manifest version {then.manifest_id}" in about(await verified(town))


async def test_a_damaged_head_is_the_only_finding(town: Town) -> None:
    state = await town.state(PARENT)
    key = f"manifest/{state.version:020}.manifest"
    sound = bytes_of(town, key)
    alter(town, key, sound[:-1] + bytes([sound[-1] ^ 1]))
    report = await verified(town)
    assert len(report.findings) == 1
    assert str(state.version) in report.findings[0].object_name


async def test_objects_of_another_database_are_found(town: Town) -> None:
    other = await settled(Town(town.kind))
    state, foreign = await town.state(PARENT), await other.state(PARENT)
    stray = foreign.l0[0] if foreign.l0 else next(foreign.ssts())
    added = sst_key(state.version, stray.object_id)
    await town.store(PARENT).put(added, bytes_of(other, stray.location))
    assert about(await verified(town)) == {added}
    remove(town, added)
    mine = next(state.ssts())
    alter(town, mine.location, bytes_of(other, stray.location))
    assert about(await verified(town)) == {mine.location}


async def test_what_nobody_names_is_a_note(town: Town) -> None:
    state = await town.state(PARENT)
    orphan = sst_key(state.version, b"\1" * 16)
    named = next(state.ssts())
    await town.store(PARENT).put(orphan, bytes_of(town, named.location))
    await town.store(PARENT).put("sst/readme.txt", b"hello")
    report = await verified(town)
    assert report.clean
    assert {orphan, "sst/readme.txt"} <= {note.object_name for note in report.notes}


async def test_an_sst_of_a_manifest_version_that_is_not_there_is_found(town: Town) -> None:
    """The newest versions are lost, or others were put back."""
    state = await town.state(PARENT)
    later = sst_key(state.version + 1, b"\1" * 16)
    await town.store(PARENT).put(later, bytes_of(town, next(state.ssts()).location))
    assert about(await verified(town)) == {later}


async def test_a_lost_register_is_missed_as_soon_as_there_is_a_log() -> None:
    town = Town(EPOCHS)
    await town.write(PARENT, {b"k": b"v"})
    remove(town, "writer/current")
    assert "writer register" in about(await verified(town))


@dataclass(frozen=True)
class Change:
    """A change of the manifest that no edit makes."""

    changes: tuple[tuple[str, Any], ...]

    def apply(self, state: ManifestState) -> ManifestState | None:
        changed = replace(state, **dict(self.changes))
        return None if changed == state else changed


@pytest.mark.parametrize("field", ["rows", "tombstones", "first_key", "last_key", "max_seq", "writer_epoch"])
async def test_a_manifest_that_describes_an_sst_wrongly_is_found(field: str) -> None:
    town = await settled(Town(CONTIGUOUS))
    state = await town.state(PARENT)
    [run] = state.runs
    value = getattr(run.ssts[0], field)
    wrong = structs.replace(run.ssts[0], **{field: value + (b"x" if isinstance(value, bytes) else 1)})
    async with town.process() as open_at, open_at(PARENT) as database:
        await database.driver.commit(Change((("runs", (replace(run, ssts=(wrong,)),)),)))
    assert wrong.location in about(await verified(town))


class Careless(SstBuilder):
    """Takes rows in any order."""

    def _check_order(self, columns: Columns) -> None:
        self._last = (key_at(columns, len(columns) - 1), 0)


def without_filter_of_last(builder: SstBuilder) -> None:
    builder._hashes[-1][-1] ^= np.uint64(0xFFFF_FFFF_0000_FFFF)


def with_other_statistics(builder: SstBuilder) -> None:
    builder._stats._tombstones += 1


@pytest.mark.parametrize(
    ("said", "swapped", "spoil"),
    [
        ("is not sorted", True, lambda builder: None),
        ("filter does not know 1 of the keys", False, without_filter_of_last),
        ("statistics are not those", False, with_other_statistics),
    ],
)
async def test_an_sst_whose_parts_do_not_fit_together_is_found(
    said: str, swapped: bool, spoil: Callable[[SstBuilder], None]
) -> None:
    """Every checksum is right, so nothing but a comparison finds it."""
    town = await settled(Town(CONTIGUOUS))
    state = await town.state(PARENT)
    old = state.runs[0].ssts[0]
    store = town.store(PARENT)
    reader = SstReader(
        store,
        old.location,
        size=old.size,
        database_id=state.database_id,
        object_id=old.object_id,
        cache=BlockCache(0),
        offload=InlineOffload(),
    )
    rows = concat([part async for part in reader.scan(None, None)])
    builder = Careless(
        database_id=state.database_id, object_id=old.object_id, writer_epoch=old.writer_epoch, manifest_version=1
    )
    order = np.arange(len(rows))
    if swapped:
        order[3:5] = order[3:5][::-1]
    builder.add(rows.take(order))
    spoil(builder)
    encoded = builder.finish()
    await store.put(old.location, encoded.buffers)
    run = replace(state.runs[0], ssts=(structs.replace(old, size=encoded.size, tombstones=encoded.stats.tombstones),))
    async with town.process() as open_at, open_at(PARENT) as database:
        await database.driver.commit(Change((("runs", (run,)), ("checkpoints", ()))))
    findings = (await verified(town)).findings
    assert findings
    assert all(finding.object_name == old.location and said in finding.what for finding in findings), findings


async def test_the_writers_register_is_compared() -> None:
    town = await settled(Town(EPOCHS))
    async with town.process() as open_at, open_at(PARENT) as database, database.register("epoch_prefixed") as register:
        assert register is not None
        cell = await register.read()
        assert cell is not None
        held = registers.decode(cell.value)
        for wrong in (
            replace(held, epoch=held.epoch + 1),
            replace(held, token="0" * 32),
            replace(held, last_written=held.last_written + 1),
        ):
            await register.compare_and_set(cell.tag, registers.encode(wrong))
            assert not (await verified(town)).clean
            cell = await register.read()
            assert cell is not None
        await register.compare_and_set(cell.tag, registers.encode(held))
        assert (await verified(town)).clean
    remove(town, "writer/current")
    assert "writer register" in about(await verified(town))


async def test_a_writers_beat_is_read(town: Town) -> None:
    beat = encode_beat(Beat((await town.state(PARENT)).database_id, 1, 7))
    await town.store(PARENT).put(ALIVE_KEY, beat)
    assert (await verified(town)).clean
    for damaged in (beat[:-1], beat[:8] + b"\x09" + beat[9:], b"", bytes(48)):
        alter(town, ALIVE_KEY, damaged)
        assert about(await verified(town)) == {ALIVE_KEY}


async def test_a_clones_ssts_are_read_where_they_are(town: Town) -> None:
    async with admin(town) as opened:
        await opened.clone(CLONE)
    report = await verified(town, CLONE)
    assert report.clean
    assert report.ssts > 0
    shared = next((await town.state(CLONE)).ssts())
    sound = bytes_of(town, shared.location)
    alter(town, shared.location, sound[:100] + bytes([sound[100] ^ 1]) + sound[101:])
    assert about(await verified(town, CLONE)) == {shared.location}


async def test_beside_a_writer_a_compactor_and_gc_it_is_clean(town: Town) -> None:
    """What goes while it is looked at is not missed."""
    ended = asyncio.Event()

    async def work() -> None:
        settings = town.kind.settings(gc_min_age_ms=1, version_keep_ms=0, gc_clock_skew_ms=0)
        environment = slate.Environment(stores={PARENT: town.store(PARENT)})
        async with (
            environment,
            environment.open_gc(town.store(PARENT), name=PARENT, settings=settings, periodic=False) as collector,
        ):
            for turn in range(6):
                await town.write(PARENT, numbered(turn, turn + 10, b"%d" % turn), l0=True)
                await compact(town, PARENT)
                town.clock.wall_ms += 10_000
                await collector.collect()
        ended.set()

    working = asyncio.create_task(work())
    count = 0
    while not ended.is_set() and not working.done():
        report = await verified(town)
        assert report.findings == ()
        count += 1
    await working
    assert count > 1


async def collect(town: Town) -> None:
    """Everything that nothing needs goes, whatever its age."""
    settings = town.kind.settings(gc_min_age_ms=0, version_keep_ms=0, gc_clock_skew_ms=0)
    environment = slate.Environment(runtime=runtime(town.clock), stores={PARENT: town.store(PARENT)})
    store = town.store(PARENT)
    async with environment, environment.open_gc(store, name=PARENT, settings=settings, periodic=False) as collector:
        await collector.collect()


async def test_whatever_goes_between_any_two_of_its_requests_is_not_missed(kind: Kind) -> None:
    """The checkpoint is deleted, all is compacted, written anew by another writer, and collected."""
    town = await settled(Town(kind))
    requests, asleep = 0, True
    while asleep:
        other = town.copy()

        async def meanwhile(other: Town = other) -> None:
            async with admin(other) as opened:
                for checkpoint in await opened.checkpoints.list():
                    await opened.checkpoints.delete(checkpoint.id, force=True)
            await other.write(PARENT, numbered(0, 9, b"newer"), l0=True)
            await compact(other, PARENT)
            await collect(other)

        life = Life(requests, meanwhile)
        async with other.process(life) as open_at, open_at(PARENT) as database:

            def ssts(database_id: UUID, database: StoredDatabase = database) -> SstOpener:
                return SstOpener(
                    database.store, database_id, lambda path: database.store, BlockCache(0), InlineOffload()
                )

            report = await Verifier(database, ssts, open_at).verify()
        assert report.findings == (), f"asleep before request {requests}"
        requests, asleep = requests + 3, life.requests is None
    assert requests > 30


async def test_recreated_on_the_path_of_a_destroyed_one_it_is_clean(town: Town) -> None:
    async with admin(town) as opened:
        for checkpoint in await opened.checkpoints.list():
            await opened.checkpoints.delete(checkpoint.id, force=True)
        await opened.destroy()
    with pytest.raises(slate.InvalidError, match="destroyed"):
        await verified(town)
    await town.write(PARENT, numbered(0, 5), l0=True)
    assert (await verified(town)).findings == ()


async def test_where_there_is_no_database_nothing_is_verified() -> None:
    with pytest.raises(slate.InvalidError, match="no database"):
        await verified(Town(CONTIGUOUS))


# ---- states by themselves


def sst(number: int, keys: tuple[bytes, bytes], seqs: tuple[int, int]) -> SstRef:
    object_id = number.to_bytes(16, "big")
    return SstRef(sst_key(1, object_id), object_id, 1000, 5, 1, *keys, *seqs, 1)


SOUND = ManifestState(
    database_id=UUID(int=1),
    log_protocol="contiguous",
    wal_enabled=True,
    created_ms=0,
    last_seq=100,
    last_run_id=2,
    l0=(sst(1, (b"a", b"z"), (81, 100)), sst(2, (b"a", b"z"), (61, 80))),
    runs=(SortedRun(2, (sst(3, (b"a", b"f"), (1, 60)), sst(4, (b"g", b"z"), (1, 59)))),),
)


def test_a_sound_state_has_no_findings() -> None:
    assert check_state(SOUND) == []


@pytest.mark.parametrize(
    ("said", "changes"),
    [
        ("L0 is out of order", {"l0": SOUND.l0[::-1]}),
        ("not newer than the sorted runs", {"l0": (sst(5, (b"a", b"b"), (50, 100)),)}),
        ("overlap", {"runs": (SortedRun(2, SOUND.runs[0].ssts[::-1]),)}),
        ("highest given", {"last_seq": 99}),
        ("above the last one given", {"last_run_id": 1}),
        ("twice", {"runs": (*SOUND.runs, *SOUND.runs)}),
        ("do not rise", {"runs": (SortedRun(2, (), 2), SortedRun(1, (), 1))}),
        ("wrong order", {"l0": (sst(6, (b"b", b"a"), (90, 100)),)}),
        ("history", {"history_floor": 101}),
    ],
)
def test_each_contradiction_in_a_state_is_found(said: str, changes: dict[str, Any]) -> None:
    assert any(said in finding.what for finding in check_state(replace(SOUND, **changes)))


# ---- range deletes


def test_range_deletes_of_a_state_are_checked() -> None:
    allowed = replace(SOUND, required_features=(RANGE_DELETES_FEATURE,))
    sound = (RangeDelete(3, b"a", b"b", 0), RangeDelete(5, b"c", NO_END, 0))
    assert check_state(replace(allowed, range_deletes=sound)) == []
    for deletes, features, said in (
        (sound, (), "may read it"),
        (sound[::-1], allowed.required_features, "out of order"),
        ((sound[0], sound[0]), allowed.required_features, "out of order"),
        ((RangeDelete(SOUND.last_seq + 1, b"a", b"b", 0),), allowed.required_features, "above the highest given"),
        ((RangeDelete(3, b"b", b"b", 0),), allowed.required_features, "holds no key"),
    ):
        [found] = check_state(replace(allowed, range_deletes=deletes, required_features=features))
        assert said in found.what


async def test_a_row_is_found_that_compaction_should_have_dropped() -> None:
    """The manifest says that it did: so the range delete may go, and the row would be back."""
    store = memory_store()
    async with open_db(store, sst_bytes=1, block_bytes=1) as db:
        batch = slate.WriteBatch()
        for key in (b"a", b"b", b"c", b"d"):
            batch.put(key, b"v")
        await db.write(batch)
        await db.compact(full=True)
        snapshot = db.snapshot()
        await db.delete_range(b"b", b"d")
        await db.flush(l0=True)
        state = db._writer.state.manifest
        location = next(sst.location for sst in state.ssts() if sst.first_key == b"c")
        [delete] = state.range_deletes or ()

        def noted_as_swept(state: ManifestState) -> ManifestState:
            runs = []
            for run in state.runs:
                ssts = (
                    structs.replace(sst, swept_seq=delete.seq) if sst.location == location else sst for sst in run.ssts
                )
                runs.append(replace(run, ssts=tuple(ssts)))
            return replace(state, runs=tuple(runs))

        async with on(runtime()).open_admin(store, name="memory://test") as opened:
            report = await opened.verify()
            assert (report.clean, report.range_deletes) == (True, 1)
            await db._opened.driver.commit(Noted(noted_as_swept))
            report = await opened.verify()
        assert [finding.object_name for finding in report.findings] == [location]
        assert "1 rows that a range delete hides" in report.findings[0].what
        snapshot.close()


@dataclass(frozen=True)
class Noted:
    """An edit that notes what is not so."""

    change: Callable[[ManifestState], ManifestState]

    def apply(self, state: ManifestState) -> ManifestState | None:
        """Once."""
        changed = self.change(state)
        return None if changed == state else changed
