"""`AcknowledgedBatches`: the newest batches that writers of this process had acknowledged, for its listeners and its
controller.

A listener takes what extends its coverage from here, and asks the store for the rest. A controller finds what is
pending by listing it, and takes from here what it need not read. This is a hint: nothing rests on it, and who finds
nothing here finds it in the store.

Invariants:
* each was put with these very bytes, and acknowledged: it is in the collection for ever, so no hold has to stand for
  it, and what is listed under its name is this batch, or has the same updates (C5, C7)
* `KEPT_BYTES` and `KEPT_BATCHES` at most, the newest; none if nobody attends

Rules C4, C5 and C7 of collections.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakSet

from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.names import PendingName

KEPT_BYTES = 4 << 20
KEPT_BATCHES = 1_024


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
        self._batches: dict[PendingName, AcknowledgedBatch] = {}
        self._nbytes = 0
        self._attending: WeakSet[object] = WeakSet()

    def attend(self, role: object) -> None:
        """Keep batches while ``role``, a listener or a controller, lives, until it leaves."""
        self._attending.add(role)

    def leave(self, role: object) -> None:
        """``role`` needs none any more. Idempotent."""
        self._attending.discard(role)
        if not self._attending:
            self._drop_all()

    def add(self, batch: AcknowledgedBatch) -> None:
        """One that was acknowledged just now, of `KEPT_BYTES` at most."""
        if not self._attending:
            self._drop_all()
            return
        self._drop(batch.name)
        self._batches[batch.name] = batch
        self._nbytes += len(batch.data)
        while self._nbytes > KEPT_BYTES or len(self._batches) > KEPT_BATCHES:
            self._drop(next(iter(self._batches)))

    def beyond(self, coverage: Frontier) -> list[AcknowledgedBatch]:
        """Those that ``coverage`` does not have yet, the oldest first."""
        return [batch for batch in self._batches.values() if not batch.upper <= coverage]

    def named(self, name: PendingName) -> AcknowledgedBatch | None:
        """The one called ``name``, if it is kept."""
        return self._batches.get(name)

    def _drop(self, name: PendingName) -> None:
        dropped = self._batches.pop(name, None)
        if dropped is not None:
            self._nbytes -= len(dropped.data)

    def _drop_all(self) -> None:
        self._batches.clear()
        self._nbytes = 0
