"""An object store in a dict.

Invariant: what a write does, it does in one step, exactly by its condition, and no operation suspends.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence

from metastores.protocol import ListedObject, StoredObject


class MemoryObjects:
    """`ConditionalObjects` in a dict. As with S3, equal bytes have equal etags: it does not distinguish writes."""

    objects: dict[str, bytes]
    """What is stored, by key."""

    def __init__(self) -> None:
        self.objects = {}

    async def get(self, key: str) -> StoredObject | None:
        """See `ConditionalObjects`."""
        data = self.objects.get(key)
        return None if data is None else StoredObject(data, _etag(data))

    async def put(self, key: str, data: bytes) -> str:
        """See `ConditionalObjects`."""
        return self.write(key, data)

    async def create(self, key: str, data: bytes) -> str | None:
        """See `ConditionalObjects`."""
        return self.create_now(key, data)

    async def replace(self, key: str, data: bytes, etag: str) -> str | None:
        """See `ConditionalObjects`."""
        return self.replace_now(key, data, etag)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ListedObject]:
        """See `ConditionalObjects`; one page."""
        for listed in self.list_now(prefix, start_after):
            yield listed

    async def delete(self, keys: Sequence[str]) -> None:
        """See `ConditionalObjects`."""
        for key in keys:
            self.objects.pop(key, None)

    def write(self, key: str, data: bytes) -> str:
        """The effect of `put`, now."""
        self.objects[key] = bytes(data)
        return _etag(data)

    def create_now(self, key: str, data: bytes) -> str | None:
        """The effect of `create`, now."""
        return None if key in self.objects else self.write(key, data)

    def replace_now(self, key: str, data: bytes, etag: str) -> str | None:
        """The effect of `replace`, now."""
        current = self.objects.get(key)
        return self.write(key, data) if current is not None and _etag(current) == etag else None

    def list_now(self, prefix: str, start_after: str = "") -> Sequence[ListedObject]:
        """The effect of `list`, now."""
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > start_after)
        return [ListedObject(key, _etag(self.objects[key])) for key in keys]


def _etag(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
