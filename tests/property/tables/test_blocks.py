"""Blocks give back what was put in, by any later schema; their statistics leave out no row that passes; and no damage
goes unnoticed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slate_async.errors import CorruptionError
from slate_async.tables.codec.block import encode_block
from slate_async.tables.codec.block_read import (
    columns_in,
    decode_columns,
    decode_footer,
    projected,
    spans_of,
)
from slate_async.tables.core.binding import bind
from slate_async.tables.core.predicate import Predicate, predicate_of
from slate_async.tables.core.schema import TableSchema
from slate_async.tables.core.spans import BlockSpans
from tests.property.tables.predicates import COLUMNS, PREDICATES, ROWS

STORED = pa.schema([field if field.name != "local" else pa.field("local", pa.timestamp("ms")) for field in COLUMNS])
SCHEMA = TableSchema.of(STORED)
KEY = f"data/{1:020}.{'0' * 32}.parquet"


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=COLUMNS).cast(STORED)


def read_back(data: bytes, described: pa.Table, schema: TableSchema, columns: Sequence[str]) -> pa.Table:
    block = described.to_pylist()[0]
    footer = decode_footer(data[len(data) - block["footer_size"] :], block, SCHEMA)
    names = columns_in(SCHEMA, schema, columns)
    tables = []
    for group in range(footer.groups):
        spans = spans_of(footer, group, names)
        parts = [data[span.offset : span.offset + span.length] for span in spans]
        tables.append(decode_columns(footer, group, names, spans, parts))
    stored = pa.concat_tables(tables)
    return projected(stored, block["rows"], SCHEMA, schema, columns)


@given(ROWS.filter(bool), st.permutations(STORED.names), st.integers(1, len(STORED.names)))
def test_columns_are_read_alone_and_in_any_order(rows: list[dict[str, Any]], names: list[str], count: int) -> None:
    table = table_of(rows)
    encoded = encode_block(table, SCHEMA)
    found = read_back(encoded.data.to_pybytes(), encoded.under(KEY), SCHEMA, names[:count])
    assert found.column_names == names[:count]
    assert [field.type for field in found.schema] == [STORED.field(name).type for name in names[:count]]
    assert repr(found.to_pylist()) == repr(table.select(names[:count]).to_pylist())


@given(st.lists(ROWS.filter(bool), min_size=1, max_size=4), PREDICATES)
def test_no_block_is_left_out_that_has_a_row_which_passes(
    blocks: list[list[dict[str, Any]]], predicate: Predicate
) -> None:
    tables = [table_of(rows) for rows in blocks]
    described = pa.concat_tables([encode_block(table, SCHEMA).under(KEY) for table in tables])
    bound = bind(predicate, STORED)
    kept = bound.may_pass(BlockSpans(described, SCHEMA))
    for table, keep in zip(tables, kept.tolist(), strict=True):
        assert keep or not table.filter(bound.expression()).num_rows


def test_statistics_leave_out_what_cannot_pass() -> None:
    tables = [table_of([{"tiny": at, "name": f"{at}" * 50, "real": float(at)}]) for at in range(3)]
    described = pa.concat_tables([encode_block(table, SCHEMA).under(KEY) for table in tables])
    for predicate in ([("tiny", "==", 1)], [("name", "==", "1" * 50)], [("real", ">", 0.5), ("tiny", "<", 2)]):
        bound = bind(predicate_of(predicate), STORED)
        assert bound.may_pass(BlockSpans(described, SCHEMA)).tolist() == [False, True, False]


@given(ROWS.filter(bool))
def test_old_blocks_are_read_by_a_later_schema(rows: list[dict[str, Any]]) -> None:
    later = SCHEMA.altered(
        add={"more": pa.string(), "size": pa.int32()},
        defaults={"size": 7},
        drop=["raw"],
        rename={"name": "title"},
        widen={"tiny": pa.int64(), "half": pa.float64(), "day": pa.timestamp("us")},
    )
    table = table_of(rows)
    encoded = encode_block(table, SCHEMA)
    found = read_back(encoded.data.to_pybytes(), encoded.under(KEY), later, later.names)
    assert found.schema.equals(later.arrow())
    assert found.column("more").null_count == len(rows)
    assert found.column("size").to_pylist() == [7] * len(rows)
    assert found.column("title").to_pylist() == table.column("name").to_pylist()
    assert found.column("tiny").to_pylist() == table.column("tiny").to_pylist()
    assert found.column("day").cast(pa.date32()).to_pylist() == table.column("day").to_pylist()


def test_every_flipped_byte_of_a_block_is_noticed_or_means_nothing() -> None:
    table = table_of([{"tiny": 1, "name": "a", "real": 1.5, "kind": "x"}, {"tiny": 2, "name": "b" * 40}])
    encoded = encode_block(table, SCHEMA)
    data, described = encoded.data.to_pybytes(), encoded.under(KEY)
    noticed = 0
    for at in range(len(data)):
        damaged = data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :]
        try:
            found = read_back(damaged, described, SCHEMA, STORED.names)
        except CorruptionError:
            noticed += 1
        else:
            assert found.to_pylist() == table.to_pylist(), f"byte {at} changes what is read"
    assert noticed > len(data) * 0.95


def test_a_block_that_is_cut_off_is_noticed() -> None:
    table = table_of([{"tiny": 1}])
    encoded = encode_block(table, SCHEMA)
    data, described = encoded.data.to_pybytes(), encoded.under(KEY)
    for size in range(len(data)):
        with pytest.raises(CorruptionError):
            read_back(data[:size], described, SCHEMA, STORED.names)


@settings(max_examples=20)
@given(st.integers(0, 0x10FFFF).filter(lambda letter: not 0xD800 <= letter < 0xE000), st.integers(20, 40))
def test_cut_bounds_of_text_hold(letter: int, count: int) -> None:
    text = chr(letter) * count
    encoded = encode_block(table_of([{"name": text}]), SCHEMA)
    field = SCHEMA.field("name").field_id
    low, high = (encoded.rows.column(f"{name}.{field}")[0].as_py() for name in ("low", "high"))
    assert low.encode() <= text.encode()
    assert high is None or high.encode() >= text.encode()
    assert max(len(bound.encode()) for bound in (low, high or "")) <= 32


def test_nested_columns_come_back() -> None:
    schema = TableSchema.of(
        pa.schema(
            [
                ("a.b", pa.int64()),
                (
                    "a",
                    pa.struct([("b", pa.list_(pa.struct([("c", pa.string()), ("d", pa.int8())]))), ("e", pa.bool_())]),
                ),
                ("m", pa.map_(pa.string(), pa.list_(pa.int32()))),
                ("last", pa.binary(2)),
            ]
        )
    )
    row = {
        "a.b": 1,
        "a": {"b": [{"c": "x", "d": 1}, {"c": None, "d": 2}], "e": True},
        "m": [("k", [1, 2])],
        "last": b"zz",
    }
    table = pa.Table.from_pylist([row, {}], schema=schema.arrow())
    encoded = encode_block(table, schema)
    data, block = encoded.data.to_pybytes(), encoded.under(KEY).to_pylist()[0]
    footer = decode_footer(data[len(data) - block["footer_size"] :], block, schema)
    for columns in (["last"], ["a.b"], ["a", "last"], ["m", "a.b"], schema.names):
        spans = spans_of(footer, 0, columns)
        parts = [data[span.offset : span.offset + span.length] for span in spans]
        found = decode_columns(footer, 0, columns, spans, parts)
        assert projected(found, 2, schema, schema, columns).to_pylist() == table.select(columns).to_pylist()
