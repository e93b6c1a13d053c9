"""Types that Parquet lacks, and what is stored in their place: the integers of which they are made.

Nothing is converted, so no value is lost, however large it is.
"""

from __future__ import annotations

import pyarrow as pa

from slate_async.collections.core.updates import UpdateSchema

_INTEGERS = {
    pa.date64(): pa.int64(),
    pa.time32("s"): pa.int32(),
}


def stored_schema(schema: UpdateSchema) -> pa.Schema:
    """The columns as Parquet knows them: types that it lacks are the integers of which they are made."""
    return pa.schema([field.with_type(_stored_type(field.type)) for field in schema.arrow])


def _stored_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.unit == "s":
        return pa.int64()
    return _INTEGERS.get(kind, kind)


def with_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """``table``, its columns read as those of ``schema``, without a copy."""
    if table.schema.equals(schema):
        return table
    columns = [
        pa.chunked_array([chunk.view(field.type) for chunk in column.chunks], field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)
