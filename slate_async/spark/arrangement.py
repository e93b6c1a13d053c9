"""Rows for a load as Spark makes them: columns chosen and typed, spread by ranges of keys, sorted.

Spark orders binary columns byte by byte without sign, as the engine does (tests/spark/test_load.py compares them).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    NumericType,
    StringType,
    TimestampType,
)

from slate_async.arguments import ttl_ms
from slate_async.errors import InvalidError
from slate_async.spark.options import check_choice

ColumnLike: TypeAlias = Column | str
"""A column, or the name of one."""
SortMode = Literal["global", "partition", "none"]
"""How rows are sorted before they are written."""
KEY, VALUE, OP, EXPIRE, ORDER, TTL = "key", "value", "op", "expire_time", "order", "ttl"
ADVICE = {
    KEY: ("binary, or a string (its UTF-8)", (BinaryType, StringType)),
    VALUE: ("binary, or a string (its UTF-8)", (BinaryType, StringType)),
    OP: ("a string, 'put' or 'delete'", (StringType,)),
    EXPIRE: ("a timestamp, or a whole number of milliseconds since 1970", (TimestampType, LongType, IntegerType)),
    TTL: ("a number of seconds", (NumericType,)),
}
"""What the columns of a load may be."""


def arrange(
    df: DataFrame,
    *,
    key: ColumnLike = KEY,
    value: ColumnLike = VALUE,
    op: ColumnLike | None = None,
    expire: ColumnLike | None = None,
    ttl: ColumnLike | float | None = None,
    order: ColumnLike | None = None,
    sort_mode: SortMode = "global",
    partitions: int | None = None,
) -> DataFrame:
    """``df`` as the rows of a load: columns ``key``, ``value``, and if asked for ``op`` and ``expire_time``.

    key, value: binary columns, or strings, stored as UTF-8. Columns of any other type must be encoded first
    op: a column of ``"put"`` and ``"delete"``; by default ``op``, and without it all are puts
    expire: when a row expires: a timestamp, or milliseconds since 1970; null for never. By default ``expire_time``, if
    it is there and ``ttl`` is not given
    ttl: or how many seconds after the query begins, as a number or a column; null for never
    order: the last one of equal keys by this column counts; it is not stored
    sort_mode: ``"global"``: spread by ranges of keys, which Spark samples, and sorted; ``"partition"``: the partitions
    are ranges of keys already, and are sorted; ``"none"``: they are sorted, too, by key and ``order``
    partitions: ranges of keys, and tasks, of a global sort; by default as adaptive execution likes

    Nothing runs yet. Raises `InvalidError` for columns that cannot be meant."""
    check_choice("sort_mode", sort_mode, SortMode)
    if partitions is not None and sort_mode != "global":
        raise InvalidError(f"partitions= goes with sort_mode='global', not {sort_mode!r}")
    if partitions is not None and (not isinstance(partitions, int) or partitions < 1):
        raise InvalidError(f"partitions={partitions!r}: a whole number of 1 or more")
    rows = _chosen(df, key, value, op, expire, ttl, order)
    if sort_mode == "global":
        rows = rows.repartitionByRange(KEY) if partitions is None else rows.repartitionByRange(partitions, KEY)
    if sort_mode != "none":
        rows = rows.sortWithinPartitions(KEY, *([] if order is None else [ORDER]))
    return rows.drop(ORDER)


def _chosen(
    df: DataFrame,
    key: ColumnLike,
    value: ColumnLike,
    op: ColumnLike | None,
    expire: ColumnLike | None,
    ttl: ColumnLike | float | None,
    order: ColumnLike | None,
) -> DataFrame:
    if expire is not None and ttl is not None:
        raise InvalidError("give one of expire= and ttl=")
    seconds = F.lit(ttl_ms(ttl) / 1000) if isinstance(ttl, int | float) else ttl
    if not isinstance(df, DataFrame):
        raise InvalidError(f"the rows of a load are a DataFrame of Spark, not {type(df).__name__}")
    op = OP if op is None and OP in df.columns else op
    expire = EXPIRE if expire is None and ttl is None and EXPIRE in df.columns else expire
    roles = {KEY: key, VALUE: value, OP: op, EXPIRE: expire, TTL: seconds, ORDER: order}
    try:
        rows = df.select(*[_column(said).alias(role) for role, said in roles.items() if said is not None])
        check_types({field.name: field.dataType for field in rows.schema})
    except AnalysisException as error:
        if isinstance(ttl, str) and f"`{ttl}`" in str(error):
            raise InvalidError(f"ttl={ttl!r} is no column; it is a number of seconds, or a column of them") from error
        raise
    if ttl is not None:
        now_ms = F.unix_millis(F.current_timestamp())
        expires = (now_ms + F.col(TTL) * 1000).cast("long")
        rows = rows.withColumn(EXPIRE, expires).drop(TTL)
    binary = {name: F.col(name).cast("binary") for name in (KEY, VALUE)}
    return rows.select(*[binary.get(name, F.col(name)).alias(name) for name in rows.columns])


def check_types(columns: Mapping[str, DataType]) -> None:
    """Raise `InvalidError` unless columns, by what they are for, have types that can be stored as it."""
    for role, kind in columns.items():
        wanted, kinds = ADVICE.get(role, ("", (DataType,)))
        if not isinstance(kind, kinds):
            raise InvalidError(f"the column for {role} is {kind.simpleString()}; it must be {wanted}")


def _column(said: ColumnLike) -> Column:
    return F.col(said) if isinstance(said, str) else said
