"""`Transaction`: reads of one read point, own writes on top of them, and one commit.

| state | calls | it ends by | next state |
|---|---|---|---|
| open | are served | `commit`, from its first step on | over |
|  |  | `rollback`, the end of its block by an error | over |
| over | `ClosedError` | nothing |  |

Rule 32: docs/design/protocol-rules.md
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from threading import get_ident
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from slate_async.arguments import BytesLike, Duration, key_bytes, life_ms, sought_key, value_bytes
from slate_async.codec.columns import NO_EXPIRY
from slate_async.database.transaction_operands import OwnOperands, OwnRow, OwnWrite, add_operand, own_row, rows_of
from slate_async.database.transaction_ranges import OwnRanges
from slate_async.database.transaction_scan import TransactionScan
from slate_async.database.transaction_space import TransactionSpace
from slate_async.engine.read.bounds import key_range
from slate_async.engine.read.live import live_hit
from slate_async.engine.read.read_point import ReadPoint
from slate_async.engine.read.source import SnapshotReads
from slate_async.engine.read.view import Pin
from slate_async.engine.transactions.tracked_reads import TrackedReads
from slate_async.engine.transactions.turns import Turn
from slate_async.engine.write.commit_group import CommitGroup, NoRowsHandle, WriteHandle, handle_of
from slate_async.engine.write.range_rows import range_of_prefix, range_to_delete
from slate_async.errors import ClosedError, ConflictError, InvalidError
from slate_async.types import DELETE, MAX_KEY_BYTES, MERGE, NEEDS_IO, PUT, NeedsIO, Row, RowHit

Isolation: TypeAlias = Literal["serializable", "snapshot"]
"""``serializable``: as if transactions had run one after the other; ``snapshot``: of two that write the same key, one
fails, and what others write to keys that were only read does not matter."""

JUDGED_AT_ONCE_ROWS = 1_024
"""Of so many rows since a transaction began it is judged without a look whether others want a turn."""


class Transaction:
    """Made by `Db.transaction`. ``async with`` commits at the end of the block, and gives up if the block raises.

    Reads see the database as it was when the transaction began, rows that are not durable yet included, and its own
    writes. It belongs to one task at a time. Raises `ConflictError` if it cannot commit, at the latest in `commit`;
    ``key`` and ``reason`` of the error say why. Every other error is as of the database's own calls."""

    def __init__(self, space: TransactionSpace, serializable: bool, await_durable: bool, waiting: bool = False) -> None:
        """``waiting``: it begins with its first read; after a wait with others, if they wait for the key of that."""
        self._space = space
        self._serializable = serializable
        self._await_durable = await_durable
        self._writes: dict[bytes, OwnWrite] = {}
        self._ranges: OwnRanges | None = None  # what it deletes
        self._writer = writer = space.reads.writer
        self._sequencer = writer.sequencer
        self._now_ms: int | None = None
        self._snapshot: SnapshotReads | None = None
        self._scans: dict[TransactionScan, None] | None = None  # those that have not ended
        self._conflict: ConflictError | None = None
        self._turn: Turn | None = None  # the turn that it has by its first read
        self._open = True
        self._pin: Pin | None = None
        if waiting:
            self._not_begun, self._tracked = True, TrackedReads(0, 0.0)
        else:
            self._begin()

    def _begin(self) -> None:
        """Its reads see what there is now."""
        writer = self._writer
        self._tracked = tracked = writer.transactions.begin()
        self._view = view = writer.state.view
        self._seq = tracked.seq
        self._pin = view.pin()
        self._group = self._sequencer.newest_group
        self._not_begun = False

    # ---- reads

    @property
    def seq(self) -> int:
        """The sequence number of the newest row that its reads see."""
        if self._not_begun:
            self._begin()
        return self._seq

    def get(self, key: BytesLike) -> Coroutine[Any, Any, bytes | None]:
        """The value of ``key``, or ``None``."""
        if type(key) is not bytes or not 0 < len(key) <= MAX_KEY_BYTES:
            key = sought_key(key)
        return self._get(key)

    async def _get(self, key: bytes) -> bytes | None:
        space = self._space
        # HOT: copy of runtime.loop_guard.LoopGuard.check; 100 ns, 2026-11-28
        guard = space.guard
        if not self._open or self._tracked.evicted is not None or get_ident() != guard.thread or not guard.running():
            self._check()
        if self._writes:
            own = self._writes.get(key)
            if own is not None:
                value = own[0]
                return await self._merged(key, value) if isinstance(value, OwnOperands) else value
        if self._ranges is not None and key in self._ranges:
            return None
        if self._not_begun:
            if key in space.turns:
                self._turn = await space.turns.take(key)  # the only one that it holds
                self._check()
            self._begin()
        if self._serializable:
            tracked = self._tracked
            tracked.add(key)
            if tracked.nbytes > tracked.counted:
                self._count()
                if tracked.crowded:
                    await self._widen()
        space.reads.begun = begun = space.reads.begun + 1
        found: bytes | int | RowHit | NeedsIO | None = None
        if self._sequencer.last_seq == self._seq:  # its read point is the newest
            found = self._view.latest.get(key)
        if type(found) is not bytes:
            found = self._view.look_up(key, self._seq)
        if found is not None and type(found) is not bytes:
            return self._value_of(key, await self._hit(key) if (live := self._live(found)) is NEEDS_IO else live)
        if not begun % space.yield_budget.every and space.yield_budget.exhausted():
            await space.yield_budget.yield_now()
            self._check()
        return found

    def _live(self, found: object) -> RowHit | NeedsIO | None:
        if found is NEEDS_IO:
            return NEEDS_IO
        assert isinstance(found, RowHit)
        return live_hit(found, self._point().now_ms)

    def _point(self) -> ReadPoint:
        """What its reads see. Expiry is judged at the time when the first of them has to know."""
        if self._now_ms is None:
            self._now_ms = self._space.reads.clock.now_ms()
        return ReadPoint(self._view, self._seq, self._now_ms)

    def _value_of(self, key: bytes, hit: RowHit | None) -> bytes | None:
        if hit is None:
            return None
        if hit.expire_ms != NO_EXPIRY and self._serializable:
            self._tracked.expires(key, hit.expire_ms)
        return hit.value

    async def _hit(self, key: bytes) -> RowHit | None:
        hit = await self._stored().hit(key, False)
        self._check()
        return hit

    async def _read_row(self, key: bytes) -> RowHit | None:
        """The live row of ``key`` as it is stored, whatever the transaction wrote itself."""
        if self._not_begun:
            self._begin()
        self._read(key)
        if self._tracked.crowded:
            await self._widen()
        hit = await self._hit(key)
        self._value_of(key, hit)
        return hit

    def get_many(self, keys: Sequence[BytesLike]) -> Coroutine[Any, Any, list[bytes | None]]:
        """The values of ``keys`` in their order; each block is read once."""
        return self._get_many([sought_key(key) for key in keys])

    async def _get_many(self, keys: list[bytes]) -> list[bytes | None]:
        self._check()
        if self._not_begun:
            self._begin()
        others = [key for key in keys if not self._writes_to(key)]
        for key in others:
            self._read(key)
        if self._tracked.crowded:
            await self._widen()
        values = dict(zip(others, await self._stored().get_many(others, False), strict=True))
        self._check()
        if self._serializable and self._view.may_expire:
            for key in others:
                if values[key] is not None:
                    self._value_of(key, await self._hit(key))
        for key in set(keys).intersection(self._writes):
            own = self._writes[key][0]
            values[key] = await self._merged(key, own) if isinstance(own, OwnOperands) else own
        return [values.get(key) for key in keys]

    async def _merged(self, key: bytes, own: OwnOperands) -> bytes:
        hit = await self._read_row(key) if own.on_stored else None
        return own.merged(key, None if hit is None else hit.value)

    def get_row(self, key: BytesLike) -> Coroutine[Any, Any, Row | None]:
        """As `get`, with sequence number, creation time and expiry time. A row that the transaction wrote itself has
        none yet: `InvalidError`."""
        return self._get_row(sought_key(key))

    async def _get_row(self, key: bytes) -> Row | None:
        self._check()
        if self._writes_to(key):
            raise InvalidError(f"{key!r} was written by this transaction, so it has no sequence number yet; use get")
        hit = await self._read_row(key)
        if hit is None:
            return None
        expire = None if hit.expire_ms == NO_EXPIRY else hit.expire_ms / 1000
        return Row(key, hit.value, hit.seq, hit.create_ms / 1000, expire)

    def scan(
        self,
        start: BytesLike | None = None,
        end: BytesLike | None = None,
        *,
        prefix: BytesLike | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> TransactionScan:
        """The rows from ``start`` (inclusive) to ``end`` (exclusive), or with ``prefix``, as the transaction sees them
        at this call. ``async for key, value in tx.scan(...)``.

        What counts as read is the range up to the last row that was taken, all of it once the scan has ended."""
        self._check()
        if self._not_begun:
            self._begin()
        span = key_range(start, end, prefix)
        tracked = self._tracked if self._serializable else None
        parts = [span] if self._ranges is None else self._ranges.leave(span)
        own = [(key, write[0]) for key, write in self._writes.items() if span.overlaps(key, key)]
        scan = TransactionScan(self._stored(), parts, own, reverse, limit, self._check, tracked, self._scan_ended)
        if self._scans is None:
            self._scans = {}
        self._scans[scan] = None
        return scan

    def _scan_ended(self, scan: TransactionScan) -> None:
        """It gives no more rows: what it gave is read."""
        if self._scans is not None and self._scans.pop(scan, self) is None and self._open:
            scan.settle()
            self._count()

    # ---- writes

    def put(self, key: BytesLike, value: BytesLike, *, ttl: Duration | None = None) -> None:
        """Set ``key`` when the transaction commits, with ``ttl`` for that long from then on. Keys and values are
        checked and copied at the call."""
        space = self._space
        if type(key) is not bytes or not 0 < len(key) <= space.max_key_bytes:
            key = key_bytes(key, space.limits)
        if type(value) is not bytes or len(value) > space.max_value_bytes:
            value = value_bytes(value, space.limits)
        if not self._open or self._tracked.evicted is not None:
            self._check(writes=True)
        self._writes[key] = (value, space.default_life_ms if ttl is None else life_ms(ttl))

    def delete(self, key: BytesLike) -> None:
        """Remove ``key`` when the transaction commits; no error if it is not there."""
        key = key_bytes(key)
        if not self._open or self._tracked.evicted is not None:
            self._check(writes=True)
        self._writes[key] = (None, None)

    def delete_range(self, start: BytesLike | None, end: BytesLike | None) -> None:
        """Remove all keys from ``start`` (inclusive) to ``end`` (exclusive) that are there when the transaction
        commits; ``None`` is unbounded. It reads nothing, as `put`."""
        self._delete_range(*range_to_delete(start, end))

    def delete_prefix(self, prefix: BytesLike) -> None:
        """Remove all keys that begin with ``prefix`` when the transaction commits. As `delete_range`."""
        self._delete_range(*range_to_delete(*range_of_prefix(prefix)))

    def _delete_range(self, first: bytes, until: bytes) -> None:
        self._check(writes=True)
        self._ranges = self._ranges or OwnRanges()
        self._ranges.add(first, until, self._writes)

    def merge(self, key: BytesLike, operand: BytesLike, *, ttl: Duration | None = None) -> None:
        """Merge ``operand`` into ``key`` when the transaction commits: see `Db.merge`. It reads nothing, so what others
        write to the key is no conflict under ``"serializable"``."""
        space = self._space
        key, operand = key_bytes(key, space.limits), value_bytes(operand, space.limits)
        if not self._open or self._tracked.evicted is not None:
            self._check(writes=True)
        life = space.default_life_ms if ttl is None else life_ms(ttl)
        if self._ranges is not None and key in self._ranges:
            self._writes.setdefault(key, (None, None))  # the operand is not merged into what is stored
        add_operand(self._writes, key, OwnRow(operand, MERGE, life), self._writer.state.merging)

    # ---- its end

    def commit(self) -> Coroutine[Any, Any, WriteHandle]:
        """Apply its writes in one step, if nothing that it depends on was written since it began; else
        `ConflictError`, and nothing is applied.

        Returns when all that it read and wrote is durable, or at once with ``await_durable=False``. The transaction is
        over from the first step on, whatever comes of it. A commit that is cancelled while it waits for durability is
        in."""
        return self._commit()

    async def _commit(self) -> WriteHandle:
        return await self._committed(self._apply_now())

    async def _committed(self, handle: WriteHandle | None) -> WriteHandle:
        """``handle`` is that of its rows, if those are applied already."""
        if handle is None:
            handle = await self._apply()
        if self._await_durable:
            await handle.durable()
        elif self._space.yield_budget.exhausted():
            await self._space.yield_budget.yield_now()
        return handle

    def _apply_now(self) -> WriteHandle | None:
        """As `_apply` of a single row, if that takes no waiting; else ``None``, and nothing has happened."""
        if self._not_begun:
            return None
        space, sequencer, tracked, writes = self._space, self._sequencer, self._tracked, self._writes
        if len(writes) != 1 or self._ranges is not None or not self._open or space.gate.shut:
            return None
        # HOT: copy of runtime.loop_guard.LoopGuard.check; 100 ns, 2026-11-28
        guard = space.guard
        if get_ident() != guard.thread or not guard.running():
            return None
        written = sequencer.last_seq - tracked.seq
        if self._scans or (written and (written > JUDGED_AT_ONCE_ROWS or tracked.many)):
            return None
        transactions = self._writer.transactions
        try:
            if not written:
                transactions.check_alone(tracked)
            elif self._serializable:
                transactions.check(tracked, tracked.points.keys(), tracked.spans, tracked.seq)
            else:
                transactions.check(tracked, writes.keys(), None, tracked.seq)
        except ConflictError as conflict:
            self._open, self._conflict = False, conflict
            self._end()
            raise
        for key, (value, life) in writes.items():
            if isinstance(value, OwnOperands):
                return None
            handle = sequencer.row_now(key, value or b"", DELETE if value is None else PUT, life)
            if handle is None:
                return None
        self._open = False
        if self._snapshot is None and self._turn is None:
            transactions.end(tracked)
            self._pin = None
        else:
            self._end()
        transactions.stats.committed += 1
        return handle

    async def _apply(self) -> WriteHandle:
        """As `commit`, without waiting until it is durable."""
        if not self._open:
            raise ClosedError("the transaction is over; begin another one", outcome="not_applied")
        self._open = False
        try:
            handle = await self._judged_and_applied()
        except ConflictError as conflict:
            self._conflict = conflict
            raise
        finally:
            self._end()
        self._writer.transactions.stats.committed += 1
        return handle

    async def _judged_and_applied(self) -> WriteHandle:
        if self._not_begun:
            self._begin()
        space, tracked, writes, ranges = self._space, self._tracked, self._writes, self._ranges
        if not writes and ranges is None:
            space.check("not_applied")
            return self._read_only()
        if space.shut_out:
            await space.gate.passed()
        space.check("not_applied")
        fits = None if ranges is None else await self._writer.allow_range_deletes(len(ranges))
        transactions, sequencer = self._writer.transactions, self._sequencer
        for scan in self._scans or ():
            scan.settle()
        own = None if ranges is None else ranges.spans
        points, spans = (tracked.points.keys(), tracked.spans) if self._serializable else (writes.keys(), own)
        ahead = sequencer.last_seq != tracked.seq
        after = await transactions.check_ahead(tracked, points, spans) if ahead else tracked.seq

        def check() -> None:
            transactions.check(tracked, points, spans, after)
            if fits is not None:
                fits()

        check()
        if ranges is not None:
            return await sequencer.batch(ranges.before(rows_of(writes)), check)
        [(key, write), *more] = writes.items()
        row = None if more else own_row(write)
        if row is None:
            return await sequencer.batch(rows_of(writes), check)
        handle = sequencer.row_now(key, *row)
        return await sequencer.row(key, *row, check) if handle is None else handle

    def _read_only(self) -> WriteHandle:
        """Nothing was written: it cannot conflict, and is durable when all that it may have read is."""
        if self._tracked.evicted == "reopened":
            raise self._writer.transactions.evicted(self._tracked)
        return handle_of(self._seq, self._point().now_ms, self._group or CommitGroup.resolved(), NoRowsHandle)

    def rollback(self) -> None:
        """Give it up: nothing is applied. Idempotent; nothing happens after a commit."""
        if self._open:
            self._open = False
            self._end()

    def _end(self) -> None:
        self._writer.transactions.end(self._tracked)
        if self._turn is not None:
            if self._writes_to(self._turn.key):
                self._space.turns.give(self._turn)
            else:
                self._space.turns.give_up(self._turn)
            self._turn = None
        if self._scans is not None:
            for scan in self._scans:
                scan.drop()
            self._scans = None
        if self._snapshot is not None:
            self._snapshot.close()
        self._pin = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None and self._open:
            handle = self._apply_now()
            if handle is None or self._await_durable or not handle.seq % self._space.yield_budget.every:
                await self._committed(handle)
        else:
            self.rollback()

    # ---- parts

    def _writes_to(self, key: bytes) -> bool:
        return key in self._writes or (self._ranges is not None and key in self._ranges)

    @property
    def is_open(self) -> bool:
        """Whether it takes calls: neither committed nor given up."""
        return self._open

    def _check(self, writes: bool = False) -> None:
        """Raise unless it is open, called from its database's loop, and able to commit what it ``writes``."""
        self._space.check("not_applied")
        if not self._open:
            raise ClosedError("the transaction is over; begin another one", outcome="not_applied")
        if self._tracked.evicted is not None:
            self._evicted(writes)

    def _evicted(self, writes: bool = False) -> None:
        """It is not followed any more: raise if it has written, or does now. Else it reads on, and what it reads does
        not matter to anybody."""
        if writes or self._writes or self._ranges is not None or self._tracked.evicted == "reopened":
            self._conflict = conflict = self._writer.transactions.evicted(self._tracked)
            raise conflict
        self._serializable = False

    def _read(self, key: bytes) -> None:
        """``key`` is read."""
        if self._serializable:
            self._tracked.add(key)
            if self._tracked.nbytes > self._tracked.counted:
                self._count()

    async def _widen(self) -> None:
        """Keys that were read become ranges, others having their turns meanwhile."""
        for _ in self._tracked.widen():
            if self._space.yield_budget.exhausted():
                await self._space.yield_budget.yield_now()
                self._check()

    def _count(self) -> None:
        self._writer.transactions.count(self._tracked)
        if self._tracked.evicted is not None:
            self._evicted()

    def _stored(self) -> SnapshotReads:
        """Its read point, for reads that may have to ask the store."""
        if self._snapshot is None:
            self._snapshot = SnapshotReads(self._space.reads, self._point())
        return self._snapshot

    def __repr__(self) -> str:
        return f"<Transaction seq={self.seq}{'' if self._open else ' over'}>"
