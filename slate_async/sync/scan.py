"""`Scan`: the rows of a key range. The loop is asked once for each block of rows, not once a row."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from types import TracebackType
from typing import Self, TypeVar

from slate_async.engine.read import scan as asynchronous
from slate_async.engine.read.record_batch import RecordBatch
from slate_async.engine.read.scan import BATCH_ROWS
from slate_async.engine.read.scan_steps import Pair
from slate_async.errors import InvalidError
from slate_async.runtime.loop_thread import LoopThread
from slate_async.types import Row

T = TypeVar("T")


class Scan:
    """``for key, value in scan``; see also `rows` and `batches`. A context manager too. One thread at a time.

    It is iterated once. It pins what it reads until it is exhausted, closed or dropped."""

    def __init__(self, loop: LoopThread, scan: asynchronous.Scan) -> None:
        self._loop = loop
        self._scan = scan
        self._closed = False

    def __iter__(self) -> Iterator[Pair]:
        """Pairs of key and value."""
        pairs = self._loop.call(self._scan.__aiter__)
        assert isinstance(pairs, asynchronous.Chunks)
        return self._each(pairs.more)

    def rows(self) -> Iterator[Row]:
        """`slate_async.Row` objects, with sequence number and times."""
        rows = self._loop.call(self._scan.rows)
        assert isinstance(rows, asynchronous.Chunks)
        return self._each(rows.more)

    def batches(self, max_rows: int = BATCH_ROWS, *, times: bool = False) -> Iterator[RecordBatch]:
        """Record batches (key: binary, value: binary, seq: uint64) of at most ``max_rows`` rows, in scan order;
        ``times`` adds create_time and expire_time. See `slate_async.Scan.batches`."""
        batches = self._loop.call(self._scan.batches, max_rows, times=times)

        async def step() -> Iterator[RecordBatch] | None:
            async for batch in batches:
                return iter((batch,))
            return None

        return self._each(step)

    def _each(self, more: Callable[[], Awaitable[Iterator[T] | None]]) -> Iterator[T]:
        while (ready := self._loop.run(more)) is not None:
            for item in ready:
                if self._closed:
                    raise InvalidError("the scan is closed")
                yield item

    def close(self) -> None:
        """Stop: nothing more is read or given, and the pin is given up. Idempotent."""
        self._closed = True
        self._loop.run(self._scan.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
