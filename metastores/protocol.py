"""Two small protocols every metadata decision of the engine stands on, and the narrow view of an object
store they may be built over.

A conditional write ends in one of **three** outcomes:

* `Committed` - it is in, and when the call returns nothing newer was lost because of it;
* `Conflict` - it is certainly not in and never will be;
* `Unknown` - it may be in, may come in later, or may have been in and been superseded since.

`Unknown` is resolved by the *edit*, not by the cell: the caller re-reads the state and looks for the mark
its edit leaves there. A token read back proves success only until the next commit covers it.

Errors other than these outcomes are `metastores.errors.MetaStoreError`; raised by a conditional write it means
that certainly nothing was written. Reads retry inside, bounded; conditional writes are sent once per call, again
only after an answer that certainly refused them without judging the condition (throttling).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from metastores.names import Layout

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Committed(Generic[T]):
    """The write is in; ``value`` identifies what it wrote."""

    value: T


@dataclass(frozen=True, slots=True)
class Conflict(Generic[T]):
    """The write is not in; ``current`` is what stood in its way, ``None`` for nothing there."""

    current: T | None


@dataclass(frozen=True, slots=True)
class Unknown:
    """The write may be in, now or later. ``cause`` says what happened to it."""

    cause: str


class VersionRef(NamedTuple):
    """Names one version of a `MetaStore`: its number, and the token its committer chose for it.

    Bodies are named by both, so a body of a losing attempt at the same number is never read."""

    version: int
    token: str


@dataclass(frozen=True, slots=True)
class Record:
    """One committed version."""

    ref: VersionRef
    payload: bytes


@dataclass(frozen=True, slots=True)
class Cell:
    """The value of a `Register`; ``tag`` changes with every write, even of equal bytes."""

    value: bytes
    tag: str


CommitOutcome: TypeAlias = Committed[VersionRef] | Conflict[VersionRef] | Unknown
CasOutcome: TypeAlias = Committed[str] | Conflict[Cell] | Unknown


class Register(Protocol):
    """One linearizable compare-and-set cell. At most 350 KB."""

    async def read(self) -> Cell | None:
        """The newest value, or ``None`` if never written."""

    async def compare_and_set(self, expected_tag: str | None, value: bytes) -> CasOutcome:
        """Write ``value`` iff the cell's tag is ``expected_tag`` (``None``: iff never written).
        ``Committed.value`` is the new tag. Tags never repeat."""

    async def close(self) -> None:
        """Release connections owned by this object. Idempotent."""


class MetaStore(Protocol):
    """An append-only sequence of versioned records, numbered from 1, of which the newest is the *head*.

    `commit` wins iff the head is ``ref.version - 1`` at that time. Versions below the head may be deleted;
    the head never is."""

    async def latest(self) -> Record | None:
        """The head, or ``None`` if nothing was ever committed. Linearizable."""

    async def read(self, ref: VersionRef) -> Record | None:
        """That very version (number and token), or ``None`` if it is not there."""

    async def commit(self, ref: VersionRef, payload: bytes) -> CommitOutcome:
        """Make ``payload`` version ``ref.version``. ``ref.token`` must be unique to this attempt
        (32 lower-case hex digits)."""

    async def versions(self) -> list[VersionRef]:
        """Committed versions still stored, ascending; the last one is the head. A register-backed store leaves out
        those behind a gap of more deleted versions than it keeps history of (20): callers that retain such versions
        know their names."""

    async def delete(self, refs: Sequence[VersionRef]) -> None:
        """Delete versions below the head. Raises a durable boundary first, so that a committer asleep since
        before never reports success at a deleted number. Naming the head or above is an error."""

    async def collect(
        self,
        retained: Sequence[VersionRef],
        *,
        as_of: VersionRef | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> int:
        """Delete every stored body at or below ``as_of`` that is neither it, nor the head, nor in ``retained``,
        bodies of lost attempts included; returns how many. Bodies above are left alone.

        ``as_of`` names the committed version whose state ``retained`` was computed from: what later versions
        retain (a checkpoint committed meanwhile, say) is then safe. Without it the head is read inside, which is
        right only if no later version can name an older one. At most ``limit`` bodies go, the oldest first.
        ``dry_run`` only counts those that would go now."""

    async def close(self) -> None:
        """Release connections owned by this object. Idempotent."""


@runtime_checkable
class Probed(Protocol):
    """A `MetaStore` that can tell by one cheap request that its head is the one known. Backends need not: look with
    ``isinstance``."""

    async def unchanged(self, ref: VersionRef) -> bool:
        """Whether ``ref``, the head when it was last read, certainly was the head at some time during this call.
        ``False`` says nothing: read `MetaStore.latest`.

        Rests on how long collectors keep versions, by their clocks: for polls only, never for a decision."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object's bytes and the etag they were read with."""

    data: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class ListedObject:
    """A listed key and its etag; when it was written, by the store's clock, if that says so."""

    key: str
    etag: str
    modified_ms: int | None = None


class ConditionalObjects(Protocol):
    """What a metastore needs of an object store. Reads, lists, deletes and `put` retry inside.

    Conditional writes are sent once: a ``None`` answer is definite.

    Errors: what the store, the network or a deadline did is said by an exception that has an attribute ``outcome``
    (``"not_applied"``, ``"unknown"`` or, for a read, ``None``), by an `OSError` (`TimeoutError` and `ConnectionError`
    are ones) or by a `metastores.errors.MetaStoreError`. One that is a `ValueError`, too, says that the call or the
    configuration was wrong, one with an attribute ``object_name`` that stored bytes are. After a conditional write
    they mean that its outcome is unknown, unless ``outcome`` is ``"not_applied"`` (or it is a `MetaStoreError`).
    Their texts end in messages: they hold no secret. Any other exception is a bug: it passes through metastores as
    it is and is never taken for an outage."""

    async def get(self, key: str) -> StoredObject | None:
        """The object, or ``None``."""

    async def put(self, key: str, data: bytes) -> str:
        """Write unconditionally; returns the etag."""

    async def create(self, key: str, data: bytes) -> str | None:
        """Write iff absent; the etag, or ``None`` if an object is there."""

    async def replace(self, key: str, data: bytes, etag: str) -> str | None:
        """Write iff the object still carries ``etag``; the new etag, or ``None``."""

    def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ListedObject]:
        """Keys with the prefix, greater than ``start_after``, in byte order, strongly consistent: a page shows the
        store as it was at one time, and pages follow each other in time."""

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove; missing keys are no error."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What the metadata a factory makes asks of the database's own object store."""

    create: bool = False
    """`MetaStoreFactory.manifest` relies on `ConditionalObjects.create` being exclusive."""
    replace: bool = False
    """`MetaStoreFactory.manifest` relies on `ConditionalObjects.replace` being exclusive."""
    register: bool = False
    """`MetaStoreFactory.register` relies on both being exclusive."""


class MetaStoreFactory(Protocol):
    """Makes the metadata of one database. What ``slate.open(metastore=...)`` names or is given.

    ``objects`` is the database's own folder in the object store, ``name`` its URL without credentials;
    a backend that keeps metadata elsewhere files it under ``name``."""

    def manifest(self, objects: ConditionalObjects, name: str, layout: Layout = ...) -> MetaStore:
        """The manifest of that database, or what else ``layout`` says that there are versions of. Keys it uses lie in
        the layout's folder: ``manifest/`` unless another one is given."""

    def register(self, objects: ConditionalObjects, name: str) -> Register:
        """The writer's register of that database. Keys it uses start with ``writer/``."""

    @property
    def needs(self) -> Needs:
        """What must hold of ``objects``; nothing, for a backend that keeps its metadata elsewhere."""

    async def close(self) -> None:
        """Release what is shared by all metastores this factory made. Idempotent."""


@runtime_checkable
class ErasesMetadata(Protocol):
    """A `MetaStoreFactory` that can also forget a database whose folder is lost."""

    async def erase(self, name: str) -> None:
        """Remove everything that is kept of that database apart from its folder, its newest version first: a commit
        that is on its way then fails. Called again it goes on. Raises `MetaStoreError`."""
