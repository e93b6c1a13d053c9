"""`Sequencer`: rows on their way into the active memtable. Gives sequence numbers and write times; applies a row or a
batch in one step without an await.

Most rows change nothing but memory. Their room is admitted in advance, as a *lease*: bytes that later rows may take
before anything else has to happen (a cut, a flush to start, a wait for room, a table of its own). `row_now` applies a
row within the lease; `row` and `batch` do whatever has to happen and take the next lease. A cut and a wait for room end
it, so no write waits for room that is leased and not used.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from slate_async.codec.columns import NO_EXPIRY
from slate_async.engine.write.admission import Admission
from slate_async.engine.write.batch import BatchRows
from slate_async.engine.write.commit_group import CommitGroup, NoRowsHandle, WriteHandle, handle_of
from slate_async.engine.write.signals import WriterSignals
from slate_async.engine.write.state import WriterState
from slate_async.errors import InvalidError, SlateError
from slate_async.runtime.protocol import Clock
from slate_async.storage.memtable import ROW_OVERHEAD_BYTES, Memtable

MAX_BATCH_BYTES = 2**31 - 2**24
"""What a log object holds at most, and so a batch: its values must fit Arrow's 32-bit offsets."""

STORED_ROW_BYTES = 64
"""What a row takes beside its key and value in a log object that is decoded, rounded up."""

CLOCK_SKEW_MS = 60_000
"""How far clocks of two writers may be apart without either's rows living shorter: as ``gc_clock_skew_ms`` has it."""


class Sequencer:
    """See the module docstring.

    last_seq, tick_ms: sequence number and write time of the newest row
    batches: how many were applied
    most_bytes: what a log object may take once it is decoded: the next writer must read it
    most_batch_bytes: what the rows of a batch may take in memory: a reader holds them beside those before
    skip_bytes: a larger value becomes a table of its own; flush_bytes: as many wake the flusher before it is due
    """

    def __init__(
        self,
        *,
        state: WriterState,
        admission: Admission,
        last_seq: int,
        tick_ms: int,
        most_bytes: int,
        most_batch_bytes: int,
        skip_bytes: int,
        flush_bytes: int,
        clock: Clock,
        signals: WriterSignals,
    ) -> None:
        self.last_seq = self._first_seq = last_seq
        self.tick_ms = tick_ms
        self.batches = 0
        self._batch_rows = 0
        self.newest_group: CommitGroup | None = None
        self._state = state
        self._memtables = memtables = state.memtables
        self._admission = admission
        self._most_bytes = most_bytes
        self._most_batch_bytes = most_batch_bytes
        self._skip_bytes = skip_bytes
        self._flush_bytes = flush_bytes
        self._now_ms = clock.now_ms
        self._signals = signals
        self._refusal: Callable[[], SlateError] | None = None
        self._pause: asyncio.Event | None = None
        self._nothing_leased = self._leased = Memtable()  # its limit is where the lease ends
        self._append_next: Callable[[bytes, bytes, int, int, int], int] = self._leased.append_next
        self._leased_group = memtables.group

    def row_now(self, key: bytes, value: bytes, kind: int, ttl_ms: int | None) -> WriteHandle | None:
        """Apply one row if only memory changes by that; else ``None``, and `row` has to be awaited."""
        # HOT: copy of engine.write.sequencer.Sequencer.tick; 75 ns, 2026-11-23
        now_ms, append_next = self._now_ms, self._append_next  # faster to call than attributes that are no methods
        now = now_ms()
        if now > self.tick_ms:
            self.tick_ms = now
        else:
            now = self.tick_ms
        seq = append_next(key, value, kind, NO_EXPIRY if ttl_ms is None else self._life_start() + ttl_ms, now)
        if not seq:
            return None
        self.last_seq = seq
        group = self._leased_group
        group.writes += 1
        # HOT: copy of engine.write.commit_group.handle_of; 15 ns, 2026-11-23
        handle = WriteHandle()
        handle.seq, handle._create_ms, handle._group = seq, now, group
        return handle

    async def row(
        self, key: bytes, value: bytes, kind: int, ttl_ms: int | None, check: Callable[[], None] | None = None
    ) -> WriteHandle:
        """Apply one row, once there is room. ``check`` is called in the very step, and raises if it is not to be."""
        await self._admit(len(key) + len(value) + ROW_OVERHEAD_BYTES, check)
        large = len(value) > self._skip_bytes
        self._begin(len(key) + len(value), large)
        now = self.tick()
        seq = self.last_seq + 1
        expire = NO_EXPIRY if ttl_ms is None else self._life_start() + ttl_ms
        self._memtables.active.table.append(key, value, kind, seq, expire, now)
        self.last_seq = seq
        return self._applied(now, large)

    async def batch(self, batch: BatchRows, check: Callable[[], None] | None = None) -> WriteHandle:
        """Apply a batch in one step, once there is room for all of it. ``check`` as of `row`."""
        keys, values, kinds, ttls, nbytes, _ = batch
        if not keys:
            self.batches += 1
            return self._empty_handle()
        if nbytes > MAX_BATCH_BYTES:
            raise InvalidError(
                f"a batch has at most {MAX_BATCH_BYTES} bytes of keys and values, not {nbytes}; split it",
                outcome="not_applied",
            )
        if (decoded := nbytes + len(keys) * STORED_ROW_BYTES) > self._most_bytes:
            raise InvalidError(
                f"a batch is one log object, and with {decoded} bytes cannot be replayed within decode_memory_bytes"
                f" ({self._most_bytes}); split it, or raise the setting",
                outcome="not_applied",
            )
        if (held := nbytes + len(keys) * ROW_OVERHEAD_BYTES) > self._most_batch_bytes:
            raise InvalidError(
                f"the rows of a batch take at most half of replay_memory_bytes ({self._most_batch_bytes} bytes), not"
                f" {held}; split it, or raise the setting",
                outcome="not_applied",
            )
        await self._admit(held, check)
        large = nbytes > self._skip_bytes and any(len(value) > self._skip_bytes for value in values)
        self._begin(nbytes, large, len(keys))
        now = self.tick()
        start = self._life_start()
        expires = None if ttls is None else [NO_EXPIRY if ttl is None else start + ttl for ttl in ttls]
        table = self._memtables.active.table
        ranges = table.range_count
        table.append_batch(keys, values, kinds, self.last_seq + 1, expires, now)
        self.last_seq += len(keys)
        if table.range_count != ranges:
            self._state.show()  # views know the range deletes of their beginning
        self.batches += 1
        self._batch_rows += len(keys)
        return self._applied(now, large)

    def _begin(self, nbytes: int, large: bool, rows: int = 1) -> None:
        """Rows of ``nbytes`` come next: into a table of their own, or into the log object before them if its format
        holds all of it, and so does the memory of its readers."""
        if large:
            self._memtables.freeze()
            return
        decoded = self._uncut_decoded_bytes + nbytes + rows * STORED_ROW_BYTES
        if nbytes + self._memtables.uncut_bytes > MAX_BATCH_BYTES or decoded > self._most_bytes:
            self._memtables.cut()

    @property
    def _uncut_decoded_bytes(self) -> int:
        """What the rows that are in no segment yet take in the log object that they become, once that is decoded."""
        return self._memtables.uncut_bytes + self._memtables.uncut_rows * STORED_ROW_BYTES

    def _empty_handle(self) -> WriteHandle:
        """The handle of a batch without rows: durable when everything before it is."""
        group = self.newest_group or CommitGroup.resolved()
        return handle_of(self.last_seq, self.tick(), group, NoRowsHandle)

    async def _admit(self, nbytes: int, check: Callable[[], None] | None = None) -> None:
        """Backpressure: wait in line; what is in memory is on its way out meanwhile. Raises if writes are refused, and
        what ``check`` raises, which is called last."""
        self._check()
        self.end_lease()
        if not self._admission.try_admit(nbytes):
            self._signals.space_wanted()
            await self._admission.admit(nbytes)
            self.end_lease()
        while self._pause is not None and self._refusal is None:
            await self._wait_out(self._pause, nbytes)
        try:
            self._check()
            if check is not None:
                check()
        except SlateError:
            self._admission.release(nbytes)
            raise

    def _check(self) -> None:
        if self._refusal is not None:
            raise self._refusal()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """No row is applied meanwhile; writes that come wait. One pause at a time."""
        self.end_lease()
        pause = self._pause = asyncio.Event()
        try:
            yield
        finally:
            self._pause = None
            pause.set()

    def continue_after(self, seq: int) -> None:
        """Numbers up to ``seq`` were given to rows that did not come this way. During a pause."""
        self._first_seq += seq - self.last_seq
        self.last_seq = seq

    def adopted(self) -> None:
        """A manifest state was adopted, in which an ingest may be applied: go on above it."""
        if self._state.manifest.last_seq > self.last_seq:
            self.continue_after(self._state.manifest.last_seq)

    def reclaim(self) -> None:
        """What was let in since the last memtable went may be all that holds the room that writes wait for."""
        if self._admission.waiting:
            self._signals.space_wanted()

    def succeed(self, before: Sequencer) -> None:
        """Go on with numbers and times above all that ``before`` gave, and count on from where it ended."""
        self.last_seq = max(self.last_seq, before.last_seq)
        self.tick_ms = max(self.tick_ms, before.tick_ms)
        self.batches, self._batch_rows = before.batches, before._batch_rows
        self._first_seq = self.last_seq - before.writes - before._batch_rows

    def tick(self) -> int:
        """Now in milliseconds; write times never go back."""
        self.tick_ms = max(self.tick_ms, self._now_ms())
        return self.tick_ms

    def _life_start(self) -> int:
        """When the life of a row begins that is written now: with its write time, unless this process's clock says that
        an earlier writer's ran ahead. Else one jump of one clock would lengthen every life from then on."""
        return min(self.tick_ms, self._now_ms() + CLOCK_SKEW_MS)

    async def _wait_out(self, pause: asyncio.Event, nbytes: int) -> None:
        """Wait for the end of the pause, with ``nbytes`` admitted; a write that is cancelled is out."""
        try:
            await pause.wait()
        except BaseException:
            self._admission.release(nbytes)
            raise
        self.end_lease()

    def _applied(self, now_ms: int, large: bool) -> WriteHandle:
        group = self.newest_group = self._memtables.group
        group.writes += 1
        if large:
            self._memtables.freeze()
        else:
            self._memtables.cut_if_full()
        self._signals.rows_added()
        if group is self._memtables.group:
            self._take_lease()
        return handle_of(self.last_seq, now_ms, group)

    def _take_lease(self) -> None:
        """Lend the next rows what they may take before more than memory changes. Rows weigh more in it than in what
        counts towards a cut, and than in a log object that is decoded, so the lease ends before."""
        memtables = self._memtables
        room = min(
            self._admission.room,
            self._skip_bytes,
            memtables.segment_bytes - memtables.uncut_bytes - 1,
            self._most_bytes - self._uncut_decoded_bytes,
        )
        unawaited = self._flush_bytes - memtables.pending_bytes - 1
        if unawaited >= 0:  # else the flusher waits for nothing but its window
            room = min(room, unawaited)
        if room > 0 and self._admission.try_admit(room):
            table = self._leased = memtables.active.table
            table.limit = table.nbytes + room
            self._append_next = table.appender()
            self._leased_group = memtables.group

    @property
    def _lease(self) -> int:
        """Bytes admitted in advance and not taken."""
        return max(0, self._leased.limit - self._leased.nbytes)

    def end_lease(self) -> None:
        """End the lease before a cut, or when rows wait: the next row needs another one. Drops the reference to the
        table, which may be flushed long before the next lease."""
        left = self._lease
        self._leased.limit = 0
        self._leased = self._nothing_leased
        self._append_next = self._leased.append_next
        if left:
            self._admission.release(left)

    @property
    def writes(self) -> int:
        """Rows that were applied one by one."""
        return self.last_seq - self._first_seq - self._batch_rows

    @property
    def unflushed_bytes(self) -> int:
        """Bytes of rows that are in memory, or let in, and not flushed."""
        return self._admission.used - self._lease

    def refuse(self, refusal: Callable[[], SlateError]) -> None:
        """No row is applied any more; writes that wait for room are out."""
        self._refusal = refusal
        self.end_lease()
        if self._pause is not None:
            self._pause.set()
        self._admission.fail(refusal)
