"""Keys of several parts, a column at a time: what `slate_async.codec.tuple_key` does with one key.

Arrow types: binary, string, integers, floats (as doubles), booleans, dates (as days since 1970) and timestamps (as
microseconds since 1970).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slate_async.codec.arrays import binary_scalar
from slate_async.codec.tuple_key import BYTES, FALSE, FLOAT, INT_BYTES, NULL, TEXT, TRUE, ZERO
from slate_async.errors import InvalidError

Bits = npt.NDArray[np.uint64]
SIGN = np.uint64(1 << 63)
TEXT_BODY = r"[^\x00]*\x00(?:\xff[^\x00]*\x00)*"
"""With its end; no part begins with FF, so where one ends is clear."""
INT_BODY = "|".join(
    [
        r"\x14|\x0c\x7f\xff{7}|\x0c[\x80-\xfe].{7}|\x1c[\x01-\x7f].{7}",
        *(rf"\x{ZERO + n:02x}[^\x00].{{{n - 1}}}|\x{ZERO - n:02x}[^\xff].{{{n - 1}}}" for n in range(1, INT_BYTES)),
    ]
)
"""No number has other bytes."""
SHOWN_BYTES = 64
SIZES = np.array([1 << 8 * n for n in range(INT_BYTES)], np.uint64)
NOTHING = binary_scalar(b"")


def check_part(kind: pa.DataType, name: str) -> None:
    """Raise `InvalidError` unless columns of the type can be parts of a key."""
    if not _is_text(kind) and not _is_whole(kind) and not pa.types.is_floating(kind) and not pa.types.is_boolean(kind):
        raise InvalidError(
            f"column {name} is {kind}; parts of a key are binary, string, integers, floats, booleans, dates or"
            " timestamps"
        )


def encode_columns(columns: Sequence[pa.Array]) -> pa.BinaryArray:
    """The keys whose parts are the rows of ``columns``, of equal lengths. Raises `InvalidError` for other types."""
    parts = [_encoded(column) for column in columns]
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, NOTHING)


def decode_columns(keys: pa.BinaryArray, schema: pa.Schema) -> list[pa.Array]:
    """The parts of ``keys``, of the types of ``schema``. Raises `InvalidError` that shows the first key which has not
    these parts, or a number that its type cannot hold."""
    for field in schema:
        check_part(field.type, field.name)
    pattern = "".join(f"(?P<p{number}>{_pattern(field)})" for number, field in enumerate(schema))
    found = pc.extract_regex(keys, f"(?s)^{pattern}$")
    _refuse(pc.and_(pc.is_null(found), pc.is_valid(keys)), keys, schema)
    parts = found.flatten()
    try:
        columns = [_decoded(part, field.type) for part, field in zip(parts, schema, strict=True)]
    except pa.ArrowInvalid as error:
        raise InvalidError(f"parts of keys are not {_said(schema)}: {error}") from error
    for part, column in zip(parts, columns, strict=True):
        if pa.types.is_floating(column.type):  # one number has one key, and some have no 32 bits
            _refuse(pc.not_equal(part, _encoded(column)), keys, schema)
    return columns


def _refuse(wrong: pa.BooleanArray, keys: pa.BinaryArray, schema: pa.Schema) -> None:
    if pc.any(wrong).as_py():
        key = keys[pc.index(wrong, True).as_py()].as_py()
        raise InvalidError(f"key {key[:SHOWN_BYTES]!r} has not the parts {_said(schema)}")


def _said(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_string(kind))


def _is_whole(kind: pa.DataType) -> bool:
    micros = pa.types.is_timestamp(kind) and kind.unit == "us"
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_date32(kind) or micros)


# ---- to bytes


def _encoded(column: pa.Array) -> pa.BinaryArray:
    kind = column.type
    check_part(kind, "of a key")
    if pa.types.is_null(kind):
        return pa.array([b"\0"] * len(column), pa.binary())
    if _is_text(kind):
        made = _encoded_text(column)
    elif pa.types.is_boolean(kind):
        made = pc.if_else(column, _byte(TRUE), _byte(FALSE))
    elif pa.types.is_floating(kind):
        made = _encoded_floats(column)
    else:
        made = _encoded_ints(_whole(column))
    return pc.if_else(pc.is_null(column), _byte(NULL), made) if column.null_count else made


def _byte(tag: int) -> pa.Scalar:
    return pa.scalar(bytes([tag]), pa.binary())


def _encoded_text(column: pa.Array) -> pa.BinaryArray:
    escaped = pc.replace_substring(column.cast(pa.binary()), pattern=b"\0", replacement=b"\0\xff")
    tag = _byte(BYTES if pa.types.is_binary(column.type) else TEXT)
    return pc.binary_join_element_wise(tag, escaped, _byte(0), NOTHING, null_handling="emit_null")


def _whole(column: pa.Array) -> pa.Array:
    days = column.cast(pa.int32()) if pa.types.is_date32(column.type) else column
    return days.cast(pa.int64())


def _encoded_floats(column: pa.Array) -> pa.BinaryArray:
    numbers = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False) + 0.0
    bits: Bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64)
    bits = np.where(np.isnan(numbers), bits & ~SIGN, bits)
    sortable = np.where(bits & SIGN, ~bits, bits | SIGN)
    rows = np.empty((len(sortable), 9), np.uint8)
    rows[:, 0] = FLOAT
    rows[:, 1:] = sortable.astype(">u8").view(np.uint8).reshape(-1, 8)
    return _joined(rows, np.ones(rows.shape, np.bool_))


def _encoded_ints(column: pa.Array) -> pa.BinaryArray:
    numbers = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    negative, size = numbers < 0, _magnitude_size(numbers)
    shifted = np.where(negative, numbers.view(np.uint64) - np.uint64(1), numbers.view(np.uint64))
    rows = np.empty((len(numbers), 9), np.uint8)
    rows[:, 1:] = shifted.astype(">u8").view(np.uint8).reshape(-1, 8)
    places = np.arange(9)
    first = (8 - size)[:, None]
    np.put_along_axis(rows, first, np.where(negative, ZERO - size, ZERO + size).astype(np.uint8)[:, None], 1)
    return _joined(rows, places[None, :] >= first)


def _magnitude_size(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Bytes of each without its sign: 0 for 0."""
    bits = numbers.view(np.uint64)
    return np.searchsorted(SIZES, np.where(numbers < 0, np.negative(bits), bits), side="right")


def _joined(rows: npt.NDArray[np.uint8], kept: npt.NDArray[np.bool_]) -> pa.BinaryArray:
    """The bytes of each row that are kept."""
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(kept.sum(axis=1), out=offsets[1:])
    data = rows[kept]
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


# ---- and back


def _pattern(field: pa.Field) -> str:
    kind = field.type
    if _is_text(kind):
        body = rf"\x{BYTES if pa.types.is_binary(kind) else TEXT:02x}{TEXT_BODY}"
    elif pa.types.is_boolean(kind):
        body = rf"[\x{FALSE:02x}\x{TRUE:02x}]"
    elif pa.types.is_floating(kind):
        body = rf"\x{FLOAT:02x}.{{8}}"
    else:
        body = INT_BODY
    return rf"\x00|{body}"


def _decoded(part: pa.BinaryArray, kind: pa.DataType) -> pa.Array:
    tags = pc.binary_slice(part, 0, 1)
    missing = pc.or_kleene(pc.is_null(part), pc.equal(tags, _byte(NULL)))
    if pa.types.is_boolean(kind):
        found = pc.equal(tags, _byte(TRUE))
    elif _is_text(kind):
        body = pc.binary_slice(part, 1, -1)
        found = pc.replace_substring(body, pattern=b"\0\xff", replacement=b"\0").cast(kind)
    elif pa.types.is_floating(kind):
        found = _decoded_floats(part, missing).cast(kind, safe=False)
    else:
        whole = _decoded_ints(part)
        found = (whole.cast(pa.int32()) if pa.types.is_date32(kind) else whole).cast(kind)
    return pc.if_else(missing, pa.scalar(None, kind), found)


def _bytes(part: pa.BinaryArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Offsets, and the bytes they point into."""
    _, offsets, data = part.buffers()
    cut = np.frombuffer(offsets, np.int32, len(part) + 1, 4 * part.offset).astype(np.int64)
    return cut, np.frombuffer(data if data is not None else b"", np.uint8)


def _decoded_floats(part: pa.BinaryArray, missing: pa.BooleanArray) -> pa.Array:
    bits = _numbers(part, 8)
    found = np.where(bits & SIGN, bits ^ SIGN, ~bits).view(np.float64)
    return pa.array(np.where(missing.to_numpy(zero_copy_only=False), 0.0, found))


def _decoded_ints(part: pa.BinaryArray) -> pa.Array:
    cut, data = _bytes(part)
    size = np.maximum(np.diff(cut) - 1, 0)
    tags = np.full(len(part), ZERO, np.int64)
    some = np.diff(cut) > 0
    tags[some] = data[cut[:-1][some]]
    bits = _numbers(part, 0)
    negative = (tags < ZERO) & (tags != NULL)
    # what is missing in front of a negative number is ones
    ones = np.where(size >= INT_BYTES, np.uint64(0), ~np.uint64(0) << (np.minimum(size, 7) * 8).astype(np.uint64))
    numbers = np.where(negative, (bits | ones) + np.uint64(1), bits).view(np.int64)
    return pa.array(numbers)


def _numbers(part: pa.BinaryArray, least: int) -> Bits:
    """What follows the tag of each, big-endian, of 8 bytes at most."""
    cut, data = _bytes(part)
    size = np.diff(cut) - 1
    rows = np.zeros((len(part), INT_BYTES), np.uint8)
    places = np.arange(INT_BYTES)[None, :]
    wanted = places >= (INT_BYTES - np.maximum(size, 0))[:, None]
    source = (cut[1:, None] - INT_BYTES + places)[wanted]
    rows[wanted] = data[source]
    found: Bits = rows.view(">u8").reshape(-1).astype(np.uint64)
    return found
