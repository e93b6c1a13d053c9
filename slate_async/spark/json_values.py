"""Values that are JSON objects, read and made a column at a time."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from slate_async.codec.arrays import binary_array
from slate_async.errors import InvalidError
from slate_async.spark.arrow_types import with_texts

VALUE, END = b"slate_async value", b"slate_async end"
"""Members that no value has."""
BEFORE, AFTER = b'{"%s":[' % VALUE, b',{"%s":true}]}' % END
CONTROLS = [chr(code) for code in range(32)]
NULL = binary_array([b"null"], pa.string())[0]


def decode_json_values(values: pa.BinaryArray, schema: pa.Schema) -> list[pa.Array]:
    """Of each value, an object, the members of ``schema``; what it lacks is null. Raises `pa.ArrowInvalid` if one is
    no such object, or more than one.

    Each stands in a list, before an end: an object, and nothing else, makes a list of these two."""
    if not len(values):
        return [pa.array([], field.type) for field in schema]
    read = pa.schema([(VALUE.decode(), pa.list_(pa.struct([*with_texts(schema), (END.decode(), pa.bool_())])))])
    values.cast(pa.string())  # the reader does not look whether text is UTF-8
    whole = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    text = BEFORE + pc.binary_join(whole, AFTER + b"\n" + BEFORE)[0].as_py() + AFTER
    table = pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=pj.ParseOptions(read, newlines_in_values=True, unexpected_field_behavior="ignore"),
    )
    pairs = table.column(0).combine_chunks()
    items = pairs.flatten()
    ends = items.field(END.decode())[1::2]
    objects = items.take(pa.array(range(0, len(items), 2), pa.int64()))
    in_pairs = len(pairs) == len(values) and pc.all(pc.equal(pc.list_value_length(pairs), 2)).as_py()
    if not in_pairs or ends.true_count < len(values) or objects.null_count:
        raise pa.ArrowInvalid("a value is not one JSON object")
    return [objects.field(field.name).cast(field.type) for field in schema]


def encode_json_values(columns: list[pa.Array], names: list[str]) -> pa.BinaryArray:
    """Objects of the rows of ``columns``; members that are null are left out. Raises `InvalidError` for what JSON has
    not: binary, and floats that are no numbers."""
    return _object(columns, names, len(columns[0])).cast(pa.binary())


def _object(columns: list[pa.Array], names: list[str], rows: int) -> pa.StringArray:
    if not names:
        return pa.array(["{}"] * rows)
    quoted = _quoted(pa.array(names)).to_pylist()
    members = [
        pc.fill_null(pc.binary_join_element_wise(f",{name}:", _text(column, path), ""), "")
        for name, path, column in zip(quoted, names, columns, strict=True)
    ]
    inner = pc.ascii_ltrim(pc.binary_join_element_wise(*members, ""), ",")
    return pc.binary_join_element_wise("{", inner, "}", "")


def _text(column: pa.Array, path: str) -> pa.StringArray:
    """Each as JSON; null for null."""
    kind = column.type
    if pa.types.is_struct(kind):
        inner = _object(column.flatten(), [field.name for field in kind], len(column))
        return pc.if_else(column.is_valid(), inner, None)
    if pa.types.is_list(kind):
        lengths = pc.fill_null(pc.list_value_length(column), 0)
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
        items = pa.ListArray.from_arrays(offsets, pc.fill_null(_text(column.flatten(), path), NULL))
        return pc.if_else(
            column.is_valid(), pc.binary_join_element_wise("[", pc.binary_join(items, ","), "]", ""), None
        )
    if pa.types.is_floating(kind) and not pc.all(pc.is_finite(column)).as_py() and len(column) > column.null_count:
        raise InvalidError(f"column {path} holds NaN or infinity, which JSON has not")
    if pa.types.is_string(kind):
        return _quoted(column)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _quoted(pc.replace_substring(column.cast(pa.string()), " ", "T"))
    if pa.types.is_binary(kind):
        raise InvalidError(f"column {path} is binary, which JSON has not; use valueFormat arrow or msgpack")
    return column.cast(pa.string())


def _quoted(column: pa.StringArray) -> pa.StringArray:
    escaped = pc.replace_substring(pc.replace_substring(column, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(escaped, r"[\x00-\x1f]")).as_py():
        for control in CONTROLS:
            escaped = pc.replace_substring(escaped, control, f"\\u{ord(control):04x}")
    return pc.binary_join_element_wise('"', escaped, '"', "")
