"""Commits of one process to one table: those that wait go in together.

One task commits, while there is something to commit. It takes what waits, first come, first served, as one group
(`slate_async.tables.core.group`): one link and one head. Small appends of a group share a block, which is put anew when
one of them turns out to be in already. A caller that is cancelled while its operation waits takes it out; later, the
operation goes on without it.

What looks at the rows that are there, or replaces them, is the first of its group, so it has to look at no rows that
are not committed yet. What is no write is alone.

Rules T1, T9 and T16.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import Final

from slate_async.commits import CommitLoop
from slate_async.errors import ClosedError, InternalError, SlateError, UnavailableError
from slate_async.runtime.memory_budget import MemoryBudget
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.tables.core.append_ids import AppendId
from slate_async.tables.core.group import Group, TableEdit
from slate_async.tables.core.head import Head
from slate_async.tables.store.blocks import Blocks
from slate_async.tables.store.chain import Chain
from slate_async.tables.store.heads import TableHeads
from slate_async.tables.store.judged_heads import JudgedHeads
from slate_async.tables.store.operation import Done, Operation

logger = logging.getLogger(__name__)
COVER_LINKS: Final = 16
"""After so many links a whole one is put beside the newest."""
MAX_MEMBERS: Final = 1_024
"""Operations of a group."""
SHARED_BYTES: Final = 64 << 20
"""Small appends that wait, and those of one block, as Arrow has them."""


class Committer:
    """See the module docstring."""

    def __init__(
        self,
        heads: TableHeads,
        chain: Chain,
        blocks: Blocks,
        runtime: Runtime,
        supervisor: Supervisor,
        *,
        deadline_ms: int,
    ) -> None:
        self._heads = heads
        self._chain = chain
        self._runtime = runtime
        self._supervisor = supervisor
        self._judge = JudgedHeads(heads, chain, blocks)
        name = heads.name
        self._loop: CommitLoop[Head] = CommitLoop(
            self._judge,
            runtime,
            supervisor,
            what=f"table {name}",
            missing=f"there is no table {name} any more",
            deadline_ms=deadline_ms,
        )
        self._writer = f"w{runtime.ids.token()}"
        self._numbers = count(1)
        self._waiting: deque[Operation] = deque()
        self._room = MemoryBudget(SHARED_BYTES)
        self._running = False

    async def commit(self, edit: TableEdit, append_id: AppendId | None = None) -> Done:
        """Commit ``edit`` by itself. Raises what it raises, or `UnavailableError` or `ConflictError` with the
        outcome."""
        return await self.submit(Operation(edit, append_id, alone=True))

    async def submit(self, operation: Operation) -> Done:
        """Commit ``operation``, maybe with others. Raises as `commit`."""
        async with self._room.hold(operation.weight):
            if self._supervisor.is_closing:
                raise ClosedError("the tables are closed; it was not begun", outcome="not_applied")
            operation.deadline = self._runtime.clock.monotonic() + self._loop.deadline_ms / 1000
            self._waiting.append(operation)
            if not self._running:
                self._running = True
                self._supervisor.spawn(f"commits to {self._heads.name}", self._run(), critical=False)
            return await operation.ended

    async def _run(self) -> None:
        try:
            while members := self._next():
                await self._decide(members)
                for _ in range(2):  # callers that are woken now often come back at once
                    await asyncio.sleep(0)
        finally:
            self._running = False
            for operation in self._waiting:
                _fail(operation, ClosedError("the tables were closed before it was begun", outcome="not_applied"))
            self._waiting.clear()

    def _next(self) -> list[Operation]:
        """The next group: the first that waits, and those behind it that may go with it."""
        members: list[Operation] = []
        names: set[tuple[str, bool]] = set()
        size, now = 0, self._runtime.clock.monotonic()
        while self._waiting and len(members) < MAX_MEMBERS:
            operation = self._waiting[0]
            named = _name_of(operation.append_id)
            if operation.ended.done():
                pass  # its caller was cancelled
            elif operation.deadline <= now:
                said = f"it waited for {self._loop.deadline_ms} ms for commits before it; try again later"
                _fail(operation, UnavailableError(said, outcome="not_applied"))
            elif (members and not _joins(members, operation, size)) or (named is not None and named in names):
                break
            else:
                members.append(operation)
                size += operation.weight
                if named is not None:
                    names.add(named)
            self._waiting.popleft()
        return members

    async def _decide(self, members: Sequence[Operation]) -> None:
        """Commit them as a group, and let each caller know."""
        now_ms = self._runtime.clock.now_ms()
        group = Group(self._writer, self._numbers, members, now_ms, self._heads.unanswered)
        head: Head | None = None
        try:
            await self._judge.begin(group)
            head = await self._loop.commit(group)
            group.finish(head)
        except asyncio.CancelledError:
            group.fail(ClosedError("the tables were closed while it was committed", outcome="unknown"))
            raise
        except Exception as error:  # noqa: BLE001 - raised in each caller
            group.fail(error)
        finally:
            newest = head or self._heads.head
            for operation in members:
                _deliver(operation, newest)
            self._heads.unanswered.difference_update(group.attempts)
        if head is not None:
            self._cover_if_due(head)

    def _cover_if_due(self, head: Head) -> None:
        """Have a whole link put beside the newest one of ``head``, in the background, when it is due (rule T9)."""
        if len(head.links) >= COVER_LINKS and not len(head.links) % COVER_LINKS and not self._supervisor.is_closing:
            self._supervisor.spawn(f"cover {self._heads.name}", self.cover(head), critical=False)

    async def cover(self, head: Head) -> None:
        """Put a whole link beside the newest one of ``head``, whether it is due or not (rule T9)."""
        try:
            self._heads.covered = await self._chain.put_whole(head) or self._heads.covered
        except SlateError as error:
            logger.info(
                "%s: no whole link beside version %d; a later one will be: %s", self._heads.name, head.version, error
            )


def _joins(members: Sequence[Operation], operation: Operation, size: int) -> bool:
    """Whether it may go with ``members``, whose rows take ``size`` bytes."""
    if operation.leads or members[0].alone or size + operation.weight > SHARED_BYTES:
        return False
    schemas = [member.schema for member in members if member.schema is not None]
    return operation.schema is None or not schemas or schemas[0].schema_id == operation.schema.schema_id


def _name_of(named: AppendId | None) -> tuple[str, bool] | None:
    """By which two of a group must differ."""
    return None if named is None else (named.app, named.n is None)


def _fail(operation: Operation, failure: Exception) -> None:
    if not operation.ended.done():
        operation.ended.set_exception(failure)


def _deliver(operation: Operation, head: Head | None) -> None:
    """Let the caller know how it ended."""
    outcome = operation.outcome
    if outcome is None or head is None:
        _fail(operation, operation.failure or InternalError("an operation has no outcome"))
    elif not operation.ended.done():
        operation.ended.set_result(Done(head, outcome.version, outcome.duplicate, outcome.rows, operation.nbytes))
