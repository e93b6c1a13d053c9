"""Rows of the log that no SST holds: an opening and a reader take a bounded part of memory for them."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

import slate_async as slate
from slate_async.engine.write import open as opening
from slate_async.objectstore.memory import MemoryStore
from slate_async.settings import Settings
from slate_async.storage.log.missing import LogLook
from tests.engine import Kind, ManualClock, StoreInHand, abandon, contents, open_db, open_reader, until
from tests.support.readers import poll

LIMIT = 1 << 20
VALUE = bytes(64 << 10)
SMALL = {
    "replay_memory_bytes": LIMIT,
    "decode_memory_bytes": LIMIT,
    "max_unflushed_bytes": LIMIT // 2,
    "max_value_bytes": 100_000,
    "flush_bytes": 1 << 17,
    "l0_sst_bytes": 1 << 17,
}
ROW_BYTES = 224
"""What a row counts beside its key and its value."""
REFUSAL = (
    r"log/.*: its rows and those that are held of the log before it take more than 1048576 bytes, and"
    r" replay_memory_bytes allows no more"
)


@pytest.fixture
def kind() -> Kind:
    """Without a WAL the log's objects are SSTs, which are no rows in memory."""
    return Kind("contiguous", True)


@pytest.mark.parametrize("log_protocol", ["contiguous", "epoch_prefixed"])
async def test_a_log_of_few_stored_bytes_and_many_rows_is_refused_and_stays_as_it_is(
    memory: MemoryStore, log_protocol: str
) -> None:
    kind = Kind(log_protocol, True)  # type: ignore[arg-type]
    db = await open_db(memory, kind)
    for number in range(40):
        await db.put(b"%02d" % number, VALUE)
    with pytest.raises(slate.ConfigError, match=REFUSAL):
        await open_reader(memory, **SMALL)
    with pytest.raises(slate.ConfigError, match=REFUSAL):
        await open_reader(memory, **SMALL, pin=False)
    await abandon(db)
    with pytest.raises(slate.ConfigError, match=REFUSAL):
        await open_db(memory, kind, **SMALL)
    async with open_db(memory, kind) as db:
        assert len(await contents(db)) == 40


@pytest.mark.parametrize("log_protocol", ["contiguous", "epoch_prefixed"])
async def test_an_opening_that_has_no_room_for_the_stored_log_leaves_the_writer_alone(
    memory: MemoryStore, log_protocol: str
) -> None:
    """Its own requests for that are none: the listing tells the sizes."""
    kind, rng = Kind(log_protocol, True), random.Random(1)  # type: ignore[arg-type]
    async with open_db(memory, kind) as db:
        for number in range(20):
            await db.put(b"%02d" % number, rng.randbytes(64 << 10))
        with pytest.raises(
            slate.ConfigError, match=r"stored bytes .* replay_memory_bytes is 1048576.*not fenced"
        ) as no:
            await open_db(memory, kind, **SMALL)
        assert no.value.outcome == "not_applied"
        await db.put(b"still", b"open")
        assert len(await contents(db)) == 21


async def test_an_opening_without_room_for_what_is_decompressed_says_that_it_has_fenced(
    memory: MemoryStore, kind: Kind
) -> None:
    db = await open_db(memory, kind)
    for number in range(40):
        await db.put(b"%02d" % number, VALUE)
    with pytest.raises(slate.ConfigError, match=REFUSAL + ".* is fenced by now"):
        await open_db(memory, kind, **SMALL)
    with pytest.raises(slate.FencedError):
        await db.flush(l0=True)
    await abandon(db)


@pytest.mark.parametrize("log_protocol", ["contiguous", "epoch_prefixed"])
@pytest.mark.parametrize("nbytes", [0, 1, 70_000])
async def test_a_log_is_never_taken_for_more_than_its_rows_take_in_memory(
    memory: MemoryStore, log_protocol: str, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a log of small objects most that is stored is no rows."""
    looks: list[LogLook] = []
    look_at_log = opening.look_at_log

    async def looked(*asked: Any) -> LogLook:
        looks.append(await look_at_log(*asked))
        return looks[-1]

    kind, rng = Kind(log_protocol, True), random.Random(1)  # type: ignore[arg-type]
    db = await open_db(memory, kind, compression="none")
    for number in range(10):
        await db.put(b"%d" % number, rng.randbytes(nbytes), ttl=1000.0 + number)
    await abandon(db)
    monkeypatch.setattr(opening, "look_at_log", looked)
    async with open_db(memory, kind):
        assert 9 * nbytes - 5000 <= looks[-1].row_bytes <= 10 * (nbytes + 1 + 25)


def tiny_rows(count: int, start: int = 0) -> slate.WriteBatch:
    batch = slate.WriteBatch()
    for number in range(start, start + count):
        batch.put(b"%08d" % number, b"")
    return batch


async def test_tiny_rows_count_alike_in_readers_and_openings(memory: MemoryStore, kind: Kind) -> None:
    """Decoded they are a seventh of what they take as rows in memory."""
    db = await open_db(memory, kind)
    for start in range(0, 6_000, 1_000):
        await db.write(tiny_rows(1_000, start))
    with pytest.raises(slate.ConfigError, match=REFUSAL):
        await open_reader(memory, **SMALL)
    await abandon(db)
    with pytest.raises(slate.ConfigError, match=REFUSAL):
        await open_db(memory, kind, **SMALL)


@pytest.mark.parametrize("in_one_batch", [True, False])
async def test_what_a_writer_leaves_in_tiny_rows_a_reader_and_an_opening_take(
    memory: MemoryStore, kind: Kind, in_one_batch: bool
) -> None:
    """At its defaults a writer lets in a quarter of `replay_memory_bytes`, or one batch of half of it."""
    settings = SMALL | {"max_unflushed_bytes": LIMIT // 4, "l0_sst_bytes": LIMIT // 4}
    most = LIMIT // (2 if in_one_batch else 4) // (ROW_BYTES + 8)
    db = await open_db(memory, kind, **settings)
    if in_one_batch:
        with pytest.raises(slate.InvalidError, match=r"at most half of replay_memory_bytes \(524288 bytes\)"):
            await db.write(tiny_rows(most + 1))
        await db.write(tiny_rows(most))
    else:
        for start in range(0, most, 100):
            await db.write(tiny_rows(min(100, most - start), start))
    await abandon(db)
    async with await open_reader(memory, **settings) as reader:
        assert len(await contents(reader)) == most
    async with open_db(memory, kind, **settings) as db:
        assert len(await contents(db)) == most


async def test_a_reader_that_meets_more_while_it_follows_closes_with_the_cause(memory: MemoryStore, kind: Kind) -> None:
    async with open_db(memory, kind) as db:
        reader = await open_reader(memory, manifest_poll_interval_ms=5, **SMALL)
        for number in range(40):
            await db.put(b"%02d" % number, VALUE)
        await until(lambda: reader.status().state != "open", "its end")
        with pytest.raises(slate.ClosedError, match=REFUSAL) as ended:
            await reader.wait_closed()
        assert isinstance(ended.value.__cause__, slate.ConfigError)


async def test_a_reader_of_a_writer_with_its_settings_follows_for_ever(memory: MemoryStore, kind: Kind) -> None:
    """However much is written, and however few of its polls took over SSTs that hold what it has in memory."""
    async with open_db(memory, kind, **SMALL, auto_compaction=False, l0_max_ssts=1_000) as db:
        reader = await open_reader(memory, manifest_poll_interval_ms=5, **SMALL, reader_memtable_bytes=LIMIT)
        most = 0
        for number in range(120):
            await db.put(b"%03d" % number, VALUE)
            await until(lambda seq=number + 1: reader.status().last_seq >= seq, "a poll")  # type: ignore[misc]
            most = max(most, reader.status().memtable_bytes)
        await reader.wait_for(db.status().durable_seq)
        assert len(await contents(reader)) == 120
        assert 0 < most <= LIMIT  # of 120 values of 64 KiB; how many it holds at once depends on how fast SSTs are made
        await reader.close()
    async with open_db(memory, kind, **SMALL) as db:
        assert len(await contents(db)) == 120


async def test_rows_that_ssts_hold_already_give_way_before_more_is_replayed(memory: MemoryStore, kind: Kind) -> None:
    """Polls that are in no hurry leave them in memory, but not where that would take the room of newer ones."""
    clock = ManualClock()
    async with (
        open_db(memory, kind, clock=clock, auto_compaction=False) as db,
        open_reader(memory, clock=clock, **SMALL, reader_memtable_bytes=1 << 30) as reader,
    ):
        for number in range(5):
            for row in range(9):
                await db.put(b"%d-%d" % (number, row), VALUE)
            await poll(reader)
            assert reader.status().memtable_bytes > LIMIT // 2
            await db.flush(l0=True)
            await poll(reader)
        assert len(await contents(reader)) == 45


async def test_a_reader_lets_go_of_rows_beside_a_writer_that_never_pauses(memory: MemoryStore, kind: Kind) -> None:
    """It writes while it flushes, so at each poll the newest rows that the reader holds are in no SST."""
    clock, most = ManualClock(), 0
    store = StoreInHand(memory, watch="sst/")
    async with (
        open_db(store, kind, clock=clock, auto_compaction=False, l0_max_ssts=1_000) as db,
        open_reader(memory, clock=clock, **SMALL) as reader,
    ):
        for number in range(40):
            await db.put(b"%02d-before" % number, bytes(32 << 10))
            store.hold = True
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(db.flush(l0=True))
                await until(lambda: bool(store.held), "the flush")
                await db.put(b"%02d-meanwhile" % number, bytes(32 << 10))
                await poll(reader)
                most = max(most, reader.status().memtable_bytes)
                store.release()
        assert most <= LIMIT // 2
        assert len(await contents(reader)) == 80


async def test_a_writer_that_could_not_replay_its_own_log_is_refused(memory: MemoryStore) -> None:
    for settings in (
        Settings(replay_memory_bytes=1 << 26),
        Settings(max_unflushed_bytes=1 << 30, replay_memory_bytes=1 << 29),
    ):
        with pytest.raises(slate.ConfigError, match=r"replay_memory_bytes is .* needs .* to replay its own log"):
            await slate.open(memory, name="memory://db", settings=settings)


def test_by_default_there_is_room_for_what_a_writer_leaves() -> None:
    assert Settings().replay_memory_bytes == 512 << 20
    assert Settings(max_unflushed_bytes=1 << 30).replay_memory_bytes == 4 << 30
    assert Settings(decode_memory_bytes=1 << 30).replay_memory_bytes == 2 << 30
    for settings in (Settings(), Settings(max_unflushed_bytes=1 << 30), Settings(decode_memory_bytes=1 << 30)):
        assert settings.max_unflushed_bytes <= settings.replay_memory_bytes // 4
