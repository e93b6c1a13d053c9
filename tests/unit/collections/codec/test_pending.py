"""`slate_async.collections.codec.pending` and `.description`."""

from __future__ import annotations

import struct
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest

from slate_async.codec.checksum import crc32c
from slate_async.codec.header import HEADER_BYTES, ObjectHeader, ObjectKind, decode_header, encode_header
from slate_async.collections.codec import description
from slate_async.collections.codec.description import Description, encode_description
from slate_async.collections.codec.envelope import ENVELOPE
from slate_async.collections.codec.parts import PartRef
from slate_async.collections.codec.pending import PEEK_BYTES, decode_pending, encode_pending, peek_description
from slate_async.collections.core.updates import UpdateSchema
from slate_async.errors import CorruptionError, InvalidError
from tests.support.collection_bytes import (
    BYTES,
    COLLECTION,
    DESCRIPTION,
    ORDERS,
    OTHER_COLLECTION,
    PARTED,
    SHARED,
    TOKEN,
    UPDATES,
    frontier,
    many,
)


def encoded(description: Description = DESCRIPTION, updates: Any = UPDATES) -> bytes:
    return encode_pending(description, updates, BYTES, COLLECTION)


def resealed(body: bytes, **fields: Any) -> bytes:
    """``body`` under a header that is right but for ``fields``."""
    header = ObjectHeader(ObjectKind.PENDING_BATCH, COLLECTION, bytes.fromhex(TOKEN), 0, len(body), 0, crc32c(body))
    return encode_header(replace(header, **fields)) + body


def described(description: bytes, stream: bytes = b"") -> bytes:
    body = struct.pack("<II", len(description), crc32c(description)) + description
    return body + bytes(-(HEADER_BYTES + len(body)) % 8) + stream


def stream_of(data: bytes) -> bytes:
    nbytes = struct.unpack_from("<I", data, HEADER_BYTES)[0]
    end = HEADER_BYTES + 8 + nbytes
    return data[end + -end % 8 :]


@pytest.mark.parametrize("rows", [0, 1, 10])
def test_a_few_rows_are_the_stream_that_arrow_writes(rows: int) -> None:
    updates = BYTES.batch([(b"data %d" % number, 3, number + 1) for number in range(rows + 2)]).slice(1, rows)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, BYTES.arrow) as writer:
        writer.write(updates)
    description = replace(DESCRIPTION, rows=rows)
    assert stream_of(encoded(description, updates)) == sink.getvalue().to_pybytes()


def test_the_header_says_whose_it_is_and_which_append_made_it() -> None:
    header = decode_header(encoded(), object_name="o")
    assert (header.kind, header.database_id, header.object_id.hex()) == (4, COLLECTION, TOKEN)


@pytest.mark.parametrize("rows", [0, 1, 100, 20_000])
def test_updates_come_back_as_they_were(rows: int) -> None:
    updates, description = many(rows), replace(DESCRIPTION, rows=rows, diff_sum=rows)
    for given in (updates, pa.Table.from_batches([updates.slice(0, rows // 2), updates.slice(rows // 2)])):
        found = decode_pending(encoded(description, given), BYTES, COLLECTION, object_name="o")
        assert found.description == description
        assert found.updates is not None
        assert found.updates.equals(pa.Table.from_batches([updates]))


def test_only_large_batches_are_compressed() -> None:
    small, large = many(1000), many(20_000)
    assert len(encoded(replace(DESCRIPTION, rows=1000), small)) > small.nbytes
    assert len(encoded(replace(DESCRIPTION, rows=20_000), large)) < large.nbytes / 4


def test_fields_of_a_description_that_are_not_known_are_kept() -> None:
    description = replace(DESCRIPTION, unknown=MappingProxyType({"wings": 2}))
    assert decode_pending(encoded(description), BYTES, COLLECTION, object_name="o").description == description


@pytest.mark.parametrize(
    ("description", "updates"),
    [(replace(DESCRIPTION, rows=3), UPDATES), (DESCRIPTION, None), (PARTED, UPDATES)],
)
def test_a_description_that_does_not_fit_is_refused(description: Description, updates: Any) -> None:
    with pytest.raises(InvalidError, match="does not fit the updates"):
        encoded(description, updates)


def test_the_description_is_known_by_the_first_bytes() -> None:
    large = encoded(replace(DESCRIPTION, rows=20_000), many(20_000))
    for data in (large, encoded(), encoded(PARTED, None)):
        whole = decode_pending(data, BYTES, COLLECTION, object_name="o").description
        assert peek_description(data[:PEEK_BYTES], BYTES, COLLECTION, object_name="o") == whole
        for nbytes in (HEADER_BYTES, HEADER_BYTES + 7, HEADER_BYTES + 20):
            assert peek_description(data[:nbytes], BYTES, COLLECTION, object_name="o") is None
    damaged = bytearray(large[:PEEK_BYTES])
    damaged[HEADER_BYTES + 12] ^= 1
    with pytest.raises(CorruptionError, match="description's checksum"):
        peek_description(damaged, BYTES, COLLECTION, object_name="o")


GOOD, STREAM = encode_description(DESCRIPTION), stream_of(encoded())
ELSEWHERE = encode_pending(DESCRIPTION, UPDATES, BYTES, OTHER_COLLECTION)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"x" * 100, "not an object of ours"),
        (ELSEWHERE, f"belongs to collection {OTHER_COLLECTION}, not {COLLECTION}"),
        (resealed(described(GOOD, STREAM), kind=ObjectKind.SST), "it is a SST, no pending batch"),
        (resealed(described(GOOD, STREAM), object_id=bytes(16)), "it is of append 0000"),
        (resealed(b""), "80 bytes are too few"),
        (resealed(struct.pack("<II", 400, 0)), "description's checksum"),
        (resealed(described(b"\xc1")), "does not decode"),
        (resealed(described(encode_description(replace(DESCRIPTION, lower=frontier(11))))), "not at or below upper"),
        (resealed(described(encode_description(replace(PARTED, rows=8)))), "parts do not have 8 rows"),
        (resealed(described(GOOD)), "no Arrow stream"),
        (resealed(described(GOOD, STREAM[:-40])), "no Arrow stream"),
        (resealed(described(encode_description(PARTED), STREAM)), "parts and updates"),
        (resealed(described(encode_description(replace(DESCRIPTION, rows=5)), STREAM)), "4 updates in place of 5"),
    ],
)
def test_other_bytes_are_corruption(data: bytes, words: str) -> None:
    with pytest.raises(CorruptionError, match=words):
        decode_pending(data, BYTES, COLLECTION, object_name="o")


def test_updates_with_other_columns_are_corruption() -> None:
    with pytest.raises(CorruptionError, match="other columns: data binary, _time uint64, _diff int64"):
        decode_pending(encoded(), UpdateSchema(BYTES.kind, ORDERS.data), COLLECTION, object_name="o")
    with pytest.raises(CorruptionError, match="does not decode"):
        decode_pending(encoded(), ORDERS, COLLECTION, object_name="o")


@pytest.mark.parametrize(("token", "number"), [("x" * 32, 0), ("ab" * 16, 10_000), ("ab" * 16, -1), ("ab" * 16, "0")])
def test_a_part_of_another_process_has_a_token_and_a_number(token: str, number: Any) -> None:
    named = replace(SHARED, parts=(replace(SHARED.parts[0], token=token, number=number), SHARED.parts[1]))
    with pytest.raises(CorruptionError, match="name no part"):
        decode_pending(resealed(described(encode_description(named))), BYTES, COLLECTION, object_name="o")


def test_a_release_that_knows_no_parts_of_other_processes_refuses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(SHARED, None)
    monkeypatch.setattr(description, "ENVELOPE", replace(ENVELOPE, features=frozenset()))
    assert decode_pending(encoded(PARTED, None), BYTES, COLLECTION, object_name="o").description == PARTED
    with pytest.raises(InvalidError, match="foreign_parts; upgrade"):
        decode_pending(data, BYTES, COLLECTION, object_name="o")


def test_parts_say_nothing_of_sections() -> None:
    assert PARTED.parts == (PartRef(5, 400, 17), PartRef(4, 390, 2**32 - 1))
    assert decode_pending(encoded(PARTED, None), BYTES, COLLECTION, object_name="o").description == PARTED
