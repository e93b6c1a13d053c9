"""A collector beside a writer that compacts and is taken over, on real servers with each kind of metadata."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import slate_async as slate
from tests.integration.at_rest import check_exact
from tests.integration.places import Place, make_place

SMALL: dict[str, object] = {
    "l0_sst_bytes": 4_096,
    "block_bytes": 512,
    "l0_compact_ssts": 2,
    "manifest_poll_interval_ms": 100,
    "manifest_full_every": 4,
    "gc_min_age_ms": 0,
    "version_keep_ms": 0,
    "gc_clock_skew_ms": 0,
    "gc_interval_ms": 300,
}
PLACES = [
    ("local", ("contiguous", True), "obstore"),
    ("s3+dynamodb", ("contiguous", True), "obstore"),
    ("s3+dynamodb", ("epoch_prefixed", False), "aiobotocore"),
    ("s3+if-match", ("epoch_prefixed", True), "obstore"),
    ("s3+if-match", ("contiguous", False), "aiobotocore"),
]


@pytest.fixture
async def place(request: pytest.FixtureRequest, tmp_path: Path, aws_environment: dict[str, str]) -> Place:
    store, log, client = request.param
    endpoint = None if store == "local" else request.getfixturevalue("s3_endpoint")
    return await make_place(store, log, tmp_path, endpoint, client, **SMALL)


def open_gc(place: Place, *, periodic: bool) -> slate.Opening[slate.GarbageCollector]:
    settings = slate.Settings(
        **{name: value for name, value in place.settings.items() if name.startswith(("gc_", "version_"))}
    )
    return slate.open_gc(place.path, metastore=place.metastore, settings=settings, periodic=periodic)


async def fill(db: slate.Db, life: int) -> dict[bytes, bytes]:
    """Three rounds over the same keys, an L0 SST for each."""
    rows: dict[bytes, bytes] = {}
    for number in range(3):
        rows = {b"%03d" % key: b"life %d, round %d, key %d" % (life, number, key) for key in range(30)}
        await asyncio.gather(*(db.put(key, value) for key, value in rows.items()))
        await db.flush(l0=True)
    return rows


@pytest.mark.parametrize("place", PLACES, indirect=True, ids=lambda place: f"{place[0]}-{place[1][0]}-{place[1][1]}")
async def test_beside_a_living_database(place: Place) -> None:
    async with place.open():
        pass
    async with open_gc(place, periodic=True) as collector:
        for life in range(2):
            async with place.open() as db:
                rows = await fill(db, life)
                assert {key: value async for key, value in db.scan()} == rows
                if life == 0:
                    async with slate.open_admin(place.path, metastore=place.metastore) as admin:
                        checkpoint = (await admin.checkpoints.create()).id
                        kept = rows
        await collector.collect()  # it is open still
        metrics = collector.metrics()
    assert metrics["gc.manifest_versions"] > 0
    opening = slate.open_reader(place.path, checkpoint=checkpoint, metastore=place.metastore)
    async with opening as reader:
        assert {key: value async for key, value in reader.scan()} == kept
    await check_exact(place)
    async with slate.open_admin(place.path, metastore=place.metastore) as admin:
        await admin.checkpoints.delete(checkpoint)
    await check_exact(place)
    async with place.open() as db:
        assert {key: value async for key, value in db.scan()} == rows
