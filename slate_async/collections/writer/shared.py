"""Batches of ``compare`` collections whose parts several processes put, and one process commits.

Every attempt to put parts has a token of its own, so attempts that are repeated, late or speculative never write over
one another's, and what no batch names is garbage by its name. The batch that names them is put at the end of the chain,
under its lower bound alone. So of all attempts to commit one batch the first decides, and the others find it there.

Invariant: a *stamp*, the first half of the batch's token, says on whose behalf it was put. A batch from the same lower
with the same stamp is the one that was meant, whichever process put it; with another stamp it is another writer's.

Rules C7 and C8 of collections.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from slate_async.collections.codec.parts import MAX_PARTS, PartRef
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.errors import UpperMismatchError
from slate_async.collections.core.names import COMPARE_SHARD, PendingName
from slate_async.collections.writer.batches import Batch
from slate_async.collections.writer.builder import PartsWriter
from slate_async.collections.writer.compare import CompareAppends
from slate_async.collections.writer.puts import WriterContext
from slate_async.errors import InvalidError
from slate_async.runtime.supervisor import Supervisor

STAMP_DIGITS = 16


@dataclass(frozen=True, slots=True)
class PutParts:
    """What one attempt has put. ``diff_sum``: of all updates in ``parts``."""

    parts: tuple[PartRef, ...]
    diff_sum: int

    @property
    def rows(self) -> int:
        """Updates in all parts together."""
        return sum(part.rows for part in self.parts)


def stamp_of(text: str) -> str:
    """The stamp of a writer that is called ``text``."""
    return hashlib.blake2b(text.encode(), digest_size=STAMP_DIGITS // 2).hexdigest()


async def put_parts(
    context: WriterContext, bounds: Bounds, updates: AsyncIterable[pa.RecordBatch | pa.Table]
) -> PutParts:
    """Put ``updates`` as parts of the batch from ``bounds.lower`` to ``bounds.upper``; nothing of them is in yet.

    Raises `InvalidError` for updates that are wrong or outside of the bounds, `UnavailableError`."""
    supervisor = Supervisor(f"{context.name}/parts", lambda cause: None)
    try:
        parts = PartsWriter(context, supervisor, bounds, bounds.lower, is_compare=True)
        async for some in updates:
            if some.num_rows:
                await parts.add(some)
        batch = await parts.finish(inline=False)
    finally:
        await supervisor.close()
    named = tuple(replace(part, token=batch.token, number=number) for number, part in enumerate(batch.parts))
    return PutParts(named, batch.diff_sum)


async def commit_parts(context: WriterContext, bounds: Bounds, put: Sequence[PutParts], stamp: str) -> bool:
    """Append all that was ``put`` as one batch, unless the batch from this lower to this upper is in with this
    ``stamp`` already; returns whether this call appended it.

    Raises `UpperMismatchError` if the collection ends elsewhere, and `InvalidError` for too many parts, both with
    outcome ``"not_applied"``; `UpperMismatchError` and `UnavailableError` with outcome ``"unknown"``; `ClosedError`."""
    parts = tuple(part for attempt in put for part in attempt.parts)
    if len(parts) > MAX_PARTS:
        raise InvalidError(
            f"a batch has at most {MAX_PARTS} parts, not {len(parts)}: write it with fewer and larger tasks",
            outcome="not_applied",
        )
    token = stamp + context.runtime.ids.token()[STAMP_DIGITS:]
    rows, diff_sum = sum(part.rows for part in parts), sum(attempt.diff_sum for attempt in put)
    updates = None if parts else context.schema.empty()
    appends = CompareAppends(context)
    await appends.restart()
    if await _is_in(context, appends, bounds, stamp):
        return False
    try:
        await appends.put(Batch(bounds, token, rows, diff_sum, updates, parts))
    except UpperMismatchError:
        if not await _is_in(context, appends, bounds, stamp):
            raise
        return False
    return True


async def _is_in(context: WriterContext, appends: CompareAppends, bounds: Bounds, stamp: str) -> bool:
    """Whether the batch is in, as far as that can be seen: of the last batch it can, and of those that are pending.

    A pending batch counts by a head that is read after it (C7, C8): below the merged upper a name is dead."""
    if appends.coverage == bounds.upper:
        return appends.last.startswith(stamp)
    if appends.coverage <= bounds.lower:
        return False
    name = PendingName(COMPARE_SHARD, bounds.lower, None)
    found = await context.answered(f"a look at {name}", lambda: context.pending.describe(name), None)
    if found is None or found.upper != bounds.upper or not found.token.startswith(stamp):
        return False
    return (await context.head(None)).upper <= bounds.lower
