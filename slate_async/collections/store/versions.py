"""Versions of a merged area in a metastore: the head, those before it, and commits to it.

`slate_async.commits.CommitLoop` says how an edit is committed, and asks `AreaVersions` for the rest. Version 0 is not
stored: a life whose metastore is empty is at `Area.first`.

Rules C20, C24, C26 and C27 of collections.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from metastores.protocol import Committed, MetaStore, Probed, Record, Unknown, VersionRef
from slate_async.collections.codec.version import decode_version, encode_version
from slate_async.collections.core.area import Area, check_successor
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.times import TimeKind
from slate_async.commits import CommitLoop, WriteOutcome
from slate_async.errors import CorruptionError, InternalError, said_by
from slate_async.metastore_errors import translated
from slate_async.runtime.concurrent import map_bounded
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor

T = TypeVar("T")
READS_AT_ONCE = 16


class Answered(Protocol):
    """Repeats a call that changes nothing, within a deadline; the first argument says what it is, for errors."""

    def __call__(self, what: str, call: Callable[[], Awaitable[T]], /) -> Awaitable[T]:
        """What it gives. Raises `UnavailableError` past the deadline."""


async def no_files() -> str | None:
    """No merged batch is there."""
    return None


class AreaVersions:
    """Versions of the merged area of one life. One commit at a time.

    name: of the collection, for messages
    merged_file: the name of any merged batch that is there. One is put by a controller, so after version 1
    commits: commits edits, see `slate_async.collections.core.edits`
    """

    def __init__(
        self,
        metastore: MetaStore,
        kind: TimeKind,
        runtime: Runtime,
        supervisor: Supervisor,
        *,
        name: str,
        deadline_ms: int,
        merged_file: Callable[[], Awaitable[str | None]] = no_files,
    ) -> None:
        self.name = name
        self._merged_file: Callable[[], Awaitable[str | None]] | None = merged_file
        self._metastore = metastore
        self._kind = kind
        self._runtime = runtime
        self._head: Area | None = None
        self._ref: VersionRef | None = None  # of the head; None while that is version 0
        self._quiet = False  # whether the last load brought nothing new
        self._polled_s = -math.inf  # when the last poll was begun
        self.commits: CommitLoop[Area] = CommitLoop(
            self,
            runtime,
            supervisor,
            what=f"merged area of {name}",
            missing=f"there is no collection {name} any more",
            deadline_ms=deadline_ms,
        )

    @property
    def head(self) -> Area | None:
        """The newest version seen so far; ``None`` before the first look."""
        return self._head

    async def load(self) -> Area:
        """The head right now. Raises `CorruptionError` if there was one and there is none any more: then a merged batch
        is there, for which this looks once."""
        known = self._ref  # another task may see the first version while this look is on its way
        record = await self._asked(self._metastore.latest())
        if record is None and known is None and self._merged_file is not None:
            found = await self._merged_file()
            record = None if found is None else await self._asked(self._metastore.latest())
            if found is not None and record is None:
                raise self._lost(f"there is {found}")
            self._merged_file = None
        if record is None:
            if known is not None:
                raise self._lost(f"there was version {known.version}")
            return self._see(Area.first(Frontier.minimum(self._kind)), None)
        self._quiet = record.ref == self._ref
        if self._quiet and self._head is not None:
            return self._head
        return self._see(self._decoded(record), record.ref)

    async def poll(self, *, max_age_ms: float = 0.0) -> Area:
        """As `load`, for a look that nothing rests on: one cheap request while nothing is new.

        max_age_ms: none if another poll was begun so short a time ago; then what is known now"""
        head, ref, now = self._head, self._ref, self._runtime.clock.monotonic()
        if head is not None and (now - self._polled_s) * 1000 < max_age_ms:
            return head
        self._polled_s = now
        try:
            if head is None or ref is None or not self._quiet or not isinstance(self._metastore, Probed):
                return await self.load()
            return head if await self._asked(self._metastore.unchanged(ref)) else await self.load()
        except BaseException:
            self._polled_s = -math.inf
            raise

    async def write(self, old: Area | None, new: Area) -> WriteOutcome[Area]:
        """See `slate_async.commits.Versions`. Raises `InternalError` for a version that must not follow ``old``."""
        if old is None:
            raise InternalError("version 0 of a merged area is not stored")
        check_successor(old, new)
        ref = VersionRef(new.version, self._runtime.ids.token())
        outcome = await self._asked(self._metastore.commit(ref, encode_version(new)))
        if isinstance(outcome, Committed):
            self._see(new, ref)  # another task may have seen a later one, of another controller's epoch
            return Committed(new)
        if isinstance(outcome, Unknown):
            return Unknown(f"no answer to the commit of version {new.version} of {self.name}: {outcome.cause}")
        return outcome

    async def read_range(self, first: int, head: Area, answered: Answered) -> dict[int, Area | None]:
        """The versions from ``first`` to the one before ``head``; ``None`` for one that is not there (C24).

        There may be thousands of them, which a hold retains: some are read at a time, each within its own deadline"""
        wanted = range(max(first, 1), head.version)
        if not wanted:
            return {}
        stored = {ref.version: ref for ref in await answered("a listing of versions", self.stored)}

        async def one(version: int) -> Area | None:
            if version not in stored:
                return None
            return await answered(f"a read of version {version}", lambda: self.read(stored[version]))

        return dict(zip(wanted, await map_bounded(one, wanted, READS_AT_ONCE), strict=True))

    async def stored(self) -> list[VersionRef]:
        """All versions that are there, in order. Raises `CorruptionError`, `UnavailableError`."""
        return await self._asked(self._metastore.versions())

    async def read(self, ref: VersionRef) -> Area | None:
        """The version ``ref``; ``None`` if it is not there. Raises as `stored`."""
        record = await self._asked(self._metastore.read(ref))
        return None if record is None else self._decoded(record)

    async def collect(self, lowest: int, head: Area, *, limit: int | None = None, dry_run: bool = False) -> int:
        """Delete versions below ``lowest``, and what lost attempts left below ``head``, which was read before; at most
        ``limit``, the oldest first. Returns how many (C27)."""
        refs = await self._asked(self._metastore.versions())
        as_of = next((ref for ref in refs if ref.version == head.version), None)
        if as_of is None:
            return 0
        retained = [ref for ref in refs if ref.version >= lowest]
        return await self._asked(self._metastore.collect(retained, as_of=as_of, limit=limit, dry_run=dry_run))

    async def collect_dead(self) -> int:
        """Delete all versions but the newest, of a life that is over; returns how many (C27)."""
        refs = await self._asked(self._metastore.versions())
        return await self._asked(self._metastore.collect(refs[-1:], as_of=refs[-1])) if refs else 0

    async def close(self) -> None:
        """Close the metastore. Idempotent."""
        await self._metastore.close()

    async def _asked(self, work: Awaitable[T]) -> T:
        """What the metastore answers; of damage with the name of the collection, which it does not know."""
        try:
            return await translated(work)
        except CorruptionError as error:
            said = f"{said_by(error)} (collection {self.name})"
            raise CorruptionError(said, object_name=error.object_name, offset=error.offset) from error

    def _lost(self, why: str) -> CorruptionError:
        text = f"all versions are missing, and {why}; restore them, or name the metastore that has them (metastore=...)"
        return CorruptionError(text, object_name=f"merged area of {self.name}")

    def _see(self, area: Area, ref: VersionRef | None) -> Area:
        """The newest version seen: another task may have seen one while ``area`` was on its way."""
        if self._head is None or area.version > self._head.version:
            self._head, self._ref = area, ref
        return self._head

    def _decoded(self, record: Record) -> Area:
        name = f"version {record.ref.version} of {self.name}"
        return decode_version(record.payload, record.ref.version, self._kind, object_name=name)
