"""`Db`: one open database, as its writer. The public face of the engine; wiring only. See `Handle` for its life.

Rule 23: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from threading import get_ident
from typing import Any, TypeVar, Unpack

from slate_async.arguments import BytesLike, Duration, key_bytes, life_ms, value_bytes
from slate_async.database.checkpoints import Checkpoints
from slate_async.database.handle import HandleResources
from slate_async.database.increment import Increment, increment
from slate_async.database.maps.index import Index
from slate_async.database.maps.map import Map
from slate_async.database.maps.value_codec import ValueCodec
from slate_async.database.metrics import shared_counters, writer_counters
from slate_async.database.namespaces.namespace import Namespace
from slate_async.database.namespaces.prefix import NAMESPACE, prefix_of
from slate_async.database.open_database import OpenDatabase
from slate_async.database.status import Status, writer_status
from slate_async.database.transact import RETRIES, Transact, UpdateHandle
from slate_async.database.transaction import Isolation, Transaction
from slate_async.database.transaction_space import TransactionSpace
from slate_async.engine.changes.open import Feeds
from slate_async.engine.changes.updates import WriterUpdates
from slate_async.engine.checkpoint.manage import Scope
from slate_async.engine.clone.embedded_gc import EmbeddedGc
from slate_async.engine.compaction.manual import Manual, flush_and_compact
from slate_async.engine.compaction.open import open_embedded
from slate_async.engine.compaction.progress import EventSink
from slate_async.engine.context import metadata_closers
from slate_async.engine.read.errors import about_a_read
from slate_async.engine.transactions.condition import DeleteConditions, PutConditions, delete_condition, put_condition
from slate_async.engine.watch.open import Watches, reopened
from slate_async.engine.watch.pieces import Limits
from slate_async.engine.watch.sources import WriterSource
from slate_async.engine.write.batch import BatchRows, WriteBatch, deletion, rows_of
from slate_async.engine.write.commit_group import WriteHandle
from slate_async.engine.write.errors import about_all_written, advise, closed_failure, refused, write_failure
from slate_async.engine.write.open import Opened
from slate_async.engine.write.polling import HeadPolling
from slate_async.engine.write.range_rows import range_of_prefix
from slate_async.engine.write.reads import WriterReads
from slate_async.engine.write.reopen import Reopening
from slate_async.engine.write.writer import Writer, WriterHost
from slate_async.errors import InvalidError, Outcome, SlateError, UnavailableError
from slate_async.merge_operators.guarded import needed
from slate_async.storage.log.extent import LogExtent
from slate_async.types import DELETE, MERGE, PUT, RowLimits

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")


class Db(OpenDatabase[WriterReads]):
    """Made by `slate_async.open` or `Environment.open`, never directly.

    Every method raises `FencedError` once a newer writer took over, `ClosedError` after closing, `InvalidError` for
    wrong arguments or another event loop, `UnavailableError` and `CorruptionError`. Scans and snapshots raise
    `ConflictError` when compaction and GC removed what they read."""

    checkpoints: Checkpoints
    """What keeps the database readable as it was."""
    _watches: Watches

    def __init__(self, resources: HandleResources, opened: Opened) -> None:
        super().__init__(resources)
        context, supervisor = resources.context, resources.supervisor
        self._reopening = Reopening(context, supervisor, {opened.writer.state.manifest.writer_token: None})
        self._head = HeadPolling(
            opened.writer, opened.driver, self._reopening, resources.polls, self._guard, fail=self._fail
        )
        self._reads = WriterReads(opened.writer, context.runtime.clock, self._guard, self._head.adopt_head)
        self.checkpoints = Checkpoints(opened.driver, context.runtime, self._guard, self._log_extent)
        self._opened = opened
        self._writer, self._sequencer = opened.writer, opened.writer.sequencer
        limits = RowLimits(opened.settings.max_key_bytes, opened.settings.max_value_bytes)
        self._max_key_bytes, self._max_value_bytes = limits
        self._default_life_ms = opened.settings.default_ttl_ms
        space = TransactionSpace(self._reads, self._guard, limits, context.runtime, self._default_life_ms)
        self._transact = Transact(space)
        self._updates = WriterUpdates(opened.writer)
        self._feeds = Feeds(
            context,
            opened.driver,
            opened.register,
            supervisor,
            pinned=True,
            life_ms=opened.settings.checkpoint_lifetime_ms,
            updates=self._updates,
            guard=self._guard,
        )
        self._watch_source = WriterSource(opened.writer, self._feeds.ingested, context.runtime.clock)
        self._watches = Watches(
            self._watch_source,
            self._feeds,
            self._updates,
            supervisor,
            context.runtime.clock,
            self._guard,
            Limits(opened.settings.watch_buffer_rows, opened.settings.watch_buffer_bytes),
        )
        self._compaction = open_embedded(context, opened, self._head.poll_due)
        self._garbage = EmbeddedGc(context, opened.driver, opened.register, supervisor, self._fail)
        self._begin(opened.writer)
        self._head.start(opened.settings, context.runtime.clock)

    def _begin(self, writer: Writer) -> None:
        """Let it work, and the compactor beside it."""
        compactor = self._compaction.compactor
        host = WriterHost(
            failed=self._writer_failed,
            acknowledged=[self._watch_source.acknowledged],
            ssts_changed=[compactor.notify, self._updates.notify, self._watch_source.adopted],
            polled=[compactor.notify],
        )
        writer.start(host)
        writer.tasks.spawn("compactor", compactor.run())
        self._garbage.start(writer.tasks)

    @property
    def _limits(self) -> RowLimits:
        return self._transact.space.limits

    # ---- writes

    def put(
        self,
        key: BytesLike,
        value: BytesLike,
        *,
        ttl: Duration | None = None,
        await_durable: bool = True,
        **conditions: Unpack[PutConditions],
    ) -> Coroutine[Any, Any, WriteHandle]:
        """Set ``key`` (1 to `max_key_bytes`, a setting) to ``value`` (up to `max_value_bytes`); both are checked and
        copied at the call.

        Returns once the write is durable, or once it is visible in memory with ``await_durable=False``. With ``ttl``
        (seconds or timedelta) the row vanishes that long after now, with ``math.inf`` never; without, the setting
        ``default_ttl_ms`` counts. Errors carry ``outcome``.

        conditions: ``if_absent=True``: only if the key is not there; ``if_seq``: only if its row has that sequence
        number (see `get_row`); ``if_value``: that value. Judged in the step that applies the write; else
        `ConflictError`, and nothing is applied"""
        # HOT: copy of arguments.key_bytes; 30 ns, 2026-11-23
        if type(key) is not bytes or not 0 < len(key) <= self._max_key_bytes:
            key = key_bytes(key, self._limits)
        # HOT: copy of arguments.value_bytes; 25 ns, 2026-11-23
        if type(value) is not bytes or len(value) > self._max_value_bytes:
            value = value_bytes(value, self._limits)
        life = self._default_life_ms if ttl is None else life_ms(ttl)
        if conditions and (wanted := put_condition(conditions)) is not None:
            return self._transact.write_if(key, value, life, wanted, await_durable)
        return self._write_row(key, value, PUT, life, await_durable)

    def delete(
        self, key: BytesLike, *, await_durable: bool = True, **conditions: Unpack[DeleteConditions]
    ) -> Coroutine[Any, Any, WriteHandle]:
        """Remove ``key``; no error if it is not there, but with a condition. Otherwise as `put`."""
        key = key_bytes(key)
        if conditions and (wanted := delete_condition(conditions)) is not None:
            return self._transact.write_if(key, None, None, wanted, await_durable)
        return self._write_row(key, b"", DELETE, None, await_durable)

    def merge(
        self, key: BytesLike, operand: BytesLike, *, ttl: Duration | None = None, await_durable: bool = True
    ) -> Coroutine[Any, Any, WriteHandle]:
        """Merge ``operand`` into ``key`` without reading it, by the database's merge operator (the setting
        `merge_operator`).

        Reads see what the operator makes of the value and all operands since. With ``ttl`` the operand counts that long
        from now, the value not longer either. Raises `InvalidError` for what is no operand, and if the database has no
        operator. Otherwise as `put`."""
        own = key_bytes(key, self._limits)
        value = value_bytes(operand, self._limits)
        (self._writer.state.merging or needed(None)).check(value)
        life = self._default_life_ms if ttl is None else life_ms(ttl)
        return self._write_row(own, value, MERGE, life, await_durable)

    def increment(
        self,
        key: BytesLike,
        by: int = 1,
        *,
        ttl: Duration | None = None,
        token: BytesLike | None = None,
        token_ttl: Duration | None = None,
        await_durable: bool = True,
    ) -> Coroutine[Any, Any, int]:
        """Add ``by`` (64 bits, signed) to the number in ``key`` (see `pack_i64`; 0 if it is not there); the new number.
        Beyond 64 bits it wraps.

        An update (see `update`), so it needs no merge operator, and unlike `merge` it reads.

        token: a key of the caller's. The same batch puts the new number there. If it is there already, nothing is
        added, and its number is the answer: so an increment that is repeated with its token counts once
        token_ttl: how long the token is kept; longer than the increment may be repeated

        Raises `InvalidError` if ``key`` or ``token`` holds something else. Otherwise as `put`."""
        if token is None and token_ttl is not None:
            raise InvalidError("token_ttl goes with token", outcome="not_applied")
        own = key_bytes(key, self._limits)
        known = None if token is None else key_bytes(token, self._limits)
        lives = [self._default_life_ms if given is None else life_ms(given) for given in (ttl, token_ttl)]
        return increment(self._transact, Increment(own, by, lives[0], known, lives[1]), await_durable)

    def update(
        self,
        key: BytesLike,
        function: Callable[[bytes | None], BytesLike | None],
        *,
        ttl: Duration | None = None,
        await_durable: bool = True,
    ) -> Coroutine[Any, Any, UpdateHandle]:
        """Set ``key`` to what ``function`` makes of its value (``None``: it is not there); ``None`` deletes it.

        No write comes between. Updates of one key wait for one another in order, and share flushes. ``function`` takes
        no waiting and changes nothing else, for it may be called again. `UpdateHandle.value` is what was made. What
        ``function`` raises is raised, and nothing is applied. Otherwise as `put`."""
        own = key_bytes(key, self._limits)
        if not callable(function):
            raise InvalidError(f"update takes a function, not {type(function).__name__}", outcome="not_applied")
        life = self._default_life_ms if ttl is None else life_ms(ttl)
        return self._transact.update(own, function, life, await_durable)

    def touch(
        self, key: BytesLike, *, ttl: Duration | None = None, await_durable: bool = True
    ) -> Coroutine[Any, Any, UpdateHandle]:
        """Let the row of ``key`` live for ``ttl`` from now on, with ``math.inf`` for ever; without, for the setting
        ``default_ttl_ms``. Its value stays, and is written again.

        `UpdateHandle.value` is the value; ``None``: the key is not there, and nothing was written. A row that expired
        or was deleted does not come back. Otherwise as `update`."""
        own, life = key_bytes(key, self._limits), self._default_life_ms if ttl is None else life_ms(ttl)
        if ttl is None and life is None:
            raise InvalidError(
                "touch takes ttl, because the database has no default (the setting default_ttl_ms)",
                outcome="not_applied",
            )
        return self._transact.update(own, lambda value: value, life, await_durable)

    def write(self, batch: WriteBatch, *, await_durable: bool = True) -> Coroutine[Any, Any, WriteHandle]:
        """Apply the rows ``batch`` has at this call atomically: every reader, and every recovery, sees all of them
        or none."""
        if not isinstance(batch, WriteBatch):
            raise InvalidError(f"write takes a WriteBatch, not {type(batch).__name__}", outcome="not_applied")
        rows = rows_of(batch, self._limits, self._default_life_ms)
        if MERGE in rows.kinds:
            merging = needed(self._writer.state.merging)
            for operand, kind in zip(rows.values, rows.kinds, strict=True):
                if kind == MERGE:
                    merging.check(operand)
        if batch._steps:
            return self._transact.write_batch(rows, batch._steps.copy(), await_durable)
        return self._write_batch(rows, await_durable)

    def namespace(self, name: str, *, default_ttl: Duration | None = None) -> Namespace:
        """The part of the database called ``name`` (1 to 255 bytes of UTF-8 without NUL), which need not be made: the
        same calls for keys below a prefix.

        default_ttl: counts for rows that are put there without ``ttl``; ``math.inf``: they never expire. Without it
        the setting ``default_ttl_ms`` counts"""
        return Namespace(self, self._reads, self._transact, self._open_watch, prefix_of(NAMESPACE, name), default_ttl)

    def map(
        self,
        name: str,
        *,
        key: type[K],
        value: type[V] | ValueCodec[V],
        indexes: Iterable[Index[V]] = (),
        default_ttl: Duration | None = None,
    ) -> Map[K, V]:
        """The typed map called ``name`` (as of `namespace`), which need not be made.

        key: ``tuple[str, int]`` and the like: what `slate_async.keys.pack` takes; or the type of a single part
        value: a pydantic model, ``bytes``, or a type that msgspec knows (structs, dataclasses, ``dict``): all but bytes
        are stored as JSON. Or a `ValueCodec`
        indexes: all that the map has. One that is new is built by `Map.build`, or at once if the map has no row"""
        root = Namespace(self, self._reads, self._transact, self._open_watch, b"", None)
        return root.map(name, key=key, value=value, indexes=indexes, default_ttl=default_ttl)

    def delete_range(
        self, start: BytesLike | None, end: BytesLike | None, *, await_durable: bool = True
    ) -> Coroutine[Any, Any, WriteHandle]:
        """Remove all keys from ``start`` (inclusive) to ``end`` (exclusive); ``None`` is unbounded. One row, however
        many keys these are. As `put`, and `UnavailableError` while compaction has too many of them left to do."""
        return self.write(deletion(start, end), await_durable=await_durable)

    def delete_prefix(self, prefix: BytesLike, *, await_durable: bool = True) -> Coroutine[Any, Any, WriteHandle]:
        """Remove all keys that begin with ``prefix``. As `delete_range`."""
        return self.write(deletion(*range_of_prefix(prefix)), await_durable=await_durable)

    # ---- transactions

    def transaction(self, *, isolation: Isolation = "serializable", await_durable: bool = True) -> Transaction:
        """A transaction that begins now. Use ``async with``: the end of the block commits, an error gives up.

        Its reads see everything written so far and its own writes. `Transaction.commit` applies those in one step, if
        nothing that it read was written meanwhile; else it raises `ConflictError`.

        isolation: ``"serializable"``: as if transactions had run one after the other. ``"snapshot"``: only writes of
        others to keys that it writes, too, are conflicts
        await_durable: a commit returns when all that was read and written is durable, or else at once

        One that writes is open for `transaction_lifetime_ms` (a setting) at most."""
        if isolation == "serializable" and self._guard.passes():
            return Transaction(self._transact.space, True, await_durable)
        return self._transact.begin(isolation, await_durable)

    def transact(
        self,
        function: Callable[[Transaction], Awaitable[T]],
        *,
        retries: int = RETRIES,
        isolation: Isolation = "serializable",
        await_durable: bool = True,
    ) -> Coroutine[Any, Any, T]:
        """Run ``function`` with a transaction and commit that; on a conflict again, up to ``retries`` times. Returns
        what ``function`` returned.

        ``function`` may run several times, so it changes nothing but by its transaction. Between attempts passes a
        random pause; then it waits for others that change the same keys, and after a few conflicts it runs alone: other
        transactions, updates and conditional writes wait. Raises the last `ConflictError`, and what ``function``
        raises."""
        return self._transact.transact(function, retries, isolation, await_durable)

    async def _write_row(
        self, key: bytes, value: bytes, kind: int, life_ms: int | None, await_durable: bool
    ) -> WriteHandle:
        # HOT: copy of runtime.loop_guard.LoopGuard.check; 20 ns, 2026-11-23
        guard = self._guard
        running = guard.running  # a call by a local name is faster than by an attribute that is no method
        if get_ident() != guard.thread or not running():
            self._check("not_applied")
        handle = self._sequencer.row_now(key, value, kind, life_ms)
        if handle is None:
            handle = await self._sequencer.row(key, value, kind, life_ms)
        if await_durable:
            await handle.durable()
            return handle
        budget = self._reads.yield_budget
        if not handle.seq % budget.every and budget.exhausted():
            await budget.yield_now()
        return handle

    async def _write_batch(self, batch: BatchRows, await_durable: bool) -> WriteHandle:
        self._check("not_applied")
        check = await self._writer.allow_range_deletes(batch.ranges) if batch.ranges else None
        handle = await self._sequencer.batch(batch, check)
        if await_durable:
            await handle.durable()
        elif self._reads.yield_budget.exhausted():
            await self._reads.yield_budget.yield_now()
        return handle

    async def flush(self, *, l0: bool = False) -> None:
        """Make everything written so far durable. ``l0=True`` also moves it out of the log into an L0 SST.

        The ``outcome`` of an error is ``"unknown"``: of what was written so far, some may be in."""
        with about_all_written():
            self._check()
            await self._writer.flush(l0=l0)

    # ---- reads (see `Reads` for get, get_many, get_row, scan, splits, row_statistics; `OpenDatabase` for others)

    async def confirm(self) -> None:
        """Check that this is still the database's writer right now.

        A fenced writer may answer stale reads until it notices; durable reads followed by a successful `confirm`
        are linearizable. Raises `FencedError`."""
        self._check()
        with about_a_read():
            await self._head.adopt_head()
        self._check()

    # ---- compaction, and what parts ask of the handle

    async def compact(
        self,
        *,
        full: bool = False,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        level: int | None = None,
        progress: EventSink | None = None,
    ) -> int:
        """Flush to L0 and compact now; how many compactions and moves that took.

        full: everything into one run; ``start``, ``end``: whatever holds keys of ``[start, end)``; ``level``: all of
        one level into the next, 0 is L0; none of them: what is due
        progress: called with each `CompactionEvent` meanwhile

        A compactor elsewhere is fenced. May be cancelled: what was begun goes on. Raises `FencedError` if another
        compactor takes over, `InvalidError` for a level that does not exist."""
        self._check()
        first, stop = (None if bound is None else key_bytes(bound) for bound in (start, end))
        manual = Manual(full, first, stop, level)
        remove = self._compaction.listeners.add(progress or (lambda event: None))
        try:
            return await flush_and_compact(manual, self._writer, self._supervisor, self._compact)
        finally:
            remove()

    async def _compact(self, manual: Manual) -> int:
        taken = await self._compaction.compactor.compact(manual)
        await self._head.adopt_head()
        return taken

    async def _log_extent(self, scope: Scope, force_flush: bool) -> LogExtent:
        return await self._writer.log_extent(scope, force_flush)

    # ---- status

    def status(self) -> Status:
        """The database's state now. Works after closing, too."""
        return writer_status(self._context, self._state, self._opened, self._reopening.outage)

    def metrics(self) -> dict[str, int | float]:
        """Counters since opening, by dotted name. Byte counts end in ``_bytes``.

        ``db.writes`` counts calls of `put` and `delete`, ``db.reads`` gets, scans and snapshots begun on the database;
        ``cache.*`` and ``store.*`` count for all databases that share the `Environment` and the bucket."""
        return {
            **writer_counters(self._writer, self._reads.begun),
            **(self._compaction.stats.metrics() | self._garbage.stats.metrics()),
            **self._feed_metrics(),
            **self._watches.metrics(),
            **shared_counters(self._context, self._opened.driver, self._opened.register),
        }

    # ---- outages: see `Reopening`

    def _writer_failed(self, cause: BaseException) -> None:
        """A task of the writer failed: close, or, if only the store was out of reach, wait for it."""
        patient = self._state == "open" and self._opened.settings.on_outage == "reopen"
        if not patient or not isinstance(cause, UnavailableError):
            return self._fail(cause)
        self._reopening.suspend(self._opened, cause)
        self._compaction.compactor.close(lambda: refused(cause))
        self._supervisor.spawn("reopen", self._reopen())

    async def _reopen(self) -> None:
        opened = await self._reopening.run(self._opened)
        if self._state != "open":
            return
        self._reopening.resume(self._opened, opened)
        self._opened, self._writer, self._sequencer = opened, opened.writer, opened.writer.sequencer
        self._reads.writer = self._head.writer = opened.writer
        self._compaction = open_embedded(self._context, opened, self._head.poll_due, self._compaction)
        self._updates.follow(self._writer)
        self._watches.end_all(reopened)
        self._watch_source.writer = self._writer
        self._begin(self._writer)

    # ---- its life (see `Handle`)

    def _ended(self, cause: BaseException | None) -> None:
        advise(self._name, cause)
        self._head.stop()
        self._writer.fail(cause)
        self._compaction.compactor.close(lambda: closed_failure(self._name, cause, "not_applied"))
        self._updates.notify()
        self._watches.end_all()

    async def _finish(self) -> None:
        """Make everything durable; raises the write error (with ``outcome``) that no call has raised yet."""
        self._writer.refuse_writes(None)
        if self._reopening.outage is None:  # else nothing waits, and what it holds cannot be given back
            await self._writer.finish(self._name, self._close_feeds)
        if (unreported := self._unreported()) is not None:
            raise unreported

    def _unreported(self) -> SlateError | None:
        return write_failure(self._cause or self._reopening.last, "unknown") if self._writer.lost_unreported else None

    def _closers(self) -> list[Callable[[], Awaitable[None]]]:
        return metadata_closers(self._opened.driver, self._opened.register)

    def _closed_failure(self, outcome: Outcome | None = None) -> SlateError:
        return closed_failure(self._name, self._cause, outcome)

    def _left_open(self) -> str:
        lost = self._sequencer.last_seq - self._writer.state.durable_seq
        return f"{self!r} was never closed; {lost} rows may be lost"

    def __repr__(self) -> str:
        return f"<Db {self._name} epoch={self._writer.epoch} {self._state}>"
