"""What a write through Spark's interface may be asked for."""

from __future__ import annotations

import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

import slate_async as slate
from slate_async.spark.write import BatchWriter, StreamWriter
from slate_async.spark.write_options import WriteOptions

PATH = {"path": "/db"}


def schema(**columns: type) -> StructType:
    return StructType([StructField(name, kind()) for name, kind in columns.items()])


def options(given: dict[str, str], rows: StructType) -> WriteOptions:
    return WriteOptions.of({**PATH, **given}, rows, replace=False)


ROWS = schema(key=BinaryType, value=StringType, id=LongType)


def test_columns_are_found_by_name() -> None:
    there = schema(key=BinaryType, value=BinaryType, op=StringType, expire_time=TimestampType)
    assert list(options({}, there).rows.columns) == ["key", "value", "op", "expire_time"]
    asked = {"keyColumn": "k", "valueColumn": "v", "orderColumn": "id", "checkpointLocation": "/log"}
    found = options(asked, schema(v=StringType, id=LongType, k=StringType))
    assert found.rows.columns == {"key": "k", "value": "v", "order": "id"}
    assert found.duplicates == "last"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sortmode": "global", "orderColumn": "id"}, "sortMode='global'"),
        ({"valueColumn": "id", "orderColumn": "value"}, "column for value is bigint"),
        ({"valueColumn": "nothing"}, "no column 'nothing'"),
        ({}, "column id would be lost"),
        ({"opColumn": "id"}, "column for op is bigint"),
        ({"orderColumn": "id", "secret": "x"}, "unknown option secret"),
        ({"maxRowsPerTrigger": "1", "orderColumn": "id"}, "unknown option maxRowsPerTrigger"),
        ({"keyType": "string", "keyColumns": "id"}, "keyType=tuple, too; a key of one column is keyColumn=id of a"),
        ({"keyType": "string", "keyColumns": "id,value"}, "keyType=tuple, too$"),
        ({"orderColumn": "id", "path": ""}, "path is missing"),
        ({"orderColumn": "id", "path": "memory://db"}, "memory of one process"),
        ({"orderColumn": "id", "targetSstBytes": "0"}, "option targetSstBytes='0': a number of bytes"),
        ({"orderColumn": "id", "targetSstBytes": "64"}, "option targetSstBytes='64': .*at least 65536"),
        ({"orderColumn": "id", "targetSstBytes": "64m"}, "option targetSstBytes='64m': a number of bytes"),
        ({"orderColumn": "id", "jobId": "a" * 201}, "option jobId='a*': a job id is"),
        ({"orderColumn": "id", "appId": "a" * 150}, "option appId='a*': a job id is"),
        ({"orderColumn": "id", "jobLifetime": "nan"}, "option jobLifetime='nan'"),
        ({"orderColumn": "id", "timeout": "-1"}, "option timeout='-1'"),
        ({"orderColumn": "id", "timeout": "abc"}, "option timeout='abc': a positive number of seconds"),
    ],
)
def test_wrong_options_are_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(slate.InvalidError, match=said):
        options(given, ROWS)


def test_batches_and_streams_have_options_of_their_own() -> None:
    stream = options({"orderColumn": "id", "appId": "app"}, ROWS)
    with pytest.raises(slate.InvalidError, match="appId is for streams"):
        BatchWriter(stream)
    with pytest.raises(slate.InvalidError, match="jobId is for batch writes"):
        StreamWriter(options({"orderColumn": "id", "jobId": "load"}, ROWS))
