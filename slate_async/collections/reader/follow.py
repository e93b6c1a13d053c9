"""Following the pending area: which batches take a coverage on (C4).

A reader of a ``definite`` collection follows one shard and lists all when it begins, and when that shard has shown
nothing new for a while. A reader of a ``compare`` collection looks up the one name that can come next (C7).

A listener first takes what writers of its own process have put: that is acknowledged, so it needs neither a request
nor C14.

Rules C4, C7 and C14 of collections.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Protocol

from slate_async.collections.codec.life import Appends
from slate_async.collections.codec.parts import MAX_PART_BYTES
from slate_async.collections.codec.pending import Pending
from slate_async.collections.core.chain import Link, Walk
from slate_async.collections.core.coverage import Extension, Taken, extend
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.names import COMPARE_SHARD, HashedFrontier, PendingName
from slate_async.collections.core.shards import Following, choose
from slate_async.collections.core.times import TimeKind
from slate_async.collections.reader.context import ReaderContext
from slate_async.collections.store.pending import SMALL_BYTES

KEPT_CONTENTS = 32
"""So many small batches of a chain are kept as they are found, so that they are not read once more."""


@dataclass(frozen=True, slots=True)
class PendingBatch:
    """A pending batch that was found.

    token: of its append, where that was read
    nbytes: of its object, or of all its parts where that was read
    content: all of it, where it is small and was read on the way
    data: its object, where a writer of this process put it and had it acknowledged
    """

    lower: Frontier
    upper: Frontier
    name: PendingName
    token: str | None = None
    nbytes: int = 0
    content: Pending | None = None
    data: bytes | None = None


class Follower(Protocol):
    """Follows the pending area for one snapshot or listener."""

    async def look(self, coverage: Frontier) -> Extension[PendingBatch]:
        """How far ``coverage`` is taken by what is pending now. Raises `UnavailableError`."""
        ...

    def handed_over(self, coverage: Frontier) -> Extension[PendingBatch]:
        """How far ``coverage`` is taken by what writers of this process put and had acknowledged lately."""
        ...


def follower(context: ReaderContext) -> Follower:
    """One that has not looked yet."""
    return ChainFollower(context) if context.appends is Appends.COMPARE else ShardFollower(context)


class ChainFollower:
    """Follows the chain of a ``compare`` collection."""

    def __init__(self, context: ReaderContext) -> None:
        self._context = context

    async def look(self, coverage: Frontier) -> Extension[PendingBatch]:
        """See `Follower`. What was found counts if the reader's hold stands afterwards (C14)."""
        walk, taken = Walk(coverage, coverage), list[Taken[PendingBatch]]()
        while not walk.at.is_done:
            name = PendingName(COMPARE_SHARD, walk.at, None)
            looked = await self._context.answered(f"a look at {name}", partial(self._context.pending.look, name))
            if looked is None:
                break
            found, content = looked
            if len(taken) >= KEPT_CONTENTS:
                content = None
            nbytes = SMALL_BYTES if content is not None else sum(part.nbytes for part in found.parts) or MAX_PART_BYTES
            batch = PendingBatch(found.lower, found.upper, name, found.token, nbytes, content)
            taken.append(Taken(batch, walk.at, found.upper))
            walk = walk.past(Link(found.lower, found.upper, found.token), self._context.pending.where(name))
        return Extension(walk.at, tuple(taken))

    def handed_over(self, coverage: Frontier) -> Extension[PendingBatch]:
        """See `Follower`."""
        return _handed_over(self._context, coverage)


class ShardFollower:
    """Follows one shard of a ``definite`` collection."""

    def __init__(self, context: ReaderContext) -> None:
        self._context = context
        self._following = Following(None, context.now_ms())
        self._last: PendingName | None = None
        self._reached = Frontier.minimum(context.schema.kind)

    async def look(self, coverage: Frontier) -> Extension[PendingBatch]:
        """See `Follower`. A coverage that goes back, to that of a version, begins again there."""
        now = self._context.now_ms()
        if not self._following.is_due(now, self._context.shard_patience_ms):
            shards = await self._listed(coverage, self._following.shard, self._last_within(coverage))
            found = extend(coverage, (batch for batches in shards.values() for batch in batches))
            self._following = self._following.looked(not found.coverage <= self._reached, now)
        else:
            shards = await self._listed(coverage, None, None)
            shard = choose(coverage, shards, self._following.shard, self._context.shard_lag)
            self._following = self._following.switched(shard, now)
            found = extend(coverage, shards.get(shard, ()) if shard is not None else ())
            # what other shards have beyond that is taken as well: it is known now
            beyond = extend(found.coverage, (batch for batches in shards.values() for batch in batches))
            found = Extension(beyond.coverage, found.taken + beyond.taken)
        self._note_last(found)
        return found

    def handed_over(self, coverage: Frontier) -> Extension[PendingBatch]:
        """See `Follower`. It counts as a look at the shard that it is of."""
        found = _handed_over(self._context, coverage)
        if found.taken:
            shard = found.taken[-1].batch.name.writer
            self._following = self._following.switched(shard, self._context.now_ms())
            self._note_last(found)
        return found

    def _last_within(self, coverage: Frontier) -> PendingName | None:
        """What a listing of the shard may begin after: all that lies before it is covered."""
        last = self._last
        return last if last is not None and isinstance(last.upper, Frontier) and last.upper <= coverage else None

    def _note_last(self, found: Extension[PendingBatch]) -> None:
        """How far it came, and the last batch of the shard: names of pairs do not sort as times do."""
        self._reached = self._reached.join(found.coverage)
        own = [taken.batch.name for taken in found.taken if taken.batch.name.writer == self._following.shard]
        if self._last is not None and self._last.writer != self._following.shard:
            self._last = None
        if own and self._context.schema.kind is TimeKind.U64:
            self._last = own[-1]

    async def _listed(
        self, coverage: Frontier, shard: str | None, after: PendingName | None
    ) -> dict[str, list[PendingBatch]]:
        """Whole batches that are not covered, by shard: of ``shard``, or of all."""
        return await self._context.answered("a listing of pending batches", lambda: self._list(coverage, shard, after))

    async def _list(
        self, coverage: Frontier, shard: str | None, after: PendingName | None
    ) -> dict[str, list[PendingBatch]]:
        found: dict[str, list[PendingBatch]] = {}
        async for listed in self._context.pending.list(shard, after=after):
            name = listed.name
            if name.part is not None or name.upper is None:
                continue
            lower, upper = name.lower, name.upper
            if isinstance(lower, HashedFrontier) or isinstance(upper, HashedFrontier):
                description = await self._context.pending.describe(name)
                if description is None:
                    continue
                lower, upper = description.lower, description.upper
            if lower <= upper and not upper <= coverage:
                batch = PendingBatch(lower, upper, name, nbytes=listed.nbytes)
                found.setdefault(name.writer, []).append(batch)
        return found


def _handed_over(context: ReaderContext, coverage: Frontier) -> Extension[PendingBatch]:
    batches = context.acknowledged.beyond(coverage)
    return extend(
        coverage,
        (PendingBatch(put.lower, put.upper, put.name, put.token, len(put.data), data=put.data) for put in batches),
    )
