"""`TableTransaction`: several writes of one table as one commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from slate_async.errors import ClosedError, InvalidError
from slate_async.tables.context import TableContext
from slate_async.tables.core.append_ids import AppendId
from slate_async.tables.core.predicate import PredicateLike, predicate_of
from slate_async.tables.draft import Draft
from slate_async.tables.incoming import ArrowData
from slate_async.tables.results import TransactionResult


class TableTransaction:
    """Made by `Table.transaction`. What is asked of it is done in that order, all in one version, when its ``async
    with`` ends; nothing is if the block raises.

    Each step finds the rows of those before it. `result` says what became of it."""

    def __init__(self, context: TableContext, append_id: AppendId | None) -> None:
        self._context = context
        self._named = append_id
        self._steps: list[Callable[[Draft], Awaitable[None]]] = []
        self._open = False
        self._result: TransactionResult | None = None

    @property
    def result(self) -> TransactionResult:
        """What it did. Raises `ClosedError` before it is committed."""
        if self._result is None:
            raise ClosedError("the transaction is not committed", outcome="not_applied")
        return self._result

    def append(self, data: ArrowData) -> None:
        """Add rows; see `Table.append`. ``data`` is read when the transaction ends."""
        self._add(lambda draft: draft.append(data))

    def delete(self, where: PredicateLike, *, strict: bool = False) -> None:
        """Delete the rows that pass; see `Table.delete`. Raises `InvalidError` for what is no predicate."""
        predicate = predicate_of(where)
        self._add(lambda draft: draft.delete(predicate, strict=strict))

    def upsert(self, data: ArrowData) -> None:
        """Put rows in the place of those with the same key; see `Table.upsert`."""
        self._add(lambda draft: draft.upsert(data))

    async def __aenter__(self) -> Self:
        self._context.check()
        if self._open or self._result is not None:
            raise InvalidError("a transaction is entered once")
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raises `InvalidError` for rows that the table does not take, `UnavailableError` with the outcome."""
        self._open = False
        if error is not None:
            return
        head = await self._context.newest()
        draft = Draft(self._context, head)
        for step in self._steps:
            await step(draft)
        if not self._steps:
            self._result = TransactionResult(head.version, 0, 0, False)
            return
        done = await draft.commit(self._named)
        rows, deleted = (done.rows, 0) if done.duplicate else (draft.rows, draft.deleted)
        self._result = TransactionResult(done.version, rows, deleted, done.duplicate)

    def _add(self, step: Callable[[Draft], Awaitable[None]]) -> None:
        if not self._open:
            raise ClosedError("steps are added between the beginning and the end of its block", outcome="not_applied")
        self._steps.append(step)
