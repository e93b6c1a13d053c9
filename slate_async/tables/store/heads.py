"""Heads of one table in a metastore, and commits to it.

`slate_async.commits.CommitLoop` says how an edit is committed, and asks `TableHeads` for the rest. A version that
changes rows is written in two steps: its link, then the head that names it. So each attempt has a link of its own, on
the very head that it extends.

Ordering rule: a link is durable before a head names it.

Rules T1, T2, T3, T4, T11, T12 and T19.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import TypeVar

from metastores.protocol import Committed, MetaStore, Unknown, VersionRef
from slate_async.commits import CommitLoop, WriteOutcome
from slate_async.errors import CorruptionError, NotFoundError, said_by
from slate_async.metastore_errors import translated
from slate_async.objectstore.protocol import ObjectNotFoundError
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.tables.codec.head import decode_head, encode_head
from slate_async.tables.core.errors import SnapshotExpiredError
from slate_async.tables.core.head import Head, check_successor
from slate_async.tables.store.chain import Chain

T = TypeVar("T")


class TableHeads:
    """See the module docstring. One commit at a time.

    name: of the table, for messages
    unanswered: commits, as writer and number, of which an attempt had no answer
    covered: the newest link that is known to have a whole one beside it
    """

    def __init__(
        self,
        metastore: MetaStore,
        chain: Chain,
        runtime: Runtime,
        supervisor: Supervisor,
        *,
        name: str,
        deadline_ms: int,
    ) -> None:
        self.name = name
        self.unanswered: set[tuple[str, int]] = set()
        self.covered: str | None = None
        self._metastore = metastore
        self._chain = chain
        self._runtime = runtime
        self._head: Head | None = None
        self.commits: CommitLoop[Head] = CommitLoop(
            self,
            runtime,
            supervisor,
            what=f"table {name}",
            missing=f"there is no table {name} any more",
            deadline_ms=deadline_ms,
        )

    @property
    def head(self) -> Head | None:
        """The newest one seen so far."""
        return self._head

    async def load(self) -> Head | None:
        """The head right now; ``None`` if there is no table. Raises `CorruptionError` if there was one."""
        known = self._head
        record = await self._asked(self._metastore.latest())
        if record is None:
            if known is not None:
                raise CorruptionError(
                    f"there was version {known.version}, and there is none any more; restore it",
                    object_name=f"heads of {self.name}",
                )
            return None
        if known is not None and (record.ref.version, record.ref.token) == (known.version, known.token):
            return known
        return self._see(self._decoded(record.ref, record.payload))

    async def newest(self) -> Head:
        """The head right now. Raises `NotFoundError` if the table was dropped."""
        head = await self.load()
        if head is None or head.dropped:
            raise NotFoundError(f"there is no table {self.name} any more")
        return head

    async def kept(self, head: Head, work: Awaitable[T]) -> T:
        """What ``work`` reads of ``head``. An object that is missing was deleted with its version, or is lost: raises
        `SnapshotExpiredError` or `CorruptionError` (rule T11)."""
        try:
            return await work
        except ObjectNotFoundError as error:
            newest = await self.newest()
            if not newest.keeps(head.version):
                said = f"version {head.version} of {self.name} is not kept any more; read a newer one"
                raise SnapshotExpiredError(said) from error
            said = f"it is missing, and version {head.version} of {self.name} needs it; restore it"
            raise CorruptionError(said, object_name=error.key) from error

    async def read(self, ref: VersionRef) -> Head | None:
        """That version, if it is there. It counts only if a head that is read afterwards keeps it (T12)."""
        record = await self._asked(self._metastore.read(ref))
        return None if record is None else self._decoded(record.ref, record.payload)

    async def stored(self) -> list[VersionRef]:
        """All versions that are there, in order."""
        return await self._asked(self._metastore.versions())

    async def collect(self, retained: Sequence[VersionRef], as_of: VersionRef, *, dry_run: bool = False) -> int:
        """Delete all versions before ``as_of`` but those ``retained``; returns how many. Boundary first (T3)."""
        return await self._asked(self._metastore.collect(retained, as_of=as_of, dry_run=dry_run))

    async def write(self, old: Head | None, new: Head) -> WriteOutcome[Head]:
        """See `slate_async.commits.Versions`. Raises `InternalError` for a version that must not follow ``old``."""
        if old is not None:
            check_successor(old, new)
            if new.change is not None:
                new = new.with_link(await self._chain.put(old, new.change))
            if self.covered is not None:
                new = new.covered(self.covered)
        ref = VersionRef(new.version, self._runtime.ids.token())
        outcome = await self._asked(self._metastore.commit(ref, encode_head(new)))
        if isinstance(outcome, Committed):
            new = replace(new, token=ref.token)
            self._see(new)
            return Committed(new)
        if isinstance(outcome, Unknown):
            self.unanswered.update(
                (writer, mark.n) for writer, mark in new.marks.items() if mark.version == new.version
            )
            return Unknown(f"no answer to the commit of version {new.version} of {self.name}: {outcome.cause}")
        return outcome

    async def close(self) -> None:
        """Close the metastore. Idempotent."""
        await self._metastore.close()

    async def _asked(self, work: Awaitable[T]) -> T:
        """What the metastore answers; of damage with the name of the table, which it does not know."""
        try:
            return await translated(work)
        except CorruptionError as error:
            said = f"{said_by(error)} (table {self.name})"
            raise CorruptionError(said, object_name=error.object_name, offset=error.offset) from error

    def _decoded(self, ref: VersionRef, payload: bytes) -> Head:
        return decode_head(payload, ref.version, ref.token, object_name=f"version {ref.version} of {self.name}")

    def _see(self, head: Head) -> Head:
        """The newest version seen: another task may have seen one while ``head`` was on its way."""
        if self._head is None or head.version > self._head.version:
            self._head = head
        return self._head
