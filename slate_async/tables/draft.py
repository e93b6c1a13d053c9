"""`Draft`: an operation of several steps, before it is committed.

It has blocks that are put, rows to delete, and what it has to look for in the very version that it extends.

Rows of its own have ids from `OWN_ROWS` on until the commit gives them theirs, so later steps delete those of earlier
ones like any others.

Rules T5, T13 and T16.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from slate_async.errors import ConflictError, InvalidError, UnavailableError
from slate_async.objectstore.protocol import ObjectNotFoundError
from slate_async.runtime.concurrent import ahead
from slate_async.tables.context import TableContext
from slate_async.tables.core.append_ids import AppendId
from slate_async.tables.core.chain import Contents, no_blocks, no_files, placed
from slate_async.tables.core.edits import BELOW_FLOOR, OWN_ROWS, Write
from slate_async.tables.core.head import Head
from slate_async.tables.core.key_columns import names_of
from slate_async.tables.core.keys import KeySet, overwritten
from slate_async.tables.core.predicate import PredicateLike
from slate_async.tables.core.row_ids import RowIds, between, difference, no_rows, union
from slate_async.tables.core.schema import TableSchema
from slate_async.tables.incoming import BLOCK_BYTES, ArrowData, pieces
from slate_async.tables.looks import Look
from slate_async.tables.scan_plan import Plan, Wanted, plan_of
from slate_async.tables.store.operation import Done, Operation

ENCODED_AT_ONCE: Final = 2
PUT_AGAIN: Final = 3
"""Times that blocks are put under new names, when a vacuum has passed those that they had."""
INLINE_DELETED: Final = 512
"""Row ids that a link holds itself; more of them are a file."""
MAX_DELETED: Final = 10_000_000
"""Rows that one commit deletes."""
MAX_KEYS: Final = 10_000_000
"""Rows of one upsert: their keys are in memory."""


class Draft:
    """See the module docstring. ``head``: the version by which its steps are made.

    added: blocks; ``rows`` that its steps brought, ``deleted`` ones, and those that are live of ``rows``
    """

    def __init__(self, context: TableContext, head: Head) -> None:
        self._context = context
        self._head = head
        self._contents: Contents | None = None
        self._next = OWN_ROWS
        self._fixed = no_rows()
        self._looks: list[Look] = []
        self._file: tuple[RowIds, pa.Table] = (no_rows(), no_files())
        self.added = no_blocks()
        self.rows = 0
        self.deleted = 0

    @property
    def deletes(self) -> bool:
        """Whether there is anything to delete, or to look for."""
        return bool(len(self._fixed) or self._looks)

    async def append(self, data: ArrowData) -> None:
        """Put ``data`` as blocks. Raises `InvalidError`."""
        await self.put(pieces(data, self._head.schema, self._context.runtime))

    async def put(
        self, given: AsyncGenerator[tuple[pa.Table, int]], before: list[tuple[pa.Table, int]] | None = None
    ) -> None:
        """Put each piece as a block, those that were taken ``before`` first, which are taken from the list. Raises
        `InvalidError`."""

        async def all_of() -> AsyncGenerator[tuple[pa.Table, int]]:
            while before:
                yield before.pop(0)
            async for piece in given:
                yield piece
                del piece  # the next one may wait for its memory

        stored = [row async for row in ahead(self._put, all_of(), limit=ENCODED_AT_ONCE, budget=2 * BLOCK_BYTES)]
        self.rows += self._add(stored)

    async def delete(self, where: PredicateLike, *, strict: bool) -> None:
        """Delete the rows that pass: of the version by which it is made, or with ``strict`` of that which it extends.
        Those of earlier steps are among them. Raises `InvalidError`."""
        wanted = Wanted.of(where, [], None, row_ids=True)
        plan_of(wanted, self._head.schema)
        await self._delete(Look(self._context, lambda schema: plan_of(wanted, schema)), strict=strict)

    async def upsert(self, data: ArrowData) -> None:
        """Put ``data``, and delete all rows with its keys, those of earlier steps among them. Of rows in ``data`` with
        the same key the last one counts. Raises `InvalidError`."""
        schema, own, keys, total = self._head.schema, self._next, list[pa.Table](), 0
        key = names_of(schema, self._head.key)
        if not key:
            raise InvalidError("the table has no key; create it with key=[...]", outcome="not_applied")
        before = self.added
        stored: list[pa.Table] = []
        async for piece, _ in pieces(data, schema, self._context.runtime):
            rows, found = await self._context.runtime.offload.run(partial(_last_of_each, piece, key))
            total += rows.num_rows
            if total > MAX_KEYS:
                raise InvalidError(f"an upsert takes at most {MAX_KEYS} rows; do it in parts", outcome="not_applied")
            keys.append(found)
            stored.append(await self._put(rows))
        if not total:
            return
        given = pa.concat_tables(keys)
        wanted, again = await self._context.runtime.offload.run(lambda: (KeySet.of(given), overwritten(given)))
        look = Look(self._context, lambda schema: _keyed(wanted, schema))
        if before.num_rows:
            self._fixed = union([self._fixed, await look.among(self._head, before)])
        self._looks.append(look)
        self._add(stored)
        self._fixed = union([self._fixed, again.astype(np.int64) + own])
        self.rows += total - len(again)

    async def commit(self, append_id: AppendId | None = None, *, instead: bool = False) -> Done:
        """Commit it. Raises `UnavailableError` or `ConflictError` with the outcome."""
        for _ in range(PUT_AGAIN):
            operation = await self._operation(append_id, instead=instead)
            try:
                return await self._context.committer.submit(operation)
            except ConflictError as error:
                if error.reason != BELOW_FLOOR:
                    raise
                await self._put_again()
        raise UnavailableError(
            f"it was put {PUT_AGAIN} times, and each time a vacuum went past it; try again", outcome="not_applied"
        )

    async def _operation(self, append_id: AppendId | None, *, instead: bool) -> Operation:
        operation = Operation(Write(), append_id, rows=self.rows, replaces=instead)

        async def look(head: Head, contents: Contents) -> None:
            found = [await each.found(head, contents) for each in self._looks]
            dead = await self._context.deleted(head, contents)
            operation.edit = await self._edit(union([self._fixed, difference(union(found), dead)]), head.version)
            operation.rows = self.rows or self.deleted

        if self._looks:
            operation.look = look
        else:
            operation.edit = await self._edit(self._fixed, self._head.version, instead=instead)
            operation.rows = self.rows or self.deleted
        return operation

    async def _edit(self, deleted: RowIds, base: int, *, instead: bool = False) -> Write:
        there, own = between(deleted, 0, OWN_ROWS), deleted[deleted >= OWN_ROWS]
        self.deleted = len(there)
        if len(there) > MAX_DELETED:
            raise InvalidError(
                f"a commit deletes at most {MAX_DELETED} rows, and {len(there)} pass; delete them in parts",
                outcome="not_applied",
            )
        if len(there) <= INLINE_DELETED:
            return Write(self.added, deleted, instead=instead)
        filed, file = self._file
        if not np.array_equal(filed, there):
            file = await self._context.blocks.put_deletes(there, base)
            self._file = there, file
        return Write(self.added, own, file, instead=instead)

    async def _delete(self, look: Look, *, strict: bool) -> None:
        own = await look.among(self._head, self.added)
        if strict:
            self._looks.append(look)
            found = no_rows()
        else:
            contents = await self._read()
            dead = await self._context.deleted(self._head, contents)
            found = difference(await look.found(self._head, contents), dead)
        self._fixed = union([self._fixed, own, found])

    async def _read(self) -> Contents:
        if self._contents is None:
            self._contents = await self._context.contents(self._head)
        return self._contents

    def _add(self, stored: list[pa.Table]) -> int:
        """Blocks behind those that are there; returns how many rows they have."""
        if not stored:
            return 0
        first = self._next
        blocks, self._next = placed(pa.concat_tables(stored, promote_options="default"), first)
        self.added = pa.concat_tables([self.added, blocks], promote_options="default")
        return self._next - first

    async def _put(self, rows: pa.Table) -> pa.Table:
        return await self._context.blocks.put(rows, self._head.schema, self._head.version)

    async def _put_again(self) -> None:
        """The same objects under names that the newest head takes."""
        blocks, base = self._context.blocks, (await self._context.newest()).version
        try:
            copied = [await blocks.copy(self.added.slice(at, 1), base) for at in range(self.added.num_rows)]
        except ObjectNotFoundError as error:
            raise ConflictError(
                "a vacuum deleted the rows before they were committed; do it again", outcome="not_applied"
            ) from error
        self.added = pa.concat_tables([no_blocks(), *copied], promote_options="default")
        there, file = self._file
        if file.num_rows:
            self._file = there, await blocks.put_deletes(there, base)


def _last_of_each(rows: pa.Table, key: tuple[str, ...]) -> tuple[pa.Table, pa.Table]:
    """Of rows with the same key the last one; and their keys."""
    keys = rows.select(key)
    again = overwritten(keys)
    if not len(again):
        return rows, keys
    kept = np.ones(rows.num_rows, np.bool_)
    kept[again] = False
    return rows.filter(pa.array(kept)), keys.filter(pa.array(kept))


def _keyed(keys: KeySet, schema: TableSchema) -> Plan:
    plan = plan_of(Wanted.of(None, keys.names, None, row_ids=True), schema)
    return Plan(plan.schema, plan.columns, plan.needed, None, row_ids=True, given=plan.given, keys=keys)
