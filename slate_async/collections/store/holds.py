"""The holds of read handles: one object each, changed by compare-and-set only (C10).

Every attempt carries a nonce of its own, so an outcome that is unknown is resolved by reading (`holding.resolved`), and
etags that are hashes of the bytes tell attempts apart.

Rules C10 and C18 of collections.
"""

from __future__ import annotations

from collections.abc import Iterable

from slate_async.collections.codec.hold import decode_hold, encode_hold
from slate_async.collections.core import names
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.holding import Hold, StoredHold, unreadable
from slate_async.collections.core.times import TimeKind
from slate_async.collections.store.conditional import Written, put_if
from slate_async.errors import ConfigError, CorruptionError, said_by
from slate_async.objectstore.prefixed import whole_key
from slate_async.objectstore.protocol import ObjectNotFoundError, ObjectStore
from slate_async.runtime.gather import gather

PARALLEL_READS = 16
NO_ETAG = ""
"""Of a hold whose file is so damaged that the store itself cannot read it. It can only be removed."""


class HoldStore:
    """Holds of one life of a collection, whose folder is ``store``."""

    def __init__(self, store: ObjectStore, kind: TimeKind) -> None:
        self._store = store
        self._kind = kind

    async def list(self) -> dict[str, str]:
        """The etag of each reader's hold, as one listing shows it. Other keys are left alone."""
        return {
            reader: info.etag
            async for info in self._store.list(names.READERS)
            if (reader := names.parse_hold(info.key)) is not None
        }

    async def read(self, reader: str) -> StoredHold | None:
        """The hold of ``reader`` now, or ``None``. Raises `CorruptionError`, which says how it is ended."""
        return await self._read(reader)

    async def look(self, reader: str) -> StoredHold | None:
        """As `read`; one that is damaged is `unreadable`."""
        try:
            return await self._read(reader)
        except _DamagedHoldError as error:
            return unreadable(Frontier.minimum(self._kind), error.etag, str(error))

    async def read_all(self, readers: Iterable[str]) -> dict[str, StoredHold]:
        """Those of ``readers`` that are there, some at a time; damaged ones as in `look`."""
        found: dict[str, StoredHold] = {}
        waiting = sorted(readers)
        for start in range(0, len(waiting), PARALLEL_READS):
            some = waiting[start : start + PARALLEL_READS]
            stored = await gather([self.look(reader) for reader in some])
            found |= {reader: hold for reader, hold in zip(some, stored, strict=True) if hold is not None}
        return found

    async def write(self, reader: str, hold: Hold, etag: str | None) -> Written:
        """Write ``hold`` once, iff the stored one carries ``etag``; ``None``: iff there is none.

        Raises `UnavailableError` if certainly nothing was written, `ConfigError` where this process may not write."""
        try:
            return await put_if(self._store, names.hold_name(reader), encode_hold(hold), etag)
        except ConfigError as error:
            raise ConfigError(
                f"a reader could not write its hold: reading a collection takes the right to write and delete below its"
                f" folder {names.READERS}: {error}",
                outcome=error.outcome,
            ) from error

    async def remove(self, readers: Iterable[str]) -> None:
        """Delete the holds of ``readers``, which were given up or revoked. Missing ones are no error."""
        await self._store.delete([names.hold_name(reader) for reader in sorted(readers)])

    async def _read(self, reader: str) -> StoredHold | None:
        key, etag = names.hold_name(reader), NO_ETAG
        try:
            found = await self._store.get(key)
            etag = found.info.etag
            hold = decode_hold(found.data, self._kind, object_name=whole_key(self._store, key))
        except ObjectNotFoundError:
            return None
        except CorruptionError as error:
            said = f"{said_by(error)}; {way_out(reader)}"
            raise _DamagedHoldError(said, object_name=error.object_name, offset=error.offset, etag=etag) from error
        return StoredHold(hold, etag)


def way_out(reader: str) -> str:
    """What to do about the damaged hold of ``reader``, if no backup has it."""
    return (
        "nothing is compacted further or collected until it is expired by its name: expire_reader"
        f"({reader!r}), or `slate collection expire`. What it kept may go then"
    )


class _DamagedHoldError(CorruptionError):
    """``etag``: of the object that is damaged, or `NO_ETAG`."""

    def __init__(self, message: str, *, object_name: str, offset: int, etag: str) -> None:
        super().__init__(message, object_name=object_name, offset=offset)
        self.etag = etag
