"""The same URL over another place, on real servers: a bucket of that name at another endpoint, a folder that is not
mounted. Metadata is in DynamoDB. The place is refused, the writer goes on, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest

import slate_async as slate
from tests.integration.places import LOGS, REGION, Place, make_place, make_table
from tests.servers.moto import LockedMoto

pytestmark = pytest.mark.usefixtures("aws_environment")
ROWS = {b"k%d" % number: b"v" for number in range(5)}


@pytest.fixture(scope="module")
def other_endpoint() -> Iterator[str]:
    """A second S3 server."""
    server = LockedMoto()
    yield server.url
    server.stop()


async def _rows(db: slate.Db) -> dict[bytes, bytes]:
    return {key: value async for key, value in db.scan()}


async def _refused_everywhere(true: Place, wrong: Place) -> None:
    """Nothing can be done at ``wrong`` while a writer lives at ``true``; then all of its rows are there."""
    async with true.open() as db:
        for key, value in ROWS.items():
            await db.put(key, value)
        settings: Any = {"metastore": wrong.metastore, "settings": slate.Settings(**wrong.settings)}  # type: ignore[arg-type]
        for opening in (slate.open, slate.open_reader, slate.open_compactor, slate.open_gc):
            with pytest.raises(slate.ConfigError, match="is not the place"):
                await opening(wrong.path, **settings)  # type: ignore[operator]
        async with slate.open_admin(wrong.path, **settings) as admin:
            with pytest.raises(slate.ConfigError, match="is not the place"):
                await admin.destroy()
            with pytest.raises(slate.SlateError):
                await admin.adopt_place()
        await db.put(b"last", b"v")
        await db.confirm()
    async with true.open() as db:
        assert await _rows(db) == {**ROWS, b"last": b"v"}


@pytest.mark.parametrize("log", [LOGS[0], LOGS[2]], ids=["contiguous", "epochs"])
async def test_a_bucket_of_that_name_at_another_endpoint(
    log: tuple[str, bool], s3_endpoint: str, other_endpoint: str
) -> None:
    true = await make_place("s3+dynamodb", log, None, s3_endpoint)
    bucket = true.path.removeprefix("s3://").partition("/")[0]
    boto3.Session().client("s3", endpoint_url=other_endpoint, region_name=REGION).create_bucket(Bucket=bucket)
    wrong = true.through(s3_endpoint, other_endpoint)
    await _refused_everywhere(true, replace(wrong, metastore=true.metastore))


@pytest.mark.parametrize("log", [LOGS[0], LOGS[2]], ids=["contiguous", "epochs"])
async def test_a_folder_that_is_not_mounted(log: tuple[str, bool], s3_endpoint: str, tmp_path: Path) -> None:
    protocol, wal = log
    settings: dict[str, object] = {"log_protocol": protocol, "wal_enabled": wal}
    place = Place(str(tmp_path / "db"), await make_table(s3_endpoint), settings)
    async with place.open() as db:
        for key, value in ROWS.items():
            await db.put(key, value)
        epoch = db.status().epoch
    (tmp_path / "db").rename(tmp_path / "unmounted")
    for _ in range(2):
        with pytest.raises(slate.ConfigError, match="is not the place"):
            await place.open()
    assert not (tmp_path / "db").exists()
    (tmp_path / "unmounted").rename(tmp_path / "db")
    async with place.open() as db:
        assert await _rows(db) == ROWS
        assert db.status().epoch == epoch + 1


async def test_a_gc_with_no_patience_leaves_the_marker(s3_endpoint: str) -> None:
    place = await make_place("s3+dynamodb", LOGS[0], None, s3_endpoint)
    async with place.open() as db:
        for key, value in ROWS.items():
            await db.put(key, value)
    settings = slate.Settings(**{**place.settings, "gc_min_age_ms": 0, "gc_clock_skew_ms": 0})  # type: ignore[arg-type]
    async with slate.open_gc(place.path, metastore=place.metastore, settings=settings, periodic=False) as collector:
        for _ in range(2):
            await collector.collect()
    async with place.open() as db:
        assert await _rows(db) == ROWS


@pytest.mark.parametrize("log", [LOGS[0], LOGS[2]], ids=["contiguous", "epochs"])
async def test_a_folder_that_is_lost_is_given_up(log: tuple[str, bool], s3_endpoint: str, tmp_path: Path) -> None:
    """Its newest version is too large for the table: it was in the folder, too."""
    protocol, wal = log
    settings: dict[str, object] = {"log_protocol": protocol, "wal_enabled": wal}
    place = Place(str(tmp_path / "db"), await make_table(s3_endpoint), settings)
    note = {"note": "".join(map(str, range(10_000)))}
    async with slate.open(
        place.path,
        metastore=place.metastore,
        settings=slate.Settings(**settings),
        properties=note,  # type: ignore[arg-type]
    ) as db:
        await db.put(b"k", b"v")
    (tmp_path / "db").rename(tmp_path / "lost")
    with pytest.raises(slate.SlateError):
        await place.open()
    async with slate.open_admin(place.path, metastore=place.metastore) as admin:
        await admin.destroy(lost=True)
        with pytest.raises(slate.NotFoundError):
            await admin.destroy(lost=True)
    async with place.open() as db:
        assert await _rows(db) == {}
        await db.put(b"new", b"v")
    (tmp_path / "db").rename(tmp_path / "new")
    (tmp_path / "lost").rename(tmp_path / "db")
    with pytest.raises(slate.ConfigError, match="is not the place"):
        await place.open()
