"""Keys of parts as expressions of Spark: the bytes that the engine makes of them, and back."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import slate_async as slate
from slate_async import spark as slate_spark

pytestmark = pytest.mark.timeout(300)
LONGS = sorted({0, *(sign * (1 << 8 * n) + more for n in range(8) for sign in (1, -1) for more in (-1, 0, 1))})
TIMES = [datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), datetime(2026, 10, 25, 1, 30, tzinfo=UTC)]
S = "a int, b string"
VALUES: dict[str, list[Any]] = {
    "bigint": [-(1 << 63), *LONGS, (1 << 63) - 1],
    "int": [-(1 << 31), -1, 0, 300, (1 << 31) - 1],
    "tinyint": [-128, 0, 127],
    "string": ["", "\0", "\0a", "a", "a\0", "a\0ÿ", "a\nb", "ÿ", "€", "\U0001f600", "x" * 20_000],
    "binary": [b"", b"\0", b"\0\xff", b"\x01", b"\x7f", b"\x80", b"\xff", b"\xff\0"],
    "double": [-math.inf, -1e300, -1.5, -5e-324, 0.0, 5e-324, 1.0, math.pi, math.inf, math.nan],
    "float": [-1.5, 0.0, 3.25],
    "boolean": [False, True],
    "date": [date(1969, 12, 31), date(2026, 11, 22)],
    "timestamp": TIMES,
}


def plain(value: Any) -> Any:
    """As `slate.keys.pack` takes it."""
    if isinstance(value, datetime):
        return round((value - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000)
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else value


def test_the_bytes_are_the_engines_and_come_back(spark: SparkSession) -> None:
    columns = [[None, *values] for values in VALUES.values()]
    rows = [tuple(values[at % len(values)] for values in columns) for at in range(max(map(len, columns)))]
    parts = ", ".join(f"{kind}_part {kind}" for kind in VALUES)
    df = spark.createDataFrame(rows, parts).repartition(2)
    keyed = df.select(slate_spark.encode_key(*df.columns).alias("key"), F.struct("*").alias("row"))
    made = {bytes(row.key): tuple(row.row) for row in keyed.collect()}
    assert made.keys() == {slate.keys.pack(*map(plain, row)) for row in rows}
    decoded = slate_spark.decode_key(keyed, parts)
    assert decoded.dtypes[:-1] == df.dtypes
    assert decoded.filter(F.struct(*df.columns).eqNullSafe(F.col("row"))).count() == len(rows)


def test_spark_sorts_keys_as_their_parts(spark: SparkSession) -> None:
    rows = [(at % 7 - 3 if at % 5 else None, "\0" * (at % 3) + chr(97 + at % 4)) for at in range(200)]
    df = spark.createDataFrame(rows, "a int, b string")
    keyed = df.select("a", "b", slate_spark.encode_key("a", "b").alias("key"))
    by_key = [(row.a, row.b) for row in keyed.orderBy("key").collect()]
    assert by_key == [(row.a, row.b) for row in df.orderBy("a", "b").collect()]


def test_other_keys_are_refused(spark: SparkSession) -> None:
    def decoded(*parts: Any) -> Any:
        return slate_spark.decode_key(spark.createDataFrame([(bytearray(slate.keys.pack(*parts)),)], "key binary"), S)

    with pytest.raises(PySparkException, match=r"InvalidError: key b.* has not the parts a int32, b string"):
        decoded("a", 1).collect()
    with pytest.raises(PySparkException, match="Integer value 1099511627776 not in range"):
        decoded(1 << 40, "a").collect()
    keys = spark.range(1).select(F.array("id").alias("key"), F.lit(1).alias("seq"))
    with pytest.raises(PySparkException, match="parts of a key are binary, string"):
        keys.select(slate_spark.encode_key("key")).collect()
    for schema, said in (("a array<int>", "column a is list"), ("a int key", "is no schema"), ("seq int", "seq would")):
        with pytest.raises(slate.InvalidError, match=said):
            slate_spark.decode_key(keys, schema)
    with pytest.raises(slate.InvalidError, match="one part at least"):
        slate_spark.encode_key()
