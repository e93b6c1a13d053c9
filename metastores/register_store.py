"""A `MetaStore` over a `Register` and a place for bodies: the register names the head, bodies hold the payloads.

Invariants: the head's body is stored before the register names it and never deleted while it does; a body is named
by number and token, so a loser's body is never read. No deletion boundary is needed: a commit is a compare-and-set
on the head itself, which a committer that slept can only lose.

Ordering rules:

* body first, then one compare-and-set of the head;
* deleters read the head, then list, and delete only what is at or below it: a body above may be about to be
  committed, at any age.

The head's value carries the refs of the last `HISTORY` versions, as each body does. That is how `versions` tells
committed bodies from those of lost attempts.

Rules 7 and 8: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metastores import names
from metastores.bodies import BodyStore
from metastores.envelope import Kind, Sealed, seal, unseal
from metastores.errors import MetaStoreCorruptionError, MetaStoreInvalidError
from metastores.names import Layout
from metastores.protocol import Cell, CommitOutcome, Committed, Conflict, Record, Register, Unknown, VersionRef
from metastores.runtime import MetaRuntime
from metastores.stats import MetaStats

HISTORY = 20
READ_ATTEMPTS = 16
QUICK_ATTEMPTS = 3
HEAD_NAME = "head"


@dataclass(frozen=True, slots=True)
class Head:
    """What the register says: the newest version, those before it, and the tag to replace it."""

    ref: VersionRef
    history: tuple[VersionRef, ...]
    tag: str


class RegisterMetaStore:
    """`MetaStore` over ``register`` and ``bodies``. ``stats`` counts its outcomes and repeated readings, and what
    else its caller counts there; the register's own counts are not in it."""

    stats: MetaStats
    """Its counters, live."""

    def __init__(
        self,
        register: Register,
        bodies: BodyStore,
        runtime: MetaRuntime | None = None,
        stats: MetaStats | None = None,
        layout: Layout = names.MANIFEST,
    ) -> None:
        self._register = register
        self._bodies = bodies
        self._layout = layout
        self._runtime = MetaRuntime() if runtime is None else runtime
        self._head: Head | None = None
        self._record: Record | None = None
        self.stats = MetaStats() if stats is None else stats

    async def latest(self) -> Record | None:
        """See `MetaStore.latest`. One read of the register when the head is the one last seen."""
        for attempt in range(READ_ATTEMPTS):
            self.stats.retries += attempt > 0
            if attempt >= QUICK_ATTEMPTS:
                await self._runtime.back_off(attempt - QUICK_ATTEMPTS)
            head = await self._read_head()
            if head is None:
                await self._bodies.check_empty()
                return None
            record = await self.read(head.ref)
            if record is not None:
                if self._record is None or self._record.ref.version < record.ref.version:
                    self._record = record
                return record
            again = await self._read_head()
            if again is not None and again.ref == head.ref:
                raise MetaStoreCorruptionError(
                    "is missing, though the head names it", object_name=self._layout.body_key(head.ref)
                )
        raise MetaStoreCorruptionError(
            f"the head changed during each of {READ_ATTEMPTS} reads", object_name=self._layout.current
        )

    async def unchanged(self, ref: VersionRef) -> bool:
        """See `Probed.unchanged`. One read of the register, which no collector has a part in."""
        head = await self._read_head()
        return head is not None and head.ref == ref

    async def read(self, ref: VersionRef) -> Record | None:
        """See `MetaStore.read`."""
        names.check_ref(ref)
        if self._record is not None and self._record.ref == ref:
            return self._record
        sealed = await self._read_body(ref)
        return None if sealed is None else Record(sealed.ref, sealed.payload)

    async def commit(self, ref: VersionRef, payload: bytes) -> CommitOutcome:
        """See `MetaStore.commit`."""
        names.check_ref(ref)
        return self.stats.counted(await self._commit(ref, payload))

    async def _commit(self, ref: VersionRef, payload: bytes) -> CommitOutcome:
        head = self._head
        if head is None or head.ref.version != ref.version - 1:
            head = await self._read_head()
            if head is not None and ref in (head.ref, *head.history):
                return Committed(ref)
            if (0 if head is None else head.ref.version) != ref.version - 1:
                return Conflict(None if head is None else head.ref)
        history = () if head is None else (head.ref, *head.history)[:HISTORY]
        await self._bodies.put(ref, seal(Sealed(Kind.BODY, self._layout.body_key(ref), ref, payload, history)))
        value = seal(Sealed(Kind.HEAD, HEAD_NAME, ref, b"", history))
        outcome = await self._register.compare_and_set(None if head is None else head.tag, value)
        if isinstance(outcome, Committed):
            self._see(Head(ref, history, outcome.value))
            self._record = Record(ref, payload)
            return Committed(ref)
        if isinstance(outcome, Unknown):
            self._head = None
            return outcome
        current = None if outcome.current is None else self._decode(outcome.current)
        if current is not None:
            self._see(current)
            if ref in (current.ref, *current.history):
                return Committed(ref)
        else:
            self._head = None
        return Conflict(None if current is None else current.ref)

    async def versions(self) -> list[VersionRef]:
        """See `MetaStore.versions`."""
        head = await self._read_head()
        if head is None:
            return []
        stored = set(await self._bodies.list())
        found = [head.ref]
        history = head.history
        while True:
            known = [ref for ref in history if ref in stored and ref.version < found[-1].version]
            found.extend(known)
            if not known:
                return found[::-1]
            body = await self._read_body(known[-1])
            history = () if body is None else body.links

    async def delete(self, refs: Sequence[VersionRef]) -> None:
        """See `MetaStore.delete`."""
        if not refs:
            return
        head = await self._read_head()
        for ref in refs:
            names.check_ref(ref)
            if head is None or ref.version >= head.ref.version:
                raise MetaStoreInvalidError(
                    f"{self._layout.what} version {ref.version} is not below the head, so it is not deleted"
                )
        await self._bodies.delete(sorted(set(refs)))

    async def collect(
        self,
        retained: Sequence[VersionRef],
        *,
        as_of: VersionRef | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> int:
        """See `MetaStore.collect`."""
        head = await self._read_head()
        if head is None:
            return 0
        basis = head.ref if as_of is None or as_of.version > head.ref.version else as_of
        kept = {*retained, head.ref, basis}
        listed = await self._bodies.list()
        doomed = [ref for ref in listed if ref not in kept and self._collectable(ref, basis)][:limit]
        if doomed and not dry_run:
            await self._bodies.delete(doomed)
        return len(doomed)

    async def close(self) -> None:
        """See `MetaStore.close`."""
        await self._register.close()

    def _collectable(self, ref: VersionRef, basis: VersionRef) -> bool:
        """Whether a body nobody retains may go: one above the head read before may be about to be committed."""
        return ref.version <= basis.version

    async def _read_body(self, ref: VersionRef) -> Sealed | None:
        data = await self._bodies.get(ref)
        if data is None:
            return None
        key = self._layout.body_key(ref)
        sealed = unseal(data, kind=Kind.BODY, name=key)
        if sealed.ref != ref:
            raise MetaStoreCorruptionError("holds another version", object_name=key)
        return sealed

    async def _read_head(self) -> Head | None:
        cell = await self._register.read()
        if cell is None:
            self._head = None
            return None
        head = self._decode(cell)
        self._see(head)
        return head

    def _see(self, head: Head) -> None:
        if self._head is None or self._head.ref.version <= head.ref.version:
            self._head = head

    def _decode(self, cell: Cell) -> Head:
        sealed = unseal(cell.value, kind=Kind.HEAD, name=HEAD_NAME)
        return Head(sealed.ref, sealed.links, cell.tag)
