"""A collection that was used."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from slate_async.runtime.supervisor import Supervisor
from tests.engine import StoreInHand, memory_store
from tests.unit.collections.used import UsedLake, closed


@pytest.fixture
async def lake() -> AsyncIterator[UsedLake]:
    """An empty collection in memory."""
    made = UsedLake(StoreInHand(memory_store()), Supervisor("test", lambda cause: None))
    yield made
    await closed(made)
