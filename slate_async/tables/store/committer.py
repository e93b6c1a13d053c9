"""Commits of one process to one table, numbered, so that a repetition is recognised.

Every call takes a number of its own in the order in which they are committed. A call whose mark may have been forgotten
begins again if no attempt of it is without an answer; else it ends unknown.

Rules T1 and T2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from slate_async.errors import ConflictError, InternalError, NotFoundError
from slate_async.runtime.protocol import Runtime
from slate_async.tables.core.head import Head
from slate_async.tables.core.marks import FORGOTTEN, MarkedEdit, TableEdit
from slate_async.tables.store.heads import TableHeads

BEGUN_AGAIN: Final = 5


class AppendId(NamedTuple):
    """An application's own name and number of a commit. The same again changes nothing; numbers rise."""

    app: str
    n: int


class Done(NamedTuple):
    """A commit that is in.

    head: which holds it, and was the newest at some time since
    version: that it made; ``None`` if it was in before a later one of the same application
    duplicate: it was in already
    """

    head: Head
    version: int | None
    duplicate: bool


@dataclass(slots=True)
class _Watched:
    """``edit``, and whether it ever applied."""

    edit: MarkedEdit
    applied: bool = field(default=False)

    def apply(self, head: Head) -> Head | None:
        """See `MarkedEdit.apply`."""
        after = self.edit.apply(head)
        self.applied = self.applied or after is not None
        return after


class Committer:
    """See the module docstring."""

    def __init__(self, heads: TableHeads, runtime: Runtime) -> None:
        self._heads = heads
        self._runtime = runtime
        self._writer = f"w{runtime.ids.token()}"
        self._n = 0

    async def commit(self, edit: TableEdit, append_id: AppendId | None = None) -> Done:
        """Commit ``edit``. Raises what it raises, or `UnavailableError` or `ConflictError` with the outcome."""
        for attempt in range(BEGUN_AGAIN):
            head = self._heads.head if attempt == 0 else None
            if head is None:
                head = await self._heads.load()
            if head is None:
                raise NotFoundError(f"there is no table {self._heads.name} any more")
            if append_id is None:
                self._n += 1
            writer, n = (self._writer, self._n) if append_id is None else (f"app:{append_id.app}", append_id.n)
            now_ms = self._runtime.clock.now_ms()
            watched = _Watched(MarkedEdit(edit, writer, n, head.version, now_ms, kept=append_id is not None))
            try:
                after = await self._heads.commits.commit(watched)
            except ConflictError as error:
                again = error.reason == FORGOTTEN and (writer, n) not in self._heads.unanswered
                if not again or attempt + 1 == BEGUN_AGAIN:
                    raise
            else:
                mark = after.marks[writer]
                return Done(after, mark.version if mark.n == n else None, not watched.applied)
            finally:
                self._heads.unanswered.discard((writer, n))
        raise InternalError("the last attempt of a commit returns or raises")
