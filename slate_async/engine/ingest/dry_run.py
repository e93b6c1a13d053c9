"""What a task of an ingest would write: its rows checked and counted, and nothing stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from slate_async.codec.columns import Columns
from slate_async.engine.ingest.rows import Duplicates, RowChecker


@dataclass(frozen=True, slots=True)
class IngestPart:
    """Rows of one task: how many are stored, their bytes in memory (an SST has fewer), and their range, inclusive."""

    rows: int
    nbytes: int
    first_key: bytes
    last_key: bytes


def rehearse(batches: Iterable[pa.RecordBatch], *, duplicates: Duplicates = "error") -> IngestPart | None:
    """``batches`` as `engine.ingest.sst_writer.write_ssts` takes them; ``None`` for no rows. Raises `InvalidError`
    as that does. CPU work, batch by batch, for a thread that may be busy."""
    checker = RowChecker(0, duplicates)
    part: IngestPart | None = None
    for batch in batches:
        for rows in checker.take(batch):
            part = _with(part, rows)
    for rows in checker.finish():
        part = _with(part, rows)
    return part


def _with(part: IngestPart | None, rows: Columns) -> IngestPart:
    first = rows.keys[0].as_py() if part is None else part.first_key
    known_rows, known_bytes = (0, 0) if part is None else (part.rows, part.nbytes)
    return IngestPart(known_rows + len(rows), known_bytes + rows.nbytes, first, rows.keys[len(rows) - 1].as_py())
