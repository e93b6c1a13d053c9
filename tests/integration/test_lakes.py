"""A folder of collections on real servers: S3, with metadata beside the data, by If-Match and in DynamoDB."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import slate_async as slate
from tests.integration.places import make_bucket, make_table, url_query

SETTINGS = slate.CollectionSettings(poll_interval_ms=50, version_keep_ms=0)


@pytest.fixture(params=[None, "if-match", "dynamodb"])
async def place(request: pytest.FixtureRequest, s3_endpoint: str, aws_environment: Any) -> tuple[str, str | None]:
    """Path and metastore of an empty lake."""
    metastore = await make_table(s3_endpoint) if request.param == "dynamodb" else request.param
    return f"s3://{make_bucket(s3_endpoint)}/live{url_query(s3_endpoint)}", metastore


def lake_at(place: tuple[str, str | None], env: slate.Environment) -> slate.Opening[slate.Lake]:
    """One process's."""
    return slate.open_collections(place[0], metastore=place[1], settings=SETTINGS, environment=env, controller=False)


async def test_lives_of_a_collection(place: tuple[str, str | None]) -> None:
    async with slate.Environment() as env, lake_at(place, env) as lake:
        for life, appends in ((1, "definite"), (2, "compare"), (3, "definite")):
            reader = await lake.create("orders", appends=appends)  # type: ignore[arg-type]
            orders = lake.collection("orders")
            async with orders.writer("relay-a") as writer, orders.controller(background=False) as controller:
                await writer.append([(b"%d" % life, 0, 1)], upper=1)
                await controller.round()
                await writer.append([(b"%d" % life, 1, 1)], upper=2)
                async with await reader.snapshot(1) as snapshot:
                    assert [row async for row in snapshot.rows()] == [(b"%d" % life, 2)]
                assert (await orders.inspect()).epoch == 1
            assert [(info.life, info.appends) for info in await lake.list()] == [(life, appends)]
            assert (await orders.verify()).clean
            with pytest.raises(slate.ConflictError, match="readers hold the collection"):
                await lake.delete("orders")
            await reader.expire()
            await lake.delete("orders")
            with pytest.raises(slate.NotFoundError, match="was deleted"):
                await orders.reader()


async def test_creations_and_deletions_race(place: tuple[str, str | None]) -> None:
    async with slate.Environment() as env:
        lakes = [await lake_at(place, env) for _ in range(4)]

        async def work(lake: slate.Lake) -> None:
            for _ in range(3):
                await (await lake.create("orders")).expire()
                await lake.delete("orders", force=True)

        await asyncio.gather(*map(work, lakes))
        [info] = await lakes[0].list()
        assert info.state == "deleted"
        async with await lakes[0].create("orders"):
            assert [(info.state, info.name) for info in await lakes[1].list()] == [("open", "orders")]
