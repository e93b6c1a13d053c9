"""`DbReader`: one database, open to be read beside its writer. Wiring only; see `Handle` for its life."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from slate_async.database.handle import HandleResources
from slate_async.database.maps.index import Index
from slate_async.database.maps.value_codec import ValueCodec
from slate_async.database.maps.within import MapView
from slate_async.database.metrics import reader_counters, shared_counters
from slate_async.database.namespaces.prefix import NAMESPACE, prefix_of
from slate_async.database.namespaces.reads import NamespaceView
from slate_async.database.open_database import OpenDatabase
from slate_async.database.status import ReaderStatus, reader_status
from slate_async.engine.changes.open import Feeds
from slate_async.engine.changes.updates import FollowerUpdates
from slate_async.engine.context import metadata_closers
from slate_async.engine.follow.follower import Follower
from slate_async.engine.follow.open import OpenedReader
from slate_async.engine.follow.polling import FollowerPolling
from slate_async.engine.follow.reads import FollowerReads
from slate_async.engine.follow.source import ReaderSource
from slate_async.engine.read.time_travel import TimeLike, check_seq
from slate_async.engine.watch.open import Watches, reader_source
from slate_async.engine.watch.pieces import Limits
from slate_async.errors import InvalidError
from slate_async.storage.liveness.observer import WriterLife, WriterLiveness

K = TypeVar("K")
V = TypeVar("V")


class DbReader(OpenDatabase[FollowerReads]):
    """Made by `slate_async.open_reader` or `Environment.open_reader`, never directly. Satisfies `Readable`.

    A follower shows states the database was in, one after another, each whole: prefixes of its writer's order. A reader
    on a checkpoint shows that for ever, and judges expiry at the time the checkpoint was made. All rows it shows are
    durable, so ``durable`` changes nothing.

    Every method raises `ClosedError` after closing; ``__cause__`` says why, if it closed itself. Every method raises
    `InvalidError` for wrong arguments, another event loop or a missing checkpoint, `UnavailableError` and
    `CorruptionError`. Scans and snapshots raise `ConflictError` when what they read was removed: without checkpoints
    (``pin=False``), or after the reader's were lost."""

    _noun = "reader"

    def __init__(self, resources: HandleResources, opened: OpenedReader) -> None:
        super().__init__(resources)
        context = resources.context
        self._reads = FollowerReads(opened.source, context.runtime.clock, opened.yield_budget, self._guard)
        self._source: ReaderSource = opened.source
        self._follower = opened.source if isinstance(opened.source, Follower) else None
        self._driver = opened.driver
        self._register = opened.register
        self._liveness = WriterLiveness(context.name, context.store, context.runtime.clock)
        self._polling: FollowerPolling | None = None
        if self._follower is not None:
            self._polling = FollowerPolling(
                self._follower, self._name, self._supervisor, resources.polls, self._guard, self._finish
            )
        self._updates = self._updates_of()
        self._feeds = self._feeds_of(opened)
        self._watches = self._watches_of(opened)
        if self._polling is not None:
            self._polling.start(opened.settings.manifest_poll_interval_ms / 1000, self._fail)

    def _updates_of(self) -> FollowerUpdates | None:
        if self._follower is None or self._polling is None:
            return None
        return FollowerUpdates(self._follower, self._polling, self._guard)

    def _feeds_of(self, opened: OpenedReader) -> Feeds | None:
        if self._follower is None or self._updates is None:
            return None
        return Feeds(
            self._context,
            opened.driver,
            opened.register,
            self._supervisor,
            pinned=self._follower.pins is not None,
            life_ms=opened.settings.checkpoint_lifetime_ms,
            updates=self._updates,
            guard=self._guard,
        )

    def _watches_of(self, opened: OpenedReader) -> Watches | None:
        if self._feeds is None or self._updates is None:
            return None
        return Watches(
            reader_source(lambda: self._source.reader_state.last_seq, self._feeds),
            self._feeds,
            self._updates,
            self._supervisor,
            self._context.runtime.clock,
            self._guard,
            Limits(opened.settings.watch_buffer_rows, opened.settings.watch_buffer_bytes),
        )

    # ---- reads (see `Reads` for get, get_many, get_row, scan, splits, row_statistics; `OpenDatabase` for others)

    def seq_to_time(self, seq: int) -> float:
        """By which time, in seconds since the epoch, the row numbered ``seq`` was written for sure. That is exact
        while it is in the log, else as fine as the manifest's samples.

        Raises `InvalidError` for a number that is not here yet, or older than what is known."""
        return self._reads.seq_to_time(seq)

    def time_to_seq(self, time: TimeLike) -> int:
        """The highest sequence number known to be written at ``time`` or before; 0 if there was none. Times and
        precision as of `as_of`, but not bound by what history is kept.

        Raises `InvalidError` for a time to come, before the database was made, or before what is known."""
        return self._reads.time_to_seq(time)

    def namespace(self, name: str) -> NamespaceView:
        """The namespace ``name`` as this reader sees it: see `Db.namespace`."""
        return NamespaceView(self._reads, self._open_watch, prefix_of(NAMESPACE, name))

    def map(
        self, name: str, *, key: type[K], value: type[V] | ValueCodec[V], indexes: Iterable[Index[V]] = ()
    ) -> MapView[K, V]:
        """The typed map ``name`` as this reader sees it: see `Db.map`. ``indexes``: those that are read by."""
        return NamespaceView(self._reads, self._open_watch, b"").map(name, key=key, value=value, indexes=indexes)

    # ---- following

    async def refresh(self) -> None:
        """Catch up now: afterwards everything is here that was durable at the call. Nothing to do for a checkpoint.

        Raises `UnavailableError`; reads go on with what is known."""
        self._check()
        if self._polling is not None:
            await self._polling.refresh()

    async def writer_life(self) -> WriterLife:
        """Whether the database has a writer that lives, and of which epoch; reads the head and the writer's last beat.

        One call tells whether it closed, and when it was last heard of; calls that follow, at least one per heartbeat,
        whether its beats go on. `WriterLife.guess` judges a single one by the wall clock."""
        self._check()
        return await self._liveness.look(await self._driver.existing())

    async def wait_for(self, seq: int) -> None:
        """Wait until sequence number ``seq`` (a `WriteHandle` has it) is here.

        Raises `InvalidError` on a checkpoint that does not hold it."""
        check_seq(seq)
        self._check()
        last_seq = self._source.reader_state.last_seq
        if last_seq >= seq:
            return
        if self._polling is None:
            raise InvalidError(
                f"this reader stays at sequence number {last_seq}; to wait for {seq}, open a reader that follows the"
                " database"
            )
        await self._polling.wait_for(seq)

    # ---- status

    def status(self) -> ReaderStatus:
        """The reader's state now. Works after closing, too."""
        return reader_status(
            self._context, self._state, self._source, 0 if self._polling is None else self._polling.failed_polls
        )

    def metrics(self) -> dict[str, int | float]:
        """Counters since opening, by dotted name, as `Db.metrics`. ``reader.rounds`` counts looks at log and manifest,
        ``reader.dropped_rounds`` those that a moving log undid."""
        return {
            "db.reads": self._reads.begun,
            **reader_counters(self._source),
            **self._feed_metrics(),
            **({} if self._watches is None else self._watches.metrics()),
            **shared_counters(self._context, self._driver, self._register),
        }

    # ---- its life (see `Handle`)

    def _ended(self, cause: BaseException | None) -> None:
        self._source.reader_state.end()
        if self._watches is not None:
            self._watches.end_all()
        if self._polling is not None:
            self._polling.stop()

    async def _finish(self) -> None:
        if self._polling is not None:
            await self._close_feeds()
            await self._polling.close()

    def _closers(self) -> list[Callable[[], Awaitable[None]]]:
        return metadata_closers(self._driver, self._register)

    def __repr__(self) -> str:
        return f"<DbReader {self._name} seq={self._source.reader_state.last_seq} {self._state}>"
