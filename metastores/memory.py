"""Metastores in this process: for tests, and as the model of what the others must do.

A ``memory://`` database does without: its store can be written conditionally, so the default metastore serves it."""

from __future__ import annotations

from metastores import names
from metastores.bodies import MemoryBodies
from metastores.chained_register import check_size
from metastores.names import Layout
from metastores.protocol import (
    CasOutcome,
    Cell,
    Committed,
    ConditionalObjects,
    Conflict,
    MetaStore,
    Needs,
    Register,
)
from metastores.register_store import RegisterMetaStore
from metastores.runtime import MetaRuntime
from metastores.stats import MetaStats


class MemoryRegister:
    """`Register` in this process; every outcome is definite. ``stats`` counts for all that share it."""

    def __init__(self) -> None:
        self._cell: Cell | None = None
        self._writes = 0
        self.stats = MetaStats()

    async def read(self) -> Cell | None:
        """See `Register.read`."""
        return self._cell

    async def compare_and_set(self, expected_tag: str | None, value: bytes) -> CasOutcome:
        """See `Register.compare_and_set`."""
        check_size(value)
        if (None if self._cell is None else self._cell.tag) != expected_tag:
            return self.stats.counted(Conflict(self._cell))
        self._writes += 1
        self._cell = Cell(bytes(value), str(self._writes))
        return self.stats.counted(Committed(self._cell.tag))

    def clear(self) -> None:
        """Forget the value. Tags are not used again."""
        self._cell = None

    async def close(self) -> None:
        """See `Register.close`."""


class MemoryFactory:
    """`MetaStoreFactory` that keeps everything in itself: databases live as long as the factory."""

    needs = Needs()

    def __init__(self, runtime: MetaRuntime | None = None) -> None:
        self._runtime = MetaRuntime() if runtime is None else runtime
        self._manifests: dict[str, tuple[MemoryRegister, MemoryBodies]] = {}
        self._registers: dict[str, MemoryRegister] = {}

    def manifest(self, objects: ConditionalObjects, name: str, layout: Layout = names.MANIFEST) -> MetaStore:
        """See `MetaStoreFactory.manifest`."""
        register, bodies = self._manifests.setdefault(names.database_name(name), (MemoryRegister(), MemoryBodies()))
        return RegisterMetaStore(register, bodies, self._runtime, layout=layout)

    def register(self, objects: ConditionalObjects, name: str) -> Register:
        """See `MetaStoreFactory.register`."""
        return self._registers.setdefault(names.database_name(name), MemoryRegister())

    async def erase(self, name: str) -> None:
        """See `ErasesMetadata`."""
        key = names.database_name(name)
        if key in self._manifests:
            register, bodies = self._manifests[key]
            register.clear()
            await bodies.delete(await bodies.list())
        if key in self._registers:
            self._registers[key].clear()

    async def close(self) -> None:
        """See `MetaStoreFactory.close`."""
