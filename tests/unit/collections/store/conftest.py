"""What tests of a collection's objects begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from slate_async.runtime.supervisor import Supervisor


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    """Of the tasks of one test."""
    made = Supervisor("test", lambda cause: None)
    yield made
    await made.close()
