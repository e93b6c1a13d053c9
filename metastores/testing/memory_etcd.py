"""An etcd in this process: revisions, transactions, watches, leases and compaction, as `Etcd` says them.

It has all revisions since the last compaction, so a read or a watch may begin at any of them. Nothing fails here;
what comes between a client and it is another object's matter. Leases end when `end_lease` says so.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterator, Sequence

from metastores.etcd_client.protocol import CompactedError
from metastores.etcd_client.records import (
    Condition,
    Delete,
    Entry,
    Event,
    Get,
    ModifiedAt,
    Operation,
    Put,
    RangeAnswer,
    TxnAnswer,
    WatchAnswer,
    end_of,
)


class MemoryEtcd:
    """See the module docstring. ``revision``: the newest; ``compacted``: the first that is left."""

    def __init__(self) -> None:
        self.revision = 1
        self.compacted = 1
        self._entries: dict[bytes, Entry] = {}
        self._keys: list[bytes] = []
        self._events: list[Event] = []
        self._before: dict[tuple[bytes, int], Entry | None] = {}
        self._leases: set[int] = set()
        self._last_lease = 0
        self._changed = asyncio.Event()

    async def read(
        self, key: bytes, end: bytes | None = None, *, revision: int = 0, limit: int = 0, keys_only: bool = False
    ) -> RangeAnswer:
        """See `Etcd.read`."""
        if revision and revision < self.compacted:
            raise CompactedError(self.compacted)
        found = list(self._found(key, end) if revision in (0, self.revision) else self._as_of(key, end, revision))
        shown = found[:limit] if limit else found
        if keys_only:
            shown = [entry._replace(value=b"") for entry in shown]
        return RangeAnswer(self.revision, shown, len(shown) < len(found))

    async def txn(
        self, conditions: Sequence[Condition], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> TxnAnswer:
        """See `Etcd.txn`."""
        held = all(self._holds(condition) for condition in conditions)
        read: list[list[Entry]] = []
        events: list[Event] = []
        for operation in then if held else otherwise:
            match operation:
                case Put(key, value, lease):
                    events.append(self._put(key, value, lease))
                case Delete(key, end):
                    events += [self._delete(entry.key) for entry in list(self._found(key, end))]
                case Get(key, end):
                    read.append(list(self._found(key, end)))
        self._happened(events)
        return TxnAnswer(self.revision, held, read)

    async def write(self, operations: Sequence[Operation]) -> int:
        """See `Etcd.write`."""
        return (await self.txn((), operations)).revision

    async def watch(self, prefix: bytes, revision: int) -> AsyncIterator[WatchAnswer]:
        """See `Etcd.watch`."""
        end = end_of(prefix)
        while True:
            if revision < self.compacted:
                raise CompactedError(self.compacted)
            upper = self.revision
            seen = [event for event in self._since(revision) if prefix <= event.key < end or not prefix]
            if upper >= revision:
                revision = upper + 1
                yield WatchAnswer(upper, seen)
                continue
            changed = self._changed
            await changed.wait()

    async def compact(self, revision: int) -> None:
        """See `Etcd.compact`."""
        if revision > self.compacted:
            self.compacted = min(revision, self.revision)
            self._events = list(self._since(self.compacted))
            self._wake()

    async def grant(self, seconds: int) -> int:
        """See `Etcd.grant`."""
        self._last_lease += 1
        self._leases.add(self._last_lease)
        return self._last_lease

    async def renew(self, lease: int) -> bool:
        """See `Etcd.renew`."""
        return lease in self._leases

    async def revoke(self, lease: int) -> None:
        """See `Etcd.revoke`."""
        self.end_lease(lease)

    def end_lease(self, lease: int) -> None:
        """It was not renewed in time. One that has ended is no error."""
        if lease in self._leases:
            self._leases.remove(lease)
            keys = [entry.key for entry in self._entries.values() if entry.lease == lease]
            self._happened([self._delete(key) for key in sorted(keys)])

    async def close(self) -> None:
        """See `Etcd.close`."""

    def _holds(self, condition: Condition) -> bool:
        entry = self._entries.get(condition.key)
        if isinstance(condition, ModifiedAt):
            return (0 if entry is None else entry.modified) == condition.revision
        return entry is not None and entry.value == condition.value

    def _found(self, key: bytes, end: bytes | None) -> Iterator[Entry]:
        if end is None:
            if key in self._entries:
                yield self._entries[key]
            return
        at = bisect_left(self._keys, key)
        while at < len(self._keys) and (self._keys[at] < end or end == b"\x00"):
            yield self._entries[self._keys[at]]
            at += 1

    def _as_of(self, key: bytes, end: bytes | None, revision: int) -> list[Entry]:
        """What was there at an older revision: of what is there now, without what happened since."""
        found = {entry.key: entry for entry in self._found(key, end)}
        for event in reversed(list(self._since(revision + 1))):
            inside = event.key == key if end is None else key <= event.key and (event.key < end or end == b"\x00")
            if not inside:
                continue
            before = self._before.get((event.key, event.revision))
            if before is None:
                found.pop(event.key, None)
            else:
                found[event.key] = before
        return [found[name] for name in sorted(found)]

    def _put(self, key: bytes, value: bytes, lease: int) -> Event:
        old, revision = self._entries.get(key), self.revision + 1
        if old is None:
            self._keys.insert(bisect_left(self._keys, key), key)
        entry = Entry(key, bytes(value), revision if old is None else old.created, revision, lease)
        self._entries[key] = entry
        self._before[key, revision] = old
        return Event(key, revision, entry)

    def _delete(self, key: bytes) -> Event:
        revision = self.revision + 1
        self._before[key, revision] = self._entries.pop(key)
        del self._keys[bisect_left(self._keys, key)]
        return Event(key, revision, None)

    def _happened(self, events: Sequence[Event]) -> None:
        if events:
            self.revision += 1
            self._events += events
            self._wake()

    def _since(self, revision: int) -> Iterator[Event]:
        at = bisect_left(self._events, revision, key=lambda event: event.revision)
        return iter(self._events[at:])

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
