"""`slate_async.collections.life_stores`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID

import pytest

from metastores.factories import PutIfAbsentFactory
from slate_async.collections.codec.life import Appends, Life
from slate_async.collections.core.edits import Claim
from slate_async.collections.life_stores import LifeStores
from slate_async.collections.reader.handle import open_reader
from slate_async.collections.writer.writer import open_writer
from slate_async.errors import CorruptionError, InvalidError
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.supervisor import Supervisor
from slate_async.settings.collections import CollectionSettings
from tests.engine import StoreInHand, memory_store
from tests.support.collection_bytes import LIFE
from tests.unit.collections.lake import fast_runtime

SETTINGS = CollectionSettings(lease_ms=7_000, poll_interval_ms=70, shard_patience_ms=700, shard_lag=7)
NEXT_LIFE = replace(LIFE, uuid=UUID(int=2), number=LIFE.number + 1)


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    made = Supervisor("test", lambda cause: None)
    yield made
    await made.close()


def stores(folder: ObjectStore, supervisor: Supervisor, life: Life = LIFE) -> LifeStores:
    """One process's."""
    return LifeStores.of(
        folder,
        life,
        name="orders",
        url="memory://lake/orders",
        metastores=PutIfAbsentFactory(),
        runtime=fast_runtime(),
        settings=SETTINGS,
        supervisor=supervisor,
    )


async def test_writer_and_reader_of_one_life_meet_in_its_folder(supervisor: Supervisor) -> None:
    folder = StoreInHand(memory_store())
    life = stores(folder, supervisor)
    async with await open_writer(life.writing("relay-a"), life.appends) as writer:
        await writer.append([(b"a", 3, 1)], upper=5)
    async with await open_reader(life.reading()) as reader, await reader.snapshot(4) as snapshot:
        assert [row async for row in snapshot.rows()] == [(b"a", 1)]
    await life.versions.commits.commit(Claim("c" * 32))
    keys = {info.key async for info in folder.list()}
    assert keys
    assert all(key.startswith(f"{LIFE.number}/") for key in keys)
    assert f"{LIFE.number}/merged_areas/v{1:020}" in keys
    await life.close()


async def test_lives_have_nothing_in_common(supervisor: Supervisor) -> None:
    """C28: neither objects nor versions, and a batch of another life is not taken for one's own."""
    folder = StoreInHand(memory_store())
    first, second = stores(folder, supervisor), stores(folder, supervisor, NEXT_LIFE)
    async with await open_writer(first.writing("relay-a"), first.appends) as writer:
        await writer.append([(b"a", 3, 1)], upper=5)
    await first.versions.commits.commit(Claim("c" * 32))
    assert (await second.versions.load()).version == 0
    assert [listed async for listed in second.pending.list()] == []
    impostor = stores(folder, supervisor, replace(NEXT_LIFE, number=LIFE.number))
    async with await open_reader(impostor.reading()) as reader:
        async with await reader.snapshot(4) as snapshot:
            with pytest.raises(CorruptionError):
                await snapshot.to_arrow()


async def test_each_role_is_given_the_settings(supervisor: Supervisor) -> None:
    life = stores(StoreInHand(memory_store()), supervisor)
    reading, writing = life.reading(), life.writing("relay-a")
    assert (reading.lease_ms, reading.poll_interval_ms) == (7_000, 70)
    assert (reading.shard_patience_ms, reading.shard_lag) == (700, 7)
    assert reading.deadline_ms == writing.deadline_ms == SETTINGS.retry_deadline_ms
    assert writing.shard == "relay-a"
    compare = stores(StoreInHand(memory_store()), supervisor, replace(LIFE, appends=Appends.COMPARE))
    assert compare.writing("relay-a").shard == "main"
    with pytest.raises(InvalidError, match="name of a writer"):
        compare.writing("Relay A")
