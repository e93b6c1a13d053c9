"""A register in one object of a store with conditional writes (If-None-Match and If-Match).

Invariant: every stored value differs from every other (a fresh token is inside), so its ETag never repeats.
Ordering and outcomes are those of `metastores.chained_register`.
"""

from __future__ import annotations

from metastores.chained_register import ChainedRegister
from metastores.object_store_errors import reading, writing
from metastores.protocol import ConditionalObjects, StoredObject
from metastores.runtime import MetaRuntime


class ObjectCell:
    """`CellBackend` over the object ``key``."""

    def __init__(self, objects: ConditionalObjects, key: str) -> None:
        self._objects = objects
        self._key = key

    @property
    def name(self) -> str:
        """The object's key."""
        return self._key

    async def load(self) -> StoredObject | None:
        """See `CellBackend.load`."""
        with reading(f"reading {self._key}"):
            return await self._objects.get(self._key)

    async def store(self, data: bytes, token: str, etag: str | None) -> str | None:
        """See `CellBackend.store`."""
        with writing(f"writing {self._key}"):
            if etag is None:
                return await self._objects.create(self._key, data)
            return await self._objects.replace(self._key, data, etag)

    async def close(self) -> None:
        """The store belongs to the caller; nothing to release."""


class ObjectRegister(ChainedRegister):
    """`Register` in the object ``key``. Needs exclusive ``create`` and ``replace``."""

    def __init__(self, objects: ConditionalObjects, key: str, runtime: MetaRuntime | None = None) -> None:
        super().__init__(ObjectCell(objects, key), MetaRuntime() if runtime is None else runtime)
