"""Reads: what a database, a reader and a snapshot have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from slate_async.arguments import BytesLike
from slate_async.database import readable as asynchronous
from slate_async.engine.read.row_statistics import RowStatistics
from slate_async.engine.read.splits import SPLIT_BYTES, Split
from slate_async.runtime.loop_thread import LoopThread
from slate_async.sync.scan import Scan
from slate_async.types import Row


class Readable(Protocol):
    """What can be read without ``await``: a database, a reader, a snapshot. As `slate_async.Readable`."""

    def get(self, key: BytesLike, *, durable: bool = False) -> bytes | None:
        """The value of ``key``, ``None`` if it is not there."""

    def get_many(self, keys: Sequence[BytesLike], *, durable: bool = False) -> list[bytes | None]:
        """The values of ``keys``, in their order, all as of one time."""

    def get_row(self, key: BytesLike, *, durable: bool = False) -> Row | None:
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
        """The rows from ``start`` (inclusive) to ``end`` (exclusive), or with ``prefix``, in key order."""

    def splits(
        self,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        *,
        prefix: BytesLike | None = None,
        target_bytes: int = SPLIT_BYTES,
        durable: bool = False,
    ) -> list[Split]:
        """Key ranges of about ``target_bytes`` each that cover those of `scan` once, in key order."""


class Reads:
    """The methods of `Readable` on what the loop has open. The class that inherits them sets both attributes."""

    _loop: LoopThread
    _reads: asynchronous.Reads[Any]

    def get(self, key: BytesLike, *, durable: bool = False) -> bytes | None:
        """The value of ``key``, or ``None``. With ``durable`` only what is acknowledged as durable is seen."""
        return self._loop.run(self._reads.get, key, durable=durable)

    def get_many(self, keys: Sequence[BytesLike], *, durable: bool = False) -> list[bytes | None]:
        """The values of ``keys`` in their order, all as of one time; for one wait."""
        return self._loop.run(self._reads.get_many, keys, durable=durable)

    def get_row(self, key: BytesLike, *, durable: bool = False) -> Row | None:
        """As `get`, with sequence number, creation time and expiry time (seconds since the epoch)."""
        return self._loop.run(self._reads.get_row, key, durable=durable)

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

        ``for key, value in db.scan(...)``; `Scan.rows` and `Scan.batches` give more."""
        found = self._loop.call(
            self._reads.scan, start, end, prefix=prefix, reverse=reverse, limit=limit, durable=durable
        )
        return Scan(self._loop, found)

    def splits(
        self,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        *,
        prefix: BytesLike | None = None,
        target_bytes: int = SPLIT_BYTES,
        durable: bool = False,
    ) -> list[Split]:
        """Key ranges that cover those of `scan` once, in order, with about ``target_bytes`` of SSTs each."""
        return self._loop.run(self._reads.splits, start, end, prefix=prefix, target_bytes=target_bytes, durable=durable)

    def row_statistics(
        self,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        *,
        prefix: BytesLike | None = None,
        durable: bool = False,
    ) -> RowStatistics:
        """How many rows there are in the range of keys, live and otherwise, and of which sizes. Reads all of them."""
        return self._loop.run(self._reads.row_statistics, start, end, prefix=prefix, durable=durable)
