"""Every object store of the package against the shipped conformance suite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from slate_async.objectstore.local import LocalStore
from slate_async.objectstore.memory import MemoryObjects, MemoryStore
from slate_async.objectstore.prefixed import PrefixedStore
from slate_async.objectstore.protocol import ObjectStore
from slate_async.objectstore.testing import ObjectStoreConformance
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.system import ThreadOffload, system_runtime


class Conformance(ObjectStoreConformance):
    """The suite with a runtime, in its short form unless ``--full``."""

    __test__ = False

    @pytest.fixture(autouse=True)
    def _runtime(self, full: bool) -> Iterator[None]:
        self.runtime: Runtime = system_runtime(threads=8)
        if not full:
            self.racers, self.rounds, self.increments = self.short_races
        yield
        offload = self.runtime.offload
        assert isinstance(offload, ThreadOffload)
        offload.close()

    short_races = (50, 20, 100)


class TestMemory(Conformance):
    __test__ = True

    async def make_store(self) -> ObjectStore:
        self.objects = MemoryObjects()
        return MemoryStore(self.runtime.clock, self.objects)

    async def make_peer(self, store: ObjectStore) -> ObjectStore:
        return MemoryStore(self.runtime.clock, self.objects)


class TestLocal(Conformance):
    __test__ = True

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "new" / "store"

    async def make_store(self) -> ObjectStore:
        return LocalStore(self.folder, self.runtime)

    async def make_peer(self, store: ObjectStore) -> ObjectStore:
        return LocalStore(self.folder, self.runtime)


class TestPrefixed(Conformance):
    """A view of a folder, between neighbours whose names nearly match."""

    __test__ = True
    short_races = (10, 3, 20)

    async def make_store(self) -> ObjectStore:
        inner = MemoryStore(self.runtime.clock)
        for key in ("data/db-2/x", "data/db0", "data/d", "data/db"):
            await inner.put(key, b"not of this folder")
        return PrefixedStore(inner, "data/db")
