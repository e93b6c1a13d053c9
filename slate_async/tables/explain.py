"""`ScanPlan`: what a scan would read of one version, and why it leaves out the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slate_async.runtime.concurrent import map_bounded
from slate_async.tables.codec.block_read import columns_in, spans_of
from slate_async.tables.context import TableContext
from slate_async.tables.core.head import Head
from slate_async.tables.core.schema import ROW_ID
from slate_async.tables.core.spans import BlockSpans
from slate_async.tables.rows import DESCRIBED, groups_to_read, written_by
from slate_async.tables.scan_plan import Plan, Wanted, plan_of
from slate_async.tables.store.blocks import WHOLE_BYTES

PARALLEL: Final = 16
BY_BLOCK: Final = "statistics of the block"
BY_GROUPS: Final = "statistics of its row groups"
_COLUMNS: Final = pa.schema(
    [
        ("key", pa.string()),
        ("rows", pa.int64()),
        ("nbytes", pa.int64()),
        ("skipped_by", pa.string()),
        ("row_groups", pa.int64()),
        ("row_groups_read", pa.int64()),
        ("nbytes_read", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """What a scan would read.

    version: of the table
    columns: that are read, those of the predicate among them
    blocks: one row a block: its ``key``, ``rows`` and ``nbytes``; ``skipped_by``: what says that no row of it passes,
    null for one that is read; ``row_groups``, where its footer was read, ``row_groups_read`` and ``nbytes_read``
    """

    version: int
    columns: tuple[str, ...]
    blocks: pa.Table = field(repr=False)

    @property
    def blocks_read(self) -> int:
        """How many blocks are read."""
        return int(self.blocks.column("skipped_by").null_count)

    @property
    def row_groups_read(self) -> int:
        """How many row groups are read."""
        return self._sum("row_groups_read")

    @property
    def nbytes_read(self) -> int:
        """Bytes of blocks that are read, footers among them."""
        return self._sum("nbytes_read")

    def __str__(self) -> str:
        skipped = self.blocks.column("skipped_by")
        by = {reason: int(pc.sum(pc.equal(skipped, reason)).as_py() or 0) for reason in (BY_BLOCK, BY_GROUPS)}
        lines = [
            f"version {self.version}, columns {', '.join(self.columns)}",
            f"blocks: {self.blocks_read} of {self.blocks.num_rows} are read",
            *(f"  {count} are left out by {reason}" for reason, count in by.items() if count),
            f"row groups: {self.row_groups_read} of {self._sum('row_groups')} in those whose footer was read",
            f"bytes: {self.nbytes_read} of {self._sum('nbytes')}",
        ]
        return "\n".join(lines)

    def _sum(self, column: str) -> int:
        return int(pc.sum(self.blocks.column(column)).as_py() or 0)


class _Read(NamedTuple):
    groups: int
    groups_read: int
    nbytes_read: int


async def explain(context: TableContext, wanted: Wanted, head: Head) -> ScanPlan:
    """The plan of a scan of ``head``. It reads the footers of blocks that the scan would read. Raises as the scan."""
    context.check()
    plan = plan_of(wanted, head.schema)
    blocks = (await context.contents(head)).blocks
    count = blocks.num_rows
    mask = plan.may_pass(BlockSpans(blocks, plan.schema))
    passing = np.ones(count, np.bool_) if mask is None else mask
    described = blocks.filter(pa.array(passing)).select(list(DESCRIBED)).to_pylist()

    async def look(block: Mapping[str, Any]) -> _Read:
        return await context.kept(head, _look(context, plan, head, block))

    reads = await map_bounded(look, described, PARALLEL)
    at = np.flatnonzero(passing)
    reason = np.full(count, BY_BLOCK, object)
    reason[at] = [None if read.groups_read else BY_GROUPS for read in reads]
    numbers = {name: np.zeros(count, np.int64) for name in _Read._fields}
    for name, values in numbers.items():
        values[at] = [getattr(read, name) for read in reads]
    columns = [
        blocks.column("key"),
        blocks.column("rows"),
        blocks.column("size"),
        pa.array(reason, pa.string()),
        *(pa.array(numbers[name]) for name in _Read._fields),
    ]
    return ScanPlan(head.version, plan.needed, pa.Table.from_arrays(columns, schema=_COLUMNS))


async def _look(context: TableContext, plan: Plan, head: Head, block: Mapping[str, Any]) -> _Read:
    written = written_by(head, block)
    footer = await context.blocks.footer(block, written)
    names = columns_in(written, plan.schema, plan.needed)
    names = [*names, ROW_ID] if block["carried"] else names
    groups = groups_to_read(plan, footer, written)
    if block["size"] <= WHOLE_BYTES and names:
        return _Read(footer.groups, len(groups), block["size"])
    nbytes = sum(span.length for group in groups for span in spans_of(footer, group, names))
    return _Read(footer.groups, len(groups), block["footer_size"] + nbytes)
