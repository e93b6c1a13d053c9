"""`slate_async.collections.open`: how a process comes to a lake."""

from __future__ import annotations

from typing import Any

import pytest

import slate_async as slate
from slate_async.collections.open import open_collections
from slate_async.errors import ClosedError, InvalidError
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
