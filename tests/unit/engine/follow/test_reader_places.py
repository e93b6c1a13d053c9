"""A reader whose place goes away under it: what it misses of the log is lost only in the database's own place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import slate_async as slate
from metastores.memory import MemoryFactory
from tests.engine import KINDS, Kind, memory_store, on, runtime
from tests.support.towns import Life, MortalStore


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_place_that_is_lost_under_a_reader_is_not_called_corrupt(kind: Kind) -> None:
    """An unmounted disk."""
    here, empty = memory_store(), memory_store()
    mounted = [here]

    class Mount(MortalStore):
        async def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[Any]:
            async for info in mounted[0].list(prefix, start_after=start_after):
                yield info

        async def get(self, key: str, byte_range: Any = None) -> Any:
            return await mounted[0].get(key, byte_range)

    there: dict[str, Any] = {
        "name": "s3://bucket/db",
        "metastore": MemoryFactory(),
        "settings": kind.settings(),
    }
    opener = on(runtime())
    async with opener.open(here, **there) as db, opener.open_reader(Mount(here, Life()), pin=False, **there) as reader:
        mounted[0] = empty
        await db.put(b"more", b"v")
        async with opener.open_admin(here, **there) as admin:
            await admin.checkpoints.create()  # this notes how far the log goes
        with pytest.raises(slate.ConfigError, match="is not the place"):
            await _refresh(reader, 2)  # the first one learns that
        mounted[0] = here
        await reader.refresh()
        assert await reader.get(b"more") == b"v"


async def _refresh(reader: slate.DbReader, times: int) -> None:
    for _ in range(times):
        await reader.refresh()
