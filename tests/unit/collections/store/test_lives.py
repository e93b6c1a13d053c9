"""`slate_async.collections.store.lives`."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from slate_async.collections.codec.life import Appends, Life, LifeState
from slate_async.collections.store.lives import KEY, LifeRegister
from slate_async.errors import CorruptionError, NotFoundError
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.system import SystemIds
from tests.engine import StoreInHand, runtime
from tests.support.collection_bytes import BYTES, COLUMNS_LIFE, LIFE
from tests.unit.collections.faults import FAULTS, next_put

SECOND = Life(UUID(int=2), 0, LifeState.OPEN, BYTES, Appends.COMPARE)


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
