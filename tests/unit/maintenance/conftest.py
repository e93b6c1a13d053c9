"""A database of each kind with everything in it that is verified, shown and mirrored."""

from __future__ import annotations

import pytest

from tests.engine import KINDS, Kind
from tests.support.settled_town import settled
from tests.support.towns import Town


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    """One of the four kinds of database."""
    found: Kind = request.param
    return found


@pytest.fixture
async def town(kind: Kind) -> Town:
    """A database with two runs' worth of history: compacted, flushed, in the log of several writers, checkpointed."""
    return await settled(Town(kind))
