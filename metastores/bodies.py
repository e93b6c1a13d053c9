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
from metastores.names import Layout
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
        """Raise `MetaStoreInvalidError` if this place holds what another kind of metastore has written."""


class ObjectBodies:
    """Bodies as objects ``manifest/{version:020}.{token}``, or what another layout calls them."""

    def __init__(self, objects: ConditionalObjects, layout: Layout = names.MANIFEST) -> None:
        self._objects = objects
        self._layout = layout

    def _key(self, ref: VersionRef) -> str:
        """The name of a body; the token in it keeps losers and winners apart."""
        return self._layout.body_key(ref)

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
        with reading(f"listing the {self._layout.what}'s bodies"):
            found = [self._layout.body_ref(listed.key) async for listed in self._objects.list(self._layout.folder)]
        return [ref for ref in found if ref is not None]

    async def delete(self, refs: Sequence[VersionRef]) -> None:
        """See `BodyStore.delete`."""
        with reading(f"deleting bodies of the {self._layout.what}"):
            await self._objects.delete([self._key(ref) for ref in refs])

    async def check_empty(self) -> None:
        """See `BodyStore.check_empty`."""
        await check_no_others(self._objects, self._layout, expected=self._layout.current)


async def check_no_others(objects: ConditionalObjects, layout: Layout, *, expected: str) -> None:
    """Raise `MetaStoreInvalidError` if the folder holds versions whose head is somewhere else than ``expected``."""
    with reading(f"listing the {layout.what}"):
        keys = [listed.key async for listed in objects.list(layout.folder)]
    for key in keys:
        by_version = layout.version_of(key) is not None or layout.boundary_of(key) is not None
        if by_version or (key in (layout.current, layout.elsewhere) and key != expected):
            raise MetaStoreInvalidError(
                f"this metastore knows no {layout.what} here, but there is {key!r}: the {layout.owner} keeps its"
                f" {layout.what} in another metastore; name that one (metastore=...)"
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
