"""`RetryingRows`: the live rows of a range in batches, from one view after another if objects go missing meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from slate_async.codec.columns import Columns
from slate_async.engine.read.bounds import KeyRange
from slate_async.engine.read.live import LiveRows
from slate_async.engine.read.merge import edge_key, edge_of
from slate_async.engine.read.missing_objects import RETRIES, retries_exhausted
from slate_async.engine.read.read_point import ReadPoint
from slate_async.engine.read.view import Pin
from slate_async.storage.sst.reader import MissingError

SamePoint: TypeAlias = Callable[[ReadPoint, MissingError], Awaitable[ReadPoint]]
"""Returns another view of the same read point after an object of this one was missing (see
`engine.read.missing_objects`), or raises the error that the read's caller gets."""


async def no_retry(point: ReadPoint, missing: MissingError) -> ReadPoint:
    """What is missing stays missing."""
    raise missing


class RetryingRows:
    """Pins what it reads until it is closed. A step that was cancelled or failed leaves it unusable; `aclose` it."""

    def __init__(
        self, point: ReadPoint, span: KeyRange, same_point: SamePoint, *, reverse: bool, prefetch: bool
    ) -> None:
        self._point = point
        self._ahead = span
        self._same_point = same_point
        self._reverse = reverse
        self._prefetch = prefetch
        self._pin: Pin | None = point.view.pin()
        self._rows: LiveRows | None = None
        self._edge = 0 if reverse else -1
        self._behind: Columns | bytes | None = None

    def next_nowait(self) -> Columns | None:
        """As `next`, if that takes no waiting. Never suspends."""
        batch = None if self._rows is None else self._rows.next_nowait()
        if batch is not None:
            self._behind = edge_of(batch, self._edge)
        return batch

    async def next(self) -> Columns | None:
        """The next batch, ascending by key; ``None`` at the end."""
        last: MissingError | None = None
        for _ in range(RETRIES):
            if self._rows is None:
                view, max_seq, now_ms = self._point
                self._rows = view.live_rows(
                    self._ahead, now_ms=now_ms, max_seq=max_seq, reverse=self._reverse, prefetch=self._prefetch
                )
            try:
                batch = await anext(self._rows, None)
            except MissingError as missing:
                last = missing
                await self._rows.aclose()
                self._rows = None
                self._adopt(await self._same_point(self._point, missing))
                continue
            if batch is not None:
                self._behind = edge_of(batch, self._edge)
            return batch
        raise retries_exhausted(last)

    def _adopt(self, point: ReadPoint) -> None:
        """Continue in ``point``, which shows the same rows, behind the last batch."""
        if self._behind is not None and self._reverse:
            self._ahead = KeyRange(self._ahead.start, edge_key(self._behind, self._edge))
        elif self._behind is not None:
            self._ahead = KeyRange(edge_key(self._behind, self._edge) + b"\0", self._ahead.end)
        self._behind = None
        self._point, self._pin = point, point.view.pin()

    def unpin(self) -> None:
        """Give the pin up: nothing more will be read."""
        self._pin = None

    async def aclose(self) -> None:
        """Give the pin up and close the streams. Idempotent."""
        self.unpin()
        if self._rows is not None:
            await self._rows.aclose()
