"""What a replacing ingest deletes: the keys a database had when the job began, but for those that it brings.

Its checkpoint keeps what was there then. A task answers for the range from its first key to its last: the old keys in
there become tombstones between its rows, as the new rows lie on a merge's top. The driver, which commits, answers for
the keys between the ranges of tasks, before the first and after the last. So all SSTs of the job are one sorted
sequence, applied under one sequence number, and for readers, time travel and the change feed the replacement is an
ingest like any other.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from itertools import accumulate
from typing import Protocol
from uuid import UUID

import numpy as np
import pyarrow as pa

from slate_async.codec.columns import Columns
from slate_async.engine.compaction.merge import VersionFilter
from slate_async.engine.compaction.rounds import Rounds
from slate_async.engine.ingest.spec import IngestedSst, IngestSpec
from slate_async.engine.read.merge import first_row_after, key_at
from slate_async.engine.read.scan import Scan
from slate_async.errors import ConflictError, InvalidError
from slate_async.runtime.protocol import Runtime
from slate_async.types import DELETE, MAX_SEQ

ROUND_BYTES = 4 << 20
"""What is merged at a time, of new rows and old keys together."""
Gap = tuple[bytes | None, bytes | None]
"""Keys between two others, both exclusive; ``None`` is unbounded."""


class OldRows(Protocol):
    """The database as it was, a snapshot; rows that have expired are there as long as they are stored, for clocks may
    differ."""

    @property
    def seq(self) -> int:
        """Its sequence number."""

    def scan(self, start: bytes | None = None, end: bytes | None = None) -> Scan:
        """Rows of ``[start, end)``."""


class OldDatabase(Protocol):
    """A reader at a checkpoint."""

    def snapshot(self, *, include_expired: bool) -> AbstractAsyncContextManager[OldRows]:
        """What it shows; with ``include_expired`` also rows that have expired."""


OpenOld = Callable[[UUID], AbstractAsyncContextManager[OldDatabase]]
"""Opens a reader at that checkpoint."""


@asynccontextmanager
async def old_rows(open_old: OpenOld, spec: IngestSpec) -> AsyncGenerator[OldRows, None]:
    """What the job replaces. Raises `ConflictError` if that is kept no longer."""
    assert spec.replaces is not None
    async with AsyncExitStack() as stack:
        try:
            reader = await stack.enter_async_context(open_old(spec.replaces))
        except InvalidError as error:
            raise ConflictError(
                f"what ingest {spec.job_id!r} replaces is kept no longer: it was committed, aborted, or it expired",
                outcome="not_applied",
            ) from error
        yield await stack.enter_async_context(reader.snapshot(include_expired=True))


async def over_deletes(
    rows: AsyncIterator[Columns],
    open_rows: Callable[[], AbstractAsyncContextManager[OldRows]],
    create_ms: int,
    runtime: Runtime,
) -> AsyncGenerator[Columns, None]:
    """``rows``, of distinct ascending keys, with tombstones for the other old keys from the first to the last of them.
    The old rows are opened if there are new ones."""
    new = _Watched(rows)
    first = await new.peek()
    if first is None:
        return
    async with open_rows() as old:
        merged = _merged(new, _old_keys(old, key_at(first, 0), create_ms), runtime)
        async with aclosing(merged):
            async for part in merged:
                yield part


async def _merged(new: _Watched, old: AsyncGenerator[Columns, None], runtime: Runtime) -> AsyncGenerator[Columns, None]:
    """Both, up to the last of ``new``, whose rows count where both have a key."""
    rounds, newest = Rounds([new, old], nbytes=ROUND_BYTES), VersionFilter(MAX_SEQ)

    def step() -> Columns:
        found = rounds.step()
        _, kept = newest.look(found)
        return found.take(kept)

    try:
        while await rounds.fill():
            part = await runtime.offload.run(step)
            if not new.ended or not len(part):
                yield part
                continue
            stop = first_row_after(part, new.last_key)
            if stop:
                yield part.slice(0, stop)
            if stop < len(part) or key_at(part, -1) == new.last_key:
                return
    finally:
        await rounds.aclose()


async def deletes_between(old: OldRows, gap: Gap, create_ms: int) -> AsyncGenerator[Columns, None]:
    """Tombstones for the keys of ``old`` in ``gap``."""
    after, before = gap
    async with aclosing(_old_keys(old, after, create_ms, before)) as batches:
        async for rows in batches:
            own = rows.slice(1, len(rows)) if key_at(rows, 0) == after else rows
            if len(own):
                yield own


def gaps(ssts: Iterable[IngestedSst]) -> list[Gap]:
    """What the tasks that wrote ``ssts`` do not answer for, in order. Ranges that overlap leave none between them; the
    commit refuses them."""
    ranges: dict[str, tuple[bytes, bytes]] = {}
    for sst in ssts:
        first, last = ranges.get(sst.part, (sst.first_key, sst.last_key))
        ranges[sst.part] = (min(first, sst.first_key), max(last, sst.last_key))
    if not ranges:
        return [(None, None)]
    firsts, lasts = zip(*sorted(ranges.values()), strict=True)
    ends = list(accumulate(lasts, max))
    between: list[Gap] = [(end, first) for end, first in zip(ends, firsts[1:], strict=False) if end < first]
    return [(None, firsts[0]), *between, (ends[-1], None)]


class _Watched(AsyncIterator[Columns]):
    """New rows on their way into the merge. ``last_key``: of what came so far."""

    def __init__(self, rows: AsyncIterator[Columns]) -> None:
        self._rows = rows
        self._peeked: Columns | None = None
        self.ended = False
        self.last_key = b""

    async def peek(self) -> Columns | None:
        """What `anext` gives next; ``None`` at the end."""
        self._peeked = await anext(self, None)
        return self._peeked

    async def __anext__(self) -> Columns:
        rows, self._peeked = self._peeked, None
        if rows is None:
            try:
                rows = await anext(self._rows)
            except StopAsyncIteration:
                self.ended = True
                raise
            self.last_key = key_at(rows, -1)
        return rows


async def _old_keys(
    old: OldRows, start: bytes | None, create_ms: int, end: bytes | None = None
) -> AsyncGenerator[Columns, None]:
    """Tombstones for the keys of ``old`` in ``[start, end)``."""
    async with old.scan(start, end) as scan:
        async for batch in scan.batches():
            yield _tombstones(batch.column("key"), create_ms)


def _tombstones(keys: pa.Array, create_ms: int) -> Columns:
    rows = len(keys)
    no_bytes = [None, pa.py_buffer(np.zeros(rows + 1, np.int32)), pa.py_buffer(b"")]
    return Columns(
        keys.cast(pa.binary()),
        pa.BinaryArray.from_buffers(pa.binary(), rows, no_bytes),
        np.ones(rows, np.uint64),
        np.full(rows, DELETE, np.uint8),
        None,
        np.full(rows, create_ms, np.int64),
    )
