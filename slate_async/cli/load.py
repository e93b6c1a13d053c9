"""Loading a file of records into a database, with bounded work in flight and every bad row accounted for.

Rows are applied in the order of the file (of two rows with one key the later wins) and made durable in the
background, at most ``concurrency`` batches behind. Invariant: rows counted as ``loaded`` are durable; a load that was
broken off can be repeated as a whole, which writes the same rows again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from slate_async.cli.mapping import Mapper, Row
from slate_async.cli.output import to_json
from slate_async.cli.session import WritableDatabase, Written
from slate_async.cli.sources import BadRow, Record, Source
from slate_async.engine.write.batch import WriteBatch

BATCH_ROWS = 500
BATCH_BYTES = 1024 * 1024
BAD_ROWS_SHOWN = 20


@dataclass(slots=True)
class LoadCounts:
    """How far a load is: rows durable, rows bad, bytes of keys and values durable."""

    loaded: int = 0
    bad: int = 0
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Loader:
    """Loads one file.

    on_bad is called for every bad row, on_progress after every batch with what `Source.done` says."""

    database: WritableDatabase
    mapper: Mapper
    concurrency: int
    on_bad: Callable[[BadRow], None]
    on_progress: Callable[[int], None]
    ttl: float | None = None

    async def run(self, source: Source, counts: LoadCounts) -> None:
        """Load everything; ``counts`` is kept up to date and is right even if an error ends the load."""
        self.mapper.check(source.columns)
        pending: deque[tuple[Written, WriteBatch]] = deque()
        batches = self._batches(source, counts)
        while (batch := await source.pull(partial(next, batches, None))) is not None:
            while len(pending) >= self.concurrency:
                await _settle(pending, counts)
            pending.append((await self.database.write(batch, await_durable=False), batch))
            self.on_progress(source.done())
            await asyncio.sleep(0)
        while pending:
            await _settle(pending, counts)
        self.on_progress(source.done())

    def _batches(self, source: Source, counts: LoadCounts) -> Iterator[WriteBatch]:
        batch = WriteBatch()
        for item in source.items:
            row = self.mapper.apply(item) if isinstance(item, Record) else item
            if isinstance(row, Row):
                batch.put(row.key, row.value, ttl=self.ttl)
            else:
                counts.bad += 1
                self.on_bad(row)
            if len(batch) >= BATCH_ROWS or batch.nbytes >= BATCH_BYTES:
                yield batch
                batch = WriteBatch()
        if len(batch):
            yield batch


async def _settle(pending: deque[tuple[Written, WriteBatch]], counts: LoadCounts) -> None:
    """Wait until the oldest batch in flight is durable, and count it."""
    handle, batch = pending[0]
    await handle.durable()
    pending.popleft()
    counts.loaded += len(batch)
    counts.nbytes += batch.nbytes


class BadRows:
    """Reports bad rows: the first ones to ``show``, and to ``say`` that there are more; all of them to the rejects
    file, as JSON Lines."""

    def __init__(self, show: Callable[[BadRow], None], say: Callable[[str], None], rejects: Path | None) -> None:
        self._show = show
        self._say = say
        self._path = rejects
        self._file: TextIO | None = None
        self._count = 0

    def __enter__(self) -> BadRows:
        if self._path is not None:
            self._file = self._path.open("w", encoding="utf-8")
        return self

    def __exit__(self, *exc: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, row: BadRow) -> None:
        """Take note of one."""
        self._count += 1
        if self._count <= BAD_ROWS_SHOWN:
            self._show(row)
        elif self._count == BAD_ROWS_SHOWN + 1:
            more = "all are in the rejects file" if self._file is not None else "--rejects FILE keeps them all"
            self._say(f"further bad rows are not shown; {more}")
        if self._file is not None:
            entry: dict[str, Any] = {"line": row.line, "reason": row.reason, "row": row.content}
            self._file.write(to_json(entry) + "\n")
