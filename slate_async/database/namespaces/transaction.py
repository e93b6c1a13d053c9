"""`NamespaceTransaction`: a transaction whose keys stand below a namespace's prefix."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from slate_async.arguments import BytesLike, Duration, key_bytes, sought_key
from slate_async.database.namespaces.prefix import span_of
from slate_async.database.transaction import Transaction
from slate_async.database.transaction_scan import TransactionScan
from slate_async.database.transaction_space import TransactionSpace
from slate_async.engine.read.bounds import key_range
from slate_async.engine.write.range_rows import prefixed_end, range_of_prefix, range_to_delete
from slate_async.types import Row


class NamespaceTransaction(Transaction):
    """A `Transaction` of a namespace: ``prefix`` stands before its keys, ``default_ttl`` counts for its puts."""

    __slots__ = ("_default_ttl", "_prefix")

    def __init__(
        self,
        space: TransactionSpace,
        serializable: bool,
        await_durable: bool,
        waiting: bool = False,
        *,
        prefix: bytes,
        default_ttl: Duration | None,
    ) -> None:
        super().__init__(space, serializable, await_durable, waiting)
        self._prefix = prefix
        self._default_ttl = default_ttl

    def get(self, key: BytesLike) -> Coroutine[Any, Any, bytes | None]:
        """The value of ``key``, or ``None``."""
        return super().get(self._prefix + sought_key(key))

    def get_many(self, keys: Sequence[BytesLike]) -> Coroutine[Any, Any, list[bytes | None]]:
        """The values of ``keys`` in their order; each block is read once."""
        return super().get_many([self._prefix + sought_key(key) for key in keys])

    def get_row(self, key: BytesLike) -> Coroutine[Any, Any, Row | None]:
        """As `get`, with sequence number, creation time and expiry time."""
        return self._own_row(sought_key(key))

    async def _own_row(self, key: bytes) -> Row | None:
        row = await super().get_row(self._prefix + key)
        return None if row is None else row._replace(key=key)

    def scan(
        self,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        *,
        prefix: BytesLike | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> TransactionScan:
        """The rows from ``start`` (inclusive) to ``end`` (exclusive), or with ``prefix``, as the transaction sees
        them."""
        first, stop = span_of(self._prefix, key_range(start, end, prefix))
        return super().scan(first, stop, reverse=reverse, limit=limit)._without_prefix(len(self._prefix))

    def put(self, key: BytesLike, value: BytesLike, *, ttl: Duration | None = None) -> None:
        """Set ``key`` when the transaction commits."""
        super().put(self._prefix + key_bytes(key), value, ttl=self._default_ttl if ttl is None else ttl)

    def merge(self, key: BytesLike, operand: BytesLike, *, ttl: Duration | None = None) -> None:
        """Merge ``operand`` into ``key`` when the transaction commits."""
        super().merge(self._prefix + key_bytes(key), operand, ttl=self._default_ttl if ttl is None else ttl)

    def delete(self, key: BytesLike) -> None:
        """Remove ``key`` when the transaction commits; no error if it is not there."""
        super().delete(self._prefix + key_bytes(key))

    def delete_range(self, start: BytesLike | None, end: BytesLike | None) -> None:
        """Remove all keys from ``start`` (inclusive) to ``end`` (exclusive) when the transaction commits; ``None`` is
        the namespace's own bound."""
        self._delete_own(*range_to_delete(start, end))

    def delete_prefix(self, prefix: BytesLike) -> None:
        """Remove all keys that begin with ``prefix`` when the transaction commits."""
        self._delete_own(*range_to_delete(*range_of_prefix(prefix)))

    def _delete_own(self, first: bytes, until: bytes) -> None:
        self._delete_range(key_bytes(self._prefix + first), prefixed_end(until, self._prefix))
