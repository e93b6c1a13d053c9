"""`ReaderContext`: what the read handles of a collection work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from slate_async.collections.codec.life import Appends
from slate_async.collections.core.area import Area
from slate_async.collections.core.updates import UpdateSchema
from slate_async.collections.stats import ReadStats
from slate_async.collections.store.acknowledged import AcknowledgedBatches
from slate_async.collections.store.holds import HoldStore
from slate_async.collections.store.pending import PendingStore
from slate_async.collections.store.versions import AreaVersions
from slate_async.errors import Outcome, UnavailableError
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.backoff import Backoff
from slate_async.runtime.loop_handle import LoopHandle
from slate_async.runtime.pokes import Pokes
from slate_async.runtime.protocol import Runtime

T = TypeVar("T")


def _left_alone(handle: LoopHandle) -> None:
    """Nobody closes it but its user."""


@dataclass(frozen=True, slots=True)
class ReaderContext:
    """What the handles of one process on one life of a collection share.

    name: of the collection, for messages
    store: the folder of the life
    deadline_ms: of one request, all its attempts included
    max_holds: a collection that has so many takes no other one
    lease_ms: a handle that was silent for so long may be revoked
    poll_interval_ms: between two looks at the head, or for more updates
    shard_patience_ms: all shards are listed after the followed one has shown nothing new for so long
    shard_lag: the followed shard may lag another one by so many batches
    pending_memory_bytes: about so much of what is pending is in memory at once, for each snapshot and listener
    downgrade_interval_ms: a since that was given up is written at most so often
    adopted: called with each handle that is opened, clones too; ends the opening if it raises
    acknowledged: what writers in this process have put
    pokes: those of writers in this process
    """

    name: str
    schema: UpdateSchema
    appends: Appends
    store: ObjectStore
    pending: PendingStore
    holds: HoldStore
    versions: AreaVersions
    runtime: Runtime
    deadline_ms: int
    max_holds: int = 1_000
    lease_ms: int = 60_000
    poll_interval_ms: int = 500
    shard_patience_ms: int = 2_000
    shard_lag: int = 16
    pending_memory_bytes: int = 256 << 20
    downgrade_interval_ms: int = 0
    adopted: Callable[[LoopHandle], None] = _left_alone
    acknowledged: AcknowledgedBatches = field(default_factory=AcknowledgedBatches)
    pokes: Pokes = field(default_factory=Pokes)
    stats: ReadStats = field(default_factory=ReadStats)

    def now_ms(self) -> float:
        """By the monotonic clock."""
        return self.runtime.clock.monotonic() * 1000

    async def pause(self) -> None:
        """Wait until the next look."""
        await self.runtime.clock.sleep(self.poll_interval_ms / 1000)

    async def pause_for_updates(self, noted: int, looked_ms: float) -> None:
        """Wait until the next look for updates, one interval after the last one began: that was at ``looked_ms``, and
        ``noted`` was the count of pokes, after which this does not wait. Of an interval it waits half at least."""
        pause_ms = max(self.poll_interval_ms - (self.now_ms() - looked_ms), self.poll_interval_ms / 2)
        await self.pokes.wait(noted, self.runtime.clock, pause_ms / 1000)

    def backoff(self, what: str) -> Backoff:
        """Attempts of ``what``, within the deadline."""
        return Backoff(self.runtime, self.deadline_ms, f"{what} of {self.name}")

    async def answered(self, what: str, call: Callable[[], Awaitable[T]], outcome: Outcome | None = None) -> T:
        """What ``call`` gives, which changes nothing if repeated. Raises `UnavailableError` past the deadline, with
        ``outcome``: that of a read by default."""
        backoff = self.backoff(what)
        while True:
            try:
                return await backoff.attempt(call())
            except UnavailableError as error:
                await backoff.wait(error, outcome)

    async def head(self) -> Area:
        """The newest version, by a read that begins now."""
        return await self.answered("a read of the head", self.versions.load)

    async def poll(self, *, max_age_ms: float = 0.0) -> Area:
        """The newest version, by a look that nothing rests on; ``max_age_ms``: or that of a look so short ago."""
        return await self.answered("a look at the head", partial(self.versions.poll, max_age_ms=max_age_ms))
