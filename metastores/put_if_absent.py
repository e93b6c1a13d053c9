"""A `MetaStore` over put-if-absent alone: version v is the object ``manifest/{v:020}.manifest``, or what another
`metastores.names.Layout` calls it.

Invariants: versions are created one after another, so the highest one listed is the head; the head is never
deleted; the deletion boundary never goes back, and every deleted version is below it.

Ordering rules:

* a deleter makes the boundary durable before it deletes;
* a committer reads the boundary after its put was answered and before it believes the answer: above its version
  the outcome is unknown, since the version may have been won, superseded and deleted, and its place taken again
  by a committer that slept;
* a reader lists, gets the highest version, and believes it only if it carries the listed etag (a deleted version
  can come back between the two) and the boundary listed after it is not above it.

A poll need not list: version v is the head while v + 1 is not there, unless v + 1 was deleted already. Collectors leave
versions alone for ``version_keep_ms``, so for a quarter of that after a listing one read of v + 1 that finds nothing
says that nothing changed. One that finds something leads to a listing, with the boundary.

The boundary is the highest of a few marker objects ``manifest/boundary/{version:020}``. Raising it creates one and
removes those below the one that stood before, so a list racing with a raise still meets one of the last two.

Rules 4 and 5: docs/design/protocol-rules.md
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from metastores import names
from metastores.envelope import Kind, Sealed, seal, unseal
from metastores.errors import (
    MetaStoreCorruptionError,
    MetaStoreError,
    MetaStoreInvalidError,
    MetaStoreUnavailableError,
)
from metastores.names import Layout
from metastores.object_store_errors import OutcomeUnknownError, reading, writing
from metastores.protocol import (
    CommitOutcome,
    Committed,
    ConditionalObjects,
    Conflict,
    ListedObject,
    Record,
    StoredObject,
    Unknown,
    VersionRef,
)
from metastores.runtime import MetaRuntime
from metastores.stats import MetaStats

READ_ATTEMPTS = 16
SAME_LISTINGS = 3
"""A head that is read again is given up for lost after so many listings in a row that show the same. Whatever took its
place between a listing and a read is in the next listing."""
QUICK_ATTEMPTS = 3
"""So many readings are tried without a pause: a version deleted under a reader is no sign of an overload."""
PARALLEL_READS = 16
KEPT_SHARE = 4
"""A probe is believed for this share of the time that versions are kept: clocks differ, and a collector may be slow."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Versions listed (ascending) and the boundary listed after them."""

    versions: tuple[tuple[int, ListedObject], ...]
    boundary: int
    foreign: str | None


@dataclass(frozen=True, slots=True)
class Seen:
    """The newest head this process has read or committed."""

    record: Record
    etag: str


class PutIfAbsentMetaStore:
    """`MetaStore` over ``objects``, which needs an exclusive ``create`` and nothing else. ``stats`` counts outcomes
    and repeated readings."""

    def __init__(
        self, objects: ConditionalObjects, runtime: MetaRuntime | None = None, layout: Layout = names.MANIFEST
    ) -> None:
        self._objects = objects
        self._layout = layout
        self._runtime = MetaRuntime() if runtime is None else runtime
        self._seen: Seen | None = None
        self._seen_at = float("-inf")
        """A time of the monotonic clock at or before which ``_seen`` was the head last."""
        self._tokens: dict[int, tuple[str, str]] = {}
        self.stats = MetaStats()

    async def latest(self) -> Record | None:
        """See `MetaStore.latest`. One list when the head is the one last seen, else a list and a get."""
        highest = same = attempt = 0
        shown: tuple[tuple[tuple[int, ListedObject], ...], int] | None = None
        for attempt in range(READ_ATTEMPTS):
            self.stats.retries += attempt > 0
            if attempt >= QUICK_ATTEMPTS:
                await self._runtime.back_off(attempt - QUICK_ATTEMPTS)
            began = self._runtime.monotonic()
            listing = await self._list(self._seen if attempt < QUICK_ATTEMPTS else None)
            floor = max(listing.boundary, self._seen.record.ref.version if self._seen else 0)
            highest = max(highest, floor)
            now = listing.versions[-1:], listing.boundary
            same = same + 1 if now == shown else 1
            if same > SAME_LISTINGS:
                break
            shown = now
            if not listing.versions:
                if floor == 0:
                    self._check_no_others(listing)
                    return None
                continue
            version, listed = listing.versions[-1]
            if not self._may_be_head(version, floor):
                continue
            if self._seen is not None and self._seen.etag == listed.etag and self._seen.record.ref.version == version:
                self._seen_at = max(self._seen_at, began)
                return self._seen.record
            stored = await self._get(listed.key)
            if stored is None or not self._etag_still_listed(stored, listed):
                continue
            record = self._record(version, stored.data)
            self._see(record, stored.etag, began)
            return record
        raise MetaStoreCorruptionError(
            f"version {highest} was committed, but neither it nor a newer one is there ({attempt + 1} attempts)",
            object_name=self._layout.version_key(highest),
        )

    async def unchanged(self, ref: VersionRef) -> bool:
        """See `Probed.unchanged`. One read of an object that is not there."""
        if self._seen is None or self._seen.record.ref != ref or not self._next_is_kept():
            return False
        return await self._get(self._layout.version_key(ref.version + 1)) is None and self._next_is_kept()

    async def read(self, ref: VersionRef) -> Record | None:
        """See `MetaStore.read`."""
        names.check_ref(ref)
        if self._seen is not None and self._seen.record.ref == ref:
            return self._seen.record
        stored = await self._get(self._layout.version_key(ref.version))
        if stored is None:
            return None
        record = self._record(ref.version, stored.data)
        return record if record.ref == ref else None

    async def commit(self, ref: VersionRef, payload: bytes) -> CommitOutcome:
        """See `MetaStore.commit`."""
        names.check_ref(ref)
        return self.stats.counted(await self._commit(ref, payload))

    async def _commit(self, ref: VersionRef, payload: bytes) -> CommitOutcome:
        if self._seen is None or self._seen.record.ref.version != ref.version - 1:
            head = await self.latest()
            if (0 if head is None else head.ref.version) < ref.version - 1:
                return Conflict(None if head is None else head.ref)
            if head is not None and head.ref.version >= ref.version:
                return await self._find_out(ref, payload, "a newer version was there before it was sent")
        key = self._layout.version_key(ref.version)
        data = seal(Sealed(Kind.MANIFEST, key, ref, payload))
        began = self._runtime.monotonic()
        try:
            etag = await self._create(key, data)
        except OutcomeUnknownError as error:
            return await self._find_out(ref, payload, str(error))
        if etag is None:
            return await self._find_out(ref, payload, "the version existed and was deleted since")
        return await self._confirm(ref, payload, etag, began)

    async def versions(self) -> list[VersionRef]:
        """See `MetaStore.versions`. Reads each version once to learn its token. A deleted version's place that was
        taken again by a committer that slept is listed, too, until it is deleted again."""
        if await self.latest() is None:
            return []
        listing = await self._list(None)
        known = self._tokens
        unread = [
            listed for version, listed in listing.versions if version not in known or known[version][0] != listed.etag
        ]
        for start in range(0, len(unread), PARALLEL_READS):
            await asyncio.gather(*(self._learn(listed.key) for listed in unread[start : start + PARALLEL_READS]))
        self._tokens = {version: known[version] for version, _ in listing.versions if version in known}
        return [VersionRef(version, self._tokens[version][1]) for version in sorted(self._tokens)]

    async def delete(self, refs: Sequence[VersionRef]) -> None:
        """See `MetaStore.delete`."""
        if not refs:
            return
        listing = await self._list(None)
        head = listing.versions[-1][0] if listing.versions else 0
        for ref in refs:
            names.check_ref(ref)
            if ref.version >= head:
                raise MetaStoreInvalidError(
                    f"{self._layout.what} version {ref.version} is not below the head ({head}), so it is not deleted"
                )
        await self._remove([ref.version for ref in refs], listing.boundary)

    async def collect(
        self,
        retained: Sequence[VersionRef],
        *,
        as_of: VersionRef | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> int:
        """See `MetaStore.collect`."""
        listing = await self._list(None)
        if not listing.versions:
            return 0
        head = listing.versions[-1][0]
        end = head if as_of is None else min(head, as_of.version)
        kept = {ref.version for ref in retained}
        doomed = [
            version
            for version, listed in listing.versions
            if version < end and version not in kept and self._old_enough(listed)
        ]
        doomed = doomed[:limit]
        if doomed and not dry_run:
            await self._remove(doomed, listing.boundary)
        return len(doomed)

    async def close(self) -> None:
        """The store belongs to the caller; nothing to release."""

    # The rules, one method each.

    def _may_be_head(self, version: int, floor: int) -> bool:
        """Nothing below the boundary, or below what was the head before, is the head now."""
        return version >= floor

    def _etag_still_listed(self, stored: StoredObject, listed: ListedObject) -> bool:
        """Whether the object read is the one listed, not one put at its deleted place since."""
        return stored.etag == listed.etag

    def _old_enough(self, listed: ListedObject) -> bool:
        """Whether no probe may still wait for this version to appear."""
        since = self._runtime.kept_since_ms()
        return since is None or listed.modified_ms is None or listed.modified_ms < since

    def _next_is_kept(self) -> bool:
        """Whether a version that followed the one last seen cannot have been deleted yet."""
        return self._runtime.monotonic() - self._seen_at < self._runtime.version_keep_ms / 1000 / KEPT_SHARE

    async def _boundary_allows(self, version: int) -> bool:
        """Whether no deleter may have removed ``version`` so far."""
        return await self._read_boundary() <= version

    async def _raise_boundary(self, version: int, standing: int) -> None:
        """Make a boundary of at least ``version`` durable; ``standing`` is the one listed before."""
        if version <= standing:
            return
        key = self._layout.boundary_key(version)
        data = seal(Sealed(Kind.BOUNDARY, key, VersionRef(version, self._runtime.token()), b""))
        for attempt in range(READ_ATTEMPTS):
            self.stats.retries += attempt > 0
            try:
                await self._create(key, data)
            except OutcomeUnknownError:
                await self._runtime.back_off(attempt)
            if await self._read_boundary() >= version:
                return
        raise MetaStoreUnavailableError(
            f"{key}: the deletion boundary could not be raised, so nothing was deleted; try again"
        )

    # Their parts.

    async def _confirm(self, ref: VersionRef, payload: bytes, etag: str, began: float = float("-inf")) -> CommitOutcome:
        """``began``: a time before which the version was not there, if that is known."""
        try:
            allowed = await self._boundary_allows(ref.version)
        except MetaStoreError as error:
            return Unknown(f"the boundary could not be read after the put: {error}")
        if not allowed:
            return Unknown(f"the deletion boundary has passed version {ref.version}")
        self._see(Record(ref, payload), etag, began)
        return Committed(ref)

    async def _find_out(self, ref: VersionRef, payload: bytes, cause: str) -> CommitOutcome:
        """What stands at the version decides, if the boundary says that it always stood there."""
        key = self._layout.version_key(ref.version)
        try:
            stored = await self._get(key)
            if stored is None:
                return Unknown(cause)
            found = self._record(ref.version, stored.data).ref
            if found == ref:
                return await self._confirm(ref, payload, stored.etag)
            if not await self._boundary_allows(ref.version):
                return Unknown(f"{cause}; the deletion boundary has passed version {ref.version}")
        except MetaStoreError as error:
            return Unknown(f"{cause}; then {error}")
        return Conflict(found)

    def _see(self, record: Record, etag: str, since: float = float("-inf")) -> None:
        """``since``: a time before which no newer version was there."""
        if self._seen is None or self._seen.record.ref.version <= record.ref.version:
            same = self._seen is not None and self._seen.record.ref == record.ref
            self._seen_at = max(self._seen_at, since) if same else since
            self._seen = Seen(record, etag)

    async def _list(self, since: Seen | None) -> Listing:
        after = "" if since is None else self._layout.version_key(since.record.ref.version - 1)
        versions: list[tuple[int, ListedObject]] = []
        boundary, foreign = 0, None
        with reading(f"listing the {self._layout.what}"):
            async for listed in self._objects.list(self._layout.folder, after):
                if (version := self._layout.version_of(listed.key)) is not None:
                    versions.append((version, listed))
                elif (raised := self._layout.boundary_of(listed.key)) is not None:
                    boundary = max(boundary, raised)
                elif self._layout.is_of_bodies(listed.key):
                    foreign = listed.key
        return Listing(tuple(versions), boundary, foreign)

    async def _read_boundary(self) -> int:
        return max(await self._markers(), default=0)

    async def _remove(self, versions: Sequence[int], standing: int) -> None:
        await self._raise_boundary(max(versions) + 1, standing)
        await self._delete([self._layout.version_key(version) for version in sorted(set(versions))])
        stale = [self._layout.boundary_key(raised) for raised in await self._markers() if raised < standing]
        if stale:
            await self._delete(stale)

    async def _markers(self) -> list[int]:
        with reading("listing the deletion boundary"):
            found = [
                self._layout.boundary_of(listed.key)
                async for listed in self._objects.list(self._layout.boundary_folder)
            ]
        return [raised for raised in found if raised is not None]

    async def _learn(self, key: str) -> None:
        stored = await self._get(key)
        version = self._layout.version_of(key)
        if stored is not None and version is not None:
            self._tokens[version] = (stored.etag, self._record(version, stored.data).ref.token)

    async def _get(self, key: str) -> StoredObject | None:
        with reading(f"reading {key}"):
            return await self._objects.get(key)

    async def _create(self, key: str, data: bytes) -> str | None:
        with writing(f"creating {key}"):
            return await self._objects.create(key, data)

    async def _delete(self, keys: Sequence[str]) -> None:
        with reading(f"deleting from the {self._layout.what}"):
            await self._objects.delete(keys)

    def _record(self, version: int, data: bytes) -> Record:
        key = self._layout.version_key(version)
        sealed = unseal(data, kind=Kind.MANIFEST, name=key)
        if sealed.ref.version != version:
            raise MetaStoreCorruptionError(f"holds version {sealed.ref.version}", object_name=key)
        return Record(sealed.ref, sealed.payload)

    def _check_no_others(self, listing: Listing) -> None:
        if listing.foreign is not None:
            what, owner = self._layout.what, self._layout.owner
            raise MetaStoreInvalidError(
                f"there is no {what} by versions here, but {listing.foreign!r}: this {owner} keeps its {what} in"
                " another metastore; name it (metastore=...)"
            )
