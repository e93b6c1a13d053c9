"""Lakes that tests of writers begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from slate_async.runtime.supervisor import Supervisor
from tests.engine import StoreInHand
from tests.unit.collections.lake import Lake


@pytest.fixture
def watch() -> str:
    """Puts of pending batches."""
    return "pending_batches/"


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
