"""Stores and lakes that tests of writers begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from slate_async.objectstore.local import LocalStore
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.system import end_threads, system_runtime
from tests.engine import StoreInHand, memory_store
from tests.unit.collections.lake import Lake


@pytest.fixture(params=["memory", "folder"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreInHand]:
    """An empty store of each kind, whose puts of pending batches are watched."""
    if request.param == "memory":
        yield StoreInHand(memory_store(), watch="pending_batches/")
        return
    runtime = system_runtime()
    local = LocalStore(tmp_path, runtime)
    yield StoreInHand(local, watch="pending_batches/")
    await local.close()
    end_threads(runtime)


@pytest.fixture
async def lake(store: StoreInHand) -> AsyncIterator[Lake]:
    """A collection of bytes in ``store``; its writers are closed at the end."""
    supervisor = Supervisor("test", lambda cause: None)
    made = Lake(store, supervisor)
    yield made
    store.release()
    for writer in made.opened:
        await writer.close()
    await supervisor.close()
