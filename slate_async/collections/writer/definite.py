"""Appends of ``definite`` collections: every writer puts the same updates at a time, so one put is the acknowledgement.

A batch that is there already is a success: somebody wrote the same under the same name. What is covered is dropped, so
an append may be repeated whatever became of it, by any process; a gap is refused.

Invariant: ``coverage`` is the frontier up to which all updates are known to be in the collection (C4): from the head
and the shard's own batches at first, then by each append that is acknowledged.

Rules C4 to C6 of collections.
"""

from __future__ import annotations

from dataclasses import dataclass

from slate_async.collections.codec.description import Description
from slate_async.collections.core.bounds import Bounds
from slate_async.collections.core.coverage import Reach, extend, reach
from slate_async.collections.core.edits import check_open
from slate_async.collections.core.errors import UpperMismatchError
from slate_async.collections.core.frontier import Frontier
from slate_async.collections.core.names import HashedFrontier, PendingName
from slate_async.collections.store.acknowledged import AcknowledgedBatch
from slate_async.collections.writer.batches import Batch
from slate_async.collections.writer.deletion import DeletionWatch
from slate_async.collections.writer.puts import Puts, WriterContext
from slate_async.errors import InvalidError


class DefiniteAppends:
    """Appends of one writer, some at a time. ``accepted``: where the last one ends that was not refused.
    ``pending``: uppers of what the merged area did not have when it was opened."""

    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._puts = Puts(context)
        self._watch = DeletionWatch(context)
        self.coverage = self.accepted = Frontier.minimum(context.schema.kind)
        self.pending: dict[Frontier, None] = {}

    async def restart(self) -> None:
        """Find out where the shard ends. The listing comes first: what is collected after it, the head has."""
        own = await self._context.answered("a listing of its shard", self._own, None)
        head = await self._context.head(None)
        check_open(head)
        self.coverage = self.accepted = extend(head.upper, own).coverage
        self.pending |= {batch.upper: None for batch in own if not batch.upper <= head.upper}

    def place(self, batch: Batch) -> DefiniteAppend:
        """What of ``batch`` is to be put. Raises `UpperMismatchError` for a gap before it, `ClosedError` once it is
        known that the collection was deleted."""
        self._watch.check()
        bounds = batch.bounds
        if self._reach(bounds) is Reach.COVERED:
            return DefiniteAppend(self, None)
        batch = batch.beyond(self.accepted, self._context.schema)
        self.accepted = self.accepted.join(bounds.upper)
        return DefiniteAppend(self, batch)

    def known(self, bounds: Bounds) -> Frontier:
        """Updates within ``bounds`` need to be put only at times beyond this. Raises `UpperMismatchError` for a gap."""
        self._reach(bounds)
        return self.accepted

    def acknowledged(self, upper: Frontier, put: AcknowledgedBatch | None) -> None:
        """All is in until ``upper``, the last of it by ``put`` if that is known."""
        self.coverage = self.coverage.join(upper)
        self._context.tell(put)

    def go_back(self) -> None:
        """After an append failed: go on from what was acknowledged."""
        self.accepted = self.coverage

    async def put(self, batch: Batch) -> AcknowledgedBatch | None:
        """Have ``batch`` in, by any put; returns it if it may be handed over.

        Raises `InvalidError` if other updates are, `ClosedError` if the collection was deleted."""
        shard, bounds = self._context.shard, batch.bounds
        name = PendingName(shard, bounds.lower, bounds.upper)
        resolved = await self._watch.beside(self._puts.batch(name, batch.description(shard), batch.updates))
        there = resolved.there
        if there is not None and there.diff_sum != batch.diff_sum:
            raise InvalidError(
                f"{self._context.name} has other updates from {bounds.lower} to {bounds.upper}: their differences add"
                f" up to {there.diff_sum}, not {batch.diff_sum}; all writers of a definite collection write the same",
                outcome="not_applied",
            )
        return resolved.put

    async def look(self) -> None:
        """For an append of nothing new. Raises `ClosedError` if the collection was deleted."""
        await self._watch.look()

    def _reach(self, bounds: Bounds) -> Reach:
        found = reach(self.accepted, bounds.lower, bounds.upper)
        if found is Reach.GAP:
            self._context.stats.mismatches += 1
            raise UpperMismatchError(
                f"{self._context.name}: an append from {bounds.lower} leaves a gap, because {self._context.shard} has"
                f" come to {self.accepted}",
                upper=self.accepted,
            )
        return found

    async def _own(self) -> list[Bounds | Description]:
        found: list[Bounds | Description] = []
        minimum = Frontier.minimum(self._context.schema.kind)
        async for listed in self._context.pending.list(self._context.shard):
            name = listed.name
            if name.part is not None or name.upper is None:
                continue
            if isinstance(name.lower, HashedFrontier) or isinstance(name.upper, HashedFrontier):
                description = await self._context.pending.describe(name)
                if description is not None:
                    found.append(description)
            elif name.lower <= name.upper:
                found.append(Bounds(name.lower, name.upper, minimum))
        return found


@dataclass(slots=True)
class DefiniteAppend:
    """See `slate_async.collections.writer.pipeline.Append`.

    batch: ``None`` if all of it is covered
    put_batch: what this append put
    """

    appends: DefiniteAppends
    batch: Batch | None
    put_batch: AcknowledgedBatch | None = None

    async def send(self) -> None:
        """Put the batch, until it is there."""
        if self.batch is None:
            await self.appends.look()
        else:
            self.put_batch = await self.appends.put(self.batch)

    def acknowledge(self) -> None:
        """Coverage goes on to its upper."""
        if self.batch is not None:
            self.appends.acknowledged(self.batch.bounds.upper, self.put_batch)
