"""Rows of log segments: small ones are decoded on the loop, large ones by a worker; what is no segment is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pytest

from slate_async.codec.columns import Columns
from slate_async.codec.header import ObjectKind, decode_header
from slate_async.errors import CorruptionError
from slate_async.storage.format.log_segment import encode_segment
from slate_async.storage.log.protocol import LogObject
from slate_async.storage.log.rows import INLINE_SEGMENT_BYTES, check_kind, decode_rows, new_rows
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


def segment(values: list[bytes], log_id: int = 1) -> LogObject:
    data = b"".join(
        encode_segment(
            rows(values), database_id=DATABASE, log_id=log_id, epoch=1, manifest_version=1, compression="none"
        )
    )
    key = f"log/{log_id}"
    return LogObject(log_id, key, len(data), decode_header(data, object_name=key), data)


@pytest.mark.parametrize(("nbytes", "calls"), [(10, 0), (INLINE_SEGMENT_BYTES, 1)])
async def test_a_large_segment_is_decoded_by_a_worker(nbytes: int, calls: int) -> None:
    offload = CountingOffload()
    decoded = await decode_rows(segment([b"first", bytes(nbytes)]), DATABASE, offload, 1 << 28)
    assert decoded.values.to_pylist() == [b"first", bytes(nbytes)]
    assert offload.calls == calls


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
