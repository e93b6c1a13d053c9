"""`Feeds`: how the change feeds of a database begin. Wiring only: what was asked for, the subscription that keeps it,
the source that reads it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from uuid import UUID
from weakref import WeakSet

from metastores.protocol import Register
from slate_async.engine.changes.feed import ChangeFeed
from slate_async.engine.changes.history import History
from slate_async.engine.changes.ingested import IngestedRows
from slate_async.engine.changes.log_rows import LogRows
from slate_async.engine.changes.options import SORT_MEMORY_BYTES, SORT_SPILL_BYTES, FeedOptions
from slate_async.engine.changes.prefetch import FeedContext, Prefetcher
from slate_async.engine.changes.read_ahead import ReadAhead
from slate_async.engine.changes.remote_range import read_range
from slate_async.engine.changes.source import ChangeSource, Reading, SourceStats
from slate_async.engine.changes.subscription import (
    FeedPosition,
    LoadedSubscription,
    Subscription,
    load_subscription,
    open_subscription,
    subscription_lost,
)
from slate_async.engine.changes.updates import Updates
from slate_async.engine.checkpoint.manage import lifetime_ms
from slate_async.engine.context import DatabaseContext
from slate_async.engine.follow.open import tail_of
from slate_async.engine.proved_metadata import ProvedMetadata
from slate_async.engine.read.bounds import EVERY_KEY, KeyRange
from slate_async.engine.read.record_batch import RecordBatch
from slate_async.errors import InvalidError, NotFoundError
from slate_async.runtime.loop_guard import LoopGuard
from slate_async.runtime.supervisor import Supervisor
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.checkpoints import DeleteCheckpoints
from slate_async.storage.manifest.edits.protocol import check_usable
from slate_async.storage.manifest.edits.subscriptions import (
    OpenSubscription,
    TakeSubscription,
    check_exact,
    subscription_named,
)
from slate_async.storage.manifest.state import FeedMark, ManifestState, SstRef


class Feeds:
    """See the module docstring.

    register: the writer's, of an epoch-prefixed log
    pinned: whether feeds retain what they read, by checkpoints
    life_ms: of the checkpoint of a subscription without a name
    guard: of the database's handle
    """

    def __init__(
        self,
        context: DatabaseContext,
        driver: ManifestDriver,
        register: Register | None,
        supervisor: Supervisor,
        *,
        pinned: bool,
        life_ms: int,
        updates: Updates,
        guard: LoopGuard,
    ) -> None:
        self._context = context
        self._driver = driver
        self._register = register
        self._supervisor = supervisor
        self.pinned = pinned
        self.life_ms = life_ms
        self._updates = updates
        self._feed_context = FeedContext(guard, updates, supervisor, context.runtime.clock, context.runtime.offload)
        self._open: WeakSet[ChangeFeed] = WeakSet()
        self.stats = SourceStats()

    @property
    def path(self) -> str:
        """Of the database."""
        return self._context.name

    def open(self, options: FeedOptions) -> ChangeFeed:
        """A feed that has not begun. Raises `InvalidError`."""
        self._feed_context.guard.check()
        options.check(pinned=self.pinned)
        feed = ChangeFeed(partial(self._begin, options), self._feed_context, self._open.discard)
        self._open.add(feed)
        return feed

    async def close(self) -> None:
        """Close all of them."""
        for feed in list(self._open):
            await feed.aclose()

    def ingested(self, state: ManifestState, seq: int, ssts: tuple[SstRef, ...]) -> IngestedRows:
        """The rows of the ingest of that number, all of which are in ``ssts`` of ``state``."""
        reading = _reading(
            self._context, self._driver, self._register, state, SORT_MEMORY_BYTES, SORT_SPILL_BYTES, self.stats
        )
        return reading.history(state).ingest(seq, ssts)

    def new_id(self) -> UUID:
        """For the name of a subscription that is nobody else's."""
        return self._context.runtime.ids.uuid()

    async def forget(self, subscription: str) -> None:
        """Remove a subscription, if it is there. Raises `UnavailableError`."""
        found = subscription_named(await self._driver.existing(), subscription)
        if found is not None:
            await self._driver.commit(DeleteCheckpoints(frozenset((found.id,))))

    def metrics(self) -> dict[str, int | float]:
        """By dotted name."""
        stats = self.stats
        return {
            "changes.feeds": len(self._open),
            "changes.rows": stats.rows,
            "changes.rounds": stats.rounds,
            "changes.log_objects": stats.log_objects,
            "changes.selections": stats.selections,
            "changes.subscriptions_made": stats.made,
            "changes.subscriptions_moved": stats.moved,
            "changes.subscriptions_lost": stats.lost,
        }

    # ---- how one begins

    async def _begin(self, options: FeedOptions) -> Prefetcher:
        durable = await self._updates.durable_seq()
        asked = durable if options.from_seq == "now" else options.from_seq
        if asked is not None and asked > durable:
            raise InvalidError(f"sequence number {asked} is not durable yet, the newest durable one is {durable}")
        until = options.until_seq
        if not options.follow:
            until = durable if until is None else min(durable, until)
        if not self.pinned:
            return Prefetcher(await self._unsubscribed(options, asked or 0), until, self._feed_context)
        subscription, made = await self._subscribe(options, asked)
        assert made.checkpoint.feed is not None
        mark = made.checkpoint.feed
        seq = mark.seq if asked is None else asked
        source = ChangeSource(self._reading(made.state, options), made.state, mark, seq, subscription)
        subscription.start(self._supervisor)
        return Prefetcher(source, until, self._feed_context)

    async def _unsubscribed(self, options: FeedOptions, seq: int) -> ChangeSource:
        head = await self._driver.existing()
        check_usable(head)
        if not _snapshot(options, seq):
            check_exact(head, seq)
        mark = FeedMark(seq, head.last_seq, head.log_start, head.log_floor)
        return ChangeSource(self._reading(head, options), head, mark, seq, None)

    async def _subscribe(self, options: FeedOptions, asked: int | None) -> tuple[Subscription, LoadedSubscription]:
        """The subscription of a feed, made or taken over, and the state it retains."""
        life_ms = self.life_ms if options.subscription is None else lifetime_ms(options.subscription_lifetime)
        runtime = self._context.runtime
        head = await self._driver.existing()
        found = None if options.subscription is None else subscription_named(head, options.subscription)
        now, made_id = runtime.clock.now_ms(), runtime.ids.uuid()
        expire_ms = None if life_ms is None else now + life_ms
        if found is not None and found.feed is not None:
            if asked is not None and asked < found.feed.seq:
                raise InvalidError(
                    f"the subscription {options.subscription!r} was acknowledged up to sequence number"
                    f" {found.feed.seq}:"
                    f" that is the lowest to begin from, not {asked}"
                )
            state = await self._driver.commit(TakeSubscription(found.id, made_id, expire_ms))
            made = await load_subscription(self._driver, state, made_id)
        elif asked is None and options.subscription_lifetime is not None:
            raise NotFoundError(
                f"there is no subscription {options.subscription!r}: it was never made, or it expired and was"
                " collected;"
                " say with from_seq what to begin after, 0 for the beginning"
            )
        else:
            seq = asked or 0
            edit = OpenSubscription(made_id, now, expire_ms, seq, options.subscription, _snapshot(options, seq))
            made = await open_subscription(self._driver, edit)
        self.stats.made += 1
        subscription = Subscription(
            made.checkpoint,
            self._driver,
            runtime,
            pace_ms=self.life_ms,
            life_ms=life_ms,
            stats=self.stats,
            path=self._context.name,
        )
        return subscription, made

    def _reading(self, state: ManifestState, options: FeedOptions) -> Reading:
        return _reading(
            self._context,
            self._driver,
            self._register,
            state,
            options.sort_memory_bytes,
            options.sort_spill_bytes,
            self.stats,
        )


def _reading(
    context: DatabaseContext,
    driver: ManifestDriver,
    register: Register | None,
    state: ManifestState,
    sort_memory_bytes: int,
    sort_spill_bytes: int,
    stats: SourceStats,
    span: KeyRange = EVERY_KEY,
    ahead: ReadAhead | None = None,
) -> Reading:
    ssts = context.ssts(state.database_id)
    return Reading(
        driver=driver,
        tail=tail_of(context, state, register),
        log=LogRows(state, ssts, context.runtime.offload),
        history=lambda of: History(of, ssts, context.runtime, sort_memory_bytes, sort_spill_bytes, span, ahead),
        stats=stats,
        path=context.name,
    )


async def read_changes(
    context: DatabaseContext,
    metadata: ProvedMetadata,
    *,
    subscription: str,
    after: FeedPosition,
    until_seq: int,
    max_rows: int,
    span: KeyRange,
    ahead: ReadAhead | None,
) -> AsyncGenerator[RecordBatch, None]:
    """See `slate_async.Admin.read_changes`."""
    head = await metadata.head()
    driver, register = metadata.driver, metadata.register(head)
    found = subscription_named(head, subscription)
    if found is None:
        raise subscription_lost(subscription)
    made = await load_subscription(driver, head, found.id)
    reading = _reading(context, driver, register, made.state, SORT_MEMORY_BYTES, 0, SourceStats(), span, ahead)
    async with aclosing(read_range(made, reading, context.runtime, after, until_seq, max_rows, span)) as batches:
        async for batch in batches:
            yield batch
    if ahead is not None:
        ahead.drop_up_to(until_seq)


def _snapshot(options: FeedOptions, seq: int) -> bool:
    """Whether what was compacted is not missed: only of a feed from the beginning."""
    return seq == 0 and options.initial == "snapshot"
