"""A file of row ids that are deleted: Parquet with the one column `ROW_ID`, ascending."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from slate_async.errors import CorruptionError
from slate_async.tables.core.chain import DELETE_FILE
from slate_async.tables.core.row_ids import RowIds, is_set
from slate_async.tables.core.schema import ROW_ID

_FILE = pa.schema([pa.field(ROW_ID, pa.int64(), nullable=False)])


def encode_deletes(ids: RowIds) -> pa.Buffer:
    """``ids``, a set, as an object."""
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays([pa.array(ids, pa.int64())], schema=_FILE)
    encoding = {ROW_ID: "DELTA_BINARY_PACKED"}
    pq.write_table(table, sink, compression="zstd", use_dictionary=False, column_encoding=encoding)
    return sink.getvalue()


def described(key: str, ids: RowIds, data: pa.Buffer) -> pa.Table:
    """What a link says of it. ``ids`` are not empty."""
    row = {"key": key, "first_row": int(ids[0]), "last_row": int(ids[-1]), "rows": len(ids)}
    row |= {"size": data.size, "hash": xxhash.xxh3_128_digest(data)}
    return pa.Table.from_pylist([row], schema=DELETE_FILE)


def decode_deletes(data: bytes, file: Mapping[str, Any]) -> RowIds:
    """The set in the object that ``file``, a row as `DELETE_FILE` has it, describes. Raises `CorruptionError`."""
    key = file["key"]
    if len(data) != file["size"] or xxhash.xxh3_128_digest(data) != file["hash"]:
        raise CorruptionError("it is not what was written", object_name=key)
    try:
        column = pq.read_table(pa.BufferReader(data), schema=_FILE).column(ROW_ID).combine_chunks()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptionError(f"it does not decode: {error}", object_name=key) from error
    ids: RowIds = np.asarray(column.to_numpy(zero_copy_only=False), np.int64)
    if column.null_count or len(ids) != file["rows"] or not is_set(ids):
        raise CorruptionError("it does not hold what its link says", object_name=key)
    return ids
