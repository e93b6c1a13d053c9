"""Updates cut into slices that are bounded in rows and bytes, and put together again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from slate_async.errors import InternalError


def slices_of(updates: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """``updates`` in slices of at most ``rows``, without a copy."""
    for start in range(0, updates.num_rows, rows):
        yield updates.slice(start, rows)


def slices_within(updates: pa.RecordBatch, rows: int, nbytes: int) -> Iterator[pa.RecordBatch]:
    """``updates`` in slices of at most ``rows`` and ``nbytes``, or of one row that has more, without a copy. Long rows
    may lie together."""
    start = 0
    while start < updates.num_rows:
        piece = updates.slice(start, rows)
        if piece.nbytes > nbytes:
            piece = piece.slice(0, _most(piece, nbytes))
        yield piece
        start += piece.num_rows


def _most(updates: pa.RecordBatch, nbytes: int) -> int:
    """How many of the first rows have at most ``nbytes``; 1 at least."""
    low, high = 1, updates.num_rows
    while low < high:
        middle = (low + high + 1) // 2
        if updates.slice(0, middle).nbytes <= nbytes:
            low = middle
        else:
            high = middle - 1
    return low


def one_batch(updates: pa.Table | Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """``updates``, all of them. Raises `InternalError` for more than 2 GiB of a column, which Arrow does not put into
    one array: the limits of what is read and written together are far below that."""
    table = updates if isinstance(updates, pa.Table) else pa.Table.from_batches(updates, schema)
    batches = combined(table)
    if len(batches) > 1:
        raise InternalError(f"{table.num_rows} updates of {table.nbytes} bytes are too many for one batch")
    if batches:
        return batches[0]
    return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)


def combined(table: pa.Table) -> list[pa.RecordBatch]:
    """``table`` in as few batches as Arrow makes of it."""
    return list(table.combine_chunks().to_batches())
