"""Bodies of versions whose head lives in a register: immutable, named by number *and* token.

Invariant: a name is written by one attempt only, with one content, so writing it again changes nothing, and a body
of a losing attempt is never read in the place of the winner's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from metastores import names
from metastores.errors import MetaStoreInvalidError
from metastores.failures import read_failure
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
        try:
            await self._objects.put(self._key(ref), data)
        except Exception as error:
            raise read_failure(error, f"writing {self._key(ref)}") from error

    async def get(self, ref: VersionRef) -> bytes | None:
        """See `BodyStore.get`."""
        try:
            stored = await self._objects.get(self._key(ref))
        except Exception as error:
            raise read_failure(error, f"reading {self._key(ref)}") from error
        return None if stored is None else stored.data

    async def list(self) -> Sequence[VersionRef]:
        """See `BodyStore.list`."""
        refs: list[VersionRef] = []
        try:
            async for listed in self._objects.list(names.FOLDER):
                if (ref := names.body_ref(listed.key)) is not None:
                    refs.append(ref)
        except Exception as error:
            raise read_failure(error, "listing the manifest's bodies") from error
        return refs

    async def delete(self, refs: Sequence[VersionRef]) -> None:
        """See `BodyStore.delete`."""
        try:
            await self._objects.delete([self._key(ref) for ref in refs])
        except Exception as error:
            raise read_failure(error, "deleting manifest bodies") from error

    async def check_empty(self) -> None:
        """See `BodyStore.check_empty`."""
        await check_no_other_manifest(self._objects, expected=names.CURRENT)


async def check_no_other_manifest(objects: ConditionalObjects, *, expected: str) -> None:
    """Raise `MetaStoreInvalidError` if the folder holds a manifest whose head is somewhere else than ``expected``."""
    heads = (names.CURRENT, names.ELSEWHERE)
    try:
        async for listed in objects.list(names.FOLDER):
            key = listed.key
            by_version = names.manifest_version(key) is not None or names.boundary_version(key) is not None
            if by_version or (key in heads and key != expected):
                raise MetaStoreInvalidError(
                    f"this metastore knows no manifest here, but there is {key!r}: the database keeps its manifest in"
                    " another metastore; name that one (metastore=...)"
                )
    except Exception as error:
        raise read_failure(error, "listing the manifest") from error


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
