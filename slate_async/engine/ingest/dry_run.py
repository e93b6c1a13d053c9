"""What a task of an ingest would write: its rows checked and counted, and nothing stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from slate_async.codec.columns import Columns
from slate_async.engine.ingest.digest import MODULUS, rows_digest
from slate_async.engine.ingest.rows import Duplicates, RowChecker


@dataclass(frozen=True, slots=True)
class IngestPart:
    """Rows of one task: how many are stored, their bytes in memory (an SST has fewer), and their range, inclusive.
    digest: of them, if it was asked for (`slate_async.engine.ingest.digest`)"""

    rows: int
    nbytes: int
    first_key: bytes
    last_key: bytes
    digest: int | None = None


def rehearse(
    batches: Iterable[pa.RecordBatch], *, duplicates: Duplicates = "error", digest: bool = False
) -> IngestPart | None:
    """``batches`` as `engine.ingest.sst_writer.write_ssts` takes them; ``None`` for no rows. Raises `InvalidError`
    as that does. CPU work, batch by batch, for a thread that may be busy."""
    checker = RowChecker(0, duplicates)
    part: IngestPart | None = None
    for batch in batches:
        for rows in checker.take(batch):
            part = _with(part, rows, digest)
    for rows in checker.finish():
        part = _with(part, rows, digest)
    return part


def _with(part: IngestPart | None, rows: Columns, digest: bool) -> IngestPart:
    first, last = (rows.keys[at].as_py() for at in (0, len(rows) - 1))
    if part is None:
        part = IngestPart(0, 0, first, last, 0 if digest else None)
    return IngestPart(
        part.rows + len(rows),
        part.nbytes + rows.nbytes,
        part.first_key,
        last,
        None if part.digest is None else (part.digest + rows_digest(rows)) % MODULUS,
    )
