"""SSTs of a database at their places in its mirror: those that are there stay, the others are copied whole.

A copy is checked before it is put: its identity, its length, the checksum of all of it. A clone's SSTs that are its
parents' become the mirror's own: they get its database id, and checksums anew.

Ordering rule (rules 25, 26): a new name begins with the version of the mirror that was its head before anything was
looked for, so a collector of the mirror cannot take it before the commit that names it, unless that commit fails.

Rules 25 and 26: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from msgspec import structs

from slate_async.codec.header import HEADER_BYTES, check_body, decode_header
from slate_async.engine.stored_database import StoredDatabase
from slate_async.errors import CorruptionError
from slate_async.maintenance.mirror.report import MirrorProgress
from slate_async.objectstore.protocol import ObjectStore, Span
from slate_async.runtime.concurrent import map_bounded
from slate_async.runtime.protocol import Offload
from slate_async.storage.format.rehome import rehome
from slate_async.storage.manifest.state import ManifestState, Parent, SstRef
from slate_async.storage.sst.locate import SstOpener
from slate_async.storage.sst.names import SST_PREFIX, parse_sst_key, sst_key
from slate_async.types import Buffer

IN_PARALLEL = 2
"""Whole SSTs in memory at once."""


@dataclass(frozen=True, slots=True)
class _Stored:
    key: str
    base_version: int
    size: int


@dataclass(slots=True)
class Tally:
    """What one attempt did."""

    copied: int = 0
    copied_bytes: int = 0
    kept: int = 0


class SstCopier:
    """Copies SSTs of ``state``'s database into the mirror at ``target``, whose head is ``head``.

    opener: finds the SSTs of the source, with ``parents`` those of its parents
    on_progress: called after each SST
    """

    def __init__(
        self,
        opener: SstOpener,
        parents: Sequence[Parent],
        target: StoredDatabase,
        head: ManifestState,
        on_progress: Callable[[MirrorProgress], None] | None,
    ) -> None:
        self._opener = opener
        self._parents = parents
        self._target = target
        self._database_id = head.database_id
        self._base = head.version
        self._floor = head.sst_floor
        self._named: Mapping[bytes, SstRef] = {sst.object_id: sst for sst in head.ssts()}
        self._on_progress = on_progress
        self.tally = Tally()

    async def copy_all(self, ssts: Sequence[SstRef]) -> dict[bytes, SstRef]:
        """How the mirror names each of ``ssts``, by object id, once all of them are there.

        Raises `ObjectNotFoundError` for one that is not there, `CorruptionError` for one that is not sound,
        `UnavailableError`."""
        stored = await self._listed()
        total, total_bytes = len(ssts), sum(sst.size for sst in ssts)
        done = done_bytes = 0

        async def one(sst: SstRef) -> SstRef:
            nonlocal done, done_bytes
            placed = await self._place(sst, stored.get(sst.object_id, []))
            done, done_bytes = done + 1, done_bytes + sst.size
            if self._on_progress is not None:
                self._on_progress(MirrorProgress(done, total, done_bytes, total_bytes))
            return placed

        placed = await map_bounded(one, ssts, IN_PARALLEL) if ssts else []
        return {sst.object_id: sst for sst in placed}

    async def _listed(self) -> dict[bytes, list[_Stored]]:
        """What lies in the mirror, by object id."""
        found: dict[bytes, list[_Stored]] = {}
        async for info in self._target.store.list(SST_PREFIX):
            name = parse_sst_key(info.key)
            if name is not None:
                found.setdefault(name.object_id, []).append(_Stored(info.key, name.base_version, info.size))
        return found

    async def _place(self, sst: SstRef, stored: Sequence[_Stored]) -> SstRef:
        source = self._opener.store_of(sst, self._parents)
        own = sst.database_id is None
        for copy in stored:
            named = sst.object_id in self._named and self._named[sst.object_id].location == copy.key
            usable = copy.size == sst.size and (named or copy.base_version >= self._floor)
            if usable and await self._same(source, sst, copy.key, own=own):
                self.tally.kept += 1
                return structs.replace(sst, location=copy.key, database_id=None)
        key = sst_key(self._base, sst.object_id)
        await self._copy(source, sst, key)
        self.tally.copied += 1
        self.tally.copied_bytes += sst.size
        return structs.replace(sst, location=key, database_id=None)

    async def _same(self, source: ObjectStore, sst: SstRef, key: str, *, own: bool) -> bool:
        """Whether the object at ``key`` is the copy of ``sst``: a put is whole or not at all, so its header, with the
        checksum of all that follows, tells. That of a parent's SST has been changed, but for what identifies it."""
        data = (await self._target.store.get(key, Span(0, HEADER_BYTES))).data
        if own:
            return data == (await source.get(sst.location, Span(0, HEADER_BYTES))).data
        try:
            header = decode_header(data, object_name=key, database_id=self._database_id, object_id=sst.object_id)
        except CorruptionError:
            return False
        return header.writer_epoch == sst.writer_epoch and header.body_bytes == sst.size - HEADER_BYTES

    async def _copy(self, source: ObjectStore, sst: SstRef, key: str) -> None:
        data = (await source.get(sst.location)).data
        buffers = await checked_copy(data, sst, self._database_id, self._target.runtime.offload)
        await self._target.store.put(key, buffers, metadata={"slate-epoch": str(sst.writer_epoch)})


async def checked_copy(data: bytes, sst: SstRef, database_id: UUID, offload: Offload) -> Sequence[Buffer]:
    """The bytes of ``sst``, found to be sound, as an object of the database. Raises `CorruptionError`."""
    name = sst.location
    if len(data) != sst.size:
        raise CorruptionError(f"has {len(data)} bytes, {sst.size} were written", object_name=name)

    def check() -> Sequence[Buffer]:
        if sst.database_id is not None:
            return rehome(
                data, object_name=name, owner=sst.database_id, object_id=sst.object_id, database_id=database_id
            )
        header = decode_header(data, object_name=name, database_id=database_id, object_id=sst.object_id)
        check_body(header, data, object_name=name)
        return [data]

    return await offload.run(check)
