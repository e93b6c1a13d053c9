"""What a scan gives, with keys cut: what stands before them is known to who asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from slate_async.engine.read.record_batch import RecordBatch
from slate_async.types import MAX_KEY_BYTES, Row

T = TypeVar("T")


class Cut(AsyncIterator[T]):
    """The items of ``inner``, each through ``cut``."""

    __slots__ = ("_cut", "_inner")

    def __init__(self, inner: AsyncIterator[T], cut: Callable[[T], T]) -> None:
        self._inner = inner
        self._cut = cut

    async def __anext__(self) -> T:
        return self._cut(await anext(self._inner))

    async def more(self) -> Iterator[T] | None:
        """See `slate_async.engine.read.scan.Chunks`, which ``inner`` has to be."""
        ready: Iterator[T] | None = await self._inner.more()  # type: ignore[attr-defined]
        return None if ready is None else map(self._cut, ready)


def pairs_without(nbytes: int) -> Callable[[tuple[bytes, bytes]], tuple[bytes, bytes]]:
    """Pairs of key and value, with keys from byte ``nbytes`` on."""
    return lambda pair: (pair[0][nbytes:], pair[1])


def rows_without(nbytes: int) -> Callable[[Row], Row]:
    """The same of rows."""
    return lambda row: row._replace(key=row.key[nbytes:])


def batches_without(nbytes: int) -> Callable[[RecordBatch], RecordBatch]:
    """The same of record batches."""

    def cut(batch: RecordBatch) -> RecordBatch:
        keys = pc.binary_slice(batch.column("key"), nbytes, MAX_KEY_BYTES)
        others = [batch.column(name) for name in batch.column_names[1:]]
        made: RecordBatch = pa.RecordBatch.from_arrays([keys, *others], schema=batch.schema)
        return made

    return cut
