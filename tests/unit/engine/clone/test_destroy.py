"""Destroying, softly and for good: resumable between any two requests, harmless to a database recreated on the path."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Any, cast
from uuid import uuid4

import pytest

import slate_async as slate
from slate_async.engine.clone.destroy import destroy, remove_all
from slate_async.engine.clone.detach import detach_if_free
from slate_async.engine.clone.make import make_clone
from slate_async.errors import FencedError, InvalidError
from slate_async.storage.liveness.heartbeat import ALIVE_KEY
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.protocol import Edit
from slate_async.storage.manifest.edits.writer import ClaimWriter, PinWriter, WriterPin
from slate_async.storage.manifest.state import ManifestState
from tests.engine import CONTIGUOUS, EPOCHS, Kind
from tests.support.towns import CLONE, GRANDCHILD, PARENT, Killed, Life, Town, numbered
from tests.unit.engine.clone.conftest import EXPECTED


async def destroy_it(town: Town, name: str = PARENT, *, soft: bool = False, life: Life | None = None) -> ManifestState:
    """Destroy the database in a process of its own."""
    async with town.process(life) as open_at, open_at(name) as database:
        return await destroy(database, open_at, soft=soft)


async def clone(town: Town, target: str = CLONE, parent: str = PARENT, *, life: Life | None = None) -> ManifestState:
    async with town.process(life) as open_at, open_at(parent) as source, open_at(target) as place:
        return await make_clone(source, place, open_at)


async def detach(town: Town, name: str = CLONE, *, life: Life | None = None) -> bool:
    async with town.process(life) as open_at, open_at(name) as database:
        return await detach_if_free(database, open_at)


def not_fences(town: Town, name: str) -> list[str]:
    """What is there besides the tombstone, fences, and the writer's register."""
    kept = [key for key in town.keys(name) if key.startswith("manifest/boundary/") or key == "writer/current"]
    manifests = [key for key in town.keys(name) if key.endswith(".manifest")]
    fences = [key for key in town.keys(name) if key.startswith("log/") and key not in town.data(name)]
    return [key for key in town.keys(name) if key not in (*kept, *fences, manifests[-1])]


async def test_what_is_destroyed_leaves_a_tombstone_and_fences(town: Town) -> None:
    before = await town.state(PARENT)
    await town.store(PARENT).put(ALIVE_KEY, b"a beat")
    left = await destroy_it(town)
    assert left.removed
    assert not_fences(town, PARENT) == []
    assert left.writer_epoch == before.writer_epoch + 1
    assert await destroy_it(town) == left


async def test_killed_between_any_two_requests_it_goes_on(town: Town) -> None:
    for requests in range(1_000):
        other = town.copy()
        try:
            await destroy_it(other, life=Life(requests))
        except Killed:
            assert (await destroy_it(other)).removed
            assert not_fences(other, PARENT) == [], f"killed before request {requests}"
        else:
            break
    assert requests > 15
    assert await other.rows(PARENT) == {}


@pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
async def test_a_lost_answer_of_any_request_leaves_nothing_behind(town: Town) -> None:
    for number in range(1_000):
        other, life = town.copy(), Life(unanswered=number)
        try:
            await destroy_it(other, life=life)
        except slate.UnavailableError:
            await destroy_it(other)
        assert not_fences(other, PARENT) == [], f"the answer of request {number} was lost"
        if number >= life.made:
            break
    assert number > 15


async def test_a_clone_is_destroyed_and_gives_its_checkpoint_back_wherever_it_is_killed(kind: Kind) -> None:
    town = Town(kind)
    await town.write(PARENT, numbered(0, 5), l0=True)
    await clone(town)
    for requests in range(1_000):
        other = town.copy()
        try:
            await destroy_it(other, CLONE, life=Life(requests))
        except Killed:
            await destroy_it(other, CLONE)
            assert [
                checkpoint for checkpoint in (await other.state(PARENT)).checkpoints if checkpoint.owner == "clone"
            ] == []
            assert not_fences(other, CLONE) == []
        else:
            break
    assert await town.rows(PARENT) == numbered(0, 5)
    assert not (await destroy_it(town, CLONE)).parents
    assert (await destroy_it(town, PARENT)).removed


async def test_an_unfinished_clone_is_destroyed_wherever_it_was_killed(kind: Kind) -> None:
    town = Town(kind)
    await town.write(PARENT, numbered(0, 5), l0=True)
    await town.write(PARENT, numbered(5, 10))
    for requests in range(1_000):
        other = town.copy()
        try:
            await clone(other, life=Life(requests))
            break
        except Killed:
            if any(key.startswith("manifest/") for key in other.keys(CLONE)):
                await destroy_it(other, CLONE)
                assert not_fences(other, CLONE) == []
                assert [
                    checkpoint for checkpoint in (await other.state(PARENT)).checkpoints if checkpoint.owner == "clone"
                ] == []
                await other.write(CLONE, {b"mine": b"now"})
                assert await other.rows(CLONE) == {b"mine": b"now"}


async def test_checkpoints_stand_against_it_and_no_writer_is_fenced_for_nothing(town: Town) -> None:
    made = await town.checkpoint(PARENT, expire_ms=town.clock.now_ms() + 1000)
    before = await town.state(PARENT)
    with pytest.raises(InvalidError, match=rf"{made}.* detach them, or destroy it softly \(soft=True\)"):
        await destroy_it(town)
    assert await town.state(PARENT) == before
    town.clock.wall_ms += 1000
    assert (await destroy_it(town)).removed


async def test_softly_destroyed_it_is_closed_to_all_and_removed_later(town: Town) -> None:
    await town.checkpoint(PARENT, expire_ms=town.clock.now_ms() + 1000)
    marked = await destroy_it(town, soft=True)
    assert (marked.destroyed_at_ms, marked.removed) == (town.clock.now_ms(), False)
    assert await destroy_it(town, soft=True) == marked
    with pytest.raises(InvalidError, match="waits to be removed"):
        await town.rows(PARENT)
    async with town.process() as open_at, open_at(PARENT) as database:
        with pytest.raises(InvalidError, match=r"checkpoints hold .* detach them$"):
            await remove_all(database, open_at, marked.database_id)
        assert any(key.startswith("log/") for key in town.data(PARENT))
        town.clock.wall_ms += 1000
        await remove_all(database, open_at, marked.database_id)
    assert not_fences(town, PARENT) == []


async def test_a_clone_outlives_its_parents_soft_end(town: Town) -> None:
    await clone(town)
    await destroy_it(town, soft=True)
    assert await town.rows(CLONE) == EXPECTED
    with pytest.raises(InvalidError, match=f"{CLONE}"):
        await destroy_it(town)


async def test_a_running_writer_learns_of_the_end(kind: Kind) -> None:
    town = Town(kind)
    async with town.open(PARENT) as db:
        await destroy_it(town, soft=True)
        for _ in range(2):
            with pytest.raises(FencedError, match="the database was destroyed"):
                await db.confirm()


async def test_a_running_writer_is_fenced(kind: Kind) -> None:
    town = Town(kind)
    async with town.open(PARENT) as db:
        await db.put(b"a", b"1")
        await destroy_it(town)
        with pytest.raises(slate.SlateError) as told:
            await db.put(b"b", b"2")
        assert isinstance(told.value, FencedError | slate.ClosedError)
    await destroy_it(town)  # what the writer put meanwhile, for nobody
    assert not_fences(town, PARENT) == []


async def test_a_damaged_log_does_not_stand_against_it(town: Town) -> None:
    """A log object, and the register, are lost; another object is not what it was."""
    lost, *_, damaged = [key for key in town.data(PARENT) if key.startswith("log/")]
    await town.store(PARENT).delete([lost, "writer/current"])
    await town.store(PARENT).put(damaged, b"x" * 100)
    with pytest.raises(slate.CorruptionError):
        await town.rows(PARENT)
    assert (await destroy_it(town)).removed
    assert not_fences(town, PARENT) == []
    await town.write(PARENT, {b"new": b"row"})
    assert await town.rows(PARENT) == {b"new": b"row"}


async def test_what_is_no_database_is_not_destroyed() -> None:
    town = Town(CONTIGUOUS)
    await town.store(PARENT).put("holiday.jpg", b"...")
    with pytest.raises(InvalidError, match="no database"):
        await destroy_it(town)
    assert town.keys(PARENT) == ["holiday.jpg"]


async def test_databases_nested_below_and_others_files_stay(kind: Kind) -> None:
    town = Town(kind)
    await town.write(PARENT, numbered(0, 5), l0=True)
    for key in ("sst/nested/log/y", "nested/sst/z", "sst/notes.txt", "mine.txt"):
        await town.store(PARENT).put(key, b"not ours")
    await destroy_it(town)
    assert sorted(not_fences(town, PARENT)) == [
        "mine.txt",
        "nested/sst/z",
        "sst/nested/log/y",
        "sst/notes.txt",
    ]


# ---- recreated on the same path (rule 29)


async def test_recreated_it_is_empty_and_continues_what_must_not_be_repeated(town: Town) -> None:
    old = await destroy_it(town)
    await town.write(PARENT, {b"new": b"row"})
    assert await town.rows(PARENT) == {b"new": b"row"}
    new = await town.state(PARENT)
    assert new.database_id != old.database_id
    assert new.version > old.version
    assert new.writer_epoch > old.writer_epoch
    assert new.log_start >= old.log_start > old.log_last_seen


async def test_a_writer_of_the_old_database_harms_the_new_one_nothing(kind: Kind) -> None:
    town = Town(kind)
    async with town.open(PARENT) as zombie:
        await zombie.put(b"a", b"of the old one")
        await destroy_it(town)
        await town.write(PARENT, {b"a": b"of the new one"}, l0=True)
        with pytest.raises(slate.SlateError):
            await zombie.put(b"b", b"of the old one")
        with pytest.raises(slate.SlateError):
            await zombie.flush(l0=True)
    assert await town.rows(PARENT) == {b"a": b"of the new one"}


async def test_a_remover_that_slept_deletes_nothing_of_the_new_database(town: Town) -> None:
    """It wakes before each of its requests, when another process removed the database and recreated it."""
    old = (await destroy_it(town, soft=True)).database_id
    for requests in range(1_000):
        other = town.copy()

        async def meanwhile(other: Town = other) -> None:
            await destroy_it(other)
            await other.write(PARENT, numbered(0, 9), l0=True)
            await other.write(PARENT, {b"later": b"row"})

        sleeper = Life(requests, meanwhile)
        async with other.process(sleeper) as open_at, open_at(PARENT) as database:
            with contextlib.suppress(InvalidError):  # it finds another database there
                await remove_all(database, open_at, old)
        if sleeper.requests is not None:
            break
        assert await other.rows(PARENT) == {**numbered(0, 9), b"later": b"row"}, f"slept before request {requests}"
    assert requests > 10


# ---- detaching


async def rewritten(town: Town, name: str = CLONE) -> None:
    """What a full compaction does: the clone names SSTs of its own only. Here by taking the parents' out."""
    async with town.process() as open_at, open_at(name) as database:
        await database.driver.commit(ForgetForeign())


@dataclass(frozen=True)
class ForgetForeign:
    """Stands for a compaction of everything."""

    def apply(self, state: ManifestState) -> ManifestState | None:
        l0 = tuple(sst for sst in state.l0 if sst.database_id is None)
        runs = tuple(run for run in state.runs if all(sst.database_id is None for sst in run.ssts))
        return None if (l0, runs) == (state.l0, state.runs) else replace(state, l0=l0, runs=runs)


async def test_a_clone_that_names_its_parents_ssts_stays_attached(kind: Kind) -> None:
    if not kind.wal_enabled:
        return  # it copied its SSTs with the log
    town = Town(kind)
    await town.write(PARENT, numbered(0, 5), l0=True)
    await clone(town)
    assert not await detach(town)
    await town.checkpoint(CLONE)
    await rewritten(town)
    assert not await detach(town)  # the checkpoint names them still
    assert len((await town.state(PARENT)).checkpoints) > 0


async def test_killed_between_any_two_requests_a_detaching_goes_on(kind: Kind) -> None:
    town = Town(kind)
    await town.write(PARENT, numbered(0, 5), l0=True)
    await town.write(PARENT, numbered(5, 9))
    await clone(town)
    await rewritten(town)
    expected = await town.rows(CLONE)
    for requests in range(1_000):
        other = town.copy()
        try:
            assert await detach(other, life=Life(requests))
        except Killed:
            assert await detach(other)
            assert [
                checkpoint for checkpoint in (await other.state(PARENT)).checkpoints if checkpoint.owner == "clone"
            ] == []
            assert (await other.state(CLONE)).parents == ()
        else:
            break
    assert (await destroy_it(other, PARENT)).removed
    assert await other.rows(CLONE) == expected


class Pinning:
    """The manifest of a clone whose writer makes its pins anew before each commit of anybody else's."""

    def __init__(self, driver: ManifestDriver, writer: ManifestDriver) -> None:
        self._driver = driver
        self._writer = writer

    async def commit(self, edit: Edit) -> ManifestState:
        head = await self._writer.load()
        assert head is not None
        await self._writer.commit(PinWriter(head.writer_epoch, WriterPin(uuid4(), 0)))
        return await self._driver.commit(edit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)


async def test_a_clone_whose_writer_pins_anew_all_the_time_is_detached(kind: Kind) -> None:
    town = Town(kind)
    await town.write(PARENT, numbered(0, 5), l0=True)
    await clone(town)
    await rewritten(town)
    async with town.process() as open_at, open_at(CLONE) as database, open_at(CLONE) as writers:
        await writers.driver.commit(ClaimWriter("1" * 32, 1, WriterPin(uuid4(), 0)))
        busy = replace(database, driver=cast(ManifestDriver, Pinning(database.driver, writers.driver)))
        assert await detach_if_free(busy, open_at)
    assert [checkpoint for checkpoint in (await town.state(PARENT)).checkpoints if checkpoint.owner == "clone"] == []


async def test_a_grandchild_holds_on_to_what_its_parent_left(kind: Kind) -> None:
    if not kind.wal_enabled:
        return
    town = Town(kind)
    await town.write(PARENT, numbered(0, 5), l0=True)
    await clone(town)
    await clone(town, GRANDCHILD, CLONE)
    await rewritten(town)
    assert not await detach(town)
    assert await town.rows(GRANDCHILD) == numbered(0, 5)
    await destroy_it(town, GRANDCHILD)
    assert await detach(town)
