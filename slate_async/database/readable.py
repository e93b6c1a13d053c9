"""`Readable`: what a database, a snapshot and a reader have in common; `Reads` is how all of them do it."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Generic, Protocol, TypeVar

from slate_async.arguments import BytesLike, sought_key
from slate_async.codec.columns import NO_EXPIRY
from slate_async.engine.read.bounds import key_range
from slate_async.engine.read.row_statistics import RowStatistics, row_statistics
from slate_async.engine.read.scan import Scan
from slate_async.engine.read.source import ReadSource
from slate_async.engine.read.splits import SPLIT_BYTES, Split, split_view
from slate_async.errors import InvalidError
from slate_async.types import MAX_KEY_BYTES, Row

S = TypeVar("S", bound=ReadSource)


class Readable(Protocol):
    """A key-value view. Keys and bounds are bytes-like and copied at the call; wrong ones are `InvalidError`.

    All methods raise `ClosedError` or `FencedError` once their owner is closed, `UnavailableError` when the store
    does not answer, `CorruptionError` for wrong bytes. Expired rows are not there. With ``durable`` a read sees only
    rows that are acknowledged as durable; where all rows are, it changes nothing.

    What is awaited is a coroutine, so ``async def`` gives it; it may be given to `asyncio.create_task`.
    """

    def get(self, key: BytesLike, *, durable: bool = False) -> Coroutine[Any, Any, bytes | None]:
        """The value of ``key``, ``None`` if it is not there."""

    def get_many(self, keys: Sequence[BytesLike], *, durable: bool = False) -> Coroutine[Any, Any, list[bytes | None]]:
        """The values of ``keys``, in their order, all of one read point."""

    def get_row(self, key: BytesLike, *, durable: bool = False) -> Coroutine[Any, Any, Row | None]:
        """The value with its sequence number and times."""

    def scan(
        self,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        *,
        prefix: BytesLike | None = None,
        reverse: bool = False,
        limit: int | None = None,
        durable: bool = False,
    ) -> Scan:
        """The rows from ``start`` (inclusive) to ``end`` (exclusive), or with ``prefix``, in key order, as they are
        at this call. ``reverse`` gives the last ones first, ``limit`` at most so many."""

    def splits(
        self,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        *,
        prefix: BytesLike | None = None,
        target_bytes: int = SPLIT_BYTES,
        durable: bool = False,
    ) -> Coroutine[Any, Any, list[Split]]:
        """Key ranges of about ``target_bytes`` each that cover those of `scan` once, in key order."""


class Reads(Generic[S]):
    """The methods of `Readable`, and `row_statistics`: arguments are checked here, the rest is the source's.

    The class that inherits them sets ``_reads``."""

    _reads: S

    def get(self, key: BytesLike, *, durable: bool = False) -> Coroutine[Any, Any, bytes | None]:
        """The value of ``key``, or ``None``. With ``durable`` only what is acknowledged as durable is seen.

        Answers without suspending when memory or the block cache holds the key. Like all reads it looks at the
        database when it is awaited; keys are checked and copied at the call."""
        # HOT: copy of arguments.sought_key; 60 ns, 2026-11-23
        if type(key) is not bytes or not 0 < len(key) <= MAX_KEY_BYTES:
            key = sought_key(key)
        return self._reads.get(key, durable)

    def get_many(self, keys: Sequence[BytesLike], *, durable: bool = False) -> Coroutine[Any, Any, list[bytes | None]]:
        """The values of ``keys`` in their order, all of one read point; each block is read once."""
        # HOT: copy of arguments.sought_key; 60 ns, 2026-11-23
        own = [key if type(key) is bytes and 0 < len(key) <= MAX_KEY_BYTES else sought_key(key) for key in keys]
        return self._reads.get_many(own, durable)

    def get_row(self, key: BytesLike, *, durable: bool = False) -> Coroutine[Any, Any, Row | None]:
        """As `get`, with sequence number, creation time and expiry time (seconds since the epoch)."""
        return self._get_row(sought_key(key), durable)

    async def _get_row(self, key: bytes, durable: bool) -> Row | None:
        hit = await self._reads.hit(key, durable)
        if hit is None:
            return None
        expire = None if hit.expire_ms == NO_EXPIRY else hit.expire_ms / 1000
        return Row(key, hit.value, hit.seq, hit.create_ms / 1000, expire)

    def scan(
        self,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        *,
        prefix: BytesLike | None = None,
        reverse: bool = False,
        limit: int | None = None,
        durable: bool = False,
    ) -> Scan:
        """Rows from ``start`` (inclusive) to ``end`` (exclusive), or with ``prefix``, as they are at this call.

        ``async for key, value in db.scan(...)``; `Scan.rows` and `Scan.batches` give more. Pins what it reads until
        it is exhausted, closed or dropped."""
        self._reads.begun += 1
        return Scan(
            self._reads.point(durable),
            key_range(start, end, prefix),
            self._reads.yield_budget,
            self._reads.check,
            self._reads.same_point,
            reverse,
            limit,
        )

    async def splits(
        self,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        *,
        prefix: BytesLike | None = None,
        target_bytes: int = SPLIT_BYTES,
        durable: bool = False,
    ) -> list[Split]:
        """Key ranges that cover those of `scan` once, in order, with about ``target_bytes`` of SSTs each. Readers in
        parallel each scan one range.

        Judged by what manifest and indexes say, at most `MOST_SPLITS` of them; rows in memory count for nothing.
        Raises `InvalidError` unless ``target_bytes`` is positive."""
        if type(target_bytes) is not int or target_bytes < 1:
            raise InvalidError(f"target_bytes is a positive number of bytes, not {target_bytes!r}")
        span, reads = key_range(start, end, prefix), self._reads
        return await reads.retried(
            reads.point(durable), durable, lambda now: split_view(now.view, span, target_bytes, reads.yield_budget)
        )

    async def row_statistics(
        self,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        *,
        prefix: BytesLike | None = None,
        durable: bool = False,
    ) -> RowStatistics:
        """How many rows there are in the range of keys, live and otherwise, and of which sizes. Reads all of them, and
        every version that is stored. Arguments and errors as of `scan`."""
        self._reads.begun += 1
        span = key_range(start, end, prefix)
        return await self._reads.retried(
            self._reads.point(durable), durable, lambda now: row_statistics(now, span, self._reads.yield_budget)
        )
