"""Checkpoints on real servers: made by a writer and beside one, kept through takeovers, read by another client."""

from __future__ import annotations

import pytest

import slate_async as slate
from tests.integration.places import LOGS, Place, make_place


def reader(place: Place, checkpoint: str) -> slate.Opening[slate.DbReader]:
    settings = slate.Settings(**place.settings)
    return slate.open_reader(place.path, checkpoint=checkpoint, metastore=place.metastore, settings=settings)


async def write(db: slate.Db, value: bytes) -> None:
    for number in range(50):
        await db.put(b"%03d" % number, value + b"x" * 200, await_durable=False)
    await db.flush()


async def shown(place: Place, checkpoint: str) -> set[bytes]:
    """What all fifty rows begin with."""
    async with reader(place, checkpoint) as database:
        rows = {key: value async for key, value in database.scan()}
    assert len(rows) == 50
    return {value[:1] for value in rows.values()}


@pytest.mark.usefixtures("aws_environment")
@pytest.mark.parametrize("log", [LOGS[0], LOGS[-1]], ids=str)
async def test_each_keeps_its_state(s3_endpoint: str, log: tuple[str, bool]) -> None:
    place = await make_place("s3+dynamodb", log, None, s3_endpoint, l0_sst_bytes=4_096)
    settings = slate.Settings(**place.settings)
    async with slate.open_admin(place.path, metastore=place.metastore, settings=settings) as admin:
        async with place.open() as db:
            await write(db, b"1")
            await db.checkpoints.create(name="by the writer", lifetime=3_600)
            await write(db, b"2")
            await admin.checkpoints.create(name="beside it")
            await write(db, b"3")
            assert db.status().state == "open"
        async with place.open() as db:
            await write(db, b"4")
            await db.flush(l0=True)
            await db.checkpoints.create(source="by the writer", name="a copy")
            for name, moment in (("by the writer", b"1"), ("beside it", b"2"), ("a copy", b"1")):
                assert await shown(place, name) == {moment}
        users = {info.name: info for info in await admin.checkpoints.list() if info.owner == "user"}
        assert [*users] == ["by the writer", "beside it", "a copy"]
        await admin.checkpoints.refresh(users["by the writer"].id)
        await admin.checkpoints.delete(users["beside it"].id)
        left = [(info.name, info.expire_time) for info in await admin.checkpoints.list()]
        assert left == [("by the writer", None), ("a copy", None)]
        with pytest.raises(slate.InvalidError):
            await shown(place, "beside it")
