"""The manifest driver: reads the versions of one database's manifest, and commits edits to it.

A version is stored whole, or as the changes since a full version that it names. `slate_async.commits` says how an edit
is committed, `slate_async.storage.manifest.edits.protocol` how its mark resolves an unknown outcome.

Rules 1, 3 and 24: docs/design/protocol-rules.md
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from metastores.protocol import Committed, MetaStore, Probed, Record, Unknown, VersionRef
from slate_async.commits import CommitLoop, WriteOutcome
from slate_async.errors import CorruptionError, NotFoundError
from slate_async.metastore_errors import translated
from slate_async.runtime.contact import Contact
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.storage.manifest import codec
from slate_async.storage.manifest.edits.protocol import Edit
from slate_async.storage.manifest.state import ManifestState, settle
from slate_async.storage.manifest.successor import check_successor

T = TypeVar("T")
logger = logging.getLogger(__name__)
OFFLOAD_SSTS = 500
"""Encoding or decoding more SST references than this takes over a millisecond: do it off the loop."""
SST_BYTES = 100
"""What one takes in a manifest, at least."""
SMALL_FULL_BYTES = 256 << 10
"""A full version of this size is written whenever it is due; a larger one not before the changes since the last one
have together cost as much. So what a commit costs depends on what it changes, not on how much there is."""
CHAIN_READS = 8
"""How often a head whose base was deleted meanwhile is read anew before the chain counts as broken."""


class Base(NamedTuple):
    """A full version that deltas may name, and its size in bytes."""

    state: ManifestState
    nbytes: int


class Stored(NamedTuple):
    """A version as it is stored: what it says, and the full version it is a change to (``None``: it is full)."""

    state: ManifestState
    base: VersionRef | None


@dataclass(slots=True)
class ManifestStats:
    """Counters of one driver, beside those of its `CommitLoop`."""

    loads: int = 0
    probes: int = 0
    bytes_written: int = 0


class ManifestDriver:
    """Reads and commits the manifest of one database. One commit at a time per driver.

    name: what errors and the log call the database: its URL without credentials
    commits: commits its edits; `slate_async.commits.Versions` is what it asks of the driver
    contact: whether the manifest's requests are answered
    """

    def __init__(
        self,
        metastore: MetaStore,
        runtime: Runtime,
        supervisor: Supervisor,
        *,
        name: str,
        full_every: int,
        deadline_ms: int,
    ) -> None:
        self.name = name
        self.metastore = metastore
        self._runtime = runtime
        self._full_every = full_every
        self._head: ManifestState | None = None
        self._quiet = False  # whether the last load brought nothing new
        self._base: Base | None = None  # the newest full version this driver has seen
        self.stats = ManifestStats()
        self.contact = Contact(runtime.clock)
        self.commits: CommitLoop[ManifestState] = CommitLoop(
            self,
            runtime,
            supervisor,
            what=f"manifest of {name}",
            missing=f"there is no database at {name} any more",
            deadline_ms=deadline_ms,
        )

    @property
    def head(self) -> ManifestState | None:
        """The newest state seen so far."""
        return self._head

    async def load(self) -> ManifestState | None:
        """The committed head right now, or ``None`` when there is no database."""
        self.stats.loads += 1
        broken = 0
        for _ in range(CHAIN_READS):
            with self.contact.asking("manifest"):
                record = await translated(self.metastore.latest())
            if record is None:
                return None
            broken = record.ref.version
            self._quiet = self._head is not None and record.ref == self._head.ref
            if self._head is not None and record.ref == self._head.ref:
                return self._head
            state = await self._decode(record)
            if state is not None:
                self._see(state)
                return state
        raise CorruptionError("it is a delta whose base is missing", object_name=f"manifest version {broken}")

    async def unchanged(self) -> bool:
        """Whether the head was the one last seen at some time during this call. ``False``: not known. One cheap
        request, or none if the last `load` brought news. For polls: what is decided rests on `load`."""
        head = self._head
        if head is None or not self._quiet or not isinstance(self.metastore, Probed):
            return False
        self.stats.probes += 1
        with self.contact.asking("manifest"):
            return await translated(self.metastore.unchanged(head.ref))

    async def poll(self) -> ManifestState | None:
        """The head, as `load`; the one last seen while it is `unchanged`."""
        return self._head if await self.unchanged() else await self.load()

    async def existing(self) -> ManifestState:
        """As `load`. Raises `NotFoundError` when there is no database."""
        state = await self.load()
        if state is None:
            raise NotFoundError(f"there is no database at {self.name}; check the path and the metastore")
        return state

    async def read(self, ref: VersionRef) -> ManifestState | None:
        """The committed version ``ref``, or ``None`` if it, or the base it needs, is not there any more.

        What it read never becomes the base of a later delta: only the one that named ``ref`` keeps GC from deleting
        it."""
        if self._head is not None and self._head.ref == ref:
            return self._head
        stored = await self.read_stored(ref)
        return None if stored is None else stored.state

    async def read_stored(self, ref: VersionRef) -> Stored | None:
        """As `read`, with the name of the base."""
        record = await translated(self.metastore.read(ref))
        if record is None:
            return None
        decoded = await self._decode_bytes(record)
        if isinstance(decoded, ManifestState):
            return Stored(replace(decoded, ref=ref), None)
        base = await self._base_of(ref, decoded)
        if base is None:
            return None
        return Stored(await self._applied(base, decoded, record), decoded.base)

    async def base_named_by(self, ref: VersionRef) -> VersionRef | None:
        """The full version that ``ref`` is a change to, there or not; ``None`` if ``ref`` is not there, or full."""
        record = await translated(self.metastore.read(ref))
        decoded = None if record is None else await self._decode_bytes(record)
        return decoded.base if isinstance(decoded, codec.Delta) else None

    def _see(self, state: ManifestState) -> None:
        if self._head is None or state.version > self._head.version:
            self._head = state

    def _see_full(self, full: Base) -> ManifestState:
        """Note ``full`` as the base of later deltas, unless a newer one was seen: a poll that was overtaken by commits
        must not take the base back to a version that a collector, which knows newer heads, has deleted."""
        if self._base is None or full.state.version > self._base.state.version:
            self._base = full
        return full.state

    async def _decode(self, record: Record) -> ManifestState | None:
        """The state of a record; ``None`` if its base is not there (deleted since, or a broken chain)."""
        decoded = await self._decode_bytes(record)
        if isinstance(decoded, ManifestState):
            return self._see_full(Base(replace(decoded, ref=record.ref), len(record.payload)))
        base = await self._base_of(record.ref, decoded)
        if base is None:
            return None
        self._see_full(base)
        return await self._applied(base, decoded, record)

    async def _applied(self, base: Base, delta: codec.Delta, record: Record) -> ManifestState:
        """``base`` with the changes of ``delta``, which ``record`` holds."""

        def apply() -> ManifestState:
            return replace(codec.apply_delta(base.state, delta, object_name=_name(record.ref)), ref=record.ref)

        return await self._off_the_loop(apply, record)

    async def _base_of(self, ref: VersionRef, delta: codec.Delta) -> Base | None:
        """The full version that ``delta``, version ``ref``, names; ``None`` if it is not there."""
        if self._base is not None and self._base.state.ref == delta.base:
            return self._base
        stored = await translated(self.metastore.read(delta.base))
        if stored is None:
            return None
        full = await self._decode_bytes(stored)
        if not isinstance(full, ManifestState):
            raise CorruptionError(f"the base of version {ref.version} is itself a delta", object_name=_name(stored.ref))
        return Base(replace(full, ref=stored.ref), len(stored.payload))

    async def _decode_bytes(self, record: Record) -> ManifestState | codec.Delta:
        def decode() -> ManifestState | codec.Delta:
            return codec.decode(record.payload, object_name=_name(record.ref))

        return await self._off_the_loop(decode, record)

    async def _off_the_loop(self, work: Callable[[], T], record: Record) -> T:
        """Do ``work`` on the bytes of ``record``, on the loop if they are few."""
        large = len(record.payload) > OFFLOAD_SSTS * SST_BYTES
        return await self._runtime.offload.run(work) if large else work()

    async def commit(self, edit: Edit) -> ManifestState:
        """As `CommitLoop.commit`."""
        return await self.commits.commit(edit)

    async def create(self, state: ManifestState) -> ManifestState:
        """Commit ``state`` as version 1 unless a database is there already; returns the head either way."""
        return await self.commits.create(state)

    async def write(self, old: ManifestState | None, new: ManifestState) -> WriteOutcome[ManifestState]:
        """See `slate_async.commits.Versions`. Raises `InternalError` for a state that must not follow ``old``."""
        if old is not None:
            check_successor(old, new)
        ref = VersionRef((0 if old is None else old.version) + 1, self._runtime.ids.token())
        new = settle(new, ref)
        payload, full = await self._encode(new, ref)
        with self.contact.asking("manifest", len(payload)):
            outcome = await translated(self.metastore.commit(ref, payload))
        if isinstance(outcome, Committed):
            self.stats.bytes_written += len(payload)
            state = replace(new, ref=ref)
            if full:
                self._see_full(Base(state, len(payload)))
            self._see(state)
            return Committed(state)
        if isinstance(outcome, Unknown):
            logger.info(
                "%s: the commit of manifest version %d had no answer (%s); reading the head again",
                self.name,
                ref.version,
                outcome.cause,
            )
            return Unknown(f"no answer to the commit of manifest version {ref.version}: {outcome.cause}")
        return outcome

    async def _encode(self, new: ManifestState, ref: VersionRef) -> tuple[bytes, bool]:
        """``new`` as the bytes of version ``ref``, and whether they are a full version."""
        base = self._base
        since = 0 if base is None else ref.version - base.state.version
        due = ref.version % self._full_every == 0 or since >= self._full_every

        def encode() -> tuple[bytes, bool]:
            if base is not None and self._full_every > 1 and (not due or base.nbytes > SMALL_FULL_BYTES):
                delta = codec.encode_delta(base.state, new)
                if not due or len(delta) * since // 2 < base.nbytes:
                    return delta, False
            return codec.encode_full(new), True

        if len(new.l0) + sum(len(run.ssts) for run in new.runs) > OFFLOAD_SSTS:
            return await self._runtime.offload.run(encode)
        return encode()

    async def close(self) -> None:
        """Close the metastore. Idempotent."""
        await self.metastore.close()


def _name(ref: VersionRef) -> str:
    return f"manifest version {ref.version}"
