"""`slate_async.collections.store.lives`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID

import pytest

from slate_async.collections.codec.life import Appends, Life, LifeState
from slate_async.collections.store.lives import KEY, LifeRegister
from slate_async.errors import CorruptionError, NotFoundError
from slate_async.objectstore.protocol import ObjectInfo
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.system import SystemIds
from tests.engine import StoreInHand, runtime
from tests.support.collection_bytes import BYTES, COLUMNS_LIFE, LIFE
from tests.unit.collections.faults import FAULTS, next_put

SECOND = Life(UUID(int=2), 0, LifeState.OPEN, BYTES, Appends.COMPARE)
THIRD = replace(SECOND, uuid=UUID(int=3))


@pytest.fixture
def register(store: StoreInHand, supervisor: Supervisor) -> LifeRegister:
    return LifeRegister(store, runtime(), supervisor, name="orders", deadline_ms=5000)


def other(store: StoreInHand, supervisor: Supervisor) -> LifeRegister:
    """The register as another process sees it."""
    return LifeRegister(store, runtime(), supervisor, name="orders", deadline_ms=5000)


@pytest.mark.parametrize("fault", [None, *FAULTS])
async def test_a_collection_is_created_once(
    register: LifeRegister, store: StoreInHand, supervisor: Supervisor, fault: str | None
) -> None:
    assert await register.load() is None
    next_put(store, fault)
    assert await register.create(replace(LIFE, number=0)) == LIFE
    assert await register.create(SECOND) == LIFE
    assert await other(store, supervisor).load() == LIFE
    assert [info.key async for info in store.list()] == [KEY]


@pytest.mark.parametrize("fault", [None, *FAULTS])
async def test_lives_follow_one_another(register: LifeRegister, store: StoreInHand, fault: str | None) -> None:
    await register.create(LIFE)
    next_put(store, fault)
    assert await register.end(LIFE.uuid) == replace(LIFE, state=LifeState.DELETED)
    assert await register.end(LIFE.uuid) == replace(LIFE, state=LifeState.DELETED)
    next_put(store, fault)
    assert await register.create(SECOND) == replace(SECOND, number=2)
    assert await register.create(COLUMNS_LIFE) == replace(SECOND, number=2)


async def test_a_sleeping_delete_ends_no_later_life(
    register: LifeRegister, store: StoreInHand, supervisor: Supervisor
) -> None:
    """C28: the life that it was to end is over."""
    sleeper = other(store, supervisor)
    await register.create(LIFE)
    assert await sleeper.load() == LIFE
    await register.end(LIFE.uuid)
    await register.create(SECOND)
    assert (await sleeper.end(LIFE.uuid)).uuid == SECOND.uuid
    assert await register.load() == replace(SECOND, number=2)


async def test_a_life_that_ended_meanwhile_does_not_begin_twice(
    register: LifeRegister, store: StoreInHand, supervisor: Supervisor
) -> None:
    """The answer was lost, and another process deleted what was created, before it was looked at again."""
    await register.create(LIFE)
    await register.end(LIFE.uuid)
    await register.create(SECOND)
    await other(store, supervisor).end(SECOND.uuid)
    assert await register.create(SECOND) == replace(SECOND, number=2, state=LifeState.DELETED)


async def test_a_state_that_was_read_again_meanwhile_is_not_written_over(
    register: LifeRegister, store: StoreInHand, supervisor: Supervisor
) -> None:
    """The tag of what is there now does not stand for what was there before."""
    old = await register.create(LIFE)
    await other(store, supervisor).end(LIFE.uuid)
    await register.load()
    outcome = await register.write(old, replace(LIFE, appends=Appends.COMPARE))
    assert type(outcome).__name__ == "Conflict"
    assert await register.load() == replace(LIFE, state=LifeState.DELETED)


OBJECTS = [
    "merged_areas/v00000000000000000001",
    "merged_areas/v_boundary/00000000000000000002",
    "merged_areas/current",
    "pending_batches/relay-a/batch_00000000000000000000_00000000000000000005",
    "pending_batches/main/batch_3.0",
    f"merged_batches/batch_00000000000000000000_done.0000000001.{'a' * 32}",
    "readers/somebody/hold",
]


@pytest.mark.parametrize("there", [f"{number}/{name}" for number in (1, 3) for name in OBJECTS])
async def test_a_lost_register_is_not_made_again(register: LifeRegister, store: StoreInHand, there: str) -> None:
    """C28: the new life would show what the lost one held."""
    await store.put(there, b"")
    with pytest.raises(CorruptionError, match="register of the collection orders is missing") as raised:
        await register.create(LIFE)
    assert raised.value.object_name == "orders/collection"
    assert f"orders/{there}" in str(raised.value)
    assert [info.key async for info in store.list()] == [there]


@pytest.mark.parametrize("there", [f"2/{name}" for name in OBJECTS])
async def test_a_register_of_an_older_date_begins_no_life_again(
    register: LifeRegister, store: StoreInHand, there: str
) -> None:
    """It was restored from a backup that is older than the second life."""
    await register.create(LIFE)
    await register.end(LIFE.uuid)
    await store.put(there, b"")
    with pytest.raises(CorruptionError, match="is missing, or older than the object orders/2/"):
        await register.create(SECOND)
    assert await register.load() == replace(LIFE, state=LifeState.DELETED)


async def test_what_lies_in_folders_of_earlier_lives_is_no_obstacle(register: LifeRegister, store: StoreInHand) -> None:
    await register.create(LIFE)
    for name in OBJECTS:
        await store.put(f"1/{name}", b"")
    await register.end(LIFE.uuid)
    assert await register.create(SECOND) == replace(SECOND, number=2)


async def test_foreign_objects_are_no_obstacle(register: LifeRegister, store: StoreInHand) -> None:
    for key in ("notes", "1/notes", "1/readers/notes", "one/readers/a/hold", "1/merged_areas/v1", "01x/merged_areas/v"):
        await store.put(key, b"mine")
    assert await register.create(replace(LIFE, number=0)) == LIFE


async def test_what_a_metastore_elsewhere_has_is_an_obstacle(store: StoreInHand, supervisor: Supervisor) -> None:
    asked = []

    async def elsewhere(life: Life) -> str | None:
        asked.append(life.number)
        return "version 7 in the table" if life.number == 2 else None

    register = LifeRegister(store, runtime(), supervisor, name="orders", deadline_ms=5000, elsewhere=elsewhere)
    await register.create(LIFE)
    await register.end(LIFE.uuid)
    with pytest.raises(CorruptionError, match="older than version 7 in the table"):
        await register.create(SECOND)
    assert asked == [1, 2]


@pytest.mark.parametrize("deleted_before", [False, True])
async def test_who_is_created_and_used_during_the_look_is_found(
    register: LifeRegister,
    store: StoreInHand,
    supervisor: Supervisor,
    monkeypatch: pytest.MonkeyPatch,
    deleted_before: bool,
) -> None:
    """Another process creates the collection and appends to it after this one has read the register: no loss."""
    if deleted_before:
        await register.create(LIFE)
        await register.end(LIFE.uuid)
    rival, list_all, number = other(store, supervisor), store.list, 2 if deleted_before else 1

    def listed(prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        async def after_a_rival() -> AsyncIterator[ObjectInfo]:
            monkeypatch.setattr(store, "list", list_all)
            await rival.create(THIRD)
            await store.put(f"{number}/{OBJECTS[0]}", b"")
            async for info in list_all(prefix, start_after=start_after):
                yield info

        return after_a_rival()

    monkeypatch.setattr(store, "list", listed)
    assert await register.create(SECOND) == replace(THIRD, number=number)


@pytest.mark.parametrize("deleted_before", [False, True])
async def test_who_is_created_after_the_look_wins(
    register: LifeRegister,
    store: StoreInHand,
    supervisor: Supervisor,
    monkeypatch: pytest.MonkeyPatch,
    deleted_before: bool,
) -> None:
    """The conditional write decides: the folder was empty when this process looked."""
    if deleted_before:
        await register.create(LIFE)
        await register.end(LIFE.uuid)
    rival, remains, number = other(store, supervisor), register.remains, 2 if deleted_before else 1

    async def looked(life: Life | None) -> str | None:
        found = await remains(life)
        monkeypatch.setattr(register, "remains", remains)
        await rival.create(THIRD)
        await store.put(f"{number}/{OBJECTS[0]}", b"")
        return found

    monkeypatch.setattr(register, "remains", looked)
    assert await register.create(SECOND) == replace(THIRD, number=number)


async def test_what_was_never_created_cannot_end(register: LifeRegister) -> None:
    with pytest.raises(NotFoundError, match="there is no collection orders"):
        await register.end(LIFE.uuid)


async def test_chance_and_time_are_the_runtimes(store: StoreInHand, supervisor: Supervisor) -> None:
    """Two runs with the same ids write the same bytes."""

    class Counted(SystemIds):
        def token(self) -> str:
            return "5" * 32

    written = []
    for _ in range(2):
        fixed = replace(runtime(), ids=Counted())
        await LifeRegister(store, fixed, supervisor, name="orders", deadline_ms=5000).create(LIFE)
        written.append((await store.get(KEY)).data)
        await store.delete([KEY])
    assert written[0] == written[1]


async def test_a_damaged_register_is_corruption(register: LifeRegister, store: StoreInHand) -> None:
    await store.put(KEY, b"damaged")
    with pytest.raises(CorruptionError, match=KEY):
        await register.load()
