"""Stores in memory and in a folder, in which collections are written and read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from slate_async.objectstore.local import LocalStore
from slate_async.runtime.system import end_threads, system_runtime
from tests.engine import StoreInHand, memory_store


@pytest.fixture
def watch() -> str:
    """Puts of keys that begin so are in the test's hands."""
    return ""


@pytest.fixture(params=["memory", "folder"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, watch: str) -> AsyncIterator[StoreInHand]:
    """An empty store of each kind, whose puts lose requests and answers as the test says."""
    if request.param == "memory":
        yield StoreInHand(memory_store(), watch=watch)
        return
    runtime = system_runtime()
    local = LocalStore(tmp_path, runtime)
    yield StoreInHand(local, watch=watch)
    await local.close()
    end_threads(runtime)
