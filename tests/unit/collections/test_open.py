"""`slate_async.collections.open`: how a process comes to a lake."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import slate_async as slate
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.open import open_collections
from slate_async.errors import ClosedError, InvalidError
from slate_async.settings.collections import CollectionSettings
from tests.engine import memory_store
from tests.unit.collections.lake import fast_runtime


async def test_it_is_closed_with_the_environment_whose_clients_it_shares() -> None:
    async with slate.Environment() as env:
        lake = await open_collections("memory://shared/live", environment=env)
        async with env.open("memory://shared/db") as db:
            assert lake._context.store._store is db._context.store._store  # type: ignore[attr-defined]
        reader = await lake.create("orders")
        assert "handles=1" in repr(env)
    with pytest.raises(ClosedError):
        await reader.snapshot(1)
    with pytest.raises(InvalidError, match="this Environment is closed"):
        await open_collections("memory://shared/live", environment=env)


async def test_a_url_a_path_and_a_private_runtime(tmp_path: Any) -> None:
    for path in ("memory://one/live", tmp_path / "live", f"file://{tmp_path}/other"):
        async with open_collections(path) as lake:
            await lake.create("orders")
        async with open_collections(path) as lake:
            assert [info.name for info in await lake.list()] == ["orders"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"path": 3}, "path is a URL, a path or a store, not int"),
        ({"metastore": 3}, "metastore is a name, a factory or None, not int"),
        ({"metastore": "oracle"}, "metastore is none of"),
        ({"settings": slate.Settings()}, "settings is CollectionSettings or None, not Settings"),
        ({"environment": 3}, "environment is an Environment or None, not int"),
        ({"controller": 3}, "controller is True or False, not int"),
        ({"runtime": 3}, "runtime is a Runtime or None, not int"),
        ({"environment": slate.Environment(), "runtime": fast_runtime()}, "give one of the two"),
        ({"path": "nope://x"}, "nope"),
        ({"name": "x"}, "name= goes with a store object"),
        ({"path": memory_store(), "metastore": "dynamodb://table"}, "needs name="),
    ],
)
async def test_wrong_arguments_of_the_opening_are_named(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        await open_collections(**{"path": "memory://lake", **arguments})


async def test_lakes_of_one_environment_hear_what_one_of_them_appends() -> None:
    """A listener that polls once in ten minutes looks at once."""
    slow = CollectionSettings(poll_interval_ms=600_000, lease_ms=3_600_000)
    async with slate.Environment() as env:
        lakes = [await open_collections("memory://heard/live", environment=env, settings=slow) for _ in range(2)]
        reader = await lakes[0].create("orders")
        listener = reader.listen(as_of=0)
        heard = asyncio.ensure_future(anext(listener))
        await asyncio.sleep(0.2)
        async with asyncio.timeout(20), lakes[1].collection("orders").writer() as writer:
            await writer.append([(b"a", 3, 1)], upper=5)
            assert (await heard).upper == Frontier([(5,)])
