"""`slate_async.storage.sst.reader` and its scans."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slate_async.errors import CorruptionError, UnavailableError
from slate_async.objectstore.protocol import ByteRange, GetResult, ObjectNotFoundError
from slate_async.storage.format.filter import key_hash
from slate_async.storage.format.sst import EncodedSst, likely_meta_bytes
from slate_async.storage.sst.cache import BlockCache
from slate_async.storage.sst.reader import TAIL_BYTES, SstReader
from slate_async.types import MERGE, NEEDS_IO, RowHit
from tests.support.rows import (
    DATABASE,
    OBJECT,
    OTHER_OBJECT,
    R,
    row_lists,
    rows_of,
    sample_rows,
    sorted_rows,
    sst_of,
)
from tests.support.sst_readers import CountingOffload, CountingStore, forget_blocks, reader_of

LATEST = 2**63 - 1


def hit(row: R) -> RowHit:
    return RowHit(row.value, row.seq, row.kind, row.expire_ms, row.create_ms)


def wanted(rows: list[R], key: bytes, max_seq: int) -> RowHit | None:
    return next((hit(row) for row in rows if row.key == key and row.seq <= max_seq), None)


async def got(reader: SstReader, key: bytes, max_seq: int = LATEST) -> RowHit | None:
    return await reader.get(key, key_hash(key), max_seq)


async def scanned(reader: SstReader, start: bytes | None, end: bytes | None, **how: object) -> list[list[R]]:
    return [rows_of(batch) async for batch in reader.scan(start, end, **how)]  # type: ignore[arg-type]


def big_rows(count: int = 2000) -> list[R]:
    """Rows of an SST larger than one tail read."""
    return [R(b"%05d" % (2 * i), b"%d" % i * 20, 10 + i) for i in range(count)]


def big_sst(rows: list[R], **how: object) -> EncodedSst:
    encoded = sst_of(rows, **{"block_bytes": 4000, **how})
    assert encoded.size > TAIL_BYTES + 20_000
    return encoded


async def test_opening_is_one_read_and_a_get_one_more() -> None:
    store, rows = CountingStore(), big_rows()
    encoded = big_sst(rows)
    reader = reader_of(store, encoded)
    assert not reader.loaded
    assert reader.probe(rows[3].key, key_hash(rows[3].key), LATEST) is NEEDS_IO
    assert (await reader.load()).stats == encoded.stats
    assert store.reads == [(encoded.size - TAIL_BYTES, TAIL_BYTES)]
    assert reader.loaded
    assert reader.probe(rows[3].key, key_hash(rows[3].key), LATEST) is NEEDS_IO
    assert await got(reader, rows[3].key) == hit(rows[3])
    assert len(store.reads) == 2
    assert reader.probe(rows[3].key, key_hash(rows[3].key), LATEST) == hit(rows[3])
    assert await got(reader, rows[4].key) == hit(rows[4])
    assert len(store.reads) == 2


async def test_metadata_larger_than_the_tail_takes_a_second_read() -> None:
    store, rows = CountingStore(), [R(b"%05d" % i, b"v" * 20, 10 + i) for i in range(3000)]
    encoded = sst_of(rows, block_bytes=40, filter_bits_per_key=64)
    reader = reader_of(store, encoded)
    meta = await reader.load()
    assert store.reads[1:] == [(meta.footer.meta_offset, encoded.size - TAIL_BYTES - meta.footer.meta_offset)]
    assert await got(reader, rows[1234].key) == hit(rows[1234])


async def test_metadata_of_about_the_size_thought_comes_with_one_read() -> None:
    store, rows = CountingStore(), [R(b"%05d" % i, b"v" * 20, 10 + i) for i in range(60_000)]
    encoded = sst_of(rows, block_bytes=32 << 10)
    likely = likely_meta_bytes(encoded.size, len(rows), len(rows[-1].key))
    reader = reader_of(store, encoded, meta_bytes=likely)
    meta = await reader.load()
    assert TAIL_BYTES < encoded.size - meta.footer.meta_offset <= likely < 2 * (encoded.size - meta.footer.meta_offset)
    assert store.reads == [(encoded.size - likely, likely)]
    assert await got(reader, rows[1234].key) == hit(rows[1234])
    assert len(store.reads) == 2


async def test_a_small_file_is_read_whole_at_once() -> None:
    store, rows = CountingStore(), sample_rows()
    reader = reader_of(store, sst_of(rows))
    await reader.load()
    for row in rows:
        assert reader.probe(row.key, key_hash(row.key), row.seq) == hit(row)
    assert await scanned(reader, None, None)
    assert len(store.reads) == 1


async def test_absent_keys_cost_no_read() -> None:
    store = CountingStore()
    reader = reader_of(store, big_sst(big_rows()))
    await reader.load()
    for key in (b"", b"0", b"9", b"\xff", *(b"%05d" % (2 * i + 1) for i in range(100))):
        answer = reader.probe(key, key_hash(key), LATEST)
        if answer is NEEDS_IO:
            assert await got(reader, key) is None
        else:
            assert answer is None
    assert len(store.reads) < 12


@pytest.mark.parametrize("bits", [0, 10])
@settings(deadline=None, max_examples=60)
@given(row_lists, st.integers(1, 400), st.integers(0, 2**63 - 1), st.binary(max_size=2))
async def test_gets_agree_with_the_rows(
    bits: int, unsorted: list[R], block_bytes: int, max_seq: int, other: bytes
) -> None:
    rows = sorted_rows(unsorted)
    reader = reader_of(CountingStore(), sst_of(rows, block_bytes=block_bytes, filter_bits_per_key=bits))
    for key in [other, *dict.fromkeys(row.key for row in rows)]:
        for limit in (max_seq, LATEST, 0, *(row.seq for row in rows if row.key == key)):
            assert await got(reader, key, limit) == wanted(rows, key, limit)
            assert reader.probe(key, key_hash(key), limit) == wanted(rows, key, limit)


async def test_versions_of_one_key_over_many_blocks() -> None:
    rows = [R(b"a"), *(R(b"hot", b"%d" % seq * 50, seq) for seq in range(400, 0, -1)), R(b"z")]
    store = CountingStore()
    reader = reader_of(store, sst_of(rows, block_bytes=700), cache=BlockCache(0))
    for seq in (400, 399, 201, 1):
        assert await got(reader, b"hot", seq) == hit(rows[401 - seq])
    assert await got(reader, b"hot", 0) is None
    assert await got(reader, b"z") == hit(rows[-1])


async def test_operands_are_found_together_down_to_their_base() -> None:
    operands = [R(b"hot", b"%d" % seq * 9, seq, MERGE, 10**6 + seq) for seq in range(400, 7, -1)]
    rows = [R(b"a"), *operands, R(b"hot", b"base", 7), R(b"hot", b"hidden", 6, MERGE), R(b"i", b"", 9, MERGE), R(b"z")]
    store = CountingStore()
    reader = reader_of(store, sst_of(rows, block_bytes=700))

    def chain(key: bytes, max_seq: int = LATEST, most: int = 1_000) -> object:
        return reader.chain(key, key_hash(key), max_seq, most, 0)

    assert chain(b"hot") is NEEDS_IO
    await scanned(reader, None, None)
    reads = len(store.reads)
    assert chain(b"hot") == [hit(row) for row in rows[1:395]]
    assert chain(b"hot", 100) == [hit(row) for row in rows[301:395]]
    assert chain(b"hot", 7) == [hit(rows[394])]
    assert chain(b"hot", 6) == [hit(rows[395])]
    assert chain(b"hot", 5) == chain(b"h") == []
    assert chain(b"a") == [hit(rows[0])]
    assert chain(b"i") == [hit(rows[-2])]
    assert (chain(b"hot", most=394), chain(b"hot", most=393)) == (chain(b"hot"), NEEDS_IO)
    assert len(store.reads) == reads


async def test_concurrent_gets_of_one_block_share_a_read() -> None:
    store, rows = CountingStore(), big_rows()
    reader = reader_of(store, big_sst(rows))
    answers = await asyncio.gather(*(got(reader, row.key) for row in rows[:20]))
    assert answers == [hit(row) for row in rows[:20]]
    assert len(store.reads) == 2


async def test_a_cancelled_opener_does_not_fail_the_others() -> None:
    store, rows = CountingStore(), big_rows()
    store.gate = asyncio.Event()
    reader = reader_of(store, big_sst(rows))
    first, second = (asyncio.create_task(reader.load()) for _ in range(2))
    for _ in range(3):
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    store.gate.set()
    await second
    assert (first.cancelled(), len(store.reads), store.cancelled) == (True, 1, 0)


async def test_a_failed_load_is_tried_again() -> None:
    store, rows = CountingStore(), big_rows()
    reader = reader_of(store, big_sst(rows))
    store.failure = UnavailableError("down")
    with pytest.raises(UnavailableError):
        await reader.load()
    assert await got(reader, rows[0].key) == hit(rows[0])
    store.failure = UnavailableError("down")
    with pytest.raises(UnavailableError):
        await got(reader, rows[-1].key)
    assert await got(reader, rows[-1].key) == hit(rows[-1])


async def test_a_missing_object_is_the_callers_to_judge() -> None:
    store = CountingStore()
    reader = reader_of(store, big_sst(big_rows()))
    await store.delete(["sst/x"])
    with pytest.raises(ObjectNotFoundError):
        await reader.load()


async def test_large_blocks_are_decoded_by_a_worker() -> None:
    store, offload = CountingStore(), CountingOffload()
    rows = [R(b"%d" % i, b"v" * 100_000, i) for i in range(9)]
    reader = reader_of(store, sst_of(rows, block_bytes=500_000), offload=offload)
    assert await got(reader, b"7") == hit(rows[7])
    assert offload.calls == 1
    small = reader_of(store, big_sst(big_rows()), offload=offload)
    await got(small, b"00000")
    assert offload.calls == 1


# Scans


@settings(deadline=None, max_examples=80)
@given(
    row_lists,
    st.integers(1, 400),
    st.none() | st.binary(max_size=2),
    st.none() | st.binary(max_size=2),
    st.booleans(),
    st.integers(1, 2000),
    st.booleans(),
    st.booleans(),
)
async def test_scans_agree_with_the_rows(
    unsorted: list[R],
    block_bytes: int,
    start: bytes | None,
    end: bytes | None,
    reverse: bool,
    read_ahead: int,
    fill_cache: bool,
    prefetch: bool,
) -> None:
    rows = sorted_rows(unsorted)
    cache = BlockCache(1 << 20 if fill_cache else 0)
    reader = reader_of(CountingStore(), sst_of(rows, block_bytes=block_bytes), cache=cache)
    scan = reader.scan(start, end, reverse=reverse, read_ahead_bytes=read_ahead, fill_cache=fill_cache)
    if prefetch:
        scan.prefetch()
    batches = [rows_of(batch) async for batch in scan]
    assert all(batches)
    expected = [row for row in rows if (start is None or row.key >= start) and (end is None or row.key < end)]
    assert [row for batch in (batches[::-1] if reverse else batches) for row in batch] == expected


async def test_scans_read_neighbours_together() -> None:
    store, rows = CountingStore(), big_rows(20_000)
    encoded = big_sst(rows)
    reader = reader_of(store, encoded)
    meta = await reader.load()
    store.reads.clear()
    batches = await scanned(reader, None, None)
    assert [row for batch in batches for row in batch] == rows
    assert len(batches) == len(meta.index) > 300
    assert len(store.reads) <= 6
    ends = [(at, at + length) for at, length in store.reads]
    assert all(one[1] == two[0] for one, two in pairwise(ends))


async def test_cached_blocks_are_not_read_again() -> None:
    store, rows = CountingStore(), big_rows()
    reader = reader_of(store, big_sst(rows))
    await scanned(reader, None, None)
    reads = len(store.reads)
    assert [row for batch in await scanned(reader, None, None) for row in batch] == rows
    assert len(store.reads) == reads
    forget_blocks(reader)
    await got(reader, b"00400")
    await scanned(reader, None, b"01000")
    assert len(store.reads) == reads + 3


async def test_a_scan_that_does_not_fill_the_cache_leaves_it_alone() -> None:
    cache = BlockCache(1 << 30)
    reader = reader_of(CountingStore(), big_sst(big_rows()), cache=cache)
    await scanned(reader, None, None, fill_cache=False)
    assert cache.stats().blocks == 0


class KeepingStore(CountingStore):
    """Keeps what it gave, so that nothing else comes to lie at the same addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[bytes] = []

    async def get(self, key: str, byte_range: ByteRange | None = None) -> GetResult:
        result = await super().get(key, byte_range)
        self.given.append(result.data)
        return result


async def test_cached_blocks_do_not_hold_the_whole_read_in_memory() -> None:
    store = KeepingStore()
    reader = reader_of(store, big_sst(big_rows()))
    blocks = await reader.load_blocks([*range(len((await reader.load()).index))], fill_cache=True)
    reads = [pa.py_buffer(data) for data in store.given]
    for block in blocks:
        for buffer in (*block.columns.keys.buffers()[1:], *block.columns.values.buffers()[1:]):
            assert not any(read.address <= buffer.address < read.address + read.size for read in reads)


async def everything(reader: SstReader, rows: list[R]) -> None:
    """Get every row and scan all; whatever is answered must be right."""
    for row in rows:
        assert await got(reader, row.key, row.seq) == hit(row)
    assert [row for batch in await scanned(reader, None, None) for row in batch] == rows


@pytest.mark.parametrize("whole", [True, False])
async def test_every_flip_is_corruption_or_an_unaffected_answer(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not whole:
        monkeypatch.setattr("slate_async.storage.sst.reader.TAIL_BYTES", 128)
    rows = sample_rows()
    encoded = sst_of(rows)
    store = CountingStore()
    reader_of(store, encoded)
    data = store.objects["sst/x"]
    refused = 0
    for at in range(len(data)):
        reader = reader_of(store, encoded)
        store.objects["sst/x"] = data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]
        try:
            await everything(reader, rows)
        except CorruptionError as error:
            assert error.object_name == "sst/x"  # noqa: PT017
            refused += 1
    assert refused > len(data) * 0.9


@pytest.mark.parametrize("tail", [128, TAIL_BYTES])
async def test_every_truncation_is_corruption(tail: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slate_async.storage.sst.reader.TAIL_BYTES", tail)
    rows = sample_rows()
    encoded = sst_of(rows)
    store = CountingStore()
    for length in range(encoded.size):
        reader = reader_of(store, encoded)
        store.objects["sst/x"] = store.objects["sst/x"][:length]
        with pytest.raises(CorruptionError, match="sst/x"):
            await reader.load()


async def test_an_object_truncated_or_swapped_after_opening_is_corruption() -> None:
    rows = big_rows()
    store = CountingStore()
    reader = reader_of(store, big_sst(rows))
    await reader.load()
    data = store.objects["sst/x"]
    others = (b"", data[:10], data + b"\0", b"".join(big_sst([r._replace(seq=r.seq + 1) for r in rows]).buffers))
    assert len(others[3]) == len(data)
    for other in others:
        store.objects["sst/x"] = other
        with pytest.raises(CorruptionError, match="sst/x"):
            await got(reader, rows[-1].key)
    store.objects["sst/x"] = data
    assert await got(reader, rows[-1].key) == hit(rows[-1])


async def test_another_sst_of_equal_size_is_corruption() -> None:
    store = CountingStore()
    encoded = big_sst(big_rows())
    reader = reader_of(store, encoded)
    store.objects["sst/x"] = b"".join(big_sst(big_rows(), object_id=OTHER_OBJECT).buffers)
    with pytest.raises(CorruptionError, match="is object"):
        await reader.load()
    small = SstReader(
        store,
        "sst/x",
        size=100,
        database_id=DATABASE,
        object_id=OBJECT,
        cache=BlockCache(0),
        offload=CountingOffload(),
    )
    with pytest.raises(CorruptionError, match="too few"):
        await small.load()


async def test_readers_of_one_content_share_its_blocks_and_of_another_do_not() -> None:
    cache, rows = BlockCache(1 << 30), big_rows()
    stores = [CountingStore() for _ in range(3)]
    encoded = big_sst(rows)
    other = big_sst([row._replace(value=row.value[::-1]) for row in rows])
    readers = [reader_of(store, sst, cache=cache) for store, sst in zip(stores, (encoded, encoded, other), strict=True)]
    key = rows[5].key
    assert await got(readers[0], key) == await got(readers[1], key)
    assert [len(store.reads) for store in stores] == [2, 1, 0]
    assert (await got(readers[2], rows[12].key)) == hit(rows[12]._replace(value=rows[12].value[::-1]))


async def test_an_index_that_had_to_go_is_read_again_and_every_answer_stays_right() -> None:
    """Two SSTs whose indexes do not fit together, read in turn, by single keys and scans."""
    rows, store = big_rows(), CountingStore()
    encoded = big_sst(rows)
    meta = await reader_of(CountingStore(), encoded).load()
    cache = BlockCache(2 * meta.nbytes)
    one, two = (reader_of(store, encoded, cache=cache, key=key) for key in ("sst/one", "sst/two"))
    for number in range(0, len(rows), 400):
        row = rows[number]
        scan = one.scan(row.key, None)
        first = await anext(scan)
        assert await got(one, row.key) == hit(row)
        assert (one.loaded, two.loaded) == (True, False)
        assert await got(two, row.key) == hit(row)
        assert (one.loaded, two.loaded) == (False, True)
        assert one.probe(row.key, key_hash(row.key), LATEST, True) is NEEDS_IO
        assert first.keys[0].as_py() == row.key
        assert (await anext(scan)).keys[0].as_py() > row.key, "what goes on has the index still"
        await scan.aclose()
        two.drop_index()
    assert cache.stats().index_evictions >= 5
    assert cache.stats().bytes <= cache.capacity_bytes
