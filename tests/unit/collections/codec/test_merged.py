"""`slate_async.collections.codec.merged`, `.merged_read` and `.merged_types`."""

from __future__ import annotations

import datetime
import io
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slate_async.codec.checksum import crc32c
from slate_async.collections.codec.merged import GROUP_ROWS, MergedEncoder, encode_merged
from slate_async.collections.codec.merged_read import MergedFile, decode_merged, section_span
from slate_async.collections.codec.parts import PartRef
from slate_async.collections.core.updates import UpdateSchema
from slate_async.errors import CorruptionError, InvalidError
from tests.support.collection_bytes import BYTES, ORDERS, PAIR_UPDATES, PAIRS, U64, UPDATES, as_bits, many, named

TYPES: dict[pa.DataType, list[Any]] = {
    **{kind: [-7, 7] for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{kind: [0, 7] for kind in (pa.uint8(), pa.uint16(), pa.uint32())},
    pa.uint64(): [0, 2**64 - 1],
    pa.float16(): [np.float16(-0.0), np.float16(0.5)],
    pa.float32(): [-0.0, 0.5],
    pa.float64(): [-0.0, 0.5],
    pa.bool_(): [False, True],
    **{kind: ["", "ü" * 100] for kind in (pa.string(), pa.large_string())},
    **{kind: [b"", b"\0" * 100] for kind in (pa.binary(), pa.large_binary())},
    pa.binary(3): [b"abc", b"\xff\0\xff"],
    pa.decimal128(10, 2): [Decimal("-1.25"), Decimal(7)],
    pa.decimal256(50, 3): [Decimal("-1.125"), Decimal(10**40)],
    pa.date32(): [-1, 20_000],
    pa.date64(): [datetime.date(1900, 1, 1), datetime.date(2030, 1, 1)],
    pa.time32("s"): [0, 86_399],
    pa.time32("ms"): [0, 86_399_999],
    pa.time64("us"): [0, 86_399_999_999],
    pa.time64("ns"): [0, 86_399_999_999_999],
    pa.timestamp("s"): [-(2**62), 2**62],
    pa.timestamp("s", "UTC"): [-(2**62), 2**62],
    **{pa.timestamp(unit): [-(2**62), 2**62] for unit in ("ms", "us", "ns")},
    pa.timestamp("us", "Europe/Berlin"): [-1, 1],
    **{pa.duration(unit): [-(2**62), 2**62] for unit in ("s", "ms", "us", "ns")},
}


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_every_type_comes_back(kind: pa.DataType) -> None:
    schema = UpdateSchema(PAIRS, pa.schema([("x", kind)]))
    data = pa.array([TYPES[kind][0], TYPES[kind][1], None], kind)
    times, diffs = pa.array([0, 1, 2**63 - 1], pa.uint64()), pa.array([1, -(2**63), 2**63 - 1], pa.int64())
    updates = pa.Table.from_arrays([data, times, times, diffs], schema=schema.arrow)
    encoded = encode_merged(updates, schema)
    assert decode_merged(encoded.data, encoded.part, schema, object_name="m").equals(updates)
    file = MergedFile(section(encoded.data, encoded.part, -1), encoded.part, schema, object_name="m")
    assert file.read(0, section(encoded.data, encoded.part, 0)).equals(updates)


def test_floats_keep_every_bit() -> None:
    bits = np.array([0, 1 << 63, 0x7FF8 << 48, 0x7FF8_0000_0000_0001, 0xFFF8 << 48], np.uint64)
    schema = UpdateSchema(U64, pa.schema([("x", pa.float64())]))
    rest = [pa.array(np.zeros(5, np.uint64)), pa.array(np.ones(5, np.int64))]
    encoded = encode_merged(
        pa.RecordBatch.from_arrays([pa.array(bits.view(np.float64)), *rest], schema=schema.arrow), schema
    )
    table = decode_merged(encoded.data, encoded.part, schema, object_name="m")
    assert table.column("x").to_numpy().view(np.uint64).tolist() == bits.tolist()


def section(data: pa.Buffer, part: PartRef, number: int) -> memoryview:
    return memoryview(data)[section_span(part, number)]


def test_any_tool_can_open_it() -> None:
    file = pq.ParquetFile(io.BytesIO(encode_merged(UPDATES, BYTES).data))
    assert file.read().equals(pa.Table.from_batches([UPDATES]))
    assert file.metadata.row_group(0).sorting_columns == tuple(
        pq.SortingColumn(number, nulls_first=False) for number in (0, 1)
    )
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    floats = pq.read_metadata(pa.BufferReader(encode_merged(PAIR_UPDATES, ORDERS).data))
    assert floats.row_group(0).sorting_columns == ()


@pytest.mark.parametrize("step", [1000, GROUP_ROWS, 150_000])
def test_row_groups_are_of_one_size_however_rows_come(step: int) -> None:
    updates, encoder = many(150_000), MergedEncoder(BYTES)
    for start in range(0, updates.num_rows, step):
        encoder.add(updates.slice(start, step))
    encoded = encoder.finish()
    assert [section.rows for section in encoded.part.sections] == [GROUP_ROWS, GROUP_ROWS, 150_000 - 2 * GROUP_ROWS, 0]
    table = decode_merged(encoded.data, encoded.part, BYTES, object_name="m")
    assert table.combine_chunks().equals(pa.Table.from_batches([updates]))
    file = MergedFile(section(encoded.data, encoded.part, -1), encoded.part, BYTES, object_name="m")
    groups = [file.read(group, section(encoded.data, encoded.part, group)) for group in range(len(file.groups))]
    assert pa.concat_tables(groups).combine_chunks().equals(table.combine_chunks())
    times = file.read(1, section(encoded.data, encoded.part, 1), ["_diff", "_time"])
    assert times.equals(groups[1].select(["_diff", "_time"]))


def test_sections_are_the_whole_object() -> None:
    encoded = encode_merged(many(70_000), BYTES)
    pieces = [section(encoded.data, encoded.part, number) for number in range(len(encoded.part.sections))]
    assert b"".join(pieces) == bytes(encoded.data)
    assert [(len(piece), crc32c(piece)) for piece in pieces] == [(s.nbytes, s.crc) for s in encoded.part.sections]


def test_nothing_is_an_object_as_well() -> None:
    encoded = MergedEncoder(BYTES).finish()
    assert decode_merged(encoded.data, encoded.part, BYTES, object_name="m").num_rows == 0
    assert MergedFile(section(encoded.data, encoded.part, -1), encoded.part, BYTES, object_name="m").groups == ()


def test_the_encoder_says_how_much_it_has() -> None:
    encoder = MergedEncoder(BYTES)
    encoder.add(many(GROUP_ROWS - 1))
    before = encoder.nbytes
    encoder.add(many(1))
    assert before < 100 < encoder.nbytes
    assert encoder.rows == GROUP_ROWS


def test_every_flipped_or_missing_byte_is_corruption() -> None:
    """P13."""
    encoded = encode_merged(UPDATES, BYTES)
    data = bytes(encoded.data)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        for wrong in (damaged, data[:at]):
            with pytest.raises(CorruptionError, match="m at byte 0"):
                decode_merged(wrong, encoded.part, BYTES, object_name="m")


def test_every_flipped_or_missing_byte_of_a_section_is_corruption() -> None:
    encoded = encode_merged(UPDATES, BYTES)
    group, footer = section(encoded.data, encoded.part, 0), section(encoded.data, encoded.part, 1)
    file = MergedFile(footer, encoded.part, BYTES, object_name="m")
    for whole, read in (
        (group, lambda wrong: file.read(0, wrong)),
        (footer, lambda wrong: MergedFile(wrong, encoded.part, BYTES, object_name="m")),
    ):
        for at in range(len(whole)):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << at % 8
            for wrong in (damaged, whole[:at]):
                with pytest.raises(CorruptionError, match="m at byte"):
                    read(wrong)


def test_what_is_named_otherwise_is_corruption() -> None:
    encoded = encode_merged(UPDATES, BYTES)
    with pytest.raises(CorruptionError, match="4 updates in place of 5"):
        decode_merged(encoded.data, replace(encoded.part, rows=5), BYTES, object_name="m")
    with pytest.raises(CorruptionError, match="other columns: data binary, _time uint64, _diff int64"):
        decode_merged(encoded.data, encoded.part, ORDERS, object_name="m")
    with pytest.raises(CorruptionError, match="no Parquet"):
        decode_merged(b"PAR1", named(b"PAR1", 0), BYTES, object_name="m")
    first, footer = encoded.part.sections
    other = replace(encoded.part, sections=(replace(first, rows=3), footer))
    with pytest.raises(CorruptionError, match="row groups are not those named"):
        MergedFile(section(encoded.data, encoded.part, 1), other, BYTES, object_name="m")


def test_an_object_without_named_sections_is_read_as_a_whole() -> None:
    encoded = encode_merged(UPDATES, BYTES)
    with pytest.raises(InvalidError, match="read as a whole"):
        MergedFile(b"", replace(encoded.part, sections=()), BYTES, object_name="m")


def test_rows_equal_their_sample() -> None:
    encoded = encode_merged(PAIR_UPDATES, ORDERS)
    table = decode_merged(encoded.data, encoded.part, ORDERS, object_name="m")
    assert as_bits(table) == as_bits(pa.Table.from_batches([PAIR_UPDATES]))
