"""The object store contract: the only storage interface the engine knows.

Guarantees every backend must give (and `slate_async.objectstore.testing` checks):

* **Atomic.** A reader sees an object's old bytes and metadata or the new ones, never a mixture.
* **Strongly consistent.** After a write returned, every `get`, `head` and `list` started later sees it.
* **Exclusive.** Of any number of racing `put(mode=CREATE)` on a missing key, or `put(mode=Match(etag))`
  on the same etag, exactly one succeeds. Two contents never share an etag at different times unless their bytes are
  equal; a caller that compares and sets puts a nonce into the bytes.
* **Sent once.** A conditional put sends one request; no layer repeats it. So `ObjectExistsError` and
  `ObjectChangedError` are definite: this call changed nothing.
* **Outcome.** Any other error of `put` carries ``outcome``: ``"not_applied"`` if the request certainly
  never ran, else ``"unknown"`` (it may have run, or may still run later).
* **Cancellation.** A cancelled `put` either happened or not, as a whole; a half-written object is never seen.
* **Order.** `list` yields keys in ascending order of their UTF-8 bytes.

Keys are relative, ``/``-separated, 1 to 900 bytes, of printable ASCII without ``\\``; no segment is empty,
``.`` or ``..`` or longer than 200 bytes. Metadata is a small ``str -> str`` map (names ``[a-z][a-z0-9-]*``, values
printable ASCII, not empty, no space at either end, under 2 KB in all).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from slate_async.errors import ConflictError, SlateError
from slate_async.types import Buffer


class ObjectNotFoundError(SlateError):
    """There is no object under that key. ``key`` names it."""

    key: str
    """The key that was asked for."""

    def __init__(self, key: str) -> None:
        super().__init__(f"no object at {key!r}")
        self.key = key


class ObjectExistsError(ConflictError):
    """`CREATE` lost: an object is there already; nothing was written."""

    object_name: str
    """The key that was written to."""

    def __init__(self, key: str) -> None:
        super().__init__(f"an object exists at {key!r}", outcome="not_applied")
        self.object_name = key


class ObjectChangedError(ConflictError):
    """`Match` lost: the object has another etag or was deleted; nothing was written."""

    object_name: str
    """The key that was written to."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the object at {key!r} changed or was deleted", outcome="not_applied")
        self.object_name = key


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Write whatever is there."""


@dataclass(frozen=True, slots=True)
class Create:
    """Write only if no object is there."""


@dataclass(frozen=True, slots=True)
class Match:
    """Write only over the object that carries ``etag``."""

    etag: str


PutMode: TypeAlias = Overwrite | Create | Match
"""On which condition `ObjectStore.put` writes."""
OVERWRITE = Overwrite()
"""Write whatever is there."""
CREATE = Create()
"""Write only if no object is there."""


@dataclass(frozen=True, slots=True)
class Span:
    """``length`` bytes from ``offset``. A span that ends past the object is cut; one that starts
    at or past its end is `InvalidError`."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Suffix:
    """The last ``length`` bytes; the whole object if it is shorter."""

    length: int


ByteRange: TypeAlias = Span | Suffix
"""Which bytes of an object `ObjectStore.get` reads."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a store knows of an object. ``metadata`` is filled by `get` and `head`, empty from `list`."""

    key: str
    size: int
    etag: str
    last_modified_ms: int
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GetResult:
    """Bytes read and the object they came from. ``info.size`` is the whole object's size;
    ``offset`` is where ``data`` begins in it."""

    info: ObjectInfo
    data: bytes
    offset: int = 0


class ObjectStore(Protocol):
    """A flat map of keys to immutable-by-convention byte strings. See the module docstring for the contract."""

    async def put(
        self,
        key: str,
        data: Buffer | Sequence[Buffer],
        *,
        mode: PutMode = OVERWRITE,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Write an object and return its etag. A sequence of buffers is written joined.

        Raises `ObjectExistsError`, `ObjectChangedError`, `UnavailableError`, `InvalidError`."""

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        """Read an object or a part of it. Raises `ObjectNotFoundError`, `InvalidError`, `UnavailableError`."""

    async def head(self, key: str) -> ObjectInfo:
        """Size, etag, time and metadata without the bytes. Raises `ObjectNotFoundError`."""

    def list(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """All objects whose key starts with the string ``prefix`` and is greater than ``start_after``,
        in byte order, fetched page by page."""

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; missing ones are no error. Not atomic over several keys."""

    async def close(self) -> None:
        """Release connections. Idempotent; the store is unusable afterwards."""
