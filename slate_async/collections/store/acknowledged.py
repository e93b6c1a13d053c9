"""`AcknowledgedBatches`: the newest batches that writers of this process had acknowledged, for its listeners.

A listener takes what extends its coverage from here, and asks the store for the rest. This is a hint: nothing rests on
it, and who finds nothing here finds it in the store.

Invariants:
* each was put with these very bytes, and acknowledged: it is in the collection for ever, so no hold has to stand for it
* `KEPT_BYTES` and `KEPT_BATCHES` at most, the newest; none without a listener

Rule C4 of collections.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from weakref import WeakSet

from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.names import PendingName

KEPT_BYTES = 4 << 20
KEPT_BATCHES = 256


@dataclass(frozen=True, slots=True)
class AcknowledgedBatch:
    """A pending batch without parts. ``data``: its object"""

    lower: Frontier
    upper: Frontier
    name: PendingName
    token: str
    data: bytes


class AcknowledgedBatches:
    """Of one life of a collection, in one process."""

    def __init__(self) -> None:
        self._batches: deque[AcknowledgedBatch] = deque()
        self._nbytes = 0
        self._listeners: WeakSet[object] = WeakSet()

    def attend(self, listener: object) -> None:
        """Keep batches while ``listener`` lives, until it leaves."""
        self._listeners.add(listener)

    def leave(self, listener: object) -> None:
        """``listener`` needs none any more. Idempotent."""
        self._listeners.discard(listener)
        if not self._listeners:
            self._drop_all()

    def add(self, batch: AcknowledgedBatch) -> None:
        """One that was acknowledged just now, of `KEPT_BYTES` at most."""
        if not self._listeners:
            self._drop_all()
            return
        self._batches.append(batch)
        self._nbytes += len(batch.data)
        while self._nbytes > KEPT_BYTES or len(self._batches) > KEPT_BATCHES:
            self._nbytes -= len(self._batches.popleft().data)

    def beyond(self, coverage: Frontier) -> list[AcknowledgedBatch]:
        """Those that ``coverage`` does not have yet, the oldest first."""
        return [batch for batch in self._batches if not batch.upper <= coverage]

    def _drop_all(self) -> None:
        self._batches.clear()
        self._nbytes = 0
