"""What a map reads from: the newest rows of a database, those of one read point, or those a transaction sees."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, Protocol

from slate_async.database.readable import Reads
from slate_async.database.transaction import Transaction
from slate_async.engine.read.source import ReadSource, SnapshotReads

Pair = tuple[bytes, bytes]


class RowReads(Protocol):
    """Reads of keys as they are stored. ``durable``: see `slate_async.Readable`."""

    def get(self, key: bytes, durable: bool) -> Coroutine[Any, Any, bytes | None]:
        """The value of ``key``."""

    def get_many(self, keys: list[bytes], durable: bool) -> Coroutine[Any, Any, list[bytes | None]]:
        """The values of ``keys``, all of one read point."""

    async def pairs(self, start: bytes, end: bytes, reverse: bool, limit: int, durable: bool) -> list[Pair]:
        """The first ``limit`` rows of the range; with ``reverse`` the last ones, the very last one first."""


class StoredRows(Reads[ReadSource]):
    """Rows of a database, a reader or a snapshot."""

    def __init__(self, reads: ReadSource) -> None:
        self._reads = reads

    async def pairs(self, start: bytes, end: bytes, reverse: bool, limit: int, durable: bool) -> list[Pair]:
        """See `RowReads`."""
        found: list[Pair] = []
        async with aclosing(self.scan(start, end, reverse=reverse, limit=limit, durable=durable)) as scan:
            async for pair in scan:
                found.append(pair)
        return found


class SourceRows:
    """Rows of a `ReadSource`."""

    def __init__(self, reads: ReadSource) -> None:
        self.reads = reads
        self._stored = StoredRows(reads)
        self.get, self.get_many, self.pairs = reads.get, reads.get_many, self._stored.pairs


class TransactionRows:
    """Rows as a transaction sees them, whatever stands before its own keys."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def get(self, key: bytes, durable: bool) -> Coroutine[Any, Any, bytes | None]:
        """See `RowReads`."""
        return Transaction.get(self._tx, key)

    def get_many(self, keys: list[bytes], durable: bool) -> Coroutine[Any, Any, list[bytes | None]]:
        """See `RowReads`."""
        return Transaction.get_many(self._tx, keys)

    async def pairs(self, start: bytes, end: bytes, reverse: bool, limit: int, durable: bool) -> list[Pair]:
        """See `RowReads`."""
        async with aclosing(Transaction.scan(self._tx, start, end, reverse=reverse, limit=limit)) as scan:
            return [pair async for pair in scan]


@contextmanager
def one_point(reads: ReadSource, durable: bool) -> Iterator[RowReads]:
    """The rows there are now, for several reads."""
    fixed = SnapshotReads(reads, reads.point(durable))
    try:
        yield SourceRows(fixed)
    finally:
        fixed.close()
