"""`compact`: merges of blocks, each of which is a commit that leaves every row as it is.

A merge blocks nobody: appends and deletes commit beside it, and it applies on top of them. One whose inputs another
merge took, or a vacuum passed, is given up and not done again.

Rules T9, T14 and T15.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slate_async.errors import ConflictError, InvalidError
from slate_async.objectstore.protocol import ObjectNotFoundError
from slate_async.tables.codec.block_read import Footer
from slate_async.tables.context import TableContext
from slate_async.tables.core.chain import Contents
from slate_async.tables.core.edits import LOOK_AGAIN, ReplaceBlocks
from slate_async.tables.core.errors import SnapshotExpiredError
from slate_async.tables.core.head import Head
from slate_async.tables.core.merge_plan import TARGET_BYTES, dead_rows, merge_plan, unsure
from slate_async.tables.core.row_ids import RowIds, contained, union
from slate_async.tables.core.schema import ROW_ID
from slate_async.tables.merge import Merged, merge
from slate_async.tables.store.operation import Done

LOOKS: Final = 50
"""Times that a merge is judged anew because others removed blocks meanwhile."""
SMALLEST_TARGET: Final = 1 << 10


@dataclass(frozen=True, slots=True)
class CompactResult:
    """What a compaction did.

    version: that the last merge made; ``None`` if nothing was merged
    merges, abandoned: that are in; that were given up because others took their blocks
    blocks_read, blocks_written, nbytes_read, nbytes_written: of merges that are in
    rows_dropped: deleted rows that are stored no more
    """

    version: int | None = None
    merges: int = 0
    abandoned: int = 0
    blocks_read: int = 0
    blocks_written: int = 0
    nbytes_read: int = 0
    nbytes_written: int = 0
    rows_dropped: int = 0


async def compact(context: TableContext, target_bytes: int | None = None) -> CompactResult:
    """Merge what is worth it now. Raises `InvalidError`, `CorruptionError`, `UnavailableError`."""
    target = TARGET_BYTES if target_bytes is None else target_bytes
    if not isinstance(target, int) or isinstance(target, bool) or target < SMALLEST_TARGET:
        raise InvalidError(f"target_bytes= is a number of bytes, at least {SMALLEST_TARGET}, not {target_bytes!r}")
    groups = await _planned(context, target)
    done: Done | None = None
    result = CompactResult()
    for keys in groups:
        context.check()
        found = await _merged(context, keys, target)
        if found is None:
            result = _sum(result, CompactResult(abandoned=1))
            continue
        done, part = found
        result = _sum(result, part)
    if done is not None:
        await context.committer.cover(done.head)
    return result


async def _planned(context: TableContext, target: int) -> list[pa.Array]:
    """Keys of the blocks of each group."""
    try:
        head = await context.newest()
        contents = await context.contents(head)
        deleted = await context.deleted(head, contents)
        dead = dead_rows(contents.blocks, deleted)
        for at in unsure(contents.blocks, dead):
            ids = await _carried(context, head, contents.blocks.slice(at, 1).to_pylist()[0])
            dead[at] = int(contained(ids, deleted).sum())
    except SnapshotExpiredError:  # a vacuum gave up what was just the newest version; the next call sees a newer one
        return []
    first = head.sort_by[0] if head.sort_by else None
    blocks, keys = contents.blocks, contents.blocks.column("key")
    groups = await context.runtime.offload.run(lambda: merge_plan(blocks, dead, target_bytes=target, sort_by=first))
    return [keys.take(pa.array(group, pa.int64())).combine_chunks() for group in groups]


async def _carried(context: TableContext, head: Head, block: dict[str, Any]) -> RowIds:
    """The row ids that a block carries."""
    written = head.schema_of(block["schema_id"]) or head.schema

    def all_groups(footer: Footer) -> Sequence[int]:
        return range(footer.groups)

    tables = await context.kept(head, context.blocks.read(block, written, [ROW_ID], all_groups))
    parts = [table.column(ROW_ID).to_numpy() for _, table in tables]
    ids: RowIds = np.concatenate([np.empty(0, np.int64), *parts])
    return ids


async def _merged(context: TableContext, keys: pa.Array, target: int) -> tuple[Done, CompactResult] | None:
    """One merge of the blocks ``keys``; ``None`` if it was given up."""
    try:
        head = await context.newest()
        contents = await context.contents(head)
        if not contents.has(keys):
            return None
        deleted = await context.deleted(head, contents)
        inputs = contents.blocks.filter(pc.is_in(contents.blocks.column("key"), value_set=keys))
        made = await merge(context, head, inputs, deleted, target)
        emptied = await _emptied(context, head, contents, made.retired)
    except (SnapshotExpiredError, ObjectNotFoundError):
        return None
    done = await _committed(context, head, contents, keys, made, emptied)
    if done is None:
        return None
    part = CompactResult(
        done.version,
        merges=1,
        blocks_read=len(keys),
        blocks_written=made.added.num_rows,
        nbytes_read=pc.sum(inputs.column("size")).as_py() or 0,
        nbytes_written=pc.sum(made.added.column("size")).as_py() or 0,
        rows_dropped=len(made.retired),
    )
    return done, part


async def _emptied(context: TableContext, head: Head, contents: Contents, retired: RowIds) -> tuple[str, ...]:
    """Delete files of ``contents`` all of whose rows are retired once ``retired`` are."""
    if not len(retired):
        return ()
    retired_then = union([contents.retired, retired])
    found = []
    for file in contents.delete_files.to_pylist():
        if int(retired[0]) <= file["last_row"] and file["first_row"] <= int(retired[-1]):
            ids = await context.kept(head, context.blocks.read_deletes(file))
            if contained(ids, retired_then).all():
                found.append(file["key"])
    return tuple(found)


async def _committed(
    context: TableContext, head: Head, contents: Contents, keys: pa.Array, made: Merged, emptied: tuple[str, ...]
) -> Done | None:
    """Rule T14: what it read decides about restores, what it saw last about live inputs."""
    seen = head
    for _ in range(LOOKS):
        edit = ReplaceBlocks(made.added, keys, made.retired, head.lineage, seen.removals, contents, emptied)
        try:
            return await context.committer.commit(edit)
        except ConflictError as error:
            if error.outcome != "not_applied":
                raise
            if error.reason != LOOK_AGAIN:
                return None
        try:
            seen = await context.newest()
            contents = await context.contents(seen)
        except SnapshotExpiredError:
            continue
        if seen.lineage != head.lineage or not contents.has(keys):
            return None
    return None


def _sum(one: CompactResult, other: CompactResult) -> CompactResult:
    return CompactResult(
        other.version or one.version,
        *(getattr(one, name) + getattr(other, name) for name in CompactResult.__slots__ if name != "version"),
    )
