"""`max_key_bytes` and `max_value_bytes`: what is written keeps to them, what is there already does not have to."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import slate_async as slate
from slate_async.errors import InvalidError
from slate_async.settings import Settings

SMALL = Settings(max_key_bytes=4, max_value_bytes=10)


async def test_longer_keys_and_values_are_refused_by_the_name_of_the_setting() -> None:
    async with slate.open("memory://row-limits", settings=SMALL) as db:
        await db.put(b"four", b"ten bytes!")
        with pytest.raises(InvalidError, match=r"a key has 1 to 4 bytes .*max_key_bytes") as refused:
            await db.put(b"fives", b"")
        assert refused.value.outcome == "not_applied"
        with pytest.raises(InvalidError, match=r"a value has at most 10 bytes .*max_value_bytes.*, not 11"):
            await db.put(b"k", bytearray(11))


async def test_a_batch_is_refused_as_a_whole() -> None:
    async with slate.open("memory://row-limits-batch", settings=SMALL) as db:
        for key, value in ((b"fives", b""), (b"k", bytes(11))):
            batch = slate.WriteBatch()
            batch.put(b"a", b"1")
            batch.put(key, value)
            with pytest.raises(InvalidError, match=r"max_(key|value)_bytes"):
                await db.write(batch)
        assert [row async for row in db.scan()] == []
        small = slate.WriteBatch()
        for number in range(10):  # together more than a value may have
            small.put(b"k%d" % number, b"12345")
        await db.write(small)
        assert len([row async for row in db.scan()]) == 10


async def test_what_was_written_under_other_limits_is_read_and_deleted(tmp_path: Path) -> None:
    async with slate.open(tmp_path) as db:
        await db.put(b"a longer key", bytes(100))
    async with slate.open(tmp_path, settings=SMALL) as db:
        assert await db.get(b"a longer key") == bytes(100)
        batch = slate.WriteBatch()
        batch.delete(b"a longer key")
        await db.write(batch)
        await db.delete(b"a longer key")
        assert await db.get(b"a longer key") is None


async def test_an_ingest_keeps_to_them(tmp_path: Path) -> None:
    async with slate.open(tmp_path), slate.open_ingest(tmp_path, settings=SMALL) as job:
        for key, value in ((b"fives", b""), (b"k", bytes(11))):
            with pytest.raises(InvalidError, match=r"row 0, key .*max_(key|value)_bytes"):
                await job.write([pa.RecordBatch.from_pydict({"key": [key], "value": [value]})])
        await job.abort()


async def test_values_above_64_mib_must_be_asked_for() -> None:
    value = bytes((64 << 20) + 1)
    async with slate.open("memory://row-limits-default") as db:
        with pytest.raises(InvalidError, match=r"max_value_bytes"):
            await db.put(b"k", value)
