"""Heads of a table, by each of which a group is settled before it is applied to it.

What an operation has to look at is read here, once for each head that it meets: small appends are put as a block of
exactly those that are not in yet, and whatever deletes by what it finds looks at the blocks that it has not seen.

Rules T5, T11 and T16.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from typing import TypeVar

import pyarrow as pa

from slate_async.commits import WriteOutcome
from slate_async.errors import InternalError, SlateError, UnavailableError
from slate_async.tables.core.errors import SnapshotExpiredError
from slate_async.tables.core.group import Group
from slate_async.tables.core.head import Head
from slate_async.tables.core.names import base_of
from slate_async.tables.store.blocks import Blocks
from slate_async.tables.store.chain import Chain
from slate_async.tables.store.heads import TableHeads
from slate_async.tables.store.operation import Operation

T = TypeVar("T")
logger = logging.getLogger(__name__)


class JudgedHeads:
    """See the module docstring, and `slate_async.commits.Versions`."""

    def __init__(self, heads: TableHeads, chain: Chain, blocks: Blocks) -> None:
        self._heads = heads
        self._chain = chain
        self._blocks = blocks
        self._group: Group | None = None
        self._judged: Head | None = None
        self._shared: tuple[Sequence[Operation], pa.Table] | None = None

    @property
    def head(self) -> Head | None:
        """The one by which the group was settled."""
        return self._judged

    async def begin(self, group: Group) -> None:
        """Settle ``group`` by the head that is known, if that can be done."""
        self._group, self._judged, self._shared = group, None, None
        known = self._heads.head
        if known is None:
            return
        try:
            await self._settle(known)
        except SlateError as error:  # by the real head, then
            logger.debug("%s: version %d cannot be looked at: %s", self._heads.name, known.version, error)

    async def load(self) -> Head | None:
        """The head right now, by which the group was settled."""
        head = await self._heads.load()
        if head is not None:
            await self._settle(head)
        return head

    async def write(self, old: Head | None, new: Head) -> WriteOutcome[Head]:
        """See `TableHeads.write`."""
        return await self._heads.write(old, new)

    async def _settle(self, head: Head) -> None:
        group = self._group
        if group is None:
            raise InternalError("nothing is to be committed")
        self._judged = None
        looks = any(isinstance(member, Operation) and member.look is not None for member in group.left)
        contents = await self._read(head, self._chain.contents(head)) if looks or group.needs_contents else None
        left = group.settle(head, contents)
        small = [member for member in left if isinstance(member, Operation) and member.small]
        if small:
            group.share(await self._block(small, head))
        for member in left:
            if isinstance(member, Operation) and member.look is not None and contents is not None:
                try:
                    await self._read(head, member.look(head, contents))
                except UnavailableError:
                    raise
                except SlateError as error:
                    group.refuse(member, error)
        self._judged = head

    async def _read(self, head: Head, work: Awaitable[T]) -> T:
        """What ``work`` reads of ``head``. Raises `UnavailableError` if that is not kept any more: then it is not the
        newest, which is read next."""
        try:
            return await self._heads.kept(head, work)
        except SnapshotExpiredError as error:
            raise UnavailableError(str(error), outcome="not_applied") from error

    async def _block(self, small: Sequence[Operation], head: Head) -> pa.Table:
        """The block with the rows of exactly these, put under a name that ``head`` takes (rule T5)."""
        if self._shared is not None and self._shared[0] == small:
            block = self._shared[1]
            if base_of(block.column("key")[0].as_py()) >= head.floor:
                return block
        schema = small[0].schema
        tables = [operation.table for operation in small if operation.table is not None]
        if schema is None:
            raise InternalError("small appends have the schema of their rows")
        rows = pa.concat_tables(tables)
        block = await self._blocks.put(rows, schema, head.version)
        self._shared = small, block
        size = block.column("size")[0].as_py()
        for operation in small:
            operation.nbytes = size * operation.rows // rows.num_rows
        return block
