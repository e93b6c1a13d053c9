"""Batches as messages and back, and messages that lie."""

from __future__ import annotations

import random
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slate_async.errors import InvalidError
from slate_async.rpc.flight_data import decode_data, encode_data
from slate_async.rpc.flight_messages import BatchDecoder, BatchEncoder, schema_message, sliced

LIMIT = 1 << 20
VALUES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(max_size=8),
    pa.binary(): st.binary(max_size=8),
    pa.bool_(): st.booleans(),
    pa.dictionary(pa.int32(), pa.string()): st.sampled_from(["a", "b", "c"]),
    pa.list_(pa.int16()): st.lists(st.integers(-9, 9), max_size=3),
    pa.struct([("x", pa.int8()), ("y", pa.string())]): st.fixed_dictionaries(
        {"x": st.integers(0, 9), "y": st.just("z")}
    ),
}


@st.composite
def batches(draw: st.DrawFn) -> list[pa.RecordBatch]:
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    schema = pa.schema([(f"c{at}", kind) for at, kind in enumerate(kinds)])
    found = []
    for _ in range(draw(st.integers(0, 4))):
        count = draw(st.integers(0, 6))
        columns = [draw(st.lists(st.none() | VALUES[kind], min_size=count, max_size=count)) for kind in kinds]
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        found.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return found or [pa.RecordBatch.from_arrays([pa.array([], kind) for kind in kinds], schema=schema)]


def decoded(messages: list[bytes], **options: Any) -> list[pa.RecordBatch]:
    decoder = BatchDecoder(LIMIT)
    found = [decoder.decode(decode_data(message), **options) for message in messages]
    return [batch for batch in found if batch is not None]


def encoded(given: list[pa.RecordBatch]) -> list[bytes]:
    encoder = BatchEncoder(given[0].schema)
    return [schema_message(given[0].schema), *(message for batch in given for message in encoder.messages(batch))]


@given(batches())
def test_batches_come_back(given: list[pa.RecordBatch]) -> None:
    found = decoded(encoded(given))
    assert [batch.to_pylist() for batch in found] == [batch.to_pylist() for batch in given]
    assert all(batch.schema == given[0].schema for batch in found)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_batches_are_read_and_keep_what_they_are_given(codec: str) -> None:
    batch = pa.record_batch({"a": list(range(1_000)), "s": ["x"] * 1_000})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    messages = [
        encode_data(message.metadata, [message.body] if message.body is not None and message.body.size else [])
        for message in pa.ipc.MessageReader.open_stream(sink.getvalue())
    ]
    kept: list[str] = []

    class Kept:
        def __del__(self) -> None:
            kept.append("freed")

    decoder = BatchDecoder(LIMIT)
    decoder.decode(decode_data(messages[0]))
    found = decoder.decode(decode_data(messages[1]), Kept())
    assert found is not None
    assert found.equals(batch)
    column = found.column(0).slice(10)
    del found
    assert not kept
    del column, decoder
    assert kept == ["freed"]


def test_more_than_the_limit_is_refused_before_it_is_decompressed() -> None:
    batch = pa.record_batch({"a": pa.array([0] * 1_000_000, pa.int64())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    schema, rows = pa.ipc.MessageReader.open_stream(sink.getvalue())
    assert rows.body.size < LIMIT
    with pytest.raises(InvalidError, match="8000000 bytes in memory"):
        decoded([encode_data(schema.metadata), encode_data(rows.metadata, [rows.body])])


def test_a_batch_of_more_rows_than_bits_is_refused() -> None:
    batch = pa.RecordBatch.from_arrays([pa.nulls(1 << 30)], ["n"])
    with pytest.raises(InvalidError, match="rows in 0 bytes"):
        decoded(encoded([batch]))


def test_offsets_outside_of_the_data_are_refused() -> None:
    batch = pa.record_batch({"s": ["abc", "def"]})
    schema, rows = encoded([batch])
    data = decode_data(rows)
    body = bytearray(data.body)
    at = bytes(body).index(struct.pack("<i", 6))
    body[at : at + 4] = struct.pack("<i", 1 << 30)
    with pytest.raises(InvalidError, match="message 2"):
        decoded([schema, encode_data(data.header, [bytes(body)])])


def test_streams_out_of_order_are_refused() -> None:
    batch = pa.record_batch({"d": pa.array(["a", "b"]).dictionary_encode()})
    schema, dictionary, rows = encoded([batch])
    with pytest.raises(InvalidError, match="first message of a stream is its schema"):
        decoded([rows])
    with pytest.raises(InvalidError, match="message 2"):
        decoded([schema, rows])
    with pytest.raises(InvalidError, match="message 2"):
        decoded([schema, schema])
    decoder = BatchDecoder(LIMIT)
    for message in (schema, dictionary):
        decoder.decode(decode_data(message))
    with pytest.raises(InvalidError):
        decoder.decode(decode_data(schema))
    with pytest.raises(InvalidError, match="broken"):
        decoder.decode(decode_data(rows))


@given(batches(), st.randoms(use_true_random=False))
def test_damaged_streams_end_with_an_invalid_error(given: list[pa.RecordBatch], chance: random.Random) -> None:
    messages = [bytearray(message) for message in encoded(given)]
    for _ in range(chance.randint(1, 4)):
        message = chance.choice(messages)
        message[chance.randrange(len(message))] ^= 1 << chance.randrange(8)
    try:
        found = decoded([bytes(message) for message in messages])
    except InvalidError:
        return
    for batch in found:
        batch.validate(full=True)


def test_slices_are_about_as_large_as_asked() -> None:
    batch = pa.record_batch({"a": list(range(10_000))})
    parts = list(sliced(batch, 8_000))
    assert sum(part.num_rows for part in parts) == 10_000
    assert all(part.nbytes <= 8_100 for part in parts)
