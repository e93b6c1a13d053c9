"""The four kinds of database, and a parent of each."""

from __future__ import annotations

import pytest

from tests.engine import KINDS, Kind
from tests.support.towns import PARENT, Town, numbered


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    """One of the four kinds of database."""
    found: Kind = request.param
    return found


@pytest.fixture
async def town(kind: Kind) -> Town:
    """A parent whose rows lie in SSTs and in the log, the latter of several writers."""
    town = Town(kind)
    await town.write(PARENT, numbered(0, 20, b"old"), l0=True)
    await town.write(PARENT, {**numbered(15, 25, b"new"), b"0001": None}, flush_parallelism=3)
    await town.write(PARENT, {b"0002": None, b"0030": b"last"})
    return town


EXPECTED = {**numbered(0, 15, b"old"), **numbered(15, 25, b"new"), b"0030": b"last"}
del EXPECTED[b"0001"], EXPECTED[b"0002"]
"""What `town`'s parent holds."""
