"""Rows of log segments: small ones are decoded on the loop, large ones by a worker; what is no segment is named."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pytest

from slate_async.codec.columns import Columns
from slate_async.codec.header import ObjectKind, decode_header
from slate_async.errors import ConfigError, CorruptionError
from slate_async.runtime.memory_budget import MemoryBudget
from slate_async.storage.format.log_segment import encode_segment
from slate_async.storage.log.protocol import LogObject
from slate_async.storage.log.rows import INLINE_SEGMENT_BYTES, check_kind, decoded_rows, new_rows
from slate_async.types import PUT
from tests.support.rows import DATABASE

T = TypeVar("T")


class CountingOffload:
    def __init__(self) -> None:
        self.calls = 0

    async def run(self, call: Callable[[], T]) -> T:
        self.calls += 1
        return call()


def rows(values: list[bytes], first_seq: int = 1) -> Columns:
    seqs = np.arange(first_seq, first_seq + len(values), dtype=np.uint64)
    keys = pa.array([b"%06d" % seq for seq in seqs], pa.binary())
    kinds = np.full(len(values), PUT, np.uint8)
    return Columns(keys, pa.array(values, pa.binary()), seqs, kinds, None, seqs.astype(np.int64))


def segment(values: list[bytes], log_id: int = 1, compression: str = "none") -> LogObject:
    data = b"".join(
        encode_segment(
            rows(values), database_id=DATABASE, log_id=log_id, epoch=1, manifest_version=1, compression=compression
        )
    )
    key = f"log/{log_id}"
    return LogObject(log_id, key, len(data), decode_header(data, object_name=key), data)


@pytest.mark.parametrize(
    ("nbytes", "compression", "calls", "held"),
    [(10, "none", 0, False), (INLINE_SEGMENT_BYTES, "none", 2, True), (2 << 20, "zstd", 1, True)],
)
async def test_a_large_segment_is_decoded_by_a_worker_once_there_is_memory(
    nbytes: int, compression: str, calls: int, held: bool
) -> None:
    offload, decoding = CountingOffload(), MemoryBudget(4 << 20)
    async with decoded_rows(segment([b"first", bytes(nbytes)], compression=compression), offload, decoding) as decoded:
        assert decoded.values.to_pylist() == [b"first", bytes(nbytes)]
        assert (decoding.held_bytes > nbytes) == held
    assert offload.calls == calls
    assert not decoding.held_bytes


async def test_rows_that_are_decoded_by_many_at_once_stay_within_their_memory() -> None:
    """Each is held until it was taken over, which takes turns of the loop."""
    decoding, most = MemoryBudget(7 << 20), 0
    one = segment([bytes(2 << 20)], compression="zstd")
    assert one.size < 1000

    async def take_over() -> None:
        nonlocal most
        async with decoded_rows(one, CountingOffload(), decoding) as rows:
            most = max(most, decoding.held_bytes)
            await asyncio.sleep(0)
            assert len(rows) == 1

    async with asyncio.timeout(20):
        await asyncio.gather(*(take_over() for _ in range(20)))
    assert 6 << 20 < most <= 7 << 20
    with pytest.raises(ConfigError, match=r"log/1 takes \d+ bytes .*decode_memory_bytes allows 1048576"):
        async with decoded_rows(one, CountingOffload(), MemoryBudget(1 << 20)):
            raise AssertionError


@pytest.mark.parametrize(("last_seq", "left"), [(0, [5, 6, 7]), (4, [5, 6, 7]), (5, [6, 7]), (6, [7]), (9, [])])
def test_new_rows_are_those_above_a_sequence_number(last_seq: int, left: list[int]) -> None:
    assert new_rows(rows([b"a", b"b", b"c"], first_seq=5), last_seq).seqs.tolist() == left


def test_an_object_of_another_kind_or_position_is_named() -> None:
    sound = segment([b"a"], log_id=7)
    check_kind(sound, ObjectKind.LOG_SEGMENT)
    for wrong, kind in ((sound, ObjectKind.SST), (replace(sound, id=8), ObjectKind.LOG_SEGMENT)):
        with pytest.raises(CorruptionError) as caught:
            check_kind(wrong, kind)
        assert caught.value.object_name == "log/7"
