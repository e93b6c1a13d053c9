"""A log's small objects are decoded together, with the same result as one by one; a damaged one is named."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from slate_async.codec.checksum import crc32c
from slate_async.codec.columns import Columns
from slate_async.codec.header import HEADER_BYTES, decode_header, encode_header
from slate_async.engine.write import replay
from slate_async.engine.write.replay import Replayer
from slate_async.errors import ConfigError, CorruptionError
from slate_async.runtime.memory_budget import MemoryBudget
from slate_async.storage.format.log_segment import encode_segment
from slate_async.storage.format.raw_block import RAW_HEADER
from slate_async.storage.log.protocol import LogObject
from slate_async.storage.manifest.state import ManifestState
from slate_async.types import MAX_SEQ, PUT
from tests.engine import InlineOffload
from tests.support.rows import DATABASE


def rows_of(first_seq: int, values: list[bytes], kind: int = PUT) -> Columns:
    seqs = np.arange(first_seq, first_seq + len(values), dtype=np.uint64)
    keys = [b"%06d" % seq for seq in seqs]
    kinds = np.full(len(values), kind, np.uint8)
    return Columns(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), seqs, kinds, None, seqs.astype(np.int64))


def log_object(log_id: int, rows: Columns, *, epoch: int = 1, compression: str = "none") -> LogObject:
    data = b"".join(
        encode_segment(
            rows, database_id=DATABASE, log_id=log_id, epoch=epoch, manifest_version=1, compression=compression
        )
    )
    key = f"log/{log_id}"
    return LogObject(log_id, key, len(data), decode_header(data, object_name=key), data)


def replayer(last_seq: int = 0, most_bytes: int = 1 << 28) -> Replayer:
    made = Replayer(
        epoch=9,
        table_bytes=1 << 26,
        segment_bytes=1 << 22,
        offload=InlineOffload(),
        open_sst=lambda one: pytest.fail("there is no SST"),
        decoding=MemoryBudget(most_bytes),
        most_bytes=1 << 30,
    )
    state = ManifestState(database_id=DATABASE, log_protocol="contiguous", wal_enabled=True, created_ms=0)
    made.begin(dataclasses.replace(state, last_seq=last_seq))
    return made


async def replayed(objects: list[LogObject], last_seq: int = 0) -> tuple[object, ...]:
    """Everything that came of it."""
    made = replayer(last_seq)
    for log_object in objects:
        await made.add(log_object)
    await made.drain()
    entry = made._memtables.active
    table = entry.table
    found = [table.get(b"%06d" % seq, MAX_SEQ) for seq in range(1, 1_000)]
    return (
        [hit for hit in found if hit is not None],
        (len(table), table.last_seq, table.nbytes),
        (entry.log_end, entry.log_floor, entry.objects, entry.cut_rows, entry.cut_nbytes),
        (made._last_seq, made._tick),
    )


def a_log() -> list[LogObject]:
    """Small and large objects, of one row and of many, plain and compressed, of two epochs."""
    made: list[LogObject] = []
    seq = 1
    for number in range(100):
        count = 1 + number % 4
        size = 20_000 if number % 17 == 5 else 3 * number
        made.append(
            log_object(
                number + 1,
                rows_of(seq, [bytes([number]) * size] * count, kind=PUT if number % 10 else 1),
                epoch=1 + number // 50,
                compression="zstd" if number % 3 == 1 else "none",
            )
        )
        seq += count
    return made


@pytest.mark.parametrize("last_seq", [0, 3, 120, 10_000])
async def test_what_is_decoded_together_is_what_is_decoded_one_by_one(
    last_seq: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = await replayed(a_log(), last_seq)
    monkeypatch.setattr(replay, "TOGETHER_OBJECTS", 1)
    assert await replayed(a_log(), last_seq) == together


async def test_rows_that_were_read_before_are_left_out() -> None:
    """Of objects whose numbers overlap, which no writer makes, the rows that come first count."""
    twice = [log_object(1, rows_of(1, [b"a", b"b"])), log_object(2, rows_of(2, [b"c", b"d"]))]
    hits = (await replayed(twice))[0]
    assert isinstance(hits, list)
    assert [hit.value for hit in hits] == [b"a", b"b", b"d"]


async def test_a_damaged_object_is_named_when_it_is_added() -> None:
    made = replayer()
    await made.add(log_object(1, rows_of(1, [b"a"])))
    damaged = log_object(2, rows_of(2, [b"b"]))
    damaged = dataclasses.replace(damaged, data=damaged.data[:-1] + b"\xff")
    with pytest.raises(CorruptionError) as caught:
        await made.add(damaged)
    assert caught.value.object_name == "log/2"


def of_an_unknown_kind(log_id: int) -> LogObject:
    """A row of a kind there is not, under checksums that hold."""
    sound = log_object(log_id, rows_of(log_id, [b"b"]))
    body = bytearray(sound.data[HEADER_BYTES:])
    length = int.from_bytes(body[:4], "little")
    fields = [*RAW_HEADER.unpack_from(body, 8)]
    fields[6] = 77
    RAW_HEADER.pack_into(body, 8, *fields)
    body[4 + length : 8 + length] = crc32c(body[8 : 4 + length]).to_bytes(4, "little")
    header = dataclasses.replace(sound.header, body_crc=crc32c(body))
    return dataclasses.replace(sound, header=header, data=encode_header(header) + body)


async def test_rows_that_are_no_rows_are_named_among_those_decoded_together() -> None:
    """Its checksums hold: its writer was wrong."""
    made = replayer()
    for stored in (log_object(1, rows_of(1, [b"a"])), of_an_unknown_kind(2), log_object(3, rows_of(3, [b"c"]))):
        await made.add(stored)
    with pytest.raises(CorruptionError) as caught:
        await made.drain()
    assert caught.value.object_name == "log/2"


async def test_small_objects_may_be_larger_than_memory_once_decoded() -> None:
    made = replayer(most_bytes=1 << 20)
    with pytest.raises(ConfigError, match="log/1"):
        await made.add(log_object(1, rows_of(1, [bytes(1 << 20)]), compression="zstd"))
