"""Options of batch reads with ``format("slate")``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import StructType

from slate_async.errors import InvalidError
from slate_async.spark.options import (
    DEFAULT_LIFETIME_S,
    DEFAULT_PARTITION_BYTES,
    Options,
    OptionValue,
    boolean,
    byte_count,
    names,
    natural,
    positive,
    seconds,
    time,
)
from slate_async.spark.typed_rows import RowReader, RowTypes

DEFAULT_BATCH_ROWS = 32_768
MOST_BATCH_ROWS = 65_536
LIFETIME = "checkpointLifetime"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a batch read is asked for.

    path, metastore: as of `slate_async.open`
    checkpoint: id or name; ``None``: one is made for the job, of ``lifetime_s`` seconds, lengthened while tasks run
    start, end: the keys ``[start, end)``; a prefix has become both
    types: what keys and values hold
    columns: those that are read if no schema is given; ``None`` for all
    at_seq, at_time: the database as of then (one of them)
    partition_bytes: stored bytes for each partition
    batch_rows: rows of an Arrow batch
    push_filters: whether comparisons of the key in a query narrow what is read; docs/guide/spark.md says
        when not to ask for it
    """

    path: str
    metastore: str | None
    checkpoint: str | None
    lifetime_s: float
    start: bytes | None
    end: bytes | None
    prefix: bytes | None
    types: RowTypes
    columns: tuple[str, ...] | None
    at_seq: int | None
    at_time: float | None
    partition_bytes: int
    batch_rows: int
    push_filters: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        """Raises `InvalidError` for unknown options and wrong values, by name."""
        given = Options(options)
        encoding = given.choice("keyEncoding", ("utf-8", "hex"), "utf-8")

        def key(text: str) -> bytes:
            return _unhexed(text) if encoding == "hex" else text.encode()

        read = cls(
            path=given.path(),
            metastore=given.take("metastore", str, None),
            checkpoint=given.take("checkpoint", str, None),
            lifetime_s=given.take(LIFETIME, seconds, DEFAULT_LIFETIME_S),
            start=given.take("startKey", key, None),
            end=given.take("endKey", key, None),
            prefix=given.take("prefix", key, None),
            types=RowTypes.of(given),
            columns=given.take("columns", names, None),
            at_seq=given.take("atSeq", natural, None),
            at_time=given.take("atTime", time, None),
            partition_bytes=given.take("partitionBytes", byte_count, DEFAULT_PARTITION_BYTES),
            batch_rows=given.take("batchRows", positive, DEFAULT_BATCH_ROWS),
            push_filters=given.take("pushFilters", boolean, False),
        )
        given.finish()
        if read.at_seq is not None and read.at_time is not None:
            raise InvalidError("give one of the options atSeq and atTime")
        if read.start is not None and read.end is not None and read.start > read.end:
            raise InvalidError(f"option startKey={read.start!r} is above option endKey={read.end!r}")
        if read.checkpoint is not None and LIFETIME.lower() in map(str.lower, options):
            raise InvalidError(
                "option checkpointLifetime is of a checkpoint that is made; option checkpoint names another"
            )
        if read.push_filters and read.types.key_type != "binary":
            raise InvalidError("option pushFilters compares keys as they are stored: it goes with keyType=binary")
        if read.batch_rows > MOST_BATCH_ROWS:
            raise InvalidError(f"option batchRows={read.batch_rows}: at most {MOST_BATCH_ROWS}")
        return read

    def schema(self) -> StructType:
        """What is read if no schema is given. Raises `InvalidError` where only a schema can tell."""
        return self.types.plain_schema(self.columns)

    def rows(self, schema: StructType) -> RowReader:
        """What makes rows of ``schema``. Raises `InvalidError` for one that cannot be meant."""
        if self.columns is not None and list(self.columns) != schema.names:
            raise InvalidError("a schema says which columns are read: option columns goes without one")
        return RowReader(self.types, schema)


def at_checkpoint(options: Mapping[str, OptionValue], checkpoint: str) -> dict[str, OptionValue]:
    """``options`` of a read, with the id of the checkpoint it sees."""
    return {
        **{name: value for name, value in options.items() if name.lower() not in (LIFETIME.lower(), "checkpoint")},
        "checkpoint": checkpoint,
    }


def _unhexed(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ValueError("pairs of hexadecimal digits, for keyEncoding is hex, e.g. 757365723a") from None
