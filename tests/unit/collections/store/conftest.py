"""Stores in memory and in a folder, whose puts lose requests and answers as the test says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from slate_async.objectstore.local import LocalStore
from slate_async.runtime.supervisor import Supervisor
from slate_async.runtime.system import end_threads, system_runtime
from tests.engine import StoreInHand, memory_store


@pytest.fixture(params=["memory", "folder"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreInHand]:
    """An empty store of each kind."""
    if request.param == "memory":
        yield StoreInHand(memory_store(), watch="")
        return
    runtime = system_runtime()
    local = LocalStore(tmp_path, runtime)
    yield StoreInHand(local, watch="")
    await local.close()
    end_threads(runtime)


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    """Of the tasks of one test."""
    made = Supervisor("test", lambda cause: None)
    yield made
    await made.close()
