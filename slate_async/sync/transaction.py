"""`Transaction`: reads of one read point, own writes on top of them, and one commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import TracebackType
from typing import Protocol, Self, TypeVar

from slate_async.arguments import BytesLike, Duration
from slate_async.database import transaction as asynchronous
from slate_async.database import transaction_scan as asynchronous_scan
from slate_async.database.transaction import Isolation
from slate_async.runtime.loop_thread import Ask, LoopThread
from slate_async.sync.write_handle import WriteHandle
from slate_async.types import Row

T = TypeVar("T")

BLOCK_ROWS = 64
"""Rows that a scan takes from the loop at a time: all of them count as read."""


class TransactionScan:
    """``for key, value in scan``, once; a context manager too. One thread at a time."""

    def __init__(self, loop: LoopThread, scan: asynchronous_scan.TransactionScan) -> None:
        self._loop = loop
        self._scan = scan

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """Pairs of key and value."""
        while rows := self._loop.run(self._block):
            yield from rows

    async def _block(self) -> list[tuple[bytes, bytes]]:
        rows: list[tuple[bytes, bytes]] = []
        async for row in self._scan:
            rows.append(row)
            if len(rows) == BLOCK_ROWS:
                break
        return rows

    def close(self) -> None:
        """Nothing more is read or given. Idempotent."""
        self._loop.run(self._scan.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Transaction:
    """Made by `Db.transaction`. ``with`` commits at the end of the block, and gives up if the block raises. Methods and
    errors are those of `slate_async.Transaction`."""

    def __init__(self, loop: LoopThread, transaction: asynchronous.Transaction) -> None:
        self._loop = loop
        self._transaction = transaction

    @property
    def seq(self) -> int:
        """The sequence number of the newest row that its reads see."""
        return self._transaction.seq

    @property
    def is_open(self) -> bool:
        """Whether it takes calls: neither committed nor given up."""
        return self._transaction.is_open

    def get(self, key: BytesLike) -> bytes | None:
        """The value of ``key``, or ``None``."""
        return self._loop.run(self._transaction.get, key)

    def get_many(self, keys: Sequence[BytesLike]) -> list[bytes | None]:
        """The values of ``keys`` in their order."""
        return self._loop.run(self._transaction.get_many, keys)

    def get_row(self, key: BytesLike) -> Row | None:
        """As `get`, with sequence number, creation time and expiry time."""
        return self._loop.run(self._transaction.get_row, key)

    def scan(
        self,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        *,
        prefix: BytesLike | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> TransactionScan:
        """The rows from ``start`` (inclusive) to ``end`` (exclusive), or with ``prefix``, as the transaction sees them
        at this call."""
        found = self._loop.call(self._transaction.scan, start, end, prefix=prefix, reverse=reverse, limit=limit)
        return TransactionScan(self._loop, found)

    def put(self, key: BytesLike, value: BytesLike, *, ttl: Duration | None = None) -> None:
        """Set ``key`` when the transaction commits."""
        self._loop.call(self._transaction.put, key, value, ttl=ttl)

    def merge(self, key: BytesLike, operand: BytesLike, *, ttl: Duration | None = None) -> None:
        """Merge ``operand`` into ``key`` when the transaction commits."""
        self._loop.call(self._transaction.merge, key, operand, ttl=ttl)

    def delete(self, key: BytesLike) -> None:
        """Remove ``key`` when the transaction commits; no error if it is not there."""
        self._loop.call(self._transaction.delete, key)

    def delete_range(self, start: BytesLike | None, end: BytesLike | None) -> None:
        """Remove all keys from ``start`` (inclusive) to ``end`` (exclusive) when the transaction commits; ``None`` is
        unbounded."""
        self._loop.call(self._transaction.delete_range, start, end)

    def delete_prefix(self, prefix: BytesLike) -> None:
        """Remove all keys that begin with ``prefix`` when the transaction commits."""
        self._loop.call(self._transaction.delete_prefix, prefix)

    def commit(self) -> WriteHandle:
        """Apply its writes in one step, if nothing that it depends on was written since it began; else
        `ConflictError`."""
        return WriteHandle(self._loop, self._loop.run(self._transaction.commit))

    def rollback(self) -> None:
        """Give it up: nothing is applied. Idempotent; nothing happens after a commit."""
        self._loop.call(self._transaction.rollback)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.run(self._transaction.__aexit__, kind, error, traceback)

    def __repr__(self) -> str:
        return repr(self._transaction).replace("<", "<sync ", 1)


class Transacts(Protocol):
    """As `slate_async.Db.transact`."""

    def __call__(
        self,
        function: Callable[[asynchronous.Transaction], Awaitable[T]],
        *,
        retries: int,
        isolation: Isolation,
        await_durable: bool,
    ) -> Awaitable[T]: ...


def repeated(
    loop: LoopThread,
    transact: Transacts,
    function: Callable[[Transaction], T],
    retries: int,
    isolation: Isolation,
    await_durable: bool,
) -> T:
    """``transact`` with ``function``, which is called in this thread."""

    async def attempts(ask: Ask) -> T:
        async def once(tx: asynchronous.Transaction) -> T:
            result: T = await ask(lambda: function(Transaction(loop, tx)))
            return result

        return await transact(once, retries=retries, isolation=isolation, await_durable=await_durable)

    return loop.run_asking(attempts)
