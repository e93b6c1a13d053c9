"""A manifest that lies beside another database's objects is noticed at opening."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

import slate_async as slate
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.protocol import ObjectStore
from slate_async.storage.manifest.ownership import check_ownership
from slate_async.storage.manifest.state import ManifestState
from tests.engine import CONTIGUOUS, EPOCHS, Kind, StoreInHand, contents, memory_store, open_db


async def make(rows: int, kind: Kind = CONTIGUOUS) -> tuple[MemoryStore, str]:
    """A database with as many L0 SSTs, and its id."""
    store = memory_store()
    async with open_db(store, kind) as db:
        for number in range(rows):
            await db.put(b"%d" % number, b"x")
            await db.flush(l0=True)
        return store, db.status().database_id


async def keys(store: ObjectStore, prefix: str) -> list[str]:
    return [info.key async for info in store.list(prefix)]


async def copy(source: ObjectStore, target: ObjectStore, prefix: str) -> None:
    """Put what ``target`` has under ``prefix`` aside for what ``source`` has there."""
    await target.delete(await keys(target, prefix))
    for key in await keys(source, prefix):
        await target.put(key, (await source.get(key)).data)


@pytest.mark.parametrize("kind", [CONTIGUOUS, EPOCHS], ids=str)
async def test_a_manifest_copied_from_another_database_is_noticed(kind: Kind) -> None:
    here, ours = await make(1, kind)
    there, theirs = await make(3, kind)
    await copy(there, here, "manifest/")
    await copy(there, here, "writer/")
    before = await keys(here, "log/")
    with pytest.raises(slate.CorruptionError, match="put that one's manifest back") as caught:
        await open_db(here, kind)
    assert ours in str(caught.value)
    assert theirs in str(caught.value)
    assert await keys(here, "log/") == before


async def test_another_databases_sst_under_the_same_name_is_noticed() -> None:
    here, ours = await make(1)
    there, theirs = await make(1)
    (own,), (other,) = await keys(here, "sst/"), await keys(there, "sst/")
    await here.put(own, (await there.get(other)).data)
    with pytest.raises(slate.CorruptionError) as caught:
        await open_db(here)
    assert f"belongs to database {theirs}, not {ours}" in str(caught.value)


async def test_looking_costs_one_request_beside_the_claim() -> None:
    store, _ = await make(5)
    counting = StoreInHand(store)
    async with open_db(counting) as db:
        assert len([key for key in counting.gets if key.startswith("sst/")]) == 1
        assert len(await contents(db)) == 5


@dataclass
class Head:
    """A head to load."""

    state: ManifestState | None

    async def load(self) -> ManifestState | None:
        return self.state


async def test_an_sst_compacted_and_collected_under_the_look_is_no_harm() -> None:
    store, _ = await make(2)
    async with open_db(store) as db:
        state = db._writer.state.manifest
    newest, oldest = state.l0
    await store.delete([newest.location])
    await check_ownership(store, state, Head(replace(state, l0=(oldest,))).load)
    await check_ownership(store, state, Head(None).load)
    with pytest.raises(slate.CorruptionError, match="missing, though the manifest names it") as caught:
        await check_ownership(store, state, Head(state).load)
    assert caught.value.object_name == newest.location
    await store.put(newest.location, b"")
    with pytest.raises(slate.CorruptionError, match="too few"):
        await check_ownership(store, state, Head(state).load)
