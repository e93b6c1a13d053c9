"""Rows and changes of a database as frames, read by call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from slate_async.errors import InvalidError
from slate_async.spark.arrow_types import struct_of
from slate_async.spark.database_size import broadcast_if_small, size
from slate_async.spark.lease import held_checkpoint
from slate_async.spark.options import OptionValue, as_strings
from slate_async.spark.plan import checkpoint_id
from slate_async.spark.read_options import ReadOptions, at_checkpoint
from slate_async.spark.registration import register_once
from slate_async.spark.source import register
from slate_async.spark.stream_options import StreamOptions
from slate_async.spark.stream_source import SlateChangesSource
from slate_async.spark.typed_rows import RowTypes
from slate_async.spark.worker import this_worker


def read(
    spark: SparkSession,
    path: str,
    *,
    schema: StructType | str | None = None,
    columns: Sequence[str] | None = None,
    **options: OptionValue,
) -> DataFrame:
    """A fresh DataFrame of the rows of the database at ``path`` (see docs/guide/spark.md for ``options``; ``None`` is
    as if not given).

    schema: names and types of columns, for keys and values that hold more than bytes
    columns: those of them that are read; what no column needs is not decoded

    Raises `InvalidError` for wrong ones."""
    if isinstance(columns, str):
        raise InvalidError(
            f"columns={columns!r}: a list of names, e.g. {[name.strip() for name in columns.split(',')]}"
        )
    given = as_strings({**options, "columns": None if columns is None or schema is not None else ",".join(columns)})
    wanted = ReadOptions.of({**given, "path": path})
    chosen, besides = (wanted.schema(), []) if schema is None else _pruned(struct_of(schema), columns, wanted.types)
    wanted.rows(chosen)
    register(spark)
    rows = spark.read.format("slate").options(**given).schema(chosen).load(wanted.path)
    return rows.drop(*besides) if besides else rows


def _pruned(schema: StructType, columns: Sequence[str] | None, types: RowTypes) -> tuple[StructType, list[str]]:
    """Those columns of ``schema``, and the parts of the key that are read besides, for it is decoded as a whole."""
    if columns is None:
        return schema, []
    if unknown := [name for name in columns if name not in schema.names]:
        raise InvalidError(f"there is no column {', '.join(unknown)} among {', '.join(schema.names)}")
    parts = types.key_columns if types.key_type == "tuple" and set(columns) & set(types.key_columns) else ()
    besides = [name for name in parts if name in schema.names and name not in columns]
    return StructType([schema[name] for name in (*columns, *besides)]), besides


@contextmanager
def reading(
    spark: SparkSession,
    path: str,
    *,
    schema: StructType | str | None = None,
    columns: Sequence[str] | None = None,
    **options: OptionValue,
) -> Iterator[DataFrame]:
    """As `read`, for the queries inside the block: all of them see the database as it was when the block began, and the
    checkpoint that sees to it is deleted at the end. This process makes, lengthens and deletes it, so it needs access
    to the database, too. Joined with others, a small one is copied to all tasks (`size`). Raises `InvalidError` if
    there is no such checkpoint, or database."""
    wanted = ReadOptions.of({**as_strings(options), "path": path})
    with ExitStack() as stack:
        if wanted.checkpoint is None:
            seen = stack.enter_context(held_checkpoint(wanted.path, wanted.metastore, wanted.lifetime_s))
        else:
            seen = this_worker().run(partial(checkpoint_id, wanted.checkpoint, wanted))
        given = at_checkpoint(options, seen)
        yield broadcast_if_small(read(spark, path, schema=schema, columns=columns, **given), size(path, **given))


def read_changes(spark: SparkSession, path: str, **options: OptionValue) -> DataFrame:
    """The changes of the database at ``path`` as a streaming DataFrame (see docs/guide/spark.md for ``options``;
    ``None`` is as if not given). Raises `InvalidError` for wrong ones."""
    given = as_strings(options)
    wanted = StreamOptions.of({**given, "path": path})
    register_once(spark, SlateChangesSource)
    return spark.readStream.format("slate-changes").options(**given).load(wanted.path)
