"""Few stored bytes that become many: scans and compactions decode a bounded part of them at once, and a block that is
too large by itself is decoded alone. A log object that is too large is refused before anything is allocated for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import slate_async as slate
from slate_async.engine.changes.log_rows import LoggedRows, LogRows
from slate_async.runtime.memory_budget import MemoryBudget
from slate_async.settings import Settings
from slate_async.storage.log.protocol import LogObject
from slate_async.storage.sst import shares
from slate_async.storage.sst.loaded_block import LoadedBlock
from slate_async.storage.sst.reader import SstReader
from tests.engine import KINDS, Kind, memory_store, on, runtime

VALUE = bytes(1 << 20)  # a few dozen bytes once it is stored
KEYS = [b"%03d" % number for number in range(40)]
MOST = 3 << 20


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What was asked for, of every decoding in a thread; two blocks may be decoded together, not three."""
    asked: list[int] = []
    hold = MemoryBudget.hold

    @asynccontextmanager
    async def counted(self: MemoryBudget, nbytes: int) -> AsyncIterator[None]:
        asked.append(nbytes)
        async with hold(self, nbytes):
            yield

    monkeypatch.setattr(MemoryBudget, "hold", counted)
    monkeypatch.setattr(shares, "MOST_BYTES", MOST)
    return asked


async def filled(folder: Path) -> None:
    async with slate.open(folder) as db:
        for key in KEYS:
            await db.put(key, VALUE, await_durable=False)
        await db.flush(l0=True)
    assert sum(file.stat().st_size for file in (folder / "sst").iterdir()) < len(VALUE) / 10


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20, 1 << 30])
@pytest.mark.parametrize("reverse", [False, True])
async def test_scans(tmp_path: Path, held: list[int], reverse: bool, cache_bytes: int) -> None:
    await filled(tmp_path)
    async with slate.open(tmp_path, settings=Settings(block_cache_bytes=cache_bytes)) as db:
        held.clear()
        rows = [key async for key, value in db.scan(reverse=reverse) if value == VALUE]
        assert rows == (KEYS[::-1] if reverse else KEYS)
        batches = [batch.num_rows async for batch in db.scan(b"005", b"035", reverse=reverse).batches()]
        assert sum(batches) == 30
    assert held
    assert max(held) <= MOST


@pytest.mark.parametrize(("memory", "most"), [(64 << 20, 64 << 20), (8 << 20, 40 << 20)], ids=["small", "large rows"])
async def test_the_more_scans_hold_rows_the_less_each_decodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int, most: int
) -> None:
    """They stop half-way, and what they have decoded stays; together that is less than one memory for decoding. Where
    even a row is too much for that, nothing is read ahead."""
    await filled(tmp_path)
    decoded, scans, loaded = 0, 8, SstReader.load_blocks

    async def counted(self: SstReader, numbers: list[int], *, fill_cache: bool) -> list[LoadedBlock]:
        nonlocal decoded
        blocks = await loaded(self, numbers, fill_cache=fill_cache)
        decoded += sum(block.raw.raw_bytes for block in blocks)
        return blocks

    monkeypatch.setattr(SstReader, "load_blocks", counted)
    settings = Settings(block_cache_bytes=0, max_value_bytes=1 << 20, flush_bytes=1 << 20, decode_memory_bytes=memory)
    async with slate.open_reader(tmp_path, settings=settings) as db:
        under_way = [aiter(db.scan()) for _ in range(scans)]
        for _ in range(4):
            await asyncio.gather(*(anext(rows) for rows in under_way))
        for _ in range(100):  # what is read ahead
            await asyncio.sleep(0.001)
    assert scans * (4 << 20) <= decoded <= most + scans * (4 << 20)  # what was consumed


async def test_compactions(tmp_path: Path, held: list[int]) -> None:
    await filled(tmp_path)
    async with slate.open(tmp_path) as db:
        await db.put(KEYS[7], b"new")
        await db.compact(full=True)
        assert held
        assert max(held) <= MOST
        assert [(key, len(value)) async for key, value in db.scan()] == [
            (key, 3 if key == KEYS[7] else len(VALUE)) for key in KEYS
        ]


@pytest.mark.parametrize("cache_bytes", [0, 64 << 20])
async def test_one_that_is_larger_than_the_memory_has_it_to_itself(tmp_path: Path, cache_bytes: int) -> None:
    """A value from before the limit is read, merged and checked as ever; compaction goes on."""
    rows = {b"large-%d" % number: bytes([number]) * (2 << 20) for number in range(3)}
    async with slate.open(tmp_path, settings=Settings(auto_compaction=False)) as db:
        for key, value in rows.items():
            await db.put(key, value)
            await db.flush(l0=True)
    little = Settings(
        max_value_bytes=1000, flush_bytes=1 << 18, decode_memory_bytes=1 << 20, block_cache_bytes=cache_bytes
    )
    async with slate.open(tmp_path, settings=little) as db, asyncio.timeout(60):
        assert await asyncio.gather(*(db.get(key) for key in rows)) == [*rows.values()]
        assert {key: value async for key, value in db.scan()} == rows
        await db.compact(full=True)
        assert {key: value async for key, value in db.scan(reverse=True)} == rows
        assert db.status().l0_ssts == 0
    async with slate.open_admin(tmp_path, settings=little) as admin:
        assert (await admin.verify()).clean


async def test_log_objects_that_are_too_large_are_refused_at_their_replay(tmp_path: Path) -> None:
    little = Settings(max_value_bytes=1000, decode_memory_bytes=1 << 20)
    refusal = r"log/.* takes \d+ bytes .*decode_memory_bytes allows 1048576"
    async with slate.open(tmp_path) as db:
        await db.put(b"x-large", bytes(2 << 20))
        with pytest.raises(slate.ConfigError, match=refusal):
            await slate.open_reader(tmp_path, settings=little)
        async with slate.open_admin(tmp_path, settings=little) as admin:
            assert ["decode_memory_bytes" in finding.what for finding in (await admin.verify()).findings] == [True]
        assert await db.get(b"x-large") == bytes(2 << 20)


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_what_a_writer_acknowledges_is_replayed_with_its_settings(kind: Kind) -> None:
    """It dies with a log object as large as it takes: the next opening decodes that, or it is refused at once."""
    store, left = memory_store(), memory_store()
    settings = kind.settings(max_value_bytes=400_000, flush_bytes=1 << 18, decode_memory_bytes=1 << 20)
    async with on(runtime()).open(store, name="memory://db", settings=settings) as db:
        taken = 0
        for rows in (10, 20, 40):
            batch = slate.WriteBatch()
            for number in range(rows):
                batch.put(b"%03d" % number, bytes([rows]) * 50_000)
            with contextlib.suppress(slate.InvalidError):
                await db.write(batch)
                taken = rows
        async for info in store.list(""):
            await left.put(info.key, (await store.get(info.key)).data)
    assert taken == 20
    async with on(runtime()).open(left, name="memory://db", settings=settings) as db:
        assert [value[0] async for _, value in db.scan()] == [20] * 20


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_a_feed_decodes_a_bounded_part_of_the_log_at_once(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    store, held, read = memory_store(), list[int](), LogRows.read

    async def counted(self: LogRows, objects: Sequence[LogObject]) -> list[LoggedRows]:
        rows = await read(self, objects)
        held.append(sum(loaded.rows.nbytes for loaded in rows))
        return rows

    monkeypatch.setattr(LogRows, "read", counted)
    settings = kind.settings(
        auto_compaction=False, max_value_bytes=400_000, flush_bytes=1 << 18, decode_memory_bytes=1 << 20
    )
    async with on(runtime()).open(store, name="memory://db", settings=settings) as db:
        keys = [b"%03d" % number for number in range(60)]
        for number in range(0, 60, 5):
            batch = slate.WriteBatch()
            for key in keys[number : number + 5]:
                batch.put(key, bytes(40_000))
            await db.write(batch)
        changes = [change.key async for change in db.changes(from_seq=0, follow=False)]
    assert changes == keys
    assert sum(held) > 60 * 40_000
    assert max(held) < (1 << 19) + 6 * 40_000  # its share, and less than one object more


async def test_a_writer_that_could_not_replay_its_own_log_is_refused(tmp_path: Path) -> None:
    for settings in (
        Settings(max_value_bytes=1 << 20, decode_memory_bytes=1 << 20),
        Settings(max_value_bytes=1000, flush_bytes=1 << 20, decode_memory_bytes=1 << 20),
    ):
        with pytest.raises(slate.ConfigError, match="replay its own log"):
            await slate.open(tmp_path, settings=settings)


@pytest.mark.parametrize("role", ["writer", "reader", "feed", "verify", "inspect"])
async def test_log_objects_are_decoded_once_there_is_memory_for_them(
    tmp_path: Path, held: list[int], role: str
) -> None:
    """Of all databases of an environment together, however many open at once: each asks for what it will decode."""
    db = await slate.open(tmp_path)
    await db.put(b"k", VALUE)
    held.clear()
    if role == "writer":
        async with slate.open(tmp_path) as newer:
            assert await newer.get(b"k") == VALUE
    elif role == "feed":
        assert [change.value async for change in db.changes(from_seq=0, follow=False)] == [VALUE]
    elif role == "reader":
        async with slate.open_reader(tmp_path) as reader:
            assert await reader.get(b"k") == VALUE
    else:
        async with slate.open_admin(tmp_path) as admin:
            assert (await admin.verify()).clean if role == "verify" else (await admin.inspect.log()).objects
    assert any(len(VALUE) < nbytes < 2 * len(VALUE) for nbytes in held)
    with contextlib.suppress(slate.FencedError):
        await db.close()
