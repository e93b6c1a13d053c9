"""`slate_async.storage.sst.locate`: an SST is opened where it lies."""

from __future__ import annotations

from uuid import UUID

import pytest

from slate_async.errors import CorruptionError
from slate_async.storage.manifest.state import Parent, SstRef
from slate_async.storage.sst.cache import BlockCache
from slate_async.storage.sst.locate import SstOpener
from tests.engine import InlineOffload, memory_store

OWN, PARENT = UUID(int=1), UUID(int=2)


def ref(database_id: UUID | None) -> SstRef:
    return SstRef("sst/x", bytes(16), 1, 1, 0, b"a", b"b", 1, 1, 1, database_id=database_id)


def test_its_database_says_which_folder() -> None:
    own, parent = memory_store(), memory_store()
    asked: list[str] = []

    def folder(path: str) -> object:
        asked.append(path)
        return parent

    opener = SstOpener(own, OWN, folder, BlockCache(0), InlineOffload())  # type: ignore[arg-type]
    parents = [Parent(UUID(int=3), "memory://other"), Parent(PARENT, "memory://parent")]
    assert opener.store_of(ref(None), parents) is opener.store_of(ref(OWN), []) is own
    assert opener.store_of(ref(PARENT), parents) is parent
    assert opener.store_of(ref(PARENT), []) is parent  # it was known before the clone was detached
    assert asked == ["memory://parent"]
    with pytest.raises(CorruptionError, match="does not name as a parent"):
        opener.store_of(ref(UUID(int=9)), parents)
