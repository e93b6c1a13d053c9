"""What waits to be committed, and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from slate_async.tables.core.chain import Contents
from slate_async.tables.core.group import Member
from slate_async.tables.core.head import Head
from slate_async.tables.core.schema import TableSchema


class Done(NamedTuple):
    """An operation that is in.

    head: which holds it, and was the newest at some time since
    version: that it made; ``None`` if it was in before a later one of the same application
    duplicate: it was in already
    rows: of the operation, or of the one that was in
    nbytes: of a small append, its part of the block
    """

    head: Head
    version: int | None
    duplicate: bool
    rows: int
    nbytes: int = 0


@dataclass(slots=True, eq=False)
class Operation(Member):
    """What is to be committed.

    table, schema: rows of a small append, and what they were made to fit
    look: asked of each head that it meets, to say what ``edit`` is there; it comes first in its group
    alone: it shares no commit
    weight: bytes of its rows in memory; ``nbytes``: its part of the block that it shares
    """

    table: pa.Table | None = None
    schema: TableSchema | None = None
    look: Callable[[Head, Contents], Awaitable[None]] | None = None
    alone: bool = False
    weight: int = 0
    nbytes: int = 0
    deadline: float = 0.0
    ended: asyncio.Future[Done] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def leads(self) -> bool:
        """Whether it is the first of its group."""
        return self.alone or self.replaces or self.look is not None
