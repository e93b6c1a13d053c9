"""A clone in another bucket, its detaching, everybody's end, beside a running writer, on real stores and metastores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

import slate_async as slate
from slate_async.objectstore.prefixed import PrefixedStore
from slate_async.objectstore.url import open_store, parse_url
from slate_async.runtime.system import system_runtime
from tests.engine import contents
from tests.integration.places import Place, make_bucket, make_place

SMALL: dict[str, object] = {
    "l0_sst_bytes": 4_096,
    "block_bytes": 512,
    "gc_min_age_ms": 0,
    "version_keep_ms": 0,
    "gc_clock_skew_ms": 0,
}
PLACES = [
    ("local", ("contiguous", True), "obstore"),
    ("s3+dynamodb", ("contiguous", True), "aiobotocore"),
    ("s3+dynamodb", ("epoch_prefixed", False), "obstore"),
    ("s3+if-match", ("epoch_prefixed", True), "obstore"),
]


@pytest.fixture(params=PLACES, ids=lambda one: f"{one[0]}-{one[1][0]}-{'wal' if one[1][1] else 'sst'}")
async def places(
    request: pytest.FixtureRequest, tmp_path: Path, aws_environment: dict[str, str]
) -> tuple[Place, Place]:
    """Two places of one kind, empty, each in a bucket of its own."""
    store, log, client = request.param
    endpoint = None if store == "local" else request.getfixturevalue("s3_endpoint")
    parent = await make_place(store, log, tmp_path, endpoint, client, **SMALL)
    if endpoint is None:
        return parent, replace(parent, path=str(tmp_path / "elsewhere" / "db"))
    url = parse_url(parent.path)
    return parent, replace(parent, path=parent.path.replace(f"{url.bucket}/db", f"{make_bucket(endpoint)}/clones/db"))


@pytest.fixture
async def environment() -> AsyncIterator[slate.Environment]:
    """One for all parts: clients of real stores take long to make."""
    async with slate.Environment(threads=2) as found:
        yield found


def admin(environment: slate.Environment, place: Place) -> slate.Opening[slate.Admin]:
    return environment.open_admin(place.path, metastore=place.metastore)


async def write(db: slate.Db, rows: dict[bytes, bytes]) -> None:
    batch = slate.WriteBatch()
    for key, value in rows.items():
        batch.put(key, value)
    await db.write(batch)


async def keys(place: Place) -> list[str]:
    store, prefix = open_store(place.path, system_runtime(1))
    try:
        return [info.key async for info in PrefixedStore(store, prefix).list("")]
    finally:
        await store.close()


async def clone_holds(environment: slate.Environment, place: Place) -> list[str]:
    async with admin(environment, place) as one:
        return [str(info.id) for info in await one.checkpoints.list() if info.owner == "clone"]


async def collect(environment: slate.Environment, place: Place) -> slate.GcReport:
    settings = slate.Settings(gc_min_age_ms=0, version_keep_ms=0, gc_clock_skew_ms=0, gc_destroy_grace_ms=0)
    async with environment.open_gc(
        place.path, metastore=place.metastore, settings=settings, periodic=False
    ) as collector:
        return await collector.collect()


async def test_a_clone_from_its_beginning_to_everybodys_end(
    places: tuple[Place, Place], environment: slate.Environment
) -> None:
    parent, child = places
    first = {b"%03d" % number: b"in an SST" for number in range(200)}
    later = {b"%03d" % number: b"in the log" for number in range(190, 210)}
    async with parent.open(environment) as db:
        await write(db, first)
        await db.flush(l0=True)
        await write(db, later)
        async with admin(environment, parent) as one:
            made = await one.clone(child.path)
            assert await one.clone(child.path) == made
        await db.put(b"000", b"the parent's own")
        await db.compact(full=True)
        await collect(environment, parent)
        async with child.open(environment) as cloned:
            assert await contents(cloned) == {**first, **later}
            await cloned.put(b"000", b"the clone's own")
        async with admin(environment, parent) as one:
            with pytest.raises(slate.InvalidError, match=str(made.checkpoint_id)):
                await one.destroy()
        assert await db.get(b"000") == b"the parent's own"
    assert await clone_holds(environment, parent) == [str(made.checkpoint_id)]

    async with child.open(environment) as cloned:
        await cloned.compact(full=True)
    assert (await collect(environment, child)).detached
    assert await clone_holds(environment, parent) == []

    async with admin(environment, parent) as one:
        await one.destroy()
    assert [key for key in await keys(parent) if key.startswith("sst/")] == []
    async with child.open(environment) as cloned:
        assert await contents(cloned) == {**first, **later, b"000": b"the clone's own"}
    async with admin(environment, child) as one:
        await one.destroy(soft=True)
    assert (await collect(environment, child)).removed
    left = [key for key in await keys(child) if not key.startswith(("log/", "manifest/", "writer/", "store/marker"))]
    assert left == []
    async with child.open(environment) as again:
        assert await contents(again) == {}
