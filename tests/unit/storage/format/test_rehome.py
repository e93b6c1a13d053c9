"""`slate_async.storage.format.rehome`."""

from __future__ import annotations

import pytest

from slate_async.codec.header import HEADER_BYTES, ObjectKind, decode_header
from slate_async.errors import CorruptionError
from slate_async.storage.format.log_segment import decode_segment, encode_fence, encode_segment, log_object_id
from slate_async.storage.format.rehome import rehome
from slate_async.storage.format.sst import read_footer, read_meta
from tests.support.rows import DATABASE, OBJECT, OTHER_DATABASE, columns_of, rows_of, sample_rows, sst_of

LOG_ID = 9


def segment() -> bytes:
    rows = columns_of(sample_rows())
    return b"".join(encode_segment(rows, database_id=DATABASE, log_id=LOG_ID, epoch=3, manifest_version=5))


def moved(data: bytes, object_id: bytes = log_object_id(LOG_ID)) -> bytes:
    return b"".join(rehome(data, object_name="o", owner=DATABASE, object_id=object_id, database_id=OTHER_DATABASE))


def test_a_segment_keeps_rows_position_and_epoch() -> None:
    data = segment()
    header, columns = decode_segment(moved(data), object_name="o", database_id=OTHER_DATABASE, log_id=LOG_ID)
    assert rows_of(columns) == sample_rows()
    assert (header.writer_epoch, header.manifest_version) == (3, 5)
    assert moved(data)[HEADER_BYTES:] == data[HEADER_BYTES:]


def test_a_fence_stays_a_header_and_nothing_else() -> None:
    data = encode_fence(database_id=DATABASE, log_id=LOG_ID, epoch=4, manifest_version=7)
    header = decode_header(moved(data), object_name="o", database_id=OTHER_DATABASE, object_id=log_object_id(LOG_ID))
    assert (header.kind, header.writer_epoch, len(moved(data))) == (ObjectKind.FENCE, 4, HEADER_BYTES)


def test_an_sst_is_the_others_by_header_and_footer() -> None:
    data = b"".join(sst_of(sample_rows()).buffers)
    copy = moved(data, OBJECT)
    footer = read_footer(copy, size=len(copy), object_name="o", database_id=OTHER_DATABASE, object_id=OBJECT)
    assert read_meta(copy, footer, object_name="o").stats.rows == len(sample_rows())
    decode_header(copy, object_name="o", database_id=OTHER_DATABASE, object_id=OBJECT)
    with pytest.raises(CorruptionError, match="belongs to database"):
        read_footer(copy, size=len(copy), object_name="o", database_id=DATABASE)


@pytest.mark.parametrize("make", [segment, lambda: b"".join(sst_of(sample_rows()).buffers)])
def test_no_flipped_or_missing_byte_gets_a_new_checksum(make: object) -> None:
    data = make()  # type: ignore[operator]
    object_id = decode_header(data, object_name="o").object_id
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        for wrong in (bytes(damaged), data[:at]):
            with pytest.raises(CorruptionError):
                moved(wrong, object_id)


def test_another_databases_object_is_refused() -> None:
    with pytest.raises(CorruptionError, match="belongs to database"):
        moved(moved(segment()))
