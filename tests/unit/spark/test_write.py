"""What Spark calls of a writer, called by hand: in tasks, and to commit."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, StructField, StructType

import slate_async as slate
from slate_async.spark.write import BatchWriter, Written
from slate_async.spark.write_options import WriteOptions

ROWS = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
BATCH = pa.record_batch({"key": [b"a", b"b"], "value": [b"1", b"2"]})


def writer(path: Path, **options: str) -> BatchWriter:
    given = {"path": str(path), "jobId": "load", **options}
    return BatchWriter(WriteOptions.of(given, ROWS), overwrite=False)


def test_what_another_driver_committed_and_withdrew_is_no_load_of_nothing(tmp_path: Path) -> None:
    async def commit_elsewhere() -> None:
        await (await slate.open(tmp_path)).close()
        async with slate.open_ingest(tmp_path, job_id="load") as job:
            await job.write([pa.Table.from_batches([BATCH])])
            await job.commit(wait=False)

    async def withdraw() -> None:
        async with slate.open_admin(tmp_path) as admin:
            await admin.withdraw_ingest("load")

    asyncio.run(commit_elsewhere())
    load = writer(tmp_path, ingestMode="exclusive")
    told = load.write(iter([BATCH]))
    assert told == Written((), committed_before=True)
    asyncio.run(withdraw())
    with pytest.raises(slate.ConflictError, match="withdrawn meanwhile; write again"):
        load.commit([told])
    load.abort([told])
    again = load.write(iter([BATCH]))
    assert len(again.ssts) == 1
    load.commit([again])

    async def rows() -> list[tuple[bytes, bytes]]:
        async with slate.open_reader(tmp_path) as reader:
            return [row async for row in reader.scan()]

    assert asyncio.run(rows()) == [(b"a", b"1"), (b"b", b"2")]
