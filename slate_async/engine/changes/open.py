"""`HasFeeds`: ``changes()`` of a database and of a reader. Wiring only: what is asked for, who holds what, who tells of
news."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias
from weakref import WeakSet

from metastores.protocol import Register
from slate_async.arguments import Duration
from slate_async.engine.changes.feed import ChangeFeed
from slate_async.engine.changes.history import History
from slate_async.engine.changes.log_rows import LogRows
from slate_async.engine.changes.prefetch import News, Owner, Pull
from slate_async.engine.changes.read_ahead import ReadAhead
from slate_async.engine.changes.remote_range import read_part
from slate_async.engine.changes.source import ChangeSource, Reading, SourceStats
from slate_async.engine.changes.subscription import FeedPlace, Hold, Made, committed, gone, named
from slate_async.engine.checkpoint.manage import MAX_NAME, lifetime_ms
from slate_async.engine.context import DatabaseContext
from slate_async.engine.follow.follower import Follower
from slate_async.engine.follow.open import tail_of
from slate_async.engine.follow.tail import Position
from slate_async.engine.read.bounds import EVERY_KEY, KeyRange
from slate_async.engine.read.record_batch import RecordBatch
from slate_async.engine.read.time_travel import check_seq
from slate_async.engine.write.writer import Writer
from slate_async.errors import InvalidError, NotFoundError
from slate_async.runtime.supervisor import Supervisor
from slate_async.storage.manifest.driver import ManifestDriver
from slate_async.storage.manifest.edits.subscriptions import OpenHold, TakeHold, check_exact, feed_named
from slate_async.storage.manifest.edits.writer import check_usable
from slate_async.storage.manifest.state import FeedMark, ManifestState

FromSeq: TypeAlias = int | Literal["now"] | None
Initial: TypeAlias = Literal["snapshot", "error"]
ROOM_BYTES = 64 << 20
"""Rows of SSTs are put in the order of their numbers so many bytes at a time in memory."""
SPILL_BYTES = 1 << 30
"""So many bytes of others are put in order on disk meanwhile."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What ``changes()`` was asked for. ``room_bytes``, ``spill_bytes``: see
    `slate_async.engine.changes.selection.select`."""

    from_seq: FromSeq
    until_seq: int | None
    follow: bool
    initial: Initial
    hold: str | None
    hold_lifetime: Duration | None
    room_bytes: int
    spill_bytes: int

    def check(self, *, pinned: bool) -> None:
        """Raise `InvalidError` for what no database could give."""
        if self.from_seq is not None and self.from_seq != "now":
            check_seq(self.from_seq)
        if self.until_seq is not None:
            check_seq(self.until_seq)
        if self.initial not in ("snapshot", "error"):
            raise InvalidError(f"initial is 'snapshot' or 'error', not {self.initial!r}")
        if self.hold is not None and (not isinstance(self.hold, str) or not 0 < len(self.hold) <= MAX_NAME):
            raise InvalidError(f"a hold's name is a text of 1 to {MAX_NAME} characters, not {self.hold!r}")
        if self.hold is not None and not pinned:
            raise InvalidError("a reader opened with pin=False writes nothing, so it holds nothing; give no hold=")
        if self.hold is None and self.hold_lifetime is not None:
            raise InvalidError("hold_lifetime is of a hold by name; give it one with hold=")
        lifetime_ms(self.hold_lifetime)
        if isinstance(self.room_bytes, bool) or not isinstance(self.room_bytes, int) or self.room_bytes < 1:
            raise InvalidError(f"room_bytes is a positive number of bytes, not {self.room_bytes!r}")
        if isinstance(self.spill_bytes, bool) or not isinstance(self.spill_bytes, int) or self.spill_bytes < 0:
            raise InvalidError(f"spill_bytes is a number of bytes, or 0, not {self.spill_bytes!r}")


class Feeds:
    """See the module docstring.

    register: the writer's, of an epoch-prefixed log
    pinned: whether feeds hold what they read, by checkpoints
    life_ms: of the checkpoint of a hold without a name
    durable_seq: the highest sequence number that is durable now
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
        news: News,
        durable_seq: Callable[[], Awaitable[int]],
        check: Callable[[], None],
    ) -> None:
        self._context = context
        self._driver = driver
        self._register = register
        self._supervisor = supervisor
        self._pinned = pinned
        self._life_ms = life_ms
        self._durable_seq = durable_seq
        self._owner = Owner(check, news, supervisor, context.runtime.clock, context.runtime.offload)
        self._open: WeakSet[ChangeFeed] = WeakSet()
        self.stats = SourceStats()

    def open(self, wanted: Wanted) -> ChangeFeed:
        """A feed that has not begun. Raises `InvalidError`."""
        self._owner.check()
        wanted.check(pinned=self._pinned)
        feed = ChangeFeed(partial(self._begin, wanted), self._owner, self._open.discard)
        self._open.add(feed)
        return feed

    async def close(self) -> None:
        """Close all of them."""
        for feed in list(self._open):
            await feed.aclose()

    def metrics(self) -> dict[str, int | float]:
        """By dotted name."""
        stats = self.stats
        return {
            "changes.feeds": len(self._open),
            "changes.rows": stats.rows,
            "changes.rounds": stats.rounds,
            "changes.log_objects": stats.log_objects,
            "changes.selections": stats.selections,
            "changes.holds_made": stats.made,
            "changes.holds_moved": stats.moved,
            "changes.holds_lost": stats.lost,
        }

    # ---- how one begins

    async def _begin(self, wanted: Wanted) -> Pull:
        durable = await self._durable_seq()
        asked = durable if wanted.from_seq == "now" else wanted.from_seq
        if asked is not None and asked > durable:
            raise InvalidError(f"sequence number {asked} is not here yet, the newest that is durable is {durable}")
        until = wanted.until_seq
        if not wanted.follow:
            until = durable if until is None else min(durable, until)
        if not self._pinned:
            return Pull(await self._without_hold(wanted, asked or 0), until, self._owner)
        hold, made = await self._held(wanted, asked)
        assert made.checkpoint.feed is not None
        mark = made.checkpoint.feed
        seq = mark.seq if asked is None else asked
        source = ChangeSource(self._reading(made.state, wanted), made.state, mark, seq, hold)
        hold.start(self._supervisor)
        return Pull(source, until, self._owner)

    async def _without_hold(self, wanted: Wanted, seq: int) -> ChangeSource:
        head = await self._driver.existing(self._context.name)
        check_usable(head)
        if not _snapshot(wanted, seq):
            check_exact(head, seq)
        mark = FeedMark(seq, head.last_seq, head.log_start, head.log_floor)
        return ChangeSource(self._reading(head, wanted), head, mark, seq, None)

    async def _held(self, wanted: Wanted, asked: int | None) -> tuple[Hold, Made]:
        """The hold of a feed, made or taken over, and what it holds."""
        life_ms = self._life_ms if wanted.hold is None else lifetime_ms(wanted.hold_lifetime)
        runtime = self._context.runtime
        head = await self._driver.existing(self._context.name)
        found = None if wanted.hold is None else feed_named(head, wanted.hold)
        now, made_id = runtime.clock.now_ms(), runtime.ids.uuid()
        expire_ms = None if life_ms is None else now + life_ms
        if found is not None and found.feed is not None:
            if asked is not None and asked < found.feed.seq:
                raise InvalidError(
                    f"the hold {wanted.hold!r} was acknowledged up to sequence number {found.feed.seq}: that is the"
                    f" lowest to begin from, not {asked}"
                )
            state = await self._driver.commit(TakeHold(found.id, made_id, expire_ms))
            made = await named(self._driver, state, made_id)
        elif asked is None and wanted.hold_lifetime is not None:
            raise NotFoundError(
                f"there is no hold {wanted.hold!r}: it was never made, or it expired and was collected; say with"
                " from_seq what to begin after, 0 for the beginning"
            )
        else:
            seq = asked or 0
            edit = OpenHold(made_id, now, expire_ms, seq, wanted.hold, _snapshot(wanted, seq))
            made = await committed(self._driver, edit)
        self.stats.made += 1
        hold = Hold(
            made.checkpoint,
            self._driver,
            runtime,
            pace_ms=self._life_ms,
            life_ms=life_ms,
            stats=self.stats,
            path=self._context.name,
        )
        return hold, made

    def _reading(self, state: ManifestState, wanted: Wanted) -> Reading:
        return _reading(
            self._context, self._driver, self._register, state, wanted.room_bytes, wanted.spill_bytes, self.stats
        )


def _reading(
    context: DatabaseContext,
    driver: ManifestDriver,
    register: Register | None,
    state: ManifestState,
    room_bytes: int,
    spill_bytes: int,
    stats: SourceStats,
    span: KeyRange = EVERY_KEY,
    ahead: ReadAhead | None = None,
) -> Reading:
    ssts = context.ssts(state.database_id)
    return Reading(
        driver=driver,
        tail=tail_of(context, state, register),
        log=LogRows(state, ssts, context.runtime.offload),
        history=lambda of: History(of, ssts, context.runtime, room_bytes, spill_bytes, span, ahead),
        stats=stats,
        path=context.name,
    )


async def read_changes(
    context: DatabaseContext,
    driver: ManifestDriver,
    register: Register | None,
    head: ManifestState,
    *,
    hold: str,
    after: FeedPlace,
    until_seq: int,
    max_rows: int,
    span: KeyRange,
    ahead: ReadAhead | None,
) -> AsyncGenerator[RecordBatch, None]:
    """See `slate_async.Admin.read_changes`. ``head``: the newest state."""
    found = feed_named(head, hold)
    if found is None:
        raise gone(hold)
    made = await named(driver, head, found.id)
    reading = _reading(context, driver, register, made.state, ROOM_BYTES, 0, SourceStats(), span, ahead)
    async with aclosing(read_part(made, reading, context.runtime, after, until_seq, max_rows, span)) as batches:
        async for batch in batches:
            yield batch
    if ahead is not None:
        ahead.drop_up_to(until_seq)


def _snapshot(wanted: Wanted, seq: int) -> bool:
    """Whether what was compacted is not missed: only of a feed from the beginning."""
    return seq == 0 and wanted.initial == "snapshot"


class HasFeeds:
    """``changes()``. ``feeds`` are ``None`` where nothing changes any more."""

    def __init__(self, feeds: Feeds | None) -> None:
        self._feeds = feeds

    def changes(
        self,
        *,
        from_seq: FromSeq = None,
        until_seq: int | None = None,
        follow: bool = True,
        initial: Initial = "snapshot",
        hold: str | None = None,
        hold_lifetime: Duration | None = None,
        room_bytes: int = ROOM_BYTES,
        spill_bytes: int = SPILL_BYTES,
    ) -> ChangeFeed:
        """Every put and delete as it happened, in the order of sequence numbers: durable rows, each once.

        from_seq: rows above it; 0 is the beginning, ``"now"`` the newest that is durable. ``None``: where ``hold`` was
        acknowledged, else the beginning
        until_seq, follow: end behind that number, or behind what is durable at the start; else the feed goes on
        initial: from the beginning of a database whose history was compacted comes a snapshot of what is left of that
        (`ChangeFeed.snapshot_seq`), or an error
        hold: keep what is not acknowledged under this name, whoever closes or dies; `ChangeFeed.acknowledge`.
        ``hold_lifetime`` (seconds or a timedelta): so long after the last commit, for ever if unset
        room_bytes, spill_bytes: what is read from SSTs is put in order so many bytes at a time in memory, and so many
        in a file in the folder for temporary ones; what has no place in either is read again

        Raises `InvalidError` here, or when the feed begins: for what is not here yet, or was compacted (the lowest
        number there is, is named; the setting ``retention_ms`` says how long changes are kept)."""
        if self._feeds is None:
            raise InvalidError("a reader on a checkpoint shows what never changes; open one that follows the database")
        wanted = Wanted(from_seq, until_seq, follow, initial, hold, hold_lifetime, room_bytes, spill_bytes)
        return self._feeds.open(wanted)

    def _feed_metrics(self) -> dict[str, int | float]:
        return {} if self._feeds is None else self._feeds.metrics()

    async def _close_feeds(self) -> None:
        """Before the owner closes on purpose: what they hold is given back."""
        if self._feeds is not None:
            await self._feeds.close()


class WriterNews:
    """A writer's own news: what it has published, and what it has admitted of ingests."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._adopted = asyncio.Event()

    def follow(self, writer: Writer) -> None:
        """The database was opened again: ``writer`` goes on."""
        self._writer = writer
        self.tell()

    def tell(self) -> None:
        """A manifest state was adopted, or the like."""
        self._adopted.set()
        self._adopted = asyncio.Event()

    async def more(self, position: Position, seq: int) -> None:
        """See `News`."""
        while self._writer.suspended:
            await self._adopted.wait()
        published = asyncio.ensure_future(self._writer.flusher.until_published(position.next_id))
        try:
            while self._writer.state.last_seq <= seq and not published.done():
                adopted = asyncio.ensure_future(self._adopted.wait())
                try:
                    await asyncio.wait([published, adopted], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    adopted.cancel()
        finally:
            published.cancel()


class FollowerNews:
    """A follower's: what its polls have found. ``check`` raises once it is closed."""

    def __init__(self, follower: Follower, check: Callable[[], None]) -> None:
        self._follower = follower
        self._check = check

    async def more(self, position: Position, seq: int) -> None:
        """See `News`."""
        while self._follower.reader_state.last_seq <= seq:
            await self._follower.news()
            self._check()
