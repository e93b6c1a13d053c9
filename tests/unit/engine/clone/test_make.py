"""Clones: equal to their source, independent of it, resumable between any two requests."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from slate_async.codec.header import HEADER_BYTES, decode_header
from slate_async.engine.clone.destroy import destroy
from slate_async.engine.clone.detach import detach_if_free
from slate_async.engine.clone.make import make_clone
from slate_async.errors import CorruptionError, InvalidError, UnavailableError
from slate_async.storage.manifest.edits.checkpoints import DeleteCheckpoints
from slate_async.storage.manifest.edits.lifecycle import ClaimToDestroy, MarkDestroyed
from slate_async.storage.manifest.state import ManifestState
from tests.engine import CONTIGUOUS, EPOCHS, Kind, memory_store
from tests.support.towns import CLONE, GRANDCHILD, PARENT, Killed, Life, Town, numbered
from tests.unit.engine.clone.conftest import EXPECTED


async def clone(
    town: Town,
    target: str = CLONE,
    parent: str = PARENT,
    *,
    checkpoint: UUID | str | None = None,
    life: Life | None = None,
) -> ManifestState:
    """Make a clone, or go on making it, in a process of its own."""
    async with town.process(life) as open_at, open_at(parent) as source, open_at(target) as place:
        return await make_clone(source, place, open_at, checkpoint=checkpoint)


async def begin(town: Town) -> None:
    """Make a clone by processes that live ever longer, until its manifest is there, and no further."""
    for requests in range(1_000):
        with pytest.raises(Killed):
            await clone(town, life=Life(requests))
        if any(key.startswith("manifest/") for key in town.keys(CLONE)):
            return


async def soft_destroy(town: Town, name: str) -> None:
    async with town.process() as open_at, open_at(name) as database:
        state = await database.head()
        await database.driver.commit(ClaimToDestroy(state.database_id, "t" * 32))
        await database.driver.commit(
            MarkDestroyed(state.database_id, "t" * 32, town.clock.now_ms(), 0, refuse_held=False)
        )


async def destroy_all_of(town: Town, name: str) -> None:
    async with town.process() as open_at, open_at(name) as database:
        await destroy(database, open_at)


async def delete_checkpoints(town: Town, name: str) -> None:
    async with town.process() as open_at, open_at(name) as database:
        state = await database.head()
        await database.driver.commit(DeleteCheckpoints(frozenset(checkpoint.id for checkpoint in state.checkpoints)))


async def clones_held(town: Town, name: str = PARENT) -> list[UUID]:
    return [checkpoint.id for checkpoint in (await town.state(name)).checkpoints if checkpoint.owner == "clone"]


async def test_a_clone_of_the_head_holds_everything_and_shares_the_ssts(town: Town) -> None:
    state = await clone(town)
    assert await town.rows(CLONE) == EXPECTED
    assert all(sst.database_id is not None for sst in state.ssts())
    assert not [key for key in town.keys(CLONE) if key.startswith("sst/")]
    assert await town.rows(PARENT) == EXPECTED


async def test_a_clone_of_a_checkpoint_shows_that_state_whatever_came_later(town: Town) -> None:
    made = await town.checkpoint(PARENT)
    await town.write(PARENT, {**numbered(0, 40, b"later"), b"0030": None}, l0=True)
    by_id, by_name = await clone(town, checkpoint=made), await clone(town, GRANDCHILD, checkpoint="mine")
    assert (by_id.last_seq, by_id.log_last_seen) == (by_name.last_seq, by_name.log_last_seen)
    assert await town.rows(CLONE) == await town.rows(GRANDCHILD) == EXPECTED


async def test_what_is_written_to_either_does_not_show_in_the_other(town: Town) -> None:
    await clone(town)
    await town.write(CLONE, {b"0000": b"mine", b"0003": None}, l0=True)
    await town.write(PARENT, {b"0000": b"yours", b"0004": None})
    assert await town.rows(CLONE) == {**{k: v for k, v in EXPECTED.items() if k != b"0003"}, b"0000": b"mine"}
    assert await town.rows(PARENT) == {**{k: v for k, v in EXPECTED.items() if k != b"0004"}, b"0000": b"yours"}


async def test_a_clone_of_a_clone_finds_the_ssts_of_both(town: Town) -> None:
    await clone(town)
    await town.write(CLONE, numbered(50, 60), l0=True)
    await town.write(CLONE, {b"0070": b"in the log"})
    state = await clone(town, GRANDCHILD, CLONE)
    assert await town.rows(GRANDCHILD) == {**EXPECTED, **numbered(50, 60), b"0070": b"in the log"}
    direct, *others = state.parents
    assert (direct.path, direct.checkpoint_id) == (CLONE, (await clones_held(town, CLONE))[0])
    assert [ancestor.checkpoint_id for ancestor in others] == [None] * len(others)
    if town.kind.wal_enabled:
        assert [ancestor.path for ancestor in others] == [PARENT]


async def test_a_finished_clone_is_left_as_it_is(town: Town) -> None:
    await clone(town)
    await town.write(CLONE, {b"more": b"of it"})
    before = await town.state(CLONE)
    assert await clone(town) == before
    made = await town.checkpoint(PARENT)
    with pytest.raises(InvalidError, match=r"is a clone of the head of memory://parent, .* now; choose another path"):
        await clone(town, checkpoint=made)


async def test_killed_between_any_two_requests_it_goes_on(town: Town) -> None:
    made = await town.checkpoint(PARENT)
    for checkpoint in (None, made):
        requests = 0
        while True:
            other = town.copy()
            try:
                await clone(other, checkpoint=checkpoint, life=Life(requests))
            except Killed:
                requests += 1
            else:
                break
            await clone(other, checkpoint=checkpoint)
            assert await other.rows(CLONE) == EXPECTED, f"killed before request {requests}"
            assert len(await clones_held(other)) == 1
        assert requests > 20


@pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
async def test_a_lost_answer_of_any_request_leaves_nothing_in_doubt(town: Town) -> None:
    for number in range(1_000):
        other, life = town.copy(), Life(unanswered=number)
        try:
            await clone(other, life=life)
        except UnavailableError:
            await clone(other)
        if number >= life.made:
            break
        assert await other.rows(CLONE) == EXPECTED, f"the answer of request {number} was lost"
        assert len(await clones_held(other)) == 1
    assert number > 20


async def test_an_unfinished_clone_is_not_opened_and_goes_on_only_as_it_was_begun(kind: Kind) -> None:
    town = Town(kind)
    await town.write(PARENT, numbered(0, 5))
    await town.write(GRANDCHILD, numbered(0, 5))
    made = await town.checkpoint(PARENT)
    await begin(town)
    assert not (await town.state(CLONE)).initialized
    with pytest.raises(InvalidError, match="not finished"):
        await town.rows(CLONE)
    with pytest.raises(InvalidError, match=r"begun as a clone of the head of memory://parent, .*give the same"):
        await clone(town, checkpoint=made)
    with pytest.raises(InvalidError, match="is a clone of memory://parent"):
        await clone(town, parent=GRANDCHILD)
    await clone(town)
    assert await town.rows(CLONE) == numbered(0, 5)


@pytest.mark.parametrize("spelled", [str, lambda made: str(made).upper(), lambda made: made.hex, lambda made: "mine"])
async def test_a_checkpoint_may_be_spelled_otherwise_to_go_on(spelled: Callable[[UUID], str]) -> None:
    town = Town(CONTIGUOUS)
    await town.write(PARENT, numbered(0, 5))
    made = await town.checkpoint(PARENT)
    before = await clone(town, checkpoint=made)
    assert await clone(town, checkpoint=spelled(made)) == before
    with pytest.raises(InvalidError, match="a clone of checkpoint"):
        await clone(town, checkpoint=str(UUID(int=1)))


@pytest.mark.parametrize("lose", [soft_destroy, delete_checkpoints], ids=["destroyed", "unpinned"])
async def test_whatever_becomes_of_the_parent_nothing_is_left_behind(
    lose: Callable[[Town, str], Awaitable[None]], kind: Kind
) -> None:
    """The parent is destroyed, or its checkpoints deleted, between any two requests of the cloner."""
    town = Town(kind)
    await town.write(PARENT, numbered(0, 5), l0=True)
    await town.write(PARENT, numbered(5, 10))
    made = await town.checkpoint(PARENT)
    outcomes = set()
    for requests in range(1_000):
        other = town.copy()
        try:
            await clone(other, checkpoint=made, life=Life(requests))
            break
        except Killed:
            pass
        await lose(other, PARENT)
        try:
            await clone(other, checkpoint=made)
        except InvalidError:
            outcomes.add("refused")
            assert await clones_held(other) == []
            async with other.process() as open_at, open_at(CLONE) as database:
                left = await database.driver.load()
            assert left is None or left.removed
            assert other.data(CLONE) == []
        else:
            outcomes.add("finished")
    assert "refused" in outcomes


@pytest.mark.parametrize("destroyed", [False, True], ids=["finished", "destroyed and made again"])
@pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
async def test_a_cloner_that_sleeps_changes_nothing_of_what_others_made(
    destroyed: bool, kind: Kind, full: bool, slice_seed: int
) -> None:
    """It sleeps before one of its requests, while another finishes the clone, and it, or what follows it, is used."""
    step = 1 if full else 4
    town = Town(kind)
    await town.write(PARENT, numbered(0, 5), l0=True)
    await town.write(PARENT, numbered(5, 10))
    for requests in range(slice_seed % step, 1_000, step):
        other = town.copy()

        async def meanwhile(other: Town = other) -> None:
            await clone(other)
            if destroyed:
                await destroy_all_of(other, CLONE)
            await other.write(CLONE, {b"0000": b"mine", **numbered(20, 22)}, l0=True)
            await other.write(CLONE, {b"0001": b"too"})

        sleeper = Life(requests, meanwhile)
        with contextlib.suppress(InvalidError):
            await clone(other, life=sleeper)
        if sleeper.requests is not None:
            break
        await other.write(CLONE, {b"0002": b"later"})
        mine = {b"0000": b"mine", b"0001": b"too", b"0002": b"later", **numbered(20, 22)}
        assert await other.rows(CLONE) == ({} if destroyed else numbered(0, 10)) | mine, f"slept before {requests}"
        assert len(await clones_held(other)) == (not destroyed)
    assert requests > 15


@pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
async def test_a_cloner_that_goes_on_after_another_and_finds_its_clone_destroyed_says_so(kind: Kind) -> None:
    """What another one has copied is there when it looks first, and missing when it looks closer."""
    town = Town(kind)
    await town.write(PARENT, numbered(0, 5))
    await begin(town)
    for requests in range(1_000):
        other = town.copy()
        with contextlib.suppress(Killed):
            await clone(other, life=Life(requests))
            break
        for later in range(1_000):
            again = other.copy()
            sleeper = Life(later, lambda again=again: destroy_all_of(again, CLONE))
            with contextlib.suppress(InvalidError):
                await clone(again, life=sleeper)
            if sleeper.requests is not None:
                break
            assert await clones_held(again) == [], f"begun with {requests}, slept before {later}"
    assert requests > 10


@pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
async def test_a_cloner_that_sleeps_finds_its_clone_finished_and_detached(kind: Kind) -> None:
    """A parent without SSTs, so that the clone needs nothing of it once it is finished."""
    town = Town(kind)
    await town.write(PARENT, numbered(0, 5))
    finished = 0
    for requests in range(1_000):
        other = town.copy()

        async def meanwhile(other: Town = other) -> None:
            await clone(other)
            async with other.process() as open_at, open_at(CLONE) as database:
                assert await detach_if_free(database, open_at)

        sleeper = Life(requests, meanwhile)
        with contextlib.suppress(InvalidError) if not finished else contextlib.nullcontext():  # a place that is taken
            assert (await clone(other, life=sleeper)).initialized
            finished += 1
        if sleeper.requests is not None:
            break
        assert await other.rows(CLONE) == numbered(0, 5), f"slept before {requests}"
        assert await clones_held(other) == []
    assert finished > 10


@pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
async def test_a_pin_that_goes_before_the_last_look_at_it_is_noticed(kind: Kind) -> None:
    town = Town(kind)
    await town.write(PARENT, numbered(0, 5), l0=True)
    await town.write(PARENT, numbered(5, 10))
    finished: list[int] = []
    for requests in range(1_000):
        other = town.copy()

        async def meanwhile(other: Town = other) -> None:
            await delete_checkpoints(other, PARENT)

        sleeper = Life(requests, meanwhile)
        try:
            await clone(other, life=sleeper)
        except InvalidError:
            assert not [key for key in other.data(CLONE) if key.startswith("log/")]
            continue
        if sleeper.requests is not None:
            break
        if not await clones_held(other):
            finished.append(requests)
    assert finished == list(range(requests - len(finished), requests))
    assert len(finished) <= 4, "only the last commit comes after the last look"


async def test_places_and_parents_that_will_not_do() -> None:
    town = Town(CONTIGUOUS)
    await town.write(PARENT, {b"a": b"1"})
    await town.write(GRANDCHILD, {b"b": b"2"})
    expired = await town.checkpoint(PARENT, expire_ms=town.clock.now_ms())
    for arguments, said in (
        ({"target": PARENT}, "a clone of itself"),
        ({"target": GRANDCHILD}, "there is a database at"),
        ({"parent": "memory://nowhere"}, "there is no database at"),
        ({"checkpoint": expired}, "expired"),
        ({"checkpoint": UUID(int=5)}, "no checkpoint"),
        ({"checkpoint": "nightly"}, "no checkpoint 'nightly'"),
    ):
        with pytest.raises(InvalidError, match=said):
            await clone(town, **arguments)
    town.objects["memory://taken"] = town.copy().objects[PARENT]
    await town.store("memory://taken").put("holiday.jpg", b"...")
    await memory_store(town.objects["memory://taken"]).delete(
        [key for key in town.keys("memory://taken") if key.startswith("manifest/")]
    )
    with pytest.raises(InvalidError, match="memory://taken holds"):
        await clone(town, "memory://taken")


async def test_a_damaged_log_object_is_not_copied(town: Town) -> None:
    objects = town.objects[PARENT].objects
    key = [key for key in town.keys(PARENT) if key.startswith("log/") and objects[key][0].size > HEADER_BYTES][-1]
    info, data = objects[key]
    objects[key] = (info, data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CorruptionError, match=key):
        await clone(town)
    objects[key] = (info, data)
    await clone(town)
    assert await town.rows(CLONE) == EXPECTED


async def test_a_lost_log_object_is_an_error(town: Town) -> None:
    key = [key for key in town.keys(PARENT) if key.startswith("log/")][-1]
    made = await town.checkpoint(PARENT)
    if town.kind.log_protocol == "contiguous":
        key = f"log/{(await town.state(PARENT)).log_start:020}.sst"
    await town.store(PARENT).delete([key])
    with pytest.raises(CorruptionError, match="is missing"):
        await clone(town, checkpoint=made)


async def test_a_foreign_object_in_a_copys_place_is_an_error(town: Town) -> None:
    if town.kind.log_protocol == "epoch_prefixed":
        return  # its copies replace what is there
    log_start = (await town.state(PARENT)).log_start
    key = f"log/{log_start:020}.sst"
    await town.store(CLONE).put(f"{key}", (await town.store(PARENT).get(key)).data)
    with pytest.raises(InvalidError, match="manifest is not there"):
        await clone(town)
    await town.store(CLONE).delete([key])
    await begin(town)
    await town.store(CLONE).put(key, (await town.store(PARENT).get(key)).data)
    with pytest.raises(CorruptionError, match="holds another object under the name"):
        await clone(town)


async def test_copied_objects_are_the_clones_own(town: Town) -> None:
    state = await clone(town)
    for key in [key for key in town.keys(CLONE) if key.startswith("log/")]:
        data = (await town.store(CLONE).get(key)).data
        assert decode_header(data, object_name=key).database_id == state.database_id
        assert len(data) == (await town.store(PARENT).head(key)).size
