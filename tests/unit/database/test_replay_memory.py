"""Rows of the log that no SST holds: an opening and a reader take a bounded part of memory for them."""

from __future__ import annotations

import pytest

import slate_async as slate
from slate_async.objectstore.memory import MemoryStore
from slate_async.settings import Settings
from tests.engine import Kind, ManualClock, abandon, contents, open_db, open_reader, until
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
REFUSAL = (
    r"log/.*: the log has more than 1048576 bytes of rows that no SST holds yet, and replay_memory_bytes allows no"
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
        assert LIMIT // 8 < most <= LIMIT
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
