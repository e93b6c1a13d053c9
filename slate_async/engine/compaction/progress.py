"""What a compactor reports: events as they happen, to `Listeners`, and counters since it began."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Literal, TypeAlias
from uuid import UUID

from slate_async.engine.compaction.executor import MergeCounts

logger = logging.getLogger(__name__)
EventKind = Literal["begun", "resumed", "progress", "range", "committed", "moved", "dropped", "failed"]
"""What happened to a compaction."""


@dataclass(frozen=True, slots=True)
class CompactionEvent:
    """Something that happened to one compaction.

    kind: ``"begun"`` and ``"resumed"`` (after a crash, by another process) start one, ``"committed"`` and ``"dropped"``
    (an input was removed) end it; ``"range"``: one more key range is finished for good; ``"progress"``: some more rows
    are merged; ``"failed"``: it is tried again later; ``"moved"``: SSTs went to another run as they are
    id: ``None`` for moves
    level: level of its output
    rows_done, rows_total: rows merged so far, of all rows of its inputs
    ranges_done, ranges_total: its key ranges
    message: why, where there is a reason to tell
    """

    kind: EventKind
    id: UUID | None
    level: int
    rows_done: int = 0
    rows_total: int = 0
    ranges_done: int = 0
    ranges_total: int = 0
    message: str = ""


EventSink: TypeAlias = Callable[[CompactionEvent], None]
"""Called on the event loop; must not block."""


class Listeners:
    """The sinks of a compactor's events. One that raises is logged, and gets the next event all the same."""

    def __init__(self) -> None:
        self._sinks: dict[int, EventSink] = {}
        self._next = 0

    def add(self, sink: EventSink) -> Callable[[], None]:
        """Give events to ``sink`` until the returned function is called."""
        number = self._next
        self._next += 1
        self._sinks[number] = sink

        def remove() -> None:
            self._sinks.pop(number, None)

        return remove

    def emit(self, event: CompactionEvent) -> None:
        """Give ``event`` to every sink."""
        for sink in tuple(self._sinks.values()):
            try:
                sink(event)
            except Exception:
                logger.exception("a compaction listener raised on the event %r of compaction %s", event.kind, event.id)


@dataclass(slots=True)
class CompactorStats:
    """Counters of one compactor. ``ranges`` counts key ranges it merged itself."""

    begun: int = 0
    resumed: int = 0
    committed: int = 0
    moved: int = 0
    dropped: int = 0
    failed: int = 0
    ranges: int = 0
    merged: MergeCounts = field(default_factory=MergeCounts)

    def metrics(self) -> dict[str, int]:
        """The counters by dotted name, those of merging among them; byte counts end in ``_bytes``."""
        own = {name: getattr(self, name) for name in ("begun", "resumed", "committed", "moved", "dropped", "failed")}
        merged = {
            "rows_in": self.merged.rows_in,
            "rows_out": self.merged.rows_out,
            "read_bytes": self.merged.bytes_in,
            "kept_bytes": self.merged.bytes_out,
            "written_bytes": self.merged.stored_out,
            "shadowed_rows": self.merged.shadowed,
            "dropped_tombstones": self.merged.tombstones,
            "dropped_expired_rows": self.merged.expired,
            "buried_rows": self.merged.buried,
        }
        return {f"compaction.{name}": count for name, count in {**own, "ranges": self.ranges, **merged}.items()}


def added(one: MergeCounts, other: MergeCounts) -> MergeCounts:
    """The sums of two counts."""
    return MergeCounts(*(getattr(one, each.name) + getattr(other, each.name) for each in fields(MergeCounts)))
