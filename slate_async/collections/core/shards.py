"""Which writer's shard a reader of a ``definite`` collection follows.

All shards hold the same updates, so any choice is right, and following one costs one listing a look. The reader lists
all of them when it begins, and when its shard has shown nothing new for ``shard_patience_ms``. The shard that takes the
reader's coverage furthest wins; the present one stays while it goes on and no other is far ahead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slate_async.collections.core.coverage import Extension, Spanning, extend
from slate_async.collections.core.frontier import Frontier


def choose(coverage: Frontier, shards: Mapping[str, Sequence[Spanning]], current: str | None, lag: int) -> str | None:
    """The shard to follow from ``coverage``, after a listing of all; ``None`` if there is none.

    current: the one that is followed. It stays if it takes coverage on and no other one has more than ``lag`` batches
    beyond where it ends"""
    reaches = {name: extend(coverage, batches) for name, batches in shards.items()}
    if not reaches:
        return None
    best = _furthest(reaches)
    if current is None or current not in reaches:
        return best
    mine = reaches[current]
    if mine.taken:
        ahead = sum(not batch.upper <= mine.coverage for batch in shards[best])
        return best if ahead > lag else current
    return best if reaches[best].taken else current


def _furthest(reaches: Mapping[str, Extension[Spanning]]) -> str:
    """The shard that takes coverage to where no other one takes it beyond; of several the one with the fewest batches,
    then the first by name."""
    top = [
        name for name, mine in reaches.items() if not any(mine.coverage < other.coverage for other in reaches.values())
    ]
    return min(top, key=lambda name: (len(reaches[name].taken), name))


@dataclass(frozen=True, slots=True)
class Following:
    """The shard that is followed, and since when it has shown nothing new, by the reader's monotonic clock."""

    shard: str | None
    quiet_since_ms: float

    def looked(self, found_new: bool, now_ms: float) -> Following:
        """After a look at the shard."""
        return replace(self, quiet_since_ms=now_ms) if found_new else self

    def switched(self, shard: str | None, now_ms: float) -> Following:
        """After a listing of all shards, by which ``shard`` is followed."""
        return Following(shard, now_ms)

    def is_due(self, now_ms: float, patience_ms: float) -> bool:
        """Whether to list all shards."""
        return self.shard is None or now_ms - self.quiet_since_ms >= patience_ms
