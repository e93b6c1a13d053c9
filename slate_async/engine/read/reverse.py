"""One sorted stream from its end, in batches of whole keys.

In reverse a key's oldest version comes first, perhaps a batch before its newest. So batches are merged with themselves
(`MergedRows`), except where nothing needs it: a batch of which every reader sees every row holds one version of each
of its keys, and none is continued from a batch before it in key order.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from slate_async.codec.columns import Columns
from slate_async.engine.read.merge import MergedRows, Stream, close_stream


class WholeKeys(AsyncIterator[Columns]):
    """See the module docstring. A step that was cancelled or failed leaves it unusable; `aclose` it."""

    def __init__(self, batches: AsyncIterator[Columns]) -> None:
        self._batches = batches
        self._mixed: MergedRows | None = None

    async def __anext__(self) -> Columns:
        while True:
            if self._mixed is None:
                batch = await anext(self._batches)
                if batch.seen_from is not None:
                    return batch
                self._mixed = MergedRows([Stream(self._until_whole(batch))], reverse=True)
            merged = await anext(self._mixed, None)
            if merged is not None:
                return merged.all()
            self._mixed = None

    async def _until_whole(self, batch: Columns) -> AsyncGenerator[Columns, None]:
        """``batch`` and what follows, up to a batch that no earlier one continues."""
        yield batch
        async for after in self._batches:
            yield after
            if after.seen_from is not None:
                return

    async def aclose(self) -> None:
        """Close the stream. Idempotent."""
        if self._mixed is not None:
            await self._mixed.aclose()
        await close_stream(self._batches)
