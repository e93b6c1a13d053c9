"""Appends of ``compare`` collections: each says where the chain of batches ends, and is refused if it ends elsewhere.

Ordering rules:
* a batch is put only at a frontier that was the chain's end: found by a walk that counts (C9), or by the last append
* who opens a chain lists the merged area before it looks for the end (C30): a batch that ends elsewhere than at a link
  says that the newest version was lost, and with it where the chain ends
* an append is acknowledged by a head that is read after its put (C8)
* one append is in flight at a time

Outcomes: an append is ``"not_applied"`` for certain if none of its puts was sent, if its first put found another batch,
or if another batch lies there at a time when the merged area had not come to that name: then that one was first.

Rules C7 to C9 and C30 of collections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from slate_async.collections.codec.description import Description
from slate_async.collections.core.area import Area
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.chain import Link, Put, Walk, is_acknowledged, judge_put
from slate_async.collections.core.errors import UpperMismatchError
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.garbage import MergedFile, PendingEnds, beyond, find_lost
from slate_async.collections.core.names import PendingName
from slate_async.collections.store.acknowledged import AcknowledgedBatch
from slate_async.collections.store.merged import lost_version
from slate_async.collections.writer.batches import Batch
from slate_async.collections.writer.puts import Puts, Resolved, WriterContext
from slate_async.errors import ClosedError, InvalidError, Outcome, UnavailableError

MAX_WALKS = 100
"""A walk is begun anew each time the merged area has moved on meanwhile."""


class CompareAppends:
    """Appends of one handle, one at a time. ``coverage``: where the chain ended when that was last known; ``last``: the
    token of the batch that ended there, empty before the first one. ``pending``: uppers of the batches that it walked
    past, those of others, too."""

    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._puts = Puts(context)
        self.coverage = Frontier.minimum(context.schema.kind)
        self.pending: dict[Frontier, None] = {}
        self.last = ""
        self._is_end = False

    @property
    def accepted(self) -> Frontier:
        """Where the next append is expected to begin."""
        return self.coverage

    async def restart(self) -> None:
        """Find the end of the chain. Raises `CorruptionError` if the newest version was lost."""
        context = self._context
        files = await context.answered("a listing of merged files", context.merged_files, None)
        await self._find_end(None, Walk.from_head(await self._head(None)), files)

    def place(self, batch: Batch) -> CompareAppend:
        """Nothing is known before the batch is put. Raises as `known`."""
        self.known(batch.bounds)
        return CompareAppend(self, batch)

    def known(self, bounds: Bounds) -> Frontier:
        """Updates within ``bounds`` need to be put only at times beyond this. Raises `InvalidError` for bounds that do
        not move the end of the chain."""
        if not bounds.lower < bounds.upper:
            raise InvalidError(
                f"an append to {self._context.name} from {bounds.lower} to {bounds.upper} does not move its end"
            )
        return bounds.lower

    def go_back(self) -> None:
        """After an append failed: the end is looked for."""
        self._is_end = False

    async def put(self, batch: Batch) -> AcknowledgedBatch | None:
        """Put ``batch`` at the end of the chain; returns it if it may be handed over.

        Raises `UpperMismatchError` if the end is not its lower, with outcome unknown if it may have been; `ClosedError`
        if the collection was deleted."""
        lower, upper = batch.bounds.lower, batch.bounds.upper
        if not self._is_end or self.coverage != lower:
            await self._find_end("not_applied", Walk.from_link(self.coverage))
        if self.coverage != lower:
            raise self._mismatch(batch, "not_applied")
        self._is_end = False
        mine = Link(lower, upper, batch.token)
        description = batch.description(self._context.shard)
        resolved = await self._puts.batch(_name(self._context, lower), description, batch.updates)
        outcome = await self._judged(mine, resolved)
        if outcome is None:
            self.coverage, self.last, self._is_end = upper, batch.token, True
            return resolved.put
        await self._find_end(outcome, Walk.from_link(lower))
        raise self._mismatch(batch, outcome)

    def acknowledged(self, put: AcknowledgedBatch | None) -> None:
        """What was put is in; ``put``: it, if that is known."""
        self._context.tell(put)

    async def _judged(self, mine: Link, resolved: Resolved) -> Outcome | None:
        """``None``: ``mine`` is in (C8)."""
        taken = resolved.there is not None and judge_put(mine, _link(resolved.there)) is Put.TAKEN
        if taken and not resolved.maybe_put:
            return "not_applied"
        head = await self._context.head("unknown")
        if taken and head.upper <= mine.lower:
            return "not_applied"
        return None if is_acknowledged(mine, head) else "unknown"

    async def _find_end(self, outcome: Outcome | None, walk: Walk, files: Sequence[MergedFile] = ()) -> None:
        """Walk to the end of the chain.

        outcome: of the append on whose behalf, for errors
        walk: how it begins; from the head, if that has moved past there
        files: of the merged area, listed before"""
        for _ in range(MAX_WALKS):
            links: list[Frontier] = []
            walk = await self._walked(walk, outcome, links)
            head = await self._head(outcome)
            if walk.counts(head):
                await self._check_not_lost(files, head, PendingEnds(walk.at, frozenset(links)))
                self.coverage, self._is_end = walk.at, True
                self.pending |= dict.fromkeys(links)
                if walk.last is not None:
                    self.last = walk.last.token
                elif head.upper == walk.at:
                    self.last = head.last
                return
            walk = Walk.from_head(head)
        raise UnavailableError(f"{self._context.name} grew faster than the end of its chain was found", outcome=outcome)

    async def _check_not_lost(self, files: Sequence[MergedFile], head: Area, ends: PendingEnds) -> None:
        """C30."""
        files = beyond(files, head)
        if not files:
            return
        read = partial(self._context.read_uppers, files)
        lost = find_lost(await self._context.answered("a look at merged files", read, None), head, ends)
        if lost is not None:
            raise lost_version(self._context.name, lost, head, ends)

    async def _walked(self, walk: Walk, outcome: Outcome | None, links: list[Frontier]) -> Walk:
        """``walk`` to where nothing is found. ``links``: where the batches end that it goes past, added to."""
        while not walk.at.is_done:
            name = _name(self._context, walk.at)
            found = await self._context.answered(
                f"a look at {name}", partial(self._context.pending.describe, name), outcome
            )
            if found is None:
                break
            walk = walk.past(_link(found), self._context.pending.where(name))
            links.append(walk.at)
        return walk

    async def _head(self, outcome: Outcome | None) -> Area:
        head = await self._context.head(outcome)
        if head.deleted:
            raise ClosedError(f"the collection {self._context.name} was deleted", outcome=outcome)
        return head

    def _mismatch(self, batch: Batch, outcome: Outcome) -> UpperMismatchError:
        self._context.stats.mismatches += 1
        said = "was expected to end at" if outcome == "not_applied" else "may or may not have taken an append at"
        return UpperMismatchError(
            f"{self._context.name} {said} {batch.bounds.lower}, and ends at {self.coverage}",
            upper=self.coverage,
            outcome=outcome,
        )


@dataclass(slots=True)
class CompareAppend:
    """See `slate_async.collections.writer.pipeline.Append`. ``put_batch``: what this append put."""

    appends: CompareAppends
    batch: Batch
    put_batch: AcknowledgedBatch | None = None

    async def send(self) -> None:
        """Put the batch, and have it acknowledged."""
        self.put_batch = await self.appends.put(self.batch)

    def acknowledge(self) -> None:
        """`send` has moved the end already: nothing else was in flight."""
        self.appends.acknowledged(self.put_batch)


def _name(context: WriterContext, lower: Frontier) -> PendingName:
    return PendingName(context.shard, lower, None)


def _link(description: Description) -> Link:
    return Link(description.lower, description.upper, description.token)
