"""Where rows in the order of their sequence numbers may be cut, and whether any is missing. Pure.

Every row has a sequence number of its own and a `WriteBatch` is a range of them, but for the rows of an ingest, which
share one, and come in the order of their keys. The rows of a `WriteBatch` were written in one millisecond, by one log
object. So a cut where the write time changes, or where a log object ends, never tears one.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slate_async.codec.arrays import number_array
from slate_async.codec.columns import Columns, concat
from slate_async.errors import CorruptionError
from slate_async.storage.manifest.state import SkippedSeqs

BATCH_BYTES = 16 << 20
"""Record batches end near this many bytes, however many rows they are asked to have."""


def above(rows: Columns, seq: int) -> Columns:
    """The rows above ``seq``."""
    first = int(np.searchsorted(rows.seqs, seq, side="right"))
    return rows if first == 0 else rows.slice(first, len(rows))


def up_to(rows: Columns, seq: int) -> Columns:
    """The rows up to ``seq``, inclusive."""
    stop = int(np.searchsorted(rows.seqs, seq, side="right"))
    return rows if stop == len(rows) else rows.slice(0, stop)


def in_order(rows: Columns) -> Columns:
    """``rows`` by their sequence numbers; those that share one as they are."""
    return rows.take(np.argsort(rows.seqs, kind="stable"))


def shared_by_key(rows: Columns) -> Columns:
    """``rows``, which are in order; those that share a number, of an ingest, by their keys."""
    if not (rows.seqs[1:] == rows.seqs[:-1]).any():
        return rows
    columns = pa.table({"seq": number_array(rows.seqs), "key": rows.keys})
    order = pc.sort_indices(columns, sort_keys=[("seq", "ascending"), ("key", "ascending")])
    return rows.take(order.to_numpy().astype(np.int64))


def check_gapless(rows: Columns, after: int, *, shared_until: int, skipped: Iterable[SkippedSeqs], source: str) -> None:
    """Raise `CorruptionError` naming ``source`` unless ``rows`` follow sequence number ``after`` without a gap.

    shared_until: sequence numbers up to here may be shared by rows: those of ingests
    skipped: sequence numbers that no row has"""
    if not len(rows):
        return
    seqs = np.concatenate((np.array([after], np.int64), rows.seqs.astype(np.int64)))
    steps = np.diff(seqs - sum(np.clip(seqs - span.first + 1, 0, span.last - span.first + 1) for span in skipped))
    wrong = (steps != 1) & ~((steps == 0) & (rows.seqs <= shared_until))
    wrong[0] |= steps[0] != 1
    if wrong.any():
        first = int(np.argmax(wrong))
        raise CorruptionError(
            f"row {int(rows.seqs[first])} follows {int(rows.seqs[first]) - int(steps[first])} in the change feed:"
            f" rows are missing, or there twice",
            object_name=source,
        )


def last_cut(rows: Columns) -> int:
    """The last place where sorted ``rows`` may be cut, and none of a sequence number is left behind; 0 if there is
    none."""
    changes = np.flatnonzero((rows.create_ms[1:] != rows.create_ms[:-1]) & (rows.seqs[1:] != rows.seqs[:-1]))
    return int(changes[-1]) + 1 if len(changes) else 0


def batches_of(parts: list[Columns], max_rows: int) -> list[Columns]:
    """``parts`` as batches of about ``max_rows`` rows or fewer; the end of a part is a place to cut.

    A batch has more rows only where more were written in one millisecond: those stay together."""
    batches: list[Columns] = []
    near: list[Columns] = []
    rows = nbytes = 0
    for part in parts:
        for piece in _pieces(part, max_rows):
            if near and (rows + len(piece) > max_rows or nbytes + piece.nbytes > BATCH_BYTES):
                batches.append(concat(near))
                near, rows, nbytes = [], 0, 0
            near.append(piece)
            rows += len(piece)
            nbytes += piece.nbytes
    return [*batches, concat(near)] if near else batches


def _pieces(part: Columns, max_rows: int) -> list[Columns]:
    """``part`` cut where write times change, so that no piece that can be cut is larger than a batch may be."""
    size = len(part)
    most = max(1, min(max_rows, size * BATCH_BYTES // max(1, part.nbytes)))
    if size <= most:
        return [part] if size else []
    places = np.flatnonzero(part.create_ms[1:] != part.create_ms[:-1]) + 1
    pieces: list[Columns] = []
    start = 0
    while size - start > most:
        at = int(np.searchsorted(places, start + most, side="right"))
        stop = int(places[at - 1]) if at and places[at - 1] > start else int(places[at]) if at < len(places) else size
        pieces.append(part.slice(start, stop))
        start = stop
    return [*pieces, part.slice(start, size)] if start < size else pieces
