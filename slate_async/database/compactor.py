"""`DbCompactor`: compacts one database from a process of its own. Wiring only; see `slate_async.engine.compaction`.

A database has one live compactor: opening another takes the role over, and the older one closes with `FencedError`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from slate_async.arguments import BytesLike, key_bytes
from slate_async.database.handle import Handle, HandleResources
from slate_async.database.metrics import shared_counters
from slate_async.database.status import CompactorStatus, compactor_status
from slate_async.engine.compaction.manual import Manual
from slate_async.engine.compaction.open import OpenedCompactor
from slate_async.engine.compaction.own_process import CompactorTask
from slate_async.engine.compaction.progress import EventSink
from slate_async.engine.context import metadata_closers


class DbCompactor(Handle):
    """Made by `slate_async.open_compactor` or `Environment.open_compactor`, never directly.

    It claims the role when it is opened, resumes compactions that an earlier compactor left unfinished, and compacts
    for as long as it is open. While the store does not answer it logs that and retries. It closes itself with the cause
    when another compactor takes over, when the database was destroyed, or when stored bytes are wrong. The next
    compactor resumes what this one leaves unfinished, and repeats no finished key range."""

    _noun = "compactor"

    def __init__(
        self,
        resources: HandleResources,
        opened: OpenedCompactor,
        *,
        progress: EventSink | None,
    ) -> None:
        super().__init__(resources)
        self._opened = opened
        self._compactor = opened.compactor
        if progress is not None:
            opened.listeners.add(progress)
        self._task = CompactorTask(opened.compactor, self._name, resources.supervisor, self._guard, self._fail)

    async def compact(
        self,
        *,
        full: bool = False,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        level: int | None = None,
    ) -> int:
        """Compact now, after what is under way; how many compactions and moves that took.

        full: everything into one run; ``start``, ``end``: whatever holds keys of ``[start, end)``; ``level``: all of
        one level into the next, 0 is L0; none of them: what is due. What a writer holds in memory is its own to flush

        May be cancelled: what was begun goes on. Raises `InvalidError` for a level that does not exist, and what closed
        the compactor."""
        self._check()
        first, last = (None if key is None else key_bytes(key) for key in (start, end))
        return await self._compactor.compact(Manual(full, first, last, level))

    def status(self) -> CompactorStatus:
        """The compactor's state now. Works after closing, too."""
        return compactor_status(self._context, self._state, self._opened)

    def metrics(self) -> dict[str, int | float]:
        """Counters since opening, by dotted name. Byte counts end in ``_bytes``.

        ``cache.*`` and ``store.*`` count for all databases that share the `Environment` and the bucket."""
        opened = self._opened
        return {**opened.stats.metrics(), **shared_counters(self._context, opened.driver, opened.register)}

    # ---- its life (see `Handle`)

    def _ended(self, cause: BaseException | None) -> None:
        self._compactor.close(self._closed_failure)

    async def _finish(self) -> None:
        await self._task.close()

    def _closers(self) -> list[Callable[[], Awaitable[None]]]:
        return metadata_closers(self._opened.driver, self._opened.register)

    def __repr__(self) -> str:
        return f"<DbCompactor {self._name} epoch={self._compactor.epoch} {self._state}>"
