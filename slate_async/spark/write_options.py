"""Options of writes with ``format("slate")``, batch or stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast, get_args
from uuid import UUID

from pyspark.sql.types import StructType

import slate_async as slate
from slate_async.engine.ingest.manage import check_job
from slate_async.engine.ingest.rows import Duplicates
from slate_async.engine.ingest.watch import MODES, IngestMode, check_mode
from slate_async.spark.arrangement import EXPIRE, KEY, OP, ORDER, VALUE, check_types
from slate_async.spark.known_job import OnKnown
from slate_async.spark.options import Options, boolean, byte_count, seconds
from slate_async.spark.typed_rows import RowTypes, RowWriter
from slate_async.types import MAX_SEQ

DEFAULT_LIFETIME_S = 86_400.0
DEFAULT_TIMEOUT_S = 120.0
LEAST_SST_BYTES = 64 << 10
"""A smaller number probably means another unit; a load of such small SSTs makes thousands of them."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a write is asked for; see `slate_async.spark.bulk_load` for what they mean there.

    rows: makes rows as they are stored of the frame's
    sorted: whether each partition comes sorted by key, then order, so that none is kept in memory to sort it
    app_id: of a stream: its name, under which its batches are counted; ``None``: the id of its query
    checkpoint_location: Spark's own, of a stream
    replace: whether the rows are to be all there is
    first_batch: of a stream of which the database knows nothing: the last batch that may come first
    create: whether a database that is missing is made
    leased: of a frame without a job id: the job ends with its driver, which alone knows its name
    """

    path: str
    metastore: str | None
    rows: RowWriter
    sorted: bool
    sst_bytes: int | None
    mode: IngestMode
    job_id: str | None
    lifetime_s: float
    wait: bool
    timeout_s: float
    app_id: str | None
    checkpoint_location: str | None
    on_known: OnKnown
    replace: bool
    first_batch: int
    create: bool = True
    leased: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, *, replace: bool) -> WriteOptions:
        """Raises `InvalidError` for unknown options, wrong values, and columns that cannot be meant, by name."""
        given = Options(options)
        write = cls(
            path=given.path(),
            metastore=given.take("metastore", str, None),
            rows=_rows(given, schema),
            sorted=given.choice("sortMode", ("partition", "none"), "partition") == "none",
            sst_bytes=given.take("targetSstBytes", sst_bytes, None),
            mode=check_mode(given.choice("ingestMode", MODES, "auto")),
            job_id=given.take("jobId", _job_id, None),
            lifetime_s=given.take("jobLifetime", seconds, DEFAULT_LIFETIME_S),
            wait=given.take("wait", boolean, True),
            timeout_s=given.take("timeout", seconds, DEFAULT_TIMEOUT_S),
            app_id=given.take("appId", _app_id, None),
            checkpoint_location=given.take("checkpointLocation", str, None),
            on_known=cast(OnKnown, given.choice("onKnown", get_args(OnKnown), "error")),
            replace=replace,
            first_batch=given.take("firstBatch", _batch_id, 0),
        )
        given.finish()
        return write

    @property
    def settings(self) -> slate.Settings:
        """Of the job."""
        return slate.Settings() if self.sst_bytes is None else slate.Settings(sst_bytes=self.sst_bytes)

    @property
    def digested(self) -> bool:
        """Whether its job may be asked for again by a name its user knows; a stream's batch is known by its number."""
        return self.job_id is not None

    @property
    def compared(self) -> bool:
        """Whether rows under a name that is known must be those that are in."""
        return self.job_id is not None and self.on_known == "error"

    @property
    def duplicates(self) -> Duplicates:
        """What becomes of equal keys."""
        return "last" if ORDER in self.rows.columns else "error"


def sst_bytes(number: str | int) -> int:
    """Where SSTs are cut, in bytes. Raises `InvalidError` for what no load can mean, or the setting may not be."""
    found = byte_count(str(number))
    if found < LEAST_SST_BYTES:
        raise slate.InvalidError(f"a number of bytes, at least {LEAST_SST_BYTES}; 67108864 is 64 MiB")
    return slate.Settings(sst_bytes=found).sst_bytes


def batch_job(app_id: str, batch_id: int) -> str:
    """The name of the job that loads a batch of a stream, for every driver of it."""
    return f"{app_id}/{batch_id}"


def query_job(app_id: str, query_id: str, batch_id: int) -> str:
    """As `batch_job`, of a query whose id is known: others of the same app have other jobs."""
    return batch_job(app_id if app_id == query_id else f"{app_id}/{query_id}", batch_id)


def _job_id(text: str) -> str:
    check_job(text)
    return text


def _batch_id(text: str) -> int:
    if not text.isdecimal():
        raise ValueError("the number of a batch, from 0 on")
    return int(text)


def _app_id(text: str) -> str:
    check_job(query_job(text, str(UUID(int=0)), MAX_SEQ), (text, 0))
    return text


def _rows(given: Options, schema: StructType) -> RowWriter:
    types = RowTypes.of(given)
    wanted = {
        KEY: given.take("keyColumn", str, None if types.key_type == "tuple" else KEY),
        VALUE: given.take("valueColumn", str, VALUE if types.value_format == "none" else None),
        OP: given.take("opColumn", str, OP if OP in schema.names else None),
        EXPIRE: given.take("expireColumn", str, EXPIRE if EXPIRE in schema.names else None),
        ORDER: given.take("orderColumn", str, None),
    }
    columns = {role: name for role, name in wanted.items() if name is not None}
    if KEY in columns and types.key_type == "tuple":
        raise slate.InvalidError("option keyColumn is of one column; a key of several has keyColumns")
    if VALUE in columns and types.value_format != "none":
        raise slate.InvalidError("option valueColumn is of values as they are; valueFormat makes them of columns")
    for role, name in columns.items():
        if name not in schema.names:
            raise slate.InvalidError(f"there is no column {name!r} for {role} among {', '.join(schema.names)}")
    check_types({role: schema[name].dataType for role, name in columns.items()})
    rows = RowWriter(types, columns, schema)
    if rows.unused:
        raise slate.InvalidError(
            f"column {', '.join(rows.unused)} would be lost: a row is stored as key and value. Drop it, or say what it"
            " is by keyColumn, valueColumn, opColumn, expireColumn, orderColumn, keyColumns or valueFormat"
        )
    return rows
