"""`Readable`: what a database, a snapshot and a reader have in common."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from slate_async.engine.read.bounds import BytesLike
from slate_async.engine.read.scan import Scan
from slate_async.engine.read.splits import SPLIT_BYTES, Split
from slate_async.types import Row


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
        """The values of ``keys``, in their order, all of one moment."""

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
        at this call; ``reverse`` gives the last ones first, ``limit`` at most so many."""

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
