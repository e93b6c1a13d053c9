"""What the verbs of `slate_async.tables.table.Table` do: appends, deletes, upserts.

An append of less than `SMALL_BYTES` waits with its rows in memory, and shares a block with others that wait. All else
is put first, as blocks of its own.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from slate_async.tables.context import TableContext
from slate_async.tables.core.append_ids import AppendId
from slate_async.tables.core.edits import Write
from slate_async.tables.core.head import Head
from slate_async.tables.core.predicate import PredicateLike
from slate_async.tables.draft import Draft
from slate_async.tables.incoming import ArrowData, Cut, pieces
from slate_async.tables.results import AppendResult, DeleteResult, UpsertResult
from slate_async.tables.store.operation import Operation

SMALL_BYTES: Final = 4 << 20
"""An append of fewer, as Arrow has them, shares a block with others."""
_NOTHING: Final = Write()


async def append(context: TableContext, data: ArrowData, named: AppendId | None, *, instead: bool) -> AppendResult:
    """Add ``data``, or put it in the place of all that is there."""
    head = await _known(context)
    async with aclosing(pieces(data, head.schema, context.runtime)) as given:
        first = await anext(given, None)
        before = [] if first is None else [first]
        if first is not None and first[1] < SMALL_BYTES and not instead and not _goes_on(data):
            second = await anext(given, None)
            if second is None:
                return await _append_small(context, head, first, named)
            before.append(second)
            del second
        del first
        draft = Draft(context, head)
        await draft.put(given, before)
    done = await draft.commit(named, instead=instead)
    if done.duplicate:
        return AppendResult(done.version, done.rows, 0, 0, True)
    nbytes = pc.sum(draft.added.column("size")).as_py() or 0
    return AppendResult(done.version, draft.rows, draft.added.num_rows, nbytes, False)


def _goes_on(data: ArrowData) -> bool:
    """Whether more is to come for sure, so that what came is not to wait for it."""
    return isinstance(data, Cut) and not data.ended()


async def _append_small(
    context: TableContext, head: Head, piece: tuple[pa.Table, int], named: AppendId | None
) -> AppendResult:
    rows, nbytes = piece
    operation = Operation(
        _NOTHING, named, rows=rows.num_rows, small=True, table=rows, schema=head.schema, weight=nbytes
    )
    done = await context.committer.submit(operation)
    if done.duplicate:
        return AppendResult(done.version, done.rows, 0, 0, True)
    return AppendResult(done.version, done.rows, 1, done.nbytes, False)


async def delete(context: TableContext, where: PredicateLike, named: AppendId | None, *, strict: bool) -> DeleteResult:
    """Delete the rows that pass."""
    head = await context.newest()
    draft = Draft(context, head)
    await draft.delete(where, strict=strict)
    if not strict and named is None and not draft.deletes:
        return DeleteResult(head.version, 0)
    done = await draft.commit(named)
    return DeleteResult(done.version, done.rows if done.duplicate else draft.deleted, done.duplicate)


async def upsert(context: TableContext, data: ArrowData, named: AppendId | None) -> UpsertResult:
    """Put ``data`` in the place of the rows with its keys."""
    head = await _known(context)
    draft = Draft(context, head)
    await draft.upsert(data)
    done = await draft.commit(named)
    if done.duplicate:
        return UpsertResult(done.version, done.rows, 0, True)
    return UpsertResult(done.version, draft.rows, draft.deleted, False)


async def _known(context: TableContext) -> Head:
    return context.heads.head or await context.newest()
