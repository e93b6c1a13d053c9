"""Keys of parts: their order, their bytes, one by one and a column at a time."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slate_async.codec.tuple_columns import decode_columns, encode_columns
from slate_async.codec.tuple_key import pack, unpack
from slate_async.errors import InvalidError

INTS = (
    st.integers(-(1 << 63), (1 << 63) - 1)
    | st.integers(-70_000, 70_000)
    | st.sampled_from([sign * ((1 << 8 * n) + more) for n in range(8) for sign in (1, -1) for more in (-1, 0, 1)])
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.text("\0a\x01ÿ")
BLOBS = st.binary() | st.lists(st.sampled_from([b"\0", b"\xff", b"a"])).map(b"".join)
FLOATS = st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, math.inf, -math.inf, 5e-324])
KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): INTS,
    pa.int32(): st.integers(-(1 << 31), (1 << 31) - 1),
    pa.int8(): st.integers(-128, 127),
    pa.string(): TEXTS,
    pa.binary(): BLOBS,
    pa.float64(): FLOATS,
    pa.float32(): st.floats(allow_nan=False, width=32),
    pa.bool_(): st.booleans(),
}


def rows_of(kinds: list[pa.DataType]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    return st.lists(st.tuples(*(st.none() | KINDS[kind] for kind in kinds)), min_size=1, max_size=20)


TABLES = st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=4).flatmap(
    lambda kinds: st.tuples(st.just(kinds), rows_of(kinds))
)


def ranked(row: tuple[Any, ...]) -> tuple[tuple[bool, Any], ...]:
    """``None`` comes first."""
    return tuple((part is not None, part if part is not None else 0) for part in row)


def columns_of(kinds: list[pa.DataType], rows: list[tuple[Any, ...]]) -> list[pa.Array]:
    return [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)]


@given(TABLES)
def test_bytes_sort_as_the_parts_do(table: tuple[list[pa.DataType], list[tuple[Any, ...]]]) -> None:
    _, rows = table
    keys = {row: pack(*row) for row in rows}
    for row in rows:
        for other in rows:
            assert (keys[row] < keys[other]) == (ranked(row) < ranked(other))
            assert (keys[row] == keys[other]) == (ranked(row) == ranked(other))


def rows_in(columns: list[pa.Array]) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


@given(TABLES)
def test_columns_make_the_same_bytes_and_come_back(table: tuple[list[pa.DataType], list[tuple[Any, ...]]]) -> None:
    kinds, rows = table
    columns = columns_of(kinds, rows)
    keys, as_stored = encode_columns(columns), rows_in(columns)
    assert keys.to_pylist() == [pack(*row) for row in as_stored]
    schema = pa.schema([pa.field(f"c{at}", kind) for at, kind in enumerate(kinds)])
    padded = pa.concat_arrays([pa.array([b"?"], pa.binary()), keys]).slice(1)  # offsets that do not begin at 0
    assert [part.to_pylist() for part in decode_columns(padded, schema)] == [column.to_pylist() for column in columns]
    assert [unpack(key) for key in keys.to_pylist()] == as_stored


def damaged(keys: list[bytes]) -> st.SearchStrategy[bytes]:
    """A key in which some bytes are others, more or fewer."""
    some = st.binary(max_size=3) | st.sampled_from([b"\0", b"\xff", b"\x7f" + b"\xff" * 7, b"\x21" + b"\xff" * 8])
    return st.tuples(st.sampled_from(keys), st.integers(0, 40), st.integers(0, 9), some).map(
        lambda drawn: drawn[0][: drawn[1]] + drawn[3] + drawn[0][drawn[1] + drawn[2] :]
    )


def fitting(kinds: list[pa.DataType], key: bytes) -> list[Any] | None:
    """The parts of ``key`` as columns of ``kinds`` hold them, if they can."""
    try:
        parts = unpack(key)
        columns = [pa.array([part], kind) for part, kind in zip(parts, kinds, strict=True)]
    except (InvalidError, ValueError, TypeError, OverflowError):
        return None
    held = [column[0].as_py() for column in columns]
    same = all(type(one) is type(part) for one, part in zip(held, parts, strict=True))
    return held if same and pack(*held) == key else None


KEYS_OF_TABLES = TABLES.flatmap(
    lambda table: st.tuples(st.just(table[0]), damaged([pack(*row) for row in rows_in(columns_of(*table))]))
)


@given(KEYS_OF_TABLES)
@example(([pa.float64()], bytes.fromhex("217fffffffffffffff")))
@example(([pa.float64()], bytes.fromhex("21fff8000000000001")))
@example(([pa.float32()], pack(0.1)))
@example(([pa.string()], b"\x02\xed\xa0\x80\0"))
def test_columns_refuse_what_single_keys_refuse(drawn: tuple[list[pa.DataType], bytes]) -> None:
    kinds, key = drawn
    schema = pa.schema([pa.field(f"c{at}", kind) for at, kind in enumerate(kinds)])
    wanted = fitting(kinds, key)
    if wanted is None:
        with pytest.raises(InvalidError, match=r"parts"):
            decode_columns(pa.array([key], pa.binary()), schema)
    else:
        found = [column[0].as_py() for column in decode_columns(pa.array([key], pa.binary()), schema)]
        assert [pack(part) for part in found] == [pack(part) for part in wanted]  # as NaN is equal to nothing


def test_numbers_have_one_key_in_columns_too() -> None:
    for number in (-0.0, math.nan, 1e300, 0.1):
        assert decode_columns(pa.array([pack(number)]), pa.schema([("a", pa.float64())]))[0].type == pa.float64()
    refused = ["217fffffffffffffff", "21ffffffffffffffff", "210000000000000000", "21fff8000000000001"]
    for key in map(bytes.fromhex, refused):
        with pytest.raises(InvalidError, match="has not the parts a double"):
            decode_columns(pa.array([None, pack(1.0), key], pa.binary()), pa.schema([("a", pa.float64())]))
    for number in (1e300, 0.1):
        with pytest.raises(InvalidError, match="has not the parts a float"):
            decode_columns(pa.array([pack(number)]), pa.schema([("a", pa.float32())]))


def test_bytes_are_those_of_foundationdb() -> None:
    """Examples of its documentation of the tuple layer."""
    assert pack(b"foo\0bar") == b"\x01foo\0\xffbar\0"
    assert pack("F\u00d4O\0bar") == b"\x02F\xc3\x94O\0\xffbar\0"
    assert pack(-5551212) == b"\x11\xabK\x93"
    assert pack(0, 1, -1, 255, 256) == b"\x14\x15\x01\x13\xfe\x15\xff\x16\x01\x00"
    assert pack(True, False, None) == b"\x27\x26\x00"
    assert pack(-42.0) == bytes.fromhex("213fbaffffffffffff")
    assert pack(-0.0) == pack(0.0) == bytes.fromhex("218000000000000000")
    assert pack(math.nan) == pack(-math.nan) > pack(math.inf)


def test_times_are_numbers() -> None:
    day, moment = date(1969, 12, 31), datetime(2026, 11, 22, 1, 2, 3, 4, UTC)
    schema = pa.schema([("day", pa.date32()), ("time", pa.timestamp("us", "UTC"))])
    keys = encode_columns([pa.array([day, None], pa.date32()), pa.array([moment, moment], schema.field("time").type)])
    assert unpack(keys[0].as_py()) == (-1, int(moment.timestamp()) * 1_000_000 + 4)
    assert [column.to_pylist() for column in decode_columns(keys, schema)] == [[day, None], [moment, moment]]


@pytest.mark.parametrize(
    "key",
    [b"\x02a", b"\x02\xff\0", b"\x15", b"\x15\0", b"\x1d123456789", b"\x16\0\x01", b"\x21123", b"\x03", b"\xff",
     b"\x13\xff", b"\x1d\x08" + b"\xff" * 8, b"\x0b\xf7" + b"\0" * 8],
)  # fmt: skip
def test_what_is_no_key_of_parts_is_refused(key: bytes) -> None:
    with pytest.raises(InvalidError, match="is no key of parts"):
        unpack(key)
    for kind in (pa.int64(), pa.string(), pa.float64()):
        with pytest.raises(InvalidError, match="parts"):
            decode_columns(pa.array([b"\0", key]), pa.schema([("a", kind)]))


def test_other_parts_than_asked_for_are_refused() -> None:
    keys = pa.array([pack(1, "a"), pack(1 << 40, "b"), pack("a")])
    with pytest.raises(InvalidError, match=r"key b'\\x02a\\x00' has not the parts a int64, b string"):
        decode_columns(keys, pa.schema([("a", pa.int64()), ("b", pa.string())]))
    with pytest.raises(InvalidError, match="a int32, b string: Integer value 1099511627776 not in range"):
        decode_columns(keys[:2], pa.schema([("a", pa.int32()), ("b", pa.string())]))
    with pytest.raises(InvalidError, match="column a is list"):
        decode_columns(keys, pa.schema([("a", pa.list_(pa.int32()))]))


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1, 1 << 200])
def test_columns_have_integers_of_64_bits(number: int) -> None:
    with pytest.raises(InvalidError, match="has not the parts a int64"):
        decode_columns(pa.array([pack(number)]), pa.schema([("a", pa.int64())]))
