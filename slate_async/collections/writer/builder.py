"""Large batches in bounded memory: parts are put first, and one object that names them commits.

Nothing is in before that object is, and then all of it. Parts that nobody names are garbage by their name.

Memory: ``part_bytes`` of updates that wait, and `PARALLEL_PARTS` times as much that is on its way.

Rule C5 of collections.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, Self

import pyarrow as pa

from slate_async.codec.arrays import is_larger
from slate_async.collections.codec.description import Description
from slate_async.collections.codec.parts import MAX_PARTS, PartRef
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.consolidate import consolidate
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.names import PendingName
from slate_async.collections.core.slices import one_batch, slices_within
from slate_async.collections.core.updates import UpdatesLike
from slate_async.collections.store.pending import OFFLOAD_BYTES
from slate_async.collections.writer.batches import Batch, checked, cut, naming, sum_of_diffs, surely_fit
from slate_async.collections.writer.puts import Puts, WriterContext
from slate_async.errors import ClosedError, InvalidError, SlateError
from slate_async.runtime.supervisor import Supervisor

PARALLEL_PARTS = 2


class PartsWriter:
    """The parts of one batch.

    bounds: of the batch; ``known``: of its updates only those beyond it are put
    is_compare: whether names have but the lower bound (C5)
    """

    def __init__(
        self, context: WriterContext, supervisor: Supervisor, bounds: Bounds, known: Frontier, *, is_compare: bool
    ) -> None:
        self._context = context
        self._supervisor = supervisor
        self._puts = Puts(context)
        self._given = bounds
        self._bounds = bounds.cut(known)
        self._known = known
        self._token = context.runtime.ids.token()
        lower, upper = self._bounds.lower, self._bounds.upper
        self._name = PendingName(context.shard, lower, None if is_compare else upper)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._sending: deque[asyncio.Task[PartRef]] = deque()
        self._parts: list[PartRef] = []
        self._begun = 0
        self._rows = 0
        self._diff_sum = 0

    async def add(self, updates: UpdatesLike) -> None:
        """Take ``updates`` in; waits while too many parts are on their way. Raises `InvalidError` for updates that are
        wrong or outside of the bounds, and for too many parts; `UnavailableError` if a part could not be put."""
        with naming(self._context.name):
            if isinstance(updates, pa.RecordBatch | pa.Table) and is_larger(updates, OFFLOAD_BYTES):
                batch = await self._context.runtime.offload.run(lambda: self._checked(updates))
            else:
                batch = self._checked(updates)
        self._diff_sum += sum_of_diffs(batch)
        self._rows += batch.num_rows
        self._context.stats.nbytes += batch.nbytes
        for piece in slices_within(batch, max(1, batch.num_rows), self._context.part_bytes):
            if self._waiting and self._waiting_bytes + piece.nbytes > self._context.part_bytes:
                await self._send()
            self._waiting.append(piece)
            self._waiting_bytes += piece.nbytes

    async def finish(self, *, inline: bool = True) -> Batch:
        """The batch, all of whose parts are put; it is in once it is put itself. One part by itself stays ``inline``,
        if it may."""
        if self._begun == 0 and inline:
            await self._check_sums()
            return self._batch(one_batch(self._waiting, self._context.schema.arrow), ())
        if self._waiting:
            await self._send()
        while self._sending:
            await self._sent()
        return self._batch(None, tuple(self._parts))

    def _batch(self, updates: pa.RecordBatch | None, parts: tuple[PartRef, ...]) -> Batch:
        return Batch(self._bounds, self._token, self._rows, self._diff_sum, updates, parts)

    def _checked(self, updates: UpdatesLike) -> pa.RecordBatch:
        batch = checked(updates, self._context.schema, self._given)
        return batch if self._known <= self._given.lower else cut(batch, self._context.schema, self._known)

    async def _check_sums(self) -> None:
        """Raise `SumError` for a sum of what waits that does not fit. Each piece by itself was checked."""
        if len(self._waiting) > 1 and not surely_fit(self._waiting):
            schema = self._context.schema
            together = one_batch(self._waiting, schema.arrow)
            with naming(self._context.name):
                await self._context.runtime.offload.run(lambda: consolidate(together, schema))

    async def _send(self) -> None:
        """Begin to put what waits as the next part."""
        while len(self._sending) >= PARALLEL_PARTS:
            await self._sent()
        if self._supervisor.is_closing:
            raise _closed()
        number = self._begun
        if number == MAX_PARTS:
            size = self._context.part_bytes
            raise InvalidError(
                f"{self._context.name}: a batch has at most {MAX_PARTS} parts of {size} bytes", outcome="not_applied"
            )
        updates = pa.Table.from_batches(self._waiting, self._context.schema.arrow)
        await self._check_sums()
        description = Description(
            self._bounds.lower,
            self._bounds.upper,
            self._token,
            self._context.shard,
            updates.num_rows,
            sum(map(sum_of_diffs, self._waiting)),
            part=number,
        )
        name = replace(self._name, token=self._token, part=number)
        put = self._puts.part(name, description, updates)
        self._sending.append(self._supervisor.spawn(f"part {number}", put, critical=False))
        self._begun += 1
        self._waiting, self._waiting_bytes = [], 0

    async def _sent(self) -> None:
        """Wait for the part that is on its way for the longest time."""
        task = self._sending[0]
        await asyncio.wait([task])
        self._sending.popleft()
        if task.cancelled():
            raise _closed()
        self._parts.append(task.result())


def _closed() -> ClosedError:
    return ClosedError("the writer closed before the batch was whole", outcome="not_applied")


class BatchBuilder:
    """A batch that is added to piece by piece: ``async with writer.batch(lower, upper) as batch: await batch.add(…)``.

    The end of the block appends all that was added, or nothing: a block that raises leaves nothing in the collection,
    and so does one in which a call of `add` failed, was cancelled, has not ended or was not awaited. The batch would
    say that nothing else happened between its bounds, and the updates of that call would be missing for ever. So if the
    block catches such an error, its end raises `InvalidError`: begin another batch without the wrong updates.
    """

    def __init__(
        self,
        begin: Callable[[], PartsWriter],
        check: Callable[[], None],
        append: Callable[[Batch], Awaitable[None]],
    ) -> None:
        self._begin = begin
        self._check = check
        self._append = append
        self._parts: PartsWriter | None = None
        self._state: Literal["new", "open", "adding", "ended"] = "new"
        self._failure: SlateError | None = None  # of a call of add
        self._unawaited = 0  # calls of add

    def add(self, updates: UpdatesLike) -> Coroutine[Any, Any, None]:
        """Add ``updates``; waits while too much is on its way. One call at a time. After a call that failed or was
        cancelled the batch is not appended, whatever was added before: see the class.

        Raises as `Writer.append` does; nothing is in before the block ends."""
        self._unawaited += 1
        return self._add(updates)

    async def _add(self, updates: UpdatesLike) -> None:
        self._unawaited -= 1
        self._check()
        if self._parts is None or self._state != "open":
            raise InvalidError(f"the batch takes no updates: {self._why()}", outcome="not_applied")
        self._state = "adding"
        try:
            await self._parts.add(updates)
        except SlateError as error:
            self._failure = error
            raise
        self._state = "open"

    async def __aenter__(self) -> Self:
        self._check()
        if self._state != "new":
            raise InvalidError("a batch is begun once; ask the writer for another one", outcome="not_applied")
        self._parts = self._begin()
        self._state = "open"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        state, why = self._state, self._why()
        self._state = "ended"
        if error is not None or self._parts is None:
            return
        if state != "open" or self._unawaited:
            raise InvalidError(f"the batch was not appended: {why}", outcome="not_applied") from self._failure
        self._check()
        await self._append(await self._parts.finish())

    def _why(self) -> str:
        if self._state == "adding" and self._failure is not None:
            return f"a call of add failed: {self._failure}"
        if self._state == "adding":
            return "a call of add was cancelled or has not ended"
        if self._unawaited and self._state == "open":
            return "a call of add was not awaited"
        return "it has ended" if self._state == "ended" else "it is used within async with"
