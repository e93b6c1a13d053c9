"""Fixtures: the four kinds of database, on memory and on a folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import slate_async as slate
from slate_async.objectstore.local.store import LocalStore
from slate_async.objectstore.memory import MemoryStore
from slate_async.objectstore.protocol import ObjectStore
from tests.engine import KINDS, Kind, ManualClock, memory_store, open_db, runtime


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    """One of the four kinds of database."""
    found: Kind = request.param
    return found


@pytest.fixture
def clock() -> ManualClock:
    """The clock of `db`."""
    return ManualClock()


@pytest.fixture
def memory() -> MemoryStore:
    """An empty store in memory."""
    return memory_store()


@pytest.fixture(params=["memory", "folder"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    """An empty store in memory, and one on a local folder."""
    found: ObjectStore = memory_store() if request.param == "memory" else LocalStore(tmp_path / "db", runtime())
    yield found
    await found.close()


@pytest.fixture
async def db(store: ObjectStore, kind: Kind, clock: ManualClock) -> AsyncIterator[slate.Db]:
    """An open, empty database of each kind on each store; tables and blocks are small."""
    async with open_db(store, kind, clock=clock, l0_sst_bytes=4096, block_bytes=256, flush_bytes=1024) as opened:
        yield opened
