"""What is used of one table by all that works with it in one process.

Rule T11.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from slate_async.runtime.concurrent import map_bounded
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.tables.core.chain import Contents
from slate_async.tables.core.head import Head
from slate_async.tables.core.row_ids import RowIds, difference, union
from slate_async.tables.store.blocks import Blocks
from slate_async.tables.store.chain import Chain
from slate_async.tables.store.committer import Committer
from slate_async.tables.store.heads import TableHeads

T = TypeVar("T")
PARALLEL_DELETES: Final = 16


@dataclass(frozen=True, slots=True)
class TableContext:
    """See the module docstring. ``check``: raises `ClosedError` once its catalog is closed."""

    database: str
    name: str
    heads: TableHeads
    chain: Chain
    blocks: Blocks
    committer: Committer
    runtime: Runtime
    supervisor: Supervisor
    check: Callable[[], None]

    async def newest(self) -> Head:
        """The head right now. Raises `NotFoundError` if the table was dropped."""
        return await self.heads.newest()

    async def contents(self, head: Head) -> Contents:
        """All that ``head`` has. Raises as `kept`."""
        return await self.kept(head, self.chain.contents(head))

    async def deleted(self, head: Head, contents: Contents) -> RowIds:
        """All rows of ``contents``, those of ``head``, that are deleted. Raises as `kept`."""
        files = contents.delete_files.to_pylist()
        if not files:
            return contents.deleted
        read = map_bounded(self.blocks.read_deletes, files, PARALLEL_DELETES)
        filed = await self.kept(head, read)
        return await self.runtime.offload.run(lambda: difference(union([contents.deleted, *filed]), contents.retired))

    async def kept(self, head: Head, work: Awaitable[T]) -> T:
        """What ``work`` reads of ``head``; see `TableHeads.kept`."""
        return await self.heads.kept(head, work)
