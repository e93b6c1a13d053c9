"""What is used of one table by all that works with it in one process.

Rules T9 and T11.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from slate_async.errors import CorruptionError, NotFoundError, SlateError
from slate_async.objectstore.protocol import ObjectNotFoundError
from slate_async.runtime.concurrent import map_bounded
from slate_async.runtime.protocol import Runtime
from slate_async.runtime.supervisor import Supervisor
from slate_async.tables.core.chain import Contents
from slate_async.tables.core.errors import SnapshotExpiredError
from slate_async.tables.core.head import Head
from slate_async.tables.core.row_ids import RowIds, difference, union
from slate_async.tables.store.blocks import Blocks
from slate_async.tables.store.chain import Chain
from slate_async.tables.store.committer import Committer
from slate_async.tables.store.heads import TableHeads

T = TypeVar("T")
logger = logging.getLogger(__name__)
PARALLEL_DELETES: Final = 16
WALKS: Final = 5
"""Times that a chain is walked while its version is kept, and a link is missing."""
COVER_LINKS: Final = 16
"""After so many links a whole one is put beside the newest."""


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
        head = await self.heads.load()
        if head is None or head.dropped:
            raise NotFoundError(f"there is no table {self.name} any more")
        return head

    async def contents(self, head: Head) -> Contents:
        """All that ``head`` has. Raises as `kept`.

        A whole link may come, and a vacuum delete the chain below it, while that is walked: so it is walked again."""
        for _ in range(WALKS - 1):
            with contextlib.suppress(ObjectNotFoundError):
                return await self.chain.contents(head)
            if not (await self.newest()).keeps(head.version):
                break
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
        """What ``work`` reads of ``head``. An object that is missing was deleted with its version, or is lost: raises
        `SnapshotExpiredError` or `CorruptionError` (rule T11)."""
        try:
            return await work
        except ObjectNotFoundError as error:
            newest = await self.newest()
            if not newest.keeps(head.version):
                said = f"version {head.version} of {self.name} is not kept any more; read a newer one"
                raise SnapshotExpiredError(said) from error
            said = f"it is missing, and version {head.version} of {self.name} needs it; restore it"
            raise CorruptionError(said, object_name=error.key) from error

    def cover(self, head: Head) -> None:
        """Have a whole link put beside the newest one of ``head``, in the background, when it is due (rule T9)."""
        if len(head.links) < COVER_LINKS or len(head.links) % COVER_LINKS:
            return
        self.supervisor.spawn(f"cover {self.name}", self.cover_now(head), critical=False)

    async def cover_now(self, head: Head) -> None:
        """As `cover`, at once, whether it is due or not."""
        try:
            self.heads.covered = await self.chain.put_whole(head) or self.heads.covered
        except SlateError as error:
            logger.info("%s: no whole link beside version %d; a later one will be: %s", self.name, head.version, error)
