"""Deleting a range of keys, key by key in bounded batches, where there are no range deletes."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import aclosing
from typing import Any, Protocol

from slate_async.engine.read.bounds import KeyRange
from slate_async.engine.read.scan import Scan
from slate_async.engine.write.batch import WriteBatch
from slate_async.engine.write.commit_group import WriteHandle

BATCH_ROWS = 1_000
BATCH_BYTES = 1 << 20
"""Of keys. So many are deleted in one step."""


class ScansAndWrites(Protocol):
    """What it takes of a database."""

    def scan(self, start: bytes | None = None, end: bytes | None = None) -> Scan:
        """See `slate_async.Db.scan`."""

    def write(self, batch: WriteBatch, *, await_durable: bool = True) -> Coroutine[Any, Any, WriteHandle]:
        """See `slate_async.Db.write`."""


async def delete_rows(database: ScansAndWrites, span: KeyRange) -> WriteHandle:
    """Delete the rows that are in ``span`` at the call; the handle of the last batch.

    Batches become visible one after the other. A row that is written meanwhile stays or goes. May be called again after
    an error."""
    batch = WriteBatch()
    async with aclosing(database.scan(*span)) as scan:
        async for key, _ in scan:
            batch.delete(key)
            if len(batch) == BATCH_ROWS or batch.nbytes >= BATCH_BYTES:
                await database.write(batch, await_durable=False)
                batch.clear()
    return await database.write(batch, await_durable=False)
