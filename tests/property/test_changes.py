"""Change feeds against a plain list of what was written: whatever is flushed, compacted, collected and taken over, and
wherever a consumer is cut short or begins anew, each feed gives every row above where it began, once, in order.

Hypothesis drives one database of each kind and four feeds: one of the writer, one of a reader, one whose subscription
has a name, which is closed and opened again, and one of a reader that retains nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import slate_async as slate
from slate_async.engine.changes.change import Change
from tests.engine import KINDS, START_MS, Kind, ManualClock, abandon, memory_store, on, open_db, open_reader, runtime
from tests.property.machines import run_machine

T = TypeVar("T")
KEYS = [b"a", b"b", b"c", b"d"]
ROWS = st.lists(
    st.tuples(st.sampled_from(KEYS), st.none() | st.integers(1, 300), st.booleans()), min_size=1, max_size=6
)
FEEDS = st.integers(0, 3)
WRITER, READER, NAMED, FREE = range(4)
LIFE_S = 500
SMALL = {
    "flush_interval_ms": 0,
    "flush_bytes": 200,
    "l0_sst_bytes": 1_500,
    "sst_bytes": 2_000,
    "block_bytes": 64,
    "block_cache_bytes": 64,
    "flush_parallelism": 2,
    "manifest_full_every": 3,
    "auto_compaction": False,
    "l0_max_ssts": 4_096,
}


class Written(NamedTuple):
    key: bytes
    value: bytes | None
    expire_time: float | None


class ChangesMachine(RuleBasedStateMachine):
    """See the module docstring. ``kind`` is set by the test."""

    kind: Kind

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.store = memory_store()
        self.written: list[Written] = []  # sequence number n is at n - 1
        self.retention_ms = 0

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        async def limited() -> T:
            async with asyncio.timeout(20):
                return await call

        return self.runner.run(limited())

    @initialize(retention_s=st.sampled_from([0, 0, 600]))
    def open(self, retention_s: int) -> None:
        self.retention_ms = 1_000 * retention_s
        self.db = self.run(self.opened())
        self.reader = self.run(self.reading(pin=True))
        self.free = self.run(self.reading(pin=False))
        self.seen = [0, 0, 0, 0]
        self.acknowledged = 0
        self.feeds: list[slate.ChangeFeed] = [self.run(self.feed(number, None)) for number in range(4)]

    async def opened(self) -> slate.Db:
        return await open_db(self.store, self.kind, clock=self.clock, retention_ms=self.retention_ms, **SMALL)

    async def reading(self, *, pin: bool) -> slate.DbReader:
        return await open_reader(self.store, clock=self.clock, pin=pin, block_cache_bytes=0)

    async def feed(self, number: int, from_seq: int | None) -> slate.ChangeFeed:
        owner = [self.db, self.reader, self.db, self.free][number]
        feed = owner.changes(
            from_seq=from_seq,
            subscription="name" if number == NAMED else None,
            sort_memory_bytes=400,
            sort_spill_bytes=1_500,
        )
        await feed.__aenter__()
        return feed

    def teardown(self) -> None:
        if hasattr(self, "feeds"):
            for number in range(4):
                self.pull(number, 1_000)
            for feed in self.feeds:
                self.run(feed.aclose())
            for handle in (self.reader, self.free, self.db):
                self.run(handle.close())
        self.runner.close()

    # ---- what happens

    @rule(rows=ROWS)
    def write(self, rows: list[tuple[bytes, int | None, bool]]) -> None:
        batch = slate.WriteBatch()
        end = (self.clock.wall_ms + 1_000 * LIFE_S) / 1000
        for key, size, expires in rows:
            value = None if size is None else b"%d" % len(self.written) + b"." * size
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value, ttl=LIFE_S if expires else None)
            self.written.append(Written(key, value, end if expires and value is not None else None))
        assert self.run(self.applied(batch)).seq == len(self.written)

    async def applied(self, batch: slate.WriteBatch) -> slate.WriteHandle:
        return await self.db.write(batch)

    @rule()
    def flush(self) -> None:
        self.run(self.db.flush(l0=True))

    @rule(full=st.booleans())
    def compact(self, full: bool) -> None:
        self.run(self.db.compact(full=full))

    @rule()
    def collect(self) -> None:
        self.run(self.collected())

    async def collected(self) -> None:
        settings = slate.Settings(gc_min_age_ms=0, version_keep_ms=0, gc_clock_skew_ms=0)
        opening = on(runtime(self.clock)).open_gc(self.store, name="memory://test", periodic=False, settings=settings)
        async with opening as collector:
            for _ in range(2):
                await self.db.confirm()
                await collector.collect()

    @rule()
    def take_over(self) -> None:
        """The writer crashes; its feeds go with it, and others go on where they were."""
        self.run(abandon(self.db))
        self.db = self.run(self.opened())
        for number in (WRITER, NAMED):
            with suppress(slate.ClosedError):
                self.run(self.feeds[number].aclose())
            self.begin_again(number)

    @rule()
    def time_passes(self) -> None:
        """Over half of a checkpoint's life; its owners may look in time, or not."""
        self.clock.wall_ms += 301_000

    @rule(number=FEEDS)
    def subscription_is_renewed(self, number: int) -> None:
        subscription = self.feeds[number]._subscription
        if subscription is not None and subscription._due():
            with suppress(slate.InvalidError):  # it was lost; its feed finds out
                self.run(subscription.commit())

    # ---- consumers

    @rule(number=FEEDS, turns=st.integers(0, 60))
    def cut_short(self, number: int, turns: int) -> None:
        async def cut() -> Change | None:
            work = asyncio.ensure_future(anext(aiter(self.feeds[number])))
            for _ in range(turns):
                await asyncio.sleep(0)
            work.cancel()
            await asyncio.wait([work])
            return None if work.cancelled() or work.exception() is not None else work.result()

        change = self.run(cut())
        if change is not None:
            self.check(number, change)

    @rule(number=FEEDS, count=st.integers(1, 40))
    def pull(self, number: int, count: int) -> None:
        """Up to ``count`` of what there is."""
        if number in (READER, FREE):
            self.run((self.reader if number == READER else self.free).refresh())
        while count and self.has_more(number):
            count -= 1
            try:
                change = self.run(self.next(number))
            except slate.InvalidError as error:
                self.lost(number, error)
                return
            self.check(number, change)
        if self.seen[number] == len(self.written):
            assert self.feeds[number].seq == len(self.written)

    def has_more(self, number: int) -> bool:
        """Whether there are rows to come: a snapshot may end before the last number it covers."""
        snapshot_seq, seen = self.feeds[number].snapshot_seq, self.seen[number]
        in_snapshot = any(seq > seen for seq in self.alive(snapshot_seq))
        return max(seen, snapshot_seq) < len(self.written) or in_snapshot

    async def next(self, number: int) -> Change:
        return await anext(aiter(self.feeds[number]))

    def check(self, number: int, change: Change) -> None:
        """It follows what came before: the next row, or, in a snapshot, the next that is there."""
        expected = self.seen[number] + 1
        if change.seq <= self.feeds[number].snapshot_seq:
            alive = self.alive(self.feeds[number].snapshot_seq)
            expected = min(seq for seq in alive if seq > self.seen[number])
        elif self.seen[number] < self.feeds[number].snapshot_seq:
            expected = self.feeds[number].snapshot_seq + 1
        assert change.seq == expected
        written = self.written[change.seq - 1]
        assert (change.key, change.value, change.expire_time) == written
        assert change.op == ("delete" if written.value is None else "put")
        self.seen[number] = change.seq

    def alive(self, seq: int) -> set[int]:
        """The numbers of the rows that a read at ``seq`` may see: what expired since it began may be left out."""
        newest = {row.key: number for number, row in enumerate(self.written[:seq], 1)}
        now = self.clock.wall_ms / 1000
        return {
            number
            for number in newest.values()
            if self.written[number - 1].value is not None and (self.written[number - 1].expire_time or now + 1) > now
        }

    def lost(self, number: int, error: slate.InvalidError) -> None:
        """Only what nothing retained is lost: with a subscription it must have expired, without one it was
        compacted."""
        assert "changes are kept from sequence number" in str(error) or "no longer exists" in str(error)
        assert number != NAMED, "a subscription by name never expires here"
        assert number == FREE or self.clock.wall_ms - START_MS > 600_000
        self.run(self.feeds[number].aclose())
        self.begin_again(number)

    def begin_again(self, number: int) -> None:
        """With another feed, from what was seen; if that is not there any more, from the beginning."""
        from_seq = self.seen[number] if number != NAMED else None
        if number == NAMED:
            self.seen[number] = self.acknowledged
        try:
            self.feeds[number] = self.run(self.feed(number, from_seq))
        except slate.InvalidError:  # compacted
            assert number != NAMED
            self.seen[number] = 0
            self.feeds[number] = self.run(self.feed(number, 0))

    @rule(number=FEEDS)
    def reopen(self, number: int) -> None:
        self.run(self.feeds[number].aclose())
        self.begin_again(number)

    @rule(back=st.integers(0, 20))
    def acknowledge(self, back: int) -> None:
        self.acknowledged = max(self.acknowledged, self.seen[NAMED] - back)
        self.run(self.feeds[NAMED].acknowledge(self.acknowledged, now=True))

    @rule()
    def all_there_is(self) -> None:
        """From the beginning to now, at once, as batches that end where writes do."""
        self.run(self.from_the_beginning())

    async def from_the_beginning(self) -> None:
        async with self.db.changes(follow=False, sort_memory_bytes=300) as feed:
            seqs = [seq async for batch in feed.batches(max_rows=7) for seq in batch.column("seq").to_pylist()]
            exact = [seq for seq in seqs if seq > feed.snapshot_seq]
            assert exact == list(range(feed.snapshot_seq + 1, len(self.written) + 1))
            assert {seq for seq in seqs if seq <= feed.snapshot_seq} == self.alive(feed.snapshot_seq)
            assert seqs == sorted(seqs)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_changes_of_each_kind(kind: Kind, full: bool, slice_seed: int) -> None:
    run_machine(ChangesMachine, kind, slice_seed, examples=400 if full else 15, steps=40, shrink=full)
