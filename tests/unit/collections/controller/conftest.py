"""Lakes that tests of controllers begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from slate_async.runtime.supervisor import Supervisor
from tests.engine import StoreInHand
from tests.unit.collections.kept import KeptLake


@pytest.fixture
def watch() -> str:
    """Puts of merged files."""
    return "merged_batches/"


@pytest.fixture
async def lake(store: StoreInHand) -> AsyncIterator[KeptLake]:
    """A collection of bytes in ``store``; its writers and controllers are closed at the end."""
    supervisor = Supervisor("test", lambda cause: None)
    made = KeptLake(store, supervisor)
    yield made
    store.release()
    for controller in made.controllers:
        await controller.close()
    for writer in made.opened:
        await writer.close()
    await supervisor.close()
