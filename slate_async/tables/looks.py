"""What an operation deletes by what it finds: looked for in each block once, and again in those added since.

Ids of rows stay what they are, whatever block a row lies in. So what was found in a block holds for every later
version, and a version with other blocks is looked at where it has others.

Rules T13 and T16.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

import pyarrow as pa
import pyarrow.compute as pc

from slate_async.tables.context import TableContext
from slate_async.tables.core.chain import Contents
from slate_async.tables.core.head import Head
from slate_async.tables.core.row_ids import RowIds, no_rows, set_of, union
from slate_async.tables.core.schema import ROW_ID, TableSchema
from slate_async.tables.rows import Selected, read
from slate_async.tables.scan_plan import Plan


class Look:
    """See the module docstring. ``plan``: what is looked for, by the schema of a version; it gives row ids."""

    def __init__(self, context: TableContext, plan: Callable[[TableSchema], Plan]) -> None:
        self._context = context
        self._plan = plan
        self._seen = pa.array([], pa.string())
        self._found = no_rows()

    async def found(self, head: Head, contents: Contents) -> RowIds:
        """Rows of ``contents``, those of ``head``, and of versions seen before, deleted ones among them."""
        blocks = contents.blocks
        if len(self._seen):
            blocks = blocks.filter(pc.invert(pc.is_in(blocks.column("key"), value_set=self._seen)))
        self._found = union([self._found, await self.among(head, blocks)])
        self._seen = contents.blocks.column("key").combine_chunks()
        return self._found

    async def among(self, head: Head, blocks: pa.Table) -> RowIds:
        """Rows of ``blocks``, which are written by schemas of ``head``."""
        if not blocks.num_rows:
            return no_rows()
        plan = self._plan(head.schema)
        async with aclosing(read(self._context, plan, Selected(head, blocks, no_rows()))) as batches:
            ids = [batch.column(ROW_ID).to_numpy() async for batch in batches]
        return union([set_of(part) for part in ids])
