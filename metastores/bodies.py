"""Bodies of versions whose head lives in a register: immutable, named by number *and* token.

Invariant: a name is written by one attempt only, with one content, so writing it again changes nothing, and a body
of a losing attempt is never read in the place of the winner's.

Rule 7: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from metastores import names
from metastores.errors import MetaStoreInvalidError
from metastores.object_store_errors import reading
from metastores.protocol import ConditionalObjects, VersionRef


class BodyStore(Protocol):
    """Where bodies are kept. All methods retry inside and raise `MetaStoreError`."""

    async def put(self, ref: VersionRef, data: bytes) -> None:
        """Store the body of ``ref``; durable on return."""

    async def get(self, ref: VersionRef) -> bytes | None:
        """The body, or ``None``."""

    async def list(self) -> Sequence[VersionRef]:
        """Bodies stored, committed or not, ascending."""

    async def delete(self, refs: Sequence[VersionRef]) -> None:
        """Remove bodies; missing ones are no error."""

    async def check_empty(self) -> None:
        """Raise `MetaStoreInvalidError` if this place holds the manifest of another kind of metastore."""


class ObjectBodies:
    """Bodies as objects ``manifest/{version:020}.{token}``."""

    def __init__(self, objects: ConditionalObjects) -> None:
        self._objects = objects

    def _key(self, ref: VersionRef) -> str:
        """The name of a body; the token in it keeps losers and winners apart."""
        return names.body_key(ref)

    async def put(self, ref: VersionRef, data: bytes) -> None:
        """See `BodyStore.put`."""
        with reading(f"writing {self._key(ref)}"):
            await self._objects.put(self._key(ref), data)

    async def get(self, ref: VersionRef) -> bytes | None:
        """See `BodyStore.get`."""
        with reading(f"reading {self._key(ref)}"):
            stored = await self._objects.get(self._key(ref))
        return None if stored is None else stored.data

    async def list(self) -> Sequence[VersionRef]:
        """See `BodyStore.list`."""
        with reading("listing the manifest's bodies"):
            found = [names.body_ref(listed.key) async for listed in self._objects.list(names.FOLDER)]
        return [ref for ref in found if ref is not None]

    async def delete(self, refs: Sequence[VersionRef]) -> None:
        """See `BodyStore.delete`."""
        with reading("deleting manifest bodies"):
            await self._objects.delete([self._key(ref) for ref in refs])

    async def check_empty(self) -> None:
        """See `BodyStore.check_empty`."""
        await check_no_other_manifest(self._objects, expected=names.CURRENT)


async def check_no_other_manifest(objects: ConditionalObjects, *, expected: str) -> None:
    """Raise `MetaStoreInvalidError` if the folder holds a manifest whose head is somewhere else than ``expected``."""
    with reading("listing the manifest"):
        keys = [listed.key async for listed in objects.list(names.FOLDER)]
    for key in keys:
        by_version = names.manifest_version(key) is not None or names.boundary_version(key) is not None
        if by_version or (key in (names.CURRENT, names.ELSEWHERE) and key != expected):
            raise MetaStoreInvalidError(
                f"this metastore knows no manifest here, but there is {key!r}: the database keeps its manifest in"
                " another metastore; name that one (metastore=...)"
            )


class MemoryBodies:
    """Bodies in this process."""

    def __init__(self) -> None:
        self._bodies: dict[VersionRef, bytes] = {}

    async def put(self, ref: VersionRef, data: bytes) -> None:
        """See `BodyStore.put`."""
        self._bodies[ref] = bytes(data)

    async def get(self, ref: VersionRef) -> bytes | None:
        """See `BodyStore.get`."""
        return self._bodies.get(ref)

    async def list(self) -> Sequence[VersionRef]:
        """See `BodyStore.list`."""
        return sorted(self._bodies)

    async def delete(self, refs: Sequence[VersionRef]) -> None:
        """See `BodyStore.delete`."""
        for ref in refs:
            self._bodies.pop(ref, None)

    async def check_empty(self) -> None:
        """See `BodyStore.check_empty`; nothing else can be here."""
