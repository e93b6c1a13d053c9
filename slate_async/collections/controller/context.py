"""`ControllerContext`: what the controller of a collection works with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from slate_async.collections.codec.life import Appends
from slate_async.collections.controller.memory import part_bytes
from slate_async.collections.core.updates import UpdateSchema
from slate_async.collections.life_stores import LifeStores
from slate_async.collections.store.acknowledged import AcknowledgedBatches
from slate_async.collections.store.holds import HoldStore
from slate_async.collections.store.pending import PendingStore
from slate_async.collections.store.versions import AreaVersions
from slate_async.errors import Outcome, UnavailableError
from slate_async.objectstore.protocol import ObjectStore
from slate_async.runtime.backoff import Backoff
from slate_async.runtime.protocol import Runtime

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """What one controller of one life of a collection uses.

    name: of the collection, for messages
    store: the folder of the life
    deadline_ms: of one request, all its attempts included
    poll_interval_ms: between two looks at what is pending
    exert_interval_ms: between two looks at the holds of an idle collection, and two grants of fuel to its merges
    gc_interval_ms: between two collections of garbage
    gc_max_deletes: objects, and as many versions, that one collection of garbage deletes
    retained_versions: that leased holds may retain; one that pins more is revoked
    parallel_merges: that run at once
    merge_memory_bytes: of one merge: sources, output and what lies between
    takeover_ms: a process that writes claims the role when work has waited for so long
    acknowledged: what writers of this process put lately, which need not be read
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
    poll_interval_ms: int = 500
    exert_interval_ms: int = 10_000
    gc_interval_ms: int = 60_000
    gc_max_deletes: int = 10_000
    retained_versions: int = 10_000
    parallel_merges: int = 2
    merge_memory_bytes: int = 256 << 20
    takeover_ms: int = 10_000
    acknowledged: AcknowledgedBatches = field(default_factory=AcknowledgedBatches)

    @property
    def part_bytes(self) -> int:
        """Of the objects that a large merged batch is made of."""
        return part_bytes(self.merge_memory_bytes)

    def now_ms(self) -> float:
        """By the monotonic clock."""
        return self.runtime.clock.monotonic() * 1000

    async def sleep_ms(self, duration_ms: float) -> None:
        """Wait."""
        await self.runtime.clock.sleep(duration_ms / 1000)

    async def answered(self, what: str, call: Callable[[], Awaitable[T]], outcome: Outcome | None = None) -> T:
        """What ``call`` gives, which changes nothing if repeated. Raises `UnavailableError` past the deadline, with
        ``outcome``: that of a read by default."""
        backoff = Backoff(self.runtime, self.deadline_ms, f"{what} of {self.name}")
        while True:
            try:
                return await backoff.attempt(call())
            except UnavailableError as error:
                await backoff.wait(error, outcome)


def controlling(life: LifeStores) -> ControllerContext:
    """What the controller of ``life`` works with."""
    settings = life.settings
    return ControllerContext(
        name=life.name,
        schema=life.schema,
        appends=life.appends,
        store=life.store,
        pending=life.pending,
        holds=life.holds,
        versions=life.versions,
        runtime=life.runtime,
        deadline_ms=settings.retry_deadline_ms,
        poll_interval_ms=settings.poll_interval_ms,
        exert_interval_ms=settings.exert_interval_ms,
        gc_interval_ms=settings.gc_interval_ms,
        gc_max_deletes=settings.gc_max_deletes_per_round,
        retained_versions=settings.retained_versions,
        parallel_merges=settings.parallel_merges,
        merge_memory_bytes=settings.merge_memory_bytes,
        takeover_ms=settings.controller_takeover_ms,
        acknowledged=life.acknowledged,
    )
